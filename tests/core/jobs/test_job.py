"""Jobs as people write them: what they become, what is refused and by which field, and that they can be shown again."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.cron import Cron, Dst
from gnomon.core.instants import instant_of
from gnomon.core.jobs.export import job_as_data
from gnomon.core.jobs.job import JOB_FIELDS, Job, read_job, read_job_timing, warnings
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.jobs.steps import RETRY_FIELDS, STEP_FIELDS
from gnomon.core.model import Catchup, Overlap, Spec
from gnomon.core.runs.workflow import ONLY_STEP, Delivery, Isolation, RetryPolicy, Step
from gnomon.core.triggers import At, Every, OnDemand
from gnomon.errors import CronError, FieldError
from support.processor_time import is_done_within

NOW = 1_772_000_000_000
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
USUAL: dict[str, Any] = {"name": "billing", "function": "team/app/bill"}
GRAPH: list[dict[str, Any]] = [
    {"step": "extract", "function": "etl/extract"},
    {"step": "left", "function": "etl/left", "depends_on": ["extract"]},
    {"step": "right", "function": "etl/right", "depends_on": ["extract"], "timeout": "5m"},
    {"step": "load", "function": "etl/load", "depends_on": ["left", "right"]},
]


def job(defaults: Defaults | None = None, /, **said: Any) -> Job:  # noqa: ANN401 - whatever a job may say
    return read_job({**USUAL, **said}, defaults or Defaults(), now=NOW)


def graph(*steps: Mapping[str, Any], **said: Any) -> Job:  # noqa: ANN401 - whatever a job may say
    return read_job({"name": "etl", "dag": list(steps), **said}, Defaults(), now=NOW)


def step(name: str, *needs: str) -> dict[str, Any]:
    return {"step": name, "function": "f", "depends_on": list(needs)}


def refusal(said: Mapping[str, Any]) -> FieldError:
    with pytest.raises(FieldError) as refused:
        read_job(said, Defaults(), now=NOW)
    return refused.value


def blamed_by(said: Mapping[str, Any]) -> str | None:
    """The field that is refused, if one is."""
    try:
        read_job(said, Defaults(), now=NOW)
    except FieldError as error:
        return error.field
    return None


def test_a_job_that_says_the_least_waits_to_be_asked() -> None:
    found = job()

    assert (found.name, found.enabled, found.spec.trigger) == ("billing", True, OnDemand())
    assert found.spec == Spec(trigger=OnDemand(), workflow_id="billing")


def test_a_function_is_a_workflow_with_one_step() -> None:
    found = job(timeout="30s", retry={"max_attempts": 2}, isolation="process", input={"a": [1]})

    [only] = found.workflow.steps
    assert only == Step(
        name=ONLY_STEP,
        function="team/app/bill",
        timeout_ms=30 * SECOND,
        retry=RetryPolicy(max_attempts=2),
        isolation=Isolation.PROCESS,
    )
    assert (found.workflow.workflow_id, found.workflow.version, found.workflow.input) == ("billing", 1, {"a": [1]})
    assert found.spec.first_steps == (ONLY_STEP,)


@pytest.mark.req("Z-08")
@pytest.mark.parametrize(
    ("said", "trigger"),
    [
        ({"schedule": "0 9 * * 1-5"}, Cron("0 9 * * 1-5")),
        ({"schedule": "every weekday at 9am", "timezone": "Europe/Berlin"}, Cron("0 9 * * 1-5", "Europe/Berlin")),
        ({"schedule": "0 9 * * 1", "dialect": "posix"}, Cron("0 9 * * 1", "UTC", "posix")),
        ({"schedule": "@daily", "dst": {"gap": "skip"}}, Cron("@daily", dst=Dst(gap="skip"))),
        ({"schedule": "2026-12-01T09:00:00Z"}, At(datetime(2026, 12, 1, 9, tzinfo=UTC))),
        ({"at": "2026-12-01T09:00:00Z"}, At(datetime(2026, 12, 1, 9, tzinfo=UTC))),
        ({"at": "2026-12-01T09:00", "timezone": "Europe/Berlin"}, At(datetime(2026, 12, 1, 8, tzinfo=UTC))),
        ({"every": "7m"}, Every(timedelta(minutes=7), instant_of(NOW))),
        ({"every": 0.25}, Every(timedelta(milliseconds=250), instant_of(NOW))),
        ({"schedule": "every 7 minutes"}, Every(timedelta(minutes=7), instant_of(NOW))),
        (
            {"every": "7m", "start_at": "2026-12-01T09:00:00Z"},
            Every(timedelta(minutes=7), datetime(2026, 12, 1, 9, tzinfo=UTC)),
        ),
    ],
)
def test_when_a_job_runs_is_said_in_one_of_its_fields(said: dict[str, Any], trigger: object) -> None:
    assert job(**said).spec.trigger == trigger


@pytest.mark.req("C-01")
def test_the_policies_stand_in_the_spec() -> None:
    spec = job(
        schedule="@hourly",
        start_at="2026-01-01T00:00:00Z",
        end_at=1_800_000_000_000,
        jitter="2s",
        overlap="queue",
        catchup="fire_immediately",
        misfire_grace="5m",
        catchup_window="2d",
        queue_limit=7,
        user_id="ada",
    ).spec

    assert (spec.start_at, spec.end_at) == (1_767_225_600_000, 1_800_000_000_000)
    assert (spec.jitter_ms, spec.misfire_grace_ms, spec.catchup_window_ms) == (2 * SECOND, 5 * MINUTE, 2 * DAY)
    assert (spec.overlap, spec.catchup, spec.queue_limit, spec.user_id) == (Overlap.QUEUE, Catchup.ALL, 7, "ada")


def test_defaults_fill_the_missing_fields_of_a_job() -> None:
    defaults = Defaults(overlap=Overlap.QUEUE, catchup=Catchup.LATEST, jitter_ms=7, lookahead_ms=5000, catchup_cap=9)

    spec = job(defaults).spec

    assert (spec.overlap, spec.catchup, spec.jitter_ms) == (Overlap.QUEUE, Catchup.LATEST, 7)
    assert (spec.lookahead_ms, spec.catchup_cap) == (5000, 9)


@pytest.mark.req("H-06")
@pytest.mark.parametrize(
    ("said", "overlap", "locked"),
    [
        ({}, Overlap.QUEUE, False),
        ({"lock": True}, Overlap.SKIP, True),
        ({"lock": True, "overlap": "skip"}, Overlap.SKIP, True),
        ({"lock": False}, Overlap.ALLOW, False),
        ({"lock": False, "overlap": "replace"}, Overlap.REPLACE, False),
    ],
)
def test_a_lock_is_a_word_about_overlap(said: dict[str, Any], overlap: Overlap, *, locked: bool) -> None:
    found = job(Defaults(overlap=Overlap.QUEUE), **said)

    assert (found.spec.overlap, found.workflow.lock) == (overlap, locked)


@pytest.mark.req("H-07")
def test_the_first_steps_of_a_graph_are_those_that_wait_for_none() -> None:
    found = graph(step("a"), step("b"), step("c", "a", "b"))

    assert found.spec.first_steps == ("a", "b")
    assert found.workflow.steps[2].depends_on == ("a", "b")


def test_a_step_is_tried_as_the_job_says_unless_it_says_something_else() -> None:
    own = {"step": "own", "function": "f", "timeout": "1s", "retry": {"max_attempts": 5}, "isolation": "none"}

    found = graph({"step": "plain", "function": "f"}, own, timeout="9s", retry={}, isolation="process").workflow

    assert [(s.timeout_ms, s.retry, s.isolation) for s in found.steps] == [
        (9 * SECOND, RetryPolicy(), Isolation.PROCESS),
        (SECOND, RetryPolicy(max_attempts=5), Isolation.NONE),
    ]


@pytest.mark.req("H-08")
def test_a_retry_is_read_whole() -> None:
    said = {"max_attempts": 4, "initial_delay": "1s", "multiplier": 3, "max_delay": "1m", "jitter": 0.5}

    assert job(retry=said).workflow.steps[0].retry == RetryPolicy(
        max_attempts=4, initial_delay_ms=SECOND, multiplier=3.0, max_delay_ms=MINUTE, jitter=0.5
    )


def test_a_long_first_delay_is_not_cut_by_a_default() -> None:
    retry = job(retry={"initial_delay": "10m"}).workflow.steps[0].retry

    assert retry is not None
    assert (retry.initial_delay_ms, retry.max_delay_ms) == (10 * MINUTE, 10 * MINUTE)


def test_the_rest_of_a_job_stands_in_its_workflow() -> None:
    found = job(
        description="Bills.\nEverybody.\n",
        tags=["billing", "critical"],
        delivery="at_most_once",
        dead_letter=True,
        retention="30d",
        enabled=False,
    )

    workflow = found.workflow
    assert (workflow.description, workflow.tags) == ("Bills.\nEverybody.\n", ("billing", "critical"))
    assert (workflow.delivery, workflow.dead_letter) == (Delivery.AT_MOST_ONCE, True)
    assert (workflow.retention_days, found.enabled) == (30, False)


@pytest.mark.parametrize(("said", "days"), [(90, 90), ("90d", 90), ("48h", 2), (1, 1)])
def test_history_is_kept_for_days(said: object, days: int) -> None:
    assert job(retention=said).workflow.retention_days == days


@pytest.mark.req("H-22")
@pytest.mark.parametrize(("letters", "taken"), [(65_528, True), (65_529, False)])
def test_an_input_of_64_kib_is_the_largest(letters: int, *, taken: bool) -> None:
    said = {**USUAL, "input": {"a": "x" * letters}}
    assert len(msgspec.json.encode(said["input"])) == letters + 8

    if taken:
        assert read_job(said, Defaults(), now=NOW).workflow.input == said["input"]
    else:
        assert refusal(said).field == "input"


@pytest.mark.req("H-22")
def test_an_input_that_its_schema_admits_is_taken() -> None:
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {}}}

    assert job(input={"n": 3}, input_schema=schema).workflow.input_schema == schema


@pytest.mark.req("H-22")
def test_a_remote_schema_is_not_fetched(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text("{}")

    refused = refusal({**USUAL, "input_schema": {"$ref": (tmp_path / "schema.json").as_uri()}})

    assert refused.field == "input_schema"
    assert "are not fetched" in refused.reason


@pytest.mark.req("H-22")
def test_a_reference_to_a_secret_stays_a_reference() -> None:
    given_input = {"url": "https://x/?a=${secret:API_KEY}&b=${secret:other.key}", "plain": "${HOME} $(id) {{ 1 }}"}

    assert job(input=given_input).workflow.input == given_input


TRIGGER_REFUSALS: dict[str, Any] = {
    "an unknown field": ({"shedule": "@daily"}, "shedule"),
    "a number for cron": ({"schedule": 5}, "schedule"),
    "nothing for cron": ({"schedule": None}, "schedule"),
    "bad cron": ({"schedule": "61 * * * *"}, "schedule"),
    "cron that never fires": ({"schedule": "0 0 30 2 *"}, "schedule"),
    "a sentence with a slip": ({"schedule": "evry day at 9am"}, "schedule"),
    "two zones": ({"schedule": "every day at 9am utc", "timezone": "Europe/Berlin"}, "timezone"),
    "a bad zone": ({"schedule": "@daily", "timezone": "Nope"}, "timezone"),
    "a zone of the host": ({"schedule": "@daily", "timezone": "localtime"}, "timezone"),
    "an unknown dialect": ({"schedule": "@daily", "dialect": "quartz"}, "dialect"),
    "a choice about clocks that is none": ({"schedule": "@daily", "dst": {"gap": "often"}}, "dst.gap"),
    "an unknown choice about clocks": ({"schedule": "@daily", "dst": {"gaps": "skip"}}, "dst.gaps"),
    "no mapping about clocks": ({"schedule": "@daily", "dst": "skip"}, "dst"),
    "two times": ({"schedule": "@daily", "at": "2026-12-01T09:00:00Z"}, "at"),
    "an interval beside": ({"schedule": "@daily", "every": "5m"}, "every"),
    "an instant without a zone": ({"at": "2026-12-01T09:00"}, "at"),
    "a day without a time": ({"at": "2026-12-01"}, "at"),
    "a day that does not exist": ({"at": "2026-02-30T09:00:00Z"}, "at"),
    "a time that clocks skip": ({"at": "2026-03-29T02:30", "timezone": "Europe/Berlin"}, "at"),
    "cron for an instant": ({"at": "@daily"}, "at"),
    "a sentence for an instant": ({"at": "every day at 9am"}, "at"),
    "an interval of nothing": ({"every": 0}, "every"),
    "an interval too short": ({"every": "1ms"}, "every"),
    "an interval that is true": ({"every": True}, "every"),
    "a zone for nothing": ({"timezone": "UTC"}, "timezone"),
    "a zone for an interval": ({"every": "5m", "timezone": "UTC"}, "timezone"),
    "a dialect for nothing": ({"dialect": "posix"}, "dialect"),
    "clocks for an instant": ({"at": "2026-12-01T09:00:00Z", "dst": {}}, "dst"),
    "a start without a zone": ({"start_at": "2026-01-01T00:00"}, "start_at"),
    "a start that is none": ({"start_at": "soon"}, "start_at"),
    "an end before the start": ({"start_at": 2000, "end_at": 2000}, "end_at"),
    "an end beyond the calendar": ({"end_at": 10**18}, "end_at"),
    "deleted after many runs": ({"schedule": "@daily", "delete_after_run": True}, "delete_after_run"),
    "too much jitter": ({"jitter": "61m"}, "jitter"),
    "jitter in the words of another scheduler": ({"jitter_ms": 5}, "jitter_ms"),
    "an unknown overlap": ({"overlap": "never"}, "overlap"),
    "an overlap that is a list": ({"overlap": []}, "overlap"),
    "an unknown catch-up": ({"catchup": "some"}, "catchup"),
    "a queue of none": ({"queue_limit": 0}, "queue_limit"),
    "enabled with a word": ({"enabled": "yes"}, "enabled"),
    "a lock and another overlap": ({"lock": True, "overlap": "allow"}, "overlap"),
    "a lock that is a word": ({"lock": "true"}, "lock"),
}
WORK_REFUSALS: dict[str, Any] = {
    "a function that is a list": ({"function": ["x"]}, "function"),
    "a function with a blank": ({"function": "rm -rf"}, "function"),
    "no time at all": ({"timeout": 0}, "timeout"),
    "time without a unit": ({"timeout": "30"}, "timeout"),
    "too much time": ({"timeout": "31d"}, "timeout"),
    "a retry that is a number": ({"retry": 3}, "retry"),
    "an unknown field of a retry": ({"retry": {"attempts": 3}}, "retry.attempts"),
    "no attempt": ({"retry": {"max_attempts": 0}}, "retry.max_attempts"),
    "endless attempts": ({"retry": {"max_attempts": 2**31}}, "retry.max_attempts"),
    "half an attempt": ({"retry": {"max_attempts": 1.5}}, "retry.max_attempts"),
    "a delay before now": ({"retry": {"initial_delay": -5}}, "retry.initial_delay"),
    "a multiplier without end": ({"retry": {"multiplier": 1e308}}, "retry.multiplier"),
    "a multiplier that is no number": ({"retry": {"multiplier": float("nan")}}, "retry.multiplier"),
    "a multiplier that shrinks": ({"retry": {"multiplier": 0.5}}, "retry.multiplier"),
    "too much jitter": ({"retry": {"jitter": 1.5}}, "retry.jitter"),
    "a jitter that is no duration": ({"retry": {"jitter": "much"}}, "retry.jitter"),
    "retention of nothing": ({"retention": {}}, "retention"),
    "retention of no run": ({"retention": {"runs": 0}}, "retention.runs"),
    "retention of half a day": ({"retention": {"runs": 5, "days": "12h"}}, "retention.days"),
    "retention of weeks": ({"retention": {"weeks": 1}}, "retention.weeks"),
    "a longest delay below the first": ({"retry": {"initial_delay": "2m", "max_delay": "1m"}}, "retry.max_delay"),
    "an unknown isolation": ({"isolation": "thread"}, "isolation"),
    "an unknown delivery": ({"delivery": "exactly_once"}, "delivery"),
    "one delivery and two attempts": (
        {"delivery": "at_most_once", "retry": {"max_attempts": 2}},
        "retry.max_attempts",
    ),
    "one delivery and the usual attempts": ({"delivery": "at_most_once", "retry": {}}, "retry.max_attempts"),
    "no history": ({"retention": 0}, "retention"),
    "half a day of history": ({"retention": "36h"}, "retention"),
    "history that is true": ({"retention": True}, "retention"),
    "tags that are a text": ({"tags": "critical"}, "tags"),
    "a tag that is a number": ({"tags": ["a", 5]}, "tags[1]"),
    "a tag without letters": ({"tags": [" "]}, "tags[0]"),
    "a tag twice": ({"tags": ["a", "a"]}, "tags[1]"),
    "a tag too long": ({"tags": ["a" * 65]}, "tags[0]"),
    "too many tags": ({"tags": [f"t{n}" for n in range(51)]}, "tags"),
    "a description that a terminal would obey": ({"description": "\x1b[31m"}, "description"),
    "a user that is a number": ({"user_id": 5}, "user_id"),
    "a field that is not for users": ({"tenant": "other"}, "tenant"),
    "a function beside a graph": ({"dag": GRAPH}, "dag"),
}
INPUT_REFUSALS: dict[str, Any] = {
    "a list": ({"input": [1]}, "input"),
    "nothing": ({"input": None}, "input"),
    "no number": ({"input": {"a": [float("nan")]}}, "input.a[0]"),
    "a number without end": ({"input": {"a": 10**30}}, "input.a"),
    "a number too long to be shown": ({"input": {"a": 10**5000}}, "input.a"),
    "a date": ({"input": {"a": datetime(2026, 1, 1, tzinfo=UTC)}}, "input.a"),
    "a key that is no text": ({"input": {"a": {5: 1}}}, "input.a"),
    "half a character": ({"input": {"a": "\ud800"}}, "input.a"),
    "a character of nothing": ({"input": {"a": {"b": "x\0"}}}, "input.a.b"),
    "a key that names a secret": ({"input": {"${secret:A}": 1}}, "input"),
    "a secret without a name": ({"input": {"a": "${secret:}"}}, "input.a"),
    "a secret without an end": ({"input": {"a": "${secret:A"}}, "input.a"),
    "a secret that is a path": ({"input": {"a": "${secret:../shadow}"}}, "input.a"),
    "a secret in capitals": ({"input": {"a": "${SECRET:A}"}}, "input.a"),
    "a secret with a blank": ({"input": {"a": ["${ secret:A}"]}}, "input.a[0]"),
    "a schema that is a text": ({"input_schema": "object"}, "input_schema"),
    "a schema with an unknown type": ({"input_schema": {"type": "strng"}}, "input_schema.type"),
    "a schema from elsewhere": ({"input_schema": {"$ref": "http://127.0.0.1:1/x"}}, "input_schema"),
    "a schema from a file": ({"input_schema": {"$ref": "file:///etc/passwd"}}, "input_schema"),
    "a schema of a language from elsewhere": ({"input_schema": {"$schema": "http://127.0.0.1:1/x"}}, "input_schema"),
    "a value that is not of its format": (
        {"input": {"day": "tomorrow"}, "input_schema": {"properties": {"day": {"format": "date"}}}},
        "input.day",
    ),
    "what the schema requires": ({"input_schema": {"required": ["a"]}}, "input"),
    "what the schema does not admit": (
        {"input": {"a": [1, 5]}, "input_schema": {"properties": {"a": {"items": {"maximum": 3}}}}},
        "input.a[1]",
    ),
}


@pytest.mark.req("H-04", "H-05", "Z-14")
@pytest.mark.parametrize(
    ("said", "field"),
    [
        pytest.param(*case, id=f"{group} {name}")
        for group, cases in (("when:", TRIGGER_REFUSALS), ("what:", WORK_REFUSALS), ("input:", INPUT_REFUSALS))
        for name, case in cases.items()
    ],
)
def test_an_error_names_its_field(said: dict[str, Any], field: str) -> None:
    assert refusal({**USUAL, **said}).field == field


@pytest.mark.parametrize(
    "name",
    ["", " ", ".", "..", "a/b", "../x", "a" * 129, "a\n", "-rf", "A", ">", "*", "\u202e", "\uff41", None, 5, True],
)
def test_a_name_that_does_not_fit_everywhere_is_refused(name: object) -> None:
    assert refusal({**USUAL, "name": name}).field == "name"


@pytest.mark.parametrize("field", ["name", "function"])
def test_an_error_names_the_missing_field(field: str) -> None:
    said = {key: value for key, value in USUAL.items() if key != field}

    assert (refusal(said).field, refusal(said).reason) == (field, "is missing")


def test_a_job_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(FieldError, match="must be a mapping"):
        read_job(["name"], Defaults(), now=NOW)  # type: ignore[arg-type]


def test_an_input_nested_too_deeply_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(10_000):
        deep = {"a": deep}

    assert "nested" in refusal({**USUAL, "input": deep}).reason


@pytest.mark.parametrize("said", [{"a\nb" * 500: 1}, {"input": {"a\nb" * 500: [float("nan")]}}])
def test_a_key_cannot_make_an_error_long_or_break_its_line(said: dict[str, Any]) -> None:
    message = str(refusal({**USUAL, **said}))

    assert message.isprintable()
    assert len(message) < 300


def test_a_slip_is_met_with_a_suggestion_at_every_level() -> None:
    assert "did you mean schedule?" in refusal({**USUAL, "shedule": "@daily"}).reason
    assert "did you mean max_delay?" in refusal({**USUAL, "retry": {"max_dely": "5s"}}).reason
    assert "did you mean fold?" in refusal({**USUAL, "schedule": "@daily", "dst": {"flod": "both"}}).reason
    assert "did you mean depends_on?" in refusal({"name": "a", "dag": [{"depend_on": []}]}).reason


@pytest.mark.req("H-07")
@pytest.mark.parametrize(
    ("steps", "field", "reason"),
    [
        pytest.param([], "dag", "has no steps", id="no steps"),
        pytest.param("extract", "dag", "must be a list", id="a text"),
        pytest.param([5], "dag[0]", "must be a mapping", id="a step that is a number"),
        pytest.param([{"function": "f"}], "dag[0].step", "is missing", id="a step without a name"),
        pytest.param([{"step": "a"}], "dag[0].function", "is missing", id="a step without a function"),
        pytest.param([step("A")], "dag[0].step", "must be 1 to 128", id="a bad name"),
        pytest.param([step("a"), step("b"), step("a")], "dag[2].step", "already the name of dag[0]", id="a name twice"),
        pytest.param([step("a", "b")], "dag[0].depends_on[0]", "no step", id="an unknown step"),
        pytest.param([step("a", "a")], "dag[0].depends_on[0]", "the step itself", id="itself"),
        pytest.param([step("a"), step("b", "a", "a")], "dag[1].depends_on[1]", "a second time", id="needed twice"),
        pytest.param(
            [{"step": "a", "function": "f", "depends_on": "extract"}],
            "dag[0].depends_on",
            "must be a list",
            id="a text is no list of letters",
        ),
        pytest.param(
            [step("out"), step("a", "c", "out"), step("b", "a"), step("c", "b"), step("last", "c")],
            "dag[1].depends_on",
            "closes a circle: a -> c -> b -> a",
            id="a circle, without what leads to it",
        ),
        pytest.param(
            [{"step": "a", "function": "f", "retry": {"max_attempts": "3"}}],
            "dag[0].retry.max_attempts",
            "must be a whole number",
            id="a bad retry",
        ),
        pytest.param(
            [{"step": "a", "function": "f", "input": {"b": "${secret:}"}}],
            "dag[0].input.b",
            "names a secret",
            id="a bad input",
        ),
        pytest.param([step(f"s{n}") for n in range(10_000)], "dag", "at most 1000", id="ten thousand steps"),
        pytest.param(
            [{**step(f"s{n}"), "input": {"a": "x" * 1000}} for n in range(70)], "dag", "bytes", id="more than 64 KiB"
        ),
    ],
)
def test_a_graph_that_cannot_run_is_refused(steps: Any, field: str, reason: str) -> None:  # noqa: ANN401 - hostile
    refused = refusal({"name": "etl", "dag": steps})

    assert refused.field == field
    assert reason in refused.reason


def test_one_delivery_refuses_the_retry_of_a_step() -> None:
    retried = {"step": "b", "function": "f", "retry": {"max_attempts": 2}}

    refused = refusal({"name": "etl", "dag": [step("a"), retried], "delivery": "at_most_once"})

    assert refused.field == "dag[1].retry.max_attempts"


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([step(f"s{n}", *([f"s{n - 1}"] if n else [])) for n in range(1000)], id="a long chain"),
        pytest.param(
            [
                step(f"s{layer}.{n}", *([f"s{layer - 1}.{m}" for m in range(2)] if layer else []))
                for layer in range(40)
                for n in range(2)
            ],
            id="a lattice with a billion ways through it",
        ),
    ],
)
def test_a_large_graph_is_read_in_no_time(steps: list[dict[str, Any]]) -> None:
    def read() -> None:
        assert len(graph(*steps).workflow.steps) == len(steps)

    assert is_done_within(1, read)


def test_a_complete_job_is_looked_at_whole() -> None:
    said = {**USUAL, "schedule": "@daily", "end_at": "2027-01-01T00:00:00Z", "enabled": False}

    assert read_job_timing(said, Defaults(), now=NOW) == read_job(said, Defaults(), now=NOW)


@pytest.mark.parametrize(
    ("said", "trigger"),
    [
        ({"schedule": "@daily"}, Cron("@daily")),
        ({"every": "7m", "function": "no function", "timeout": "soon"}, Every(timedelta(minutes=7), instant_of(NOW))),
    ],
)
def test_of_a_job_that_is_not_complete_the_fires_can_be_looked_at(said: dict[str, Any], trigger: object) -> None:
    found = read_job_timing({"name": "Not Yet", **said}, Defaults(), now=NOW)

    assert (found.name, found.spec.trigger, found.workflow.steps) == ("Not Yet", trigger, ())


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({}, "name"),
        ({"name": 5, "schedule": "@daily"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "a"}, "schedule"),
        ({"name": "a", "schedule": 5}, "schedule"),
        ({"name": "a", "schedule": "@daily", "dst": "often"}, "dst"),
        ({"name": "a", "schedule": "@daily", "shedule": "x"}, "shedule"),
        ({"name": "a", "every": "often"}, "every"),
    ],
)
def test_fire_times_that_cannot_be_computed_are_refused_by_their_field(said: dict[str, Any], field: str) -> None:
    with pytest.raises(FieldError) as refused:
        read_job_timing(said, Defaults(), now=NOW)

    assert refused.value.field == field


def test_fires_that_make_no_sense_are_refused_as_such() -> None:
    with pytest.raises(CronError, match="61"):
        read_job_timing({"name": "a", "schedule": "61 * * * *"}, Defaults(), now=NOW)


@pytest.mark.parametrize(("overlap", "count"), [("skip", 1), ("queue", 0)])
def test_catching_up_with_what_will_be_skipped_is_warned_about(overlap: str, count: int) -> None:
    assert len(warnings(job(schedule="@hourly", catchup="all", overlap=overlap))) == count


def test_an_ordinary_job_is_not_warned_about() -> None:
    assert warnings(job(schedule="@hourly")) == []


NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)
SPANS = st.one_of(
    st.integers(1, 60).map(lambda n: f"{n}s"), st.integers(1, 59).map(lambda n: f"1h{n}m"), st.integers(1, 3600)
)
INPUTS = st.dictionaries(
    st.text("abc.", max_size=3),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("xy", max_size=2), inner, max_size=2),
        max_leaves=4,
    ),
    max_size=3,
)  # fmt: skip
RETRIES = st.fixed_dictionaries(
    {},
    optional={
        "max_attempts": st.integers(1, 1000),
        "initial_delay": SPANS,
        "multiplier": st.floats(1, 1000),
        "max_delay": st.just("2h"),
        "jitter": st.floats(0, 1) | st.just("250ms"),
    },
)
TRYING = {"timeout": SPANS, "retry": RETRIES, "isolation": st.sampled_from(["none", "process"])}
TRIGGERS = st.sampled_from(
    [
        {},
        {"schedule": "*/5 * * * *"},
        {"schedule": "every weekday at 7am", "timezone": "America/Los_Angeles"},
        {"schedule": "0 9 * * 1", "dialect": "posix", "dst": {"fold": "both"}},
        {"schedule": "@daily", "dst": {"gap": "skip", "fold": "both"}, "timezone": "Europe/Berlin"},
        {"schedule": "every 7 minutes"},
        {"every": "1d2h"},
        {"on": {"event": "model.drift", "where": {"model.name": "zen", "score": 0.5}, "debounce": "30s"}},
        {"on": {"event": "model.drift", "batch": {"max": 7, "wait": "10s"}}},
        {"every": 0.25, "start_at": "2026-01-01T00:00:00.125Z"},
        {"at": "2026-12-01T09:00:00.125", "timezone": "Asia/Tokyo", "delete_after_run": True},
    ]
)
LOCKS = st.sampled_from(
    [
        {},
        {"lock": True},
        {"lock": False},
        {"overlap": "queue"},
        {"overlap": "replace"},
        {"lock": True, "overlap": "skip"},
    ]
)
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "description": st.text("ab \n", max_size=9),
        "end_at": st.integers(1_800_000_000_000, 1_900_000_000_000),
        "jitter": SPANS.filter(lambda span: not str(span).startswith("1h")),
        "catchup": st.sampled_from(["none", "latest", "all", "spread", "fire_immediately"]),
        "misfire_grace": SPANS,
        "catchup_window": SPANS,
        "queue_limit": st.integers(1, 10_000),
        "enabled": st.booleans(),
        "dead_letter": st.booleans(),
        "retention": st.integers(1, 36_500) | st.just("7d") | st.just({"runs": 50}) | st.just({"runs": 1, "days": 3}),
        "tags": st.lists(st.text("abc", min_size=1), max_size=3, unique=True),
        "user_id": st.text("abc@. ", max_size=5),
        "input": INPUTS,
        "input_schema": st.just({"type": "object", "properties": {"zzz": {"type": "string"}}}),
    },
)


@st.composite
def graphs(draw: st.DrawFn) -> list[dict[str, Any]]:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    more = st.fixed_dictionaries(
        {},
        optional={
            **TRYING,
            "input": INPUTS,
            "if": st.just("input.a == 1"),
            "foreach": st.lists(INPUTS),
            "delay": SPANS,
        },
    )
    return [
        {
            "step": name,
            "function": f"etl/{name}",
            "depends_on": draw(st.lists(st.sampled_from(names[:index]), unique=True)) if index else [],
            **draw(more),
        }
        for index, name in enumerate(names)
    ]


WORK = st.one_of(
    graphs().map(lambda steps: {"dag": steps}),
    st.just({"function": "team/app:function"}),
    st.just({"dag": [{"step": ONLY_STEP, "function": "f", "input": {"a": 1}}]}),
    st.just({"function": "f", "delivery": "at_most_once", "retry": {"max_attempts": 1}}),
)
JOBS = st.builds(
    lambda name, *parts: {"name": name} | {key: value for part in parts for key, value in part.items()},
    NAMES,
    st.fixed_dictionaries({}, optional=TRYING),
    TRIGGERS,
    LOCKS,
    POLICIES,
    WORK,
)


@given(JOBS)
def test_an_exported_job_reads_back_as_the_same_job(said: dict[str, Any]) -> None:
    if said.get("delivery") == "at_most_once":
        said["retry"] = {"max_attempts": 1}
    found = read_job(said, Defaults(), now=NOW)

    shown = job_as_data(found)

    assert read_job(shown, Defaults(overlap=Overlap.ALLOW, catchup=Catchup.ALL, jitter_ms=9), now=NOW) == found
    assert job_as_data(read_job(shown, Defaults(), now=NOW)) == shown


@given(JOBS)
def test_an_exported_job_is_plain_data(said: dict[str, Any]) -> None:
    if said.get("delivery") == "at_most_once":
        said["retry"] = {"max_attempts": 1}
    shown = job_as_data(read_job(said, Defaults(), now=NOW))

    assert msgspec.json.decode(msgspec.json.encode(shown)) == shown
    assert type(shown["overlap"]) is str


@given(st.dictionaries(st.sampled_from(JOB_FIELDS), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([*STEP_FIELDS, *RETRY_FIELDS, "gap"]), inner, max_size=3),
    max_leaves=8,
)))  # fmt: skip
def test_random_input_is_a_job_or_an_error_by_field(said: dict[str, Any]) -> None:
    blamed = blamed_by(said)

    assert blamed is None or blamed.partition(".")[0].partition("[")[0] in JOB_FIELDS


@pytest.mark.req("C-15")
@pytest.mark.parametrize(
    ("said", "zone"),
    [
        ({"schedule": "@daily", "timezone": "Asia/Tokyo"}, "Asia/Tokyo"),
        ({"schedule": "every day at 9am in Asia/Tokyo"}, "Asia/Tokyo"),
        ({"at": "2026-12-01T09:00", "timezone": "Asia/Tokyo"}, "Asia/Tokyo"),
        ({"schedule": "@daily"}, "UTC"),
    ],
)
def test_a_zone_that_the_settings_do_not_allow_is_refused(said: dict[str, Any], zone: str) -> None:
    narrowed = Defaults(zones=("Europe/Berlin",))

    with pytest.raises(FieldError, match=r"not among the time zones of ticker\.zones: Europe/Berlin") as refused:
        read_job({"name": "report", "function": "f", **said}, narrowed, now=NOW)

    assert (refused.value.field, refused.value.value) == ("timezone", zone)
    read_job({"name": "report", "function": "f", "schedule": "@daily", "timezone": "Europe/Berlin"}, narrowed, now=NOW)
    read_job({"name": "report", "function": "f", "every": "5m"}, narrowed, now=NOW)
