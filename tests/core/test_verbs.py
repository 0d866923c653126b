"""The verbs of models: a table of requests."""

from typing import Any

import pytest

from gnomon.core.model_names import UNNAMED, model_name, name_of_program
from gnomon.core.verb_names import CHANGING_VERBS, READING_VERBS
from gnomon.core.verbs import VERBS, Verb, find_verb, offered_verbs, preview_of
from gnomon.errors import FieldError, NotFound

#: The arguments that each verb needs, and some that it may have.
GIVEN: dict[str, dict[str, Any]] = {
    "list_jobs": {"tag": "nightly", "limit": 5},
    "show_job": {"job": "report"},
    "explain_job": {"job": "report", "last": 2},
    "plan_jobs": {"jobs": [{"name": "report"}]},
    "explain_schedule": {"schedule": "every weekday at 9am", "timezone": "Europe/Berlin"},
    "simulate_jobs": {"jobs": [{"name": "report"}], "days": 3, "lasts": "5m"},
    "list_executions": {"job": "report", "status": "failed"},
    "show_execution": {"execution": "run_1"},
    "list_log_entries": {"execution": "run_1"},
    "register_job": {"job": {"name": "report"}},
    "pause_job": {"job": "report"},
    "resume_job": {"job": "report", "missed": "latest"},
    "trigger_job": {"job": "report", "input": {"day": 1}, "key": "monday"},
}


def test_the_verbs_that_change_something_are_offered_only_if_changes_are_allowed() -> None:
    reading = {verb.name for verb in offered_verbs(allow_changes=False)}

    assert reading == set(READING_VERBS)
    assert set(VERBS) - reading == set(CHANGING_VERBS) == {"register_job", "pause_job", "resume_job", "trigger_job"}
    assert {verb.name for verb in offered_verbs(allow_changes=True)} == set(VERBS) == set(GIVEN)


def test_arguments_become_the_parts_of_a_request() -> None:
    triggered = VERBS["trigger_job"].request(GIVEN["trigger_job"])
    listed = VERBS["list_jobs"].request({})
    registered = VERBS["register_job"].request({**GIVEN["register_job"], "preview_only": True})

    assert (triggered.path, triggered.body, triggered.key) == (
        ("jobs", "report", "trigger"),
        {"input": {"day": 1}},
        "monday",
    )
    assert (listed.query, listed.body) == ({"limit": 20}, None)
    assert registered.body == {"name": "report"}


@pytest.mark.parametrize(
    ("verb", "given", "field", "reason"),
    [
        ("show_job", {}, "job", "is missing"),
        ("show_job", {"job": ""}, "job", "is no name"),
        ("show_job", {"job": ".."}, "job", "is no name"),
        ("show_job", {"job": "a\x00b"}, "job", "has a character that cannot be printed"),
        ("show_job", {"job": "a" * 201}, "job", "has 201 characters; at most 200 are allowed"),
        ("show_job", {"job": {"name": "report"}}, "job", "must be a text"),
        ("show_job", {"job": "report", "etag": 1}, "etag", "is no field"),
        ("list_jobs", {"limit": 0}, "limit", "must be from 1 to 100"),
        ("list_jobs", {"limit": 10**30}, "limit", "must be from 1 to 100"),
        ("list_jobs", {"limit": True}, "limit", "must be a whole number"),
        ("list_jobs", {"limit": "5"}, "limit", "must be a whole number"),
        ("plan_jobs", {"jobs": {}}, "jobs", "must be a list"),
        ("plan_jobs", {"jobs": [{}] * 51}, "jobs", "has more than 50 entries"),
        ("register_job", {"job": "report"}, "job", "must be an object"),
        ("pause_job", {"job": "report", "preview_only": "yes"}, "preview_only", None),
    ],
)
def test_an_argument_that_does_not_fit_is_named_with_the_reason(
    verb: str, given: dict[str, Any], field: str, reason: str | None
) -> None:
    with pytest.raises(FieldError) as refused:
        VERBS[verb].request(given)

    assert refused.value.field == field
    assert reason is None or refused.value.reason == reason


def test_an_unknown_verb_is_named() -> None:
    with pytest.raises(NotFound, match="there is no verb 'drop_tables'"):
        find_verb("drop_tables")


@pytest.mark.parametrize("verb", [verb for verb in VERBS.values() if verb.changes], ids=lambda verb: verb.name)
def test_a_change_is_shown_by_a_verb_that_reads(verb: Verb) -> None:
    shown, given = preview_of(verb, GIVEN[verb.name])

    assert not shown.changes
    shown.request(given)


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("claude-code", "claude-code"),
        ("Visual Studio Code", "Visual-Studio-Code"),
        ("a\u202eb\n", "a-b"),
        ("x" * 1000, "x" * 64),
        ("…", UNNAMED),
    ],
)
def test_the_name_of_a_program_becomes_the_name_of_a_model(program: str, name: str) -> None:
    assert model_name("name", name_of_program(program)) == name


def test_a_name_that_could_be_mistaken_is_refused() -> None:
    for name in ("", "a b", "model:x", "-x", "x" * 65, "é"):
        with pytest.raises(FieldError):
            model_name("--model", name)
