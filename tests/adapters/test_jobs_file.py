"""Files of jobs: the seed's loads unchanged; every other either loads whole or is refused with its line."""

import gc
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

import pytest
import yaml

from gnomon.adapters import files
from gnomon.adapters.files import file_digest, read_jobs, read_mapping
from gnomon.core.cron import Cron
from gnomon.core.jobs.job import JOB_FIELDS, Job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.jobs.steps import RETRY_FIELDS, STEP_FIELDS
from gnomon.core.model import Overlap
from gnomon.core.runs.workflow import ONLY_STEP, RetryPolicy
from gnomon.core.triggers import At
from gnomon.errors import FileError, JobsFileError
from support.processor_time import is_done_within

DATA = Path(__file__).parents[1] / "data"
NOW = 1_772_000_000_000
SECOND = 1000
#: A job to put something into.
JOB = "jobs:\n- name: a\n  function: f\n"

Reading = Callable[[str | bytes], list[Job]]


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    """Reads the jobs of a text."""

    def read(text: str | bytes) -> list[Job]:
        file = tmp_path / "jobs.yaml"
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_jobs(file, Defaults(), now=NOW)

    return read


@pytest.fixture
def refusal(reading: Reading) -> Callable[[str | bytes], JobsFileError]:
    """How the jobs of a text are refused."""

    def refused(text: str | bytes) -> JobsFileError:
        with pytest.raises(JobsFileError) as caught:
            reading(text)
        return caught.value

    return refused


Refusal = Callable[[str | bytes], JobsFileError]


@pytest.mark.req("H-04")
def test_the_seeds_file_loads_unchanged() -> None:
    jobs = {job.name: job for job in read_jobs(DATA / "seed_jobs.yaml", Defaults(), now=NOW)}

    assert [(name, job.spec.trigger) for name, job in jobs.items()] == [
        ("provider-health-check", Cron("*/5 * * * *")),
        ("credit-reconciliation", Cron("0 */6 * * *")),
        ("cache-warm-embeddings", Cron("0 7 * * 1-5", "America/Los_Angeles")),
        ("nightly-benchmark", Cron("0 3 * * *")),
        ("daily-analytics-etl", Cron("0 2 * * *")),
        ("model-drift-check", Cron("0 6 * * 1")),
    ]
    assert [job.spec.overlap for job in jobs.values()] == [Overlap.SKIP] * 6
    assert [name for name, job in jobs.items() if job.workflow.lock] == [
        "provider-health-check",
        "credit-reconciliation",
    ]
    assert [name for name, job in jobs.items() if job.workflow.dead_letter] == [
        "credit-reconciliation",
        "daily-analytics-etl",
    ]


@pytest.mark.req("H-04", "H-08")
def test_the_seeds_functions_are_tried_as_it_says() -> None:
    jobs = {job.name: job.workflow for job in read_jobs(DATA / "seed_jobs.yaml", Defaults(), now=NOW)}

    [probe] = jobs["provider-health-check"].steps
    assert (probe.name, probe.function, probe.timeout_ms) == (ONLY_STEP, "hanzo/llm-gateway/health-probe", 30 * SECOND)
    assert probe.retry == RetryPolicy(max_attempts=2, initial_delay_ms=5 * SECOND)
    assert jobs["credit-reconciliation"].steps[0].retry == RetryPolicy(max_attempts=3)
    assert jobs["nightly-benchmark"].steps[0].retry == RetryPolicy(max_attempts=1)
    assert jobs["cache-warm-embeddings"].steps[0].retry is None
    assert jobs["cache-warm-embeddings"].input == {"cache_type": "embeddings", "top_k": 1000}
    assert jobs["model-drift-check"].input == {"models": ["zen-72b-finance", "zen-7b-code"], "threshold": 0.05}
    assert jobs["model-drift-check"].tags == ("ml", "evaluation", "weekly")


@pytest.mark.req("H-04", "H-07")
def test_the_seeds_graph_is_a_chain() -> None:
    [etl] = [job for job in read_jobs(DATA / "seed_jobs.yaml", Defaults(), now=NOW) if len(job.workflow.steps) > 1]

    assert etl.spec.first_steps == ("extract",)
    assert [(step.name, step.depends_on, step.timeout_ms) for step in etl.workflow.steps] == [
        ("extract", (), 1800 * SECOND),
        ("transform", ("extract",), 1800 * SECOND),
        ("load", ("transform",), 900 * SECOND),
        ("cleanup", ("load",), 300 * SECOND),
    ]
    assert {step.retry for step in etl.workflow.steps} == {RetryPolicy(max_attempts=2, initial_delay_ms=60 * SECOND)}


def test_a_file_without_jobs_has_none(reading: Reading) -> None:
    assert reading("jobs: []") == []


def test_json_is_read_too(reading: Reading) -> None:
    assert [job.name for job in reading('{"jobs": [{"name": "a", "function": "f", "timeout": 1.5}]}')] == ["a"]


def test_a_byte_order_mark_and_foreign_line_ends_are_accepted(reading: Reading) -> None:
    assert reading(b"\xef\xbb\xbf" + JOB.replace("\n", "\r\n").encode()) == reading(JOB)


def test_an_instant_need_not_be_quoted(reading: Reading) -> None:
    [job] = reading(JOB + "  at: 2026-12-01T09:00:00Z\n  start_at: 2026-01-01T00:00:00Z\n")

    assert job.spec.trigger == At(datetime(2026, 12, 1, 9, tzinfo=UTC))


def test_values_may_be_shared(reading: Reading) -> None:
    first, second, third = reading(
        "jobs:\n"
        "- &usual {name: a, function: f, timeout: 5s, retry: &often {max_attempts: 9}}\n"
        "- {name: b, function: f, retry: *often}\n"
        "- {<<: *usual, name: c, timeout: 7s}\n"
    )

    assert first.workflow.steps[0].retry == second.workflow.steps[0].retry == third.workflow.steps[0].retry
    assert third.workflow.steps[0].timeout_ms == 7 * SECOND


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("5", 5), ("-5", -5), ("+5", 5), ("0", 0), ("0.5", 0.5), ("1.5e+3", 1500.0), ("true", True), ("False", False),
        ("null", None), ("~", None), ("", None), ("'5'", "5"), ('"yes"', "yes"), ("!!str 5", "5"), ("zen-7b", "zen-7b"),
        ("1.2.3", "1.2.3"), ("5s", "5s"), ("nobody", "nobody"), ("[1, a]", [1, "a"]), ("'010'", "010"),
        ("'2026-01-01'", "2026-01-01"), ("${secret:A}", "${secret:A}"), ("n", "n"),
    ],
)  # fmt: skip
def test_a_value_is_what_all_readers_take_it_for(tmp_path: Path, written: str, value: object) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(f"a: {written}\n")

    assert read_mapping(file) == {"a": value}
    assert read_mapping(file) == yaml.safe_load(file.read_text())


UNCLEAR = ["yes", "No", "ON", "off", "010", "0x1F", "0o7", "0b1", "1_000", "1:30", "22:22", "1e3", "1.5e3", ".inf",
           "-.INF", ".nan", "2026-01-01", "2026-13-45", "2026-01-01 10:00:00"]  # fmt: skip


@pytest.mark.parametrize("written", UNCLEAR)
def test_ambiguous_scalars_must_be_quoted(refusal: Refusal, written: str) -> None:
    refused = refusal(JOB + f"  input: {{a: {written}}}\n")

    assert refused.reason.endswith("quote it")
    assert (refused.line, refused.column, refused.field) == (4, 14, "jobs[0].input.a")


@pytest.mark.req("H-04", "Z-14")
@pytest.mark.parametrize(
    ("text", "line", "field", "reason"),
    [
        pytest.param("", 1, "", 'must be a mapping with a list under "jobs"', id="empty"),
        pytest.param("- name: a", 1, "", 'must be a mapping with a list under "jobs"', id="a list"),
        pytest.param("jobs: {}", 1, "", 'must be a mapping with a list under "jobs"', id="jobs that are no list"),
        pytest.param("jobs:", 1, "", 'must be a mapping with a list under "jobs"', id="jobs that are nothing"),
        pytest.param("jobs: []\njob: []", 2, "job", "did you mean jobs?", id="an unknown key at the top"),
        pytest.param("jobs:\n- 5", 2, "jobs[0]", "must be a mapping", id="a job that is a number"),
        pytest.param("jobs:\n- function: f", 2, "jobs[0].name", "is missing", id="a job without a name"),
        pytest.param(JOB + "  shedule: x", 4, "jobs[0].shedule", "did you mean schedule?", id="an unknown key"),
        pytest.param(JOB + "  schedule: 61 * * * *", 4, "jobs[0].schedule", "out of range", id="bad cron"),
        pytest.param(JOB + "  schedule: 5", 4, "jobs[0].schedule", "must be a text", id="a number"),
        pytest.param(JOB + "  schedule: 2026-12-01", 4, "jobs[0].schedule", "quote it", id="a date"),
        pytest.param(JOB + "  lock: yes", 4, "jobs[0].lock", "true or false, not 'yes'", id="a word for true"),
        pytest.param(JOB + "  enabled: 'no'", 4, "jobs[0].enabled", "true or false, not 'no'", id="quoted"),
        pytest.param(JOB + "  on: {event: e, each: off}", 4, "jobs[0].on.each", "not 'off'", id="a word in a trigger"),
        pytest.param(JOB + "  input: {enabled: no}", 4, "jobs[0].input.enabled", "quote it", id="a flag of others"),
        pytest.param(JOB + "  catchup: last", 4, "jobs[0].catchup", "; did you mean latest?", id="a known value"),
        pytest.param(JOB + "  timeout: 1:30", 4, "jobs[0].timeout", "quote it", id="minutes and seconds"),
        pytest.param("jobs: [{name: on, function: f}]", 1, "jobs[0].name", "quote it", id="a name that may be true"),
        pytest.param("jobs: [{name: null, function: f}]", 1, "jobs[0].name", "must be", id="a name that is nothing"),
        pytest.param(
            JOB + "  retry:\n    max_attempts: 3\n    jitter: 2", 6, "jobs[0].retry.jitter", "from 0 to 1", id="deeper"
        ),
        pytest.param(
            "jobs:\n- name: a\n  dag:\n  - {step: x, function: f}\n  - step: y\n    function: f\n"
            "    depends_on:\n    - z",
            8, "jobs[0].dag[1].depends_on[0]", "no step", id="deeper still",
        ),
        pytest.param(JOB + "  input: {a: 1, a: 2}", 4, "jobs[0].input.a", "the first is in line 4", id="a key twice"),
        pytest.param(JOB + "  name: b", 4, "jobs[0].name", "a second time; the first is in line 2", id="a field twice"),
        pytest.param("jobs: []\njobs: []", 2, "jobs", "a second time; the first is in line 1", id="all twice"),
        pytest.param(
            JOB + "- name: b\n  function: f\n- name: a\n  function: f", 6, "jobs[2].name", "in line 2", id="two jobs"
        ),
        pytest.param(JOB + "  5: x", 4, "jobs[0].5", "is no field; known are", id="a key that is a number"),
        pytest.param(JOB + "  ? [a]\n  : x", 4, "jobs[0]", "a key that is no text", id="a key that is a list"),
        pytest.param(JOB + "  <<: 5", 4, "jobs[0].<<", "takes a mapping", id="a merge with a number"),
        pytest.param(f"jobs: [{{name: a, timeout: {'9' * 5000}}}]", 1, "jobs[0].timeout", "quote it", id="digits"),
        pytest.param(JOB + "  input: {a: 1.0e+999}", 4, "jobs[0].input.a", "too large", id="a number without end"),
        pytest.param(JOB + f"  input: {{a: {2**63}}}", 4, "jobs[0].input.a", "64 bits", id="more than 64 bits"),
        pytest.param(JOB + '  input: {a: "\\0"}', 4, "jobs[0].input.a", "store", id="a character of nothing"),
        pytest.param("jobs: [" + "[" * 100_000, 1, "jobs" + "[0]" * 63, "nested too deeply", id="brackets without end"),
        pytest.param(JOB + "  input: {5: x}", 4, "jobs[0].input", "is a key, but no text", id="a key of an input"),
        pytest.param("5: x", 1, "5", "is no field", id="a number at the top"),
        pytest.param("jobs: [", 1, "", "is not YAML: ", id="broken"),
        pytest.param("jobs:\n\t- name: a", 2, "", "indent with spaces", id="tabs"),
        pytest.param(JOB + "  schedule: @daily", 4, "", "that begins with @ must be quoted", id="a macro"),
        pytest.param(JOB + "  schedule: */5 * * * *", 4, "", "that begins with * must be quoted", id="stars"),
        pytest.param(JOB + "  schedule: *x", 4, "jobs[0].schedule", "names no anchor", id="an unknown alias"),
        pytest.param(JOB + "---\n" + JOB, 4, "", "a second document", id="a second document"),
        pytest.param("a: &x [*x]", 1, "a[0]", "contains itself", id="what contains itself"),
        pytest.param("!!python/object/apply:os.system ['true']", 1, "", "has the tag", id="YAML that runs something"),
        pytest.param(JOB + "  input: !!python/name:os.system ''", 4, "jobs[0].input", "has the tag", id="and deeper"),
        pytest.param(JOB + "  input: {a: !!binary aGk=}", 4, "jobs[0].input.a", "has the tag", id="bytes"),
        pytest.param(JOB + "  input: !!set {a, b}", 4, "jobs[0].input", "has the tag", id="a set"),
        pytest.param(JOB + "  input: {a: !!timestamp 2026-01-01}", 4, "jobs[0].input.a", "has the tag", id="a moment"),
        pytest.param(JOB + "  input: {a: !!int '5'}", 4, "jobs[0].input.a", "has the tag", id="a number by decree"),
    ],
)  # fmt: skip
def test_a_file_is_refused_by_line_and_field(refusal: Refusal, text: str, line: int, field: str, reason: str) -> None:
    refused = refusal(text)

    assert (refused.line, refused.field) == (line, field)
    assert reason in refused.reason
    assert str(refused).count("\n") == 0


def test_the_message_names_file_line_field_and_reason(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOB + "  timeout: soon\n")

    with pytest.raises(JobsFileError) as refused:
        read_jobs(file, Defaults(), now=NOW)

    assert str(refused.value) == (
        f"{file}: line 4, column 3: jobs[0].timeout: 'soon' is no duration such as 30s, 5m, 1h30m or 250ms"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        pytest.param(b"jobs: \xff", "it is not UTF-8 at byte 6", id="another encoding"),
        pytest.param("jobs: []".encode("utf-16"), "it is not UTF-8 at byte 0", id="two bytes a letter"),
        pytest.param(b"jobs: [] # \x00", "is not YAML", id="a character of nothing"),
        pytest.param(b"jobs: [] # \x1b[31m", "is not YAML", id="what a terminal would obey"),
        pytest.param(b"#" * (8 * 2**20 + 1), "more than 8 MiB", id="too large"),
    ],
)
def test_a_file_that_is_no_text_is_refused(refusal: Refusal, content: bytes, reason: str) -> None:
    refused = refusal(content)

    assert reason in refused.reason
    assert str(refused).isprintable()


def test_one_bad_job_among_many_refuses_them_all(refusal: Refusal) -> None:
    jobs = "".join(f"- {{name: job-{n}, function: f, timeout: {'never' if n == 70 else '5s'}}}\n" for n in range(100))

    refused = refusal(f"jobs:\n{jobs}")

    assert (refused.line, refused.field) == (72, "jobs[70].timeout")


BOMBS = {
    "aliases": "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)),
    "merges": "a0: &a0 {k: v}\n"
    + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], l{n}: *a{n - 1}, r{n}: *a{n - 1}}}\n" for n in range(1, 19)),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_exponential_aliases_are_refused_at_once(refusal: Refusal, bomb: str) -> None:
    def read() -> None:
        assert "aliases repeat too much" in refusal(bomb).reason

    assert is_done_within(1, read)


def test_a_file_of_five_megabytes_is_read(reading: Reading) -> None:
    jobs = "".join(f"- {{name: job-{n}, function: f, input: {{text: {'a' * 10_000}}}}}\n" for n in range(500))

    assert len(reading(f"jobs:\n{jobs}")) == 500


def test_ten_thousand_jobs_are_read_in_a_few_seconds(reading: Reading) -> None:
    jobs = "".join(
        f"- name: job-{n}\n  schedule: '*/5 * * * *'\n  timezone: Europe/Berlin\n  function: team/app/function-{n}\n"
        f"  timeout: 30s\n  retry: {{max_attempts: 2, initial_delay: 5s}}\n  lock: true\n  tags: [a, b, c]\n"
        for n in range(10_000)
    )
    started = process_time()

    assert len(reading(f"jobs:\n{jobs}")) == 10_000
    assert process_time() - started < 15


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "device"])
def test_only_regular_files_are_read(tmp_path: Path, kind: str) -> None:
    file = {"folder": tmp_path, "device": Path("/dev/zero")}.get(kind, tmp_path / "jobs.yaml")
    if kind == "pipe":
        os.mkfifo(file)

    with pytest.raises(JobsFileError, match="cannot be read"):
        read_jobs(file, Defaults(), now=NOW)


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    link = tmp_path / "jobs.yaml"
    link.symlink_to(DATA / "seed_jobs.yaml")

    assert len(read_jobs(link, Defaults(), now=NOW)) == 6


def test_without_the_fast_parser_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = read_jobs(DATA / "seed_jobs.yaml", Defaults(), now=NOW)
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)

    assert read_jobs(DATA / "seed_jobs.yaml", Defaults(), now=NOW) == fast


@pytest.mark.parametrize(("text", "held"), [("", {}), ("# nothing\n", {}), ("a: {b: 5s}", {"a": {"b": "5s"}})])
def test_a_configuration_file_is_a_mapping(tmp_path: Path, text: str, held: dict[str, Any]) -> None:
    file = tmp_path / "gnomon.yaml"
    file.write_text(text)

    assert read_mapping(file) == held


@pytest.mark.parametrize("text", ["- a", "5", "a: 1\na: 2", "password: 0123456", "password: 0123-4-5", "a: 4321-4-5"])
def test_a_configuration_file_that_is_none_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gnomon.yaml"
    file.write_text(text)

    with pytest.raises(FileError) as refused:
        read_mapping(file)

    assert refused.value.line
    assert not any(secret in str(refused.value) for secret in ("0123", "4321"))


def test_the_page_about_jobs_shows_the_example_and_names_every_field() -> None:
    page = (DATA.parents[1] / "docs" / "jobs.md").read_text()

    assert (DATA.parents[1] / "examples" / "jobs.yaml").read_text() in page
    assert [field for field in (*JOB_FIELDS, *STEP_FIELDS, *RETRY_FIELDS) if f"`{field}`" not in page] == []


# ---- whether it says something else --------------------------------------------------------------


def test_a_digest_is_of_what_a_file_says(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    digests = []
    for text in ("jobs: []", "jobs: []", "jobs: [] "):
        file.write_text(text)
        digests.append(file_digest(file))

    assert digests[0] == digests[1] != digests[2]


def test_a_file_that_cannot_be_read_has_a_digest_of_its_own(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    assert {file_digest(tmp_path / "none"), file_digest(pipe)} == {"No such file or directory", "it is no regular file"}


def test_nobody_looks_for_garbage_while_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collecting = []
    monkeypatch.setattr(files, "read_job", lambda *_, **__: collecting.append(gc.isenabled()))
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs: [{name: a}]")

    with pytest.raises(AttributeError):
        read_jobs(file, Defaults(), now=0)

    assert (collecting, gc.isenabled()) == ([False], True)
