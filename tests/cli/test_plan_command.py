"""`gnomon jobs plan` and `gnomon jobs apply --prune` on a real database."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gnomon.adapters.host import SystemClock
from gnomon.core.instants import ms_of
from support.cli_prompt import JOBS, CliPrompt

MONDAY = ms_of(datetime(2027, 3, 1, 6, tzinfo=UTC))


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    # The number of moved fires depends on the time of day.
    monkeypatch.setattr(SystemClock, "now", lambda _: MONDAY)
    return CliPrompt(tmp_path, monkeypatch, capsys)


@pytest.fixture
def prompt(empty: CliPrompt) -> CliPrompt:
    empty.make_database()
    empty.lines("jobs", "apply", "-f", "jobs.yaml")
    return empty


LATER = JOBS.replace("at 9am", "at 10am")


def test_a_plan_shows_fields_and_fires(prompt: CliPrompt) -> None:
    prompt.write(LATER)

    shown = prompt.lines("jobs", "plan", "-f", "jobs.yaml", "--days", "28", "-n", "1")

    assert shown[:3] == [
        "~ report: changed",
        "    schedule: 0 9 * * 1-5 -> 0 10 * * 1-5",
        "    fires: 20 moved, 0 as before",
    ]
    assert shown[3] == "        Mon 2027-03-01 09:00:00 EST -> Mon 2027-03-01 10:00:00 EST"
    assert "        ... and 19 more: -n shows them" in shown
    assert shown[-2:] == ["1 changed, 1 unchanged", "fires of the next 28 days: 20 moved, 0 as before"]


def test_a_plan_does_nothing(prompt: CliPrompt) -> None:
    prompt.write(LATER)
    before = prompt.data("jobs", "show", "report")

    prompt.lines("jobs", "plan", "-f", "jobs.yaml")

    assert prompt.data("jobs", "show", "report")["definition"] == before["definition"]


def test_a_plan_without_a_database_makes_none(empty: CliPrompt) -> None:
    done = empty.run("jobs", "plan", "-f", "jobs.yaml")

    assert (done.code, done.err) == (0, ["there is no database yet: every job would be new"])
    assert done.out[0] == "+ report: created"
    assert not (empty.folder / "gnomon.db").exists()


def test_a_plan_is_data_for_machines(prompt: CliPrompt) -> None:
    prompt.write(LATER)

    found = prompt.data("jobs", "plan", "-f", "jobs.yaml", "--days", "28")

    assert found["jobs"] == {"created": 0, "changed": 1, "unchanged": 1, "removed": 0, "finished": 0}
    assert found["fires"] == {"added": 0, "removed": 0, "moved": 20, "same": 0}
    [report, _] = found["plan"]
    assert report["fields"] == [{"field": "schedule", "before": "0 9 * * 1-5", "after": "0 10 * * 1-5"}]
    assert report["fires"]["changes"][0]["fate"] == "moved"


@pytest.mark.parametrize(
    ("said", "code"),
    [("moved", 3), ("removed,moved", 3), ("changed", 3), ("removed", 0), ("created, added", 0)],
)
def test_a_plan_fails_on_the_chosen_changes(prompt: CliPrompt, said: str, code: int) -> None:
    prompt.write(LATER)

    assert prompt.run("jobs", "plan", "-f", "jobs.yaml", "--fail-on", said).code == code


def test_a_word_that_means_nothing_is_refused_before_anything_is_read(empty: CliPrompt) -> None:
    done = empty.run("jobs", "plan", "-f", "nowhere.yaml", "--fail-on", "lost")

    assert done.err == [
        "error: --fail-on: 'lost' must be one or more of added, changed, created, finished, moved, removed"
    ]
    assert (done.code, done.out) == (2, [])


def test_fires_of_a_job_every_second_are_shown_as_counts(empty: CliPrompt) -> None:
    empty.write("jobs: [{name: beat, schedule: '* * * * * *', function: f}]")

    shown = empty.run("jobs", "plan", "-f", "jobs.yaml").out

    assert shown[1] == "    fires: 1209600 added, 0 as before"
    assert len(shown) < 12


def test_a_paused_job_is_said_to_stay_so(prompt: CliPrompt) -> None:
    prompt.lines("jobs", "pause", "report")

    assert prompt.lines("jobs", "plan", "-f", "jobs.yaml")[0] == "= report: unchanged (stays paused)"


def test_pruning_removes_what_no_file_names_and_says_which(prompt: CliPrompt) -> None:
    prompt.write("jobs: [{name: report, function: reports.make}]")

    planned = prompt.lines("jobs", "plan", "-f", "jobs.yaml", "--prune")
    done = prompt.lines("jobs", "apply", "-f", "jobs.yaml", "--prune")

    assert "- cleanup: removed" in planned
    assert ["cleanup", "removed"] in [line.split()[:2] for line in done]
    assert [one["job"] for one in prompt.data("jobs", "list")] == ["report"]


def test_several_files_count_as_one(prompt: CliPrompt) -> None:
    (prompt.folder / "more.yaml").write_text("jobs: [{name: more, function: f}]")

    prompt.lines("jobs", "apply", "-f", "jobs.yaml", "-f", "more.yaml", "--prune")

    assert [one["job"] for one in prompt.data("jobs", "list")] == ["cleanup", "more", "report"]


def test_a_job_in_two_files_is_refused(prompt: CliPrompt) -> None:
    (prompt.folder / "more.yaml").write_text("jobs: [{name: report, function: f}]")

    done = prompt.run("jobs", "plan", "-f", "jobs.yaml", "-f", "more.yaml")

    assert (done.code, done.err) == (2, ["error: the job 'report' stands in jobs.yaml and in more.yaml"])


def test_pruning_may_be_kept_to_a_tag(prompt: CliPrompt) -> None:
    prompt.write("jobs: []")

    done = prompt.lines("jobs", "apply", "-f", "jobs.yaml", "--prune-tag", "numbers")

    assert done[-1] == "1 removed in gnomon.db"
    assert [one["job"] for one in prompt.data("jobs", "list")] == ["cleanup"]


def test_a_plan_without_a_database_knows_the_models_of_the_settings(empty: CliPrompt) -> None:
    provider = '{kind: openai, url: "http://127.0.0.1:9"}'
    (empty.folder / "gnomon.yaml").write_text(f"agents: {{providers: {{local: {provider}}}}}")
    empty.write("jobs: [{name: triage, agent: {model: 'local:small', prompt: Sort.}}]")

    done = empty.run("jobs", "plan", "-f", "jobs.yaml", "--config", "gnomon.yaml")

    assert (done.code, done.err) == (0, ["there is no database yet: every job would be new"])
