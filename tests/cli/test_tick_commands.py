"""`gnomon jobs skip`, `resume` and `backfill` on a real database."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gnomon.adapters.sql.store import SqlStore
from gnomon.core.ledger.edits import verdict_before_edit
from support.cli_prompt import CliPrompt


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    prompt = CliPrompt(tmp_path, monkeypatch, capsys)
    prompt.make_database()
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")
    return prompt


def planned(prompt: CliPrompt) -> list[str]:
    found: list[str] = prompt.data("jobs", "next", "report", "-n", "3")["next_runs"]
    return found


# ---- skip ----------------------------------------------------------------------------------------


def test_a_coming_run_is_skipped_and_shown_as_such(prompt: CliPrompt) -> None:
    first, second, third = planned(prompt)

    [said] = prompt.lines("jobs", "skip", "report", "--at", second)

    assert said.startswith("report: ")
    assert said.endswith(" is skipped")
    assert planned(prompt)[:2] == [first, third]
    assert prompt.data("jobs", "show", "report")["exceptions"] == [{"planned_at": second, "moved_to": None}]
    assert any(line.startswith("exceptions") for line in prompt.lines("jobs", "show", "report"))


def test_a_run_is_moved_on_the_clocks_of_the_job_and_applying_the_file_keeps_that(prompt: CliPrompt) -> None:
    first = planned(prompt)[0]
    day = first[:10]

    prompt.lines("jobs", "skip", "report", "--at", f"{day}T09:00", "--move-to", f"{day}T10:30")

    assert prompt.lines("jobs", "apply", "-f", "jobs.yaml") == ["2 unchanged in gnomon.db"]
    [moved] = prompt.data("jobs", "show", "report")["exceptions"]
    assert moved["planned_at"] == first
    assert planned(prompt)[0] == moved["moved_to"]


def test_a_skip_is_undone(prompt: CliPrompt) -> None:
    before = planned(prompt)
    prompt.lines("jobs", "skip", "report", "--at", before[0])

    [said] = prompt.lines("jobs", "skip", "report", "--at", before[0], "--undo")

    assert said.endswith("again")
    assert planned(prompt) == before


@pytest.mark.parametrize(
    ("reported", "reason"),
    [
        (("--at", "2099-01-01T00:00:01Z"), "is no planned time: the one before is at"),
        (("--at", "tomorrow"), '--at: "tomorrow" is not an instant'),
        (("--at", "2099-01-01T00:00Z", "--undo", "--move-to", "2099-01-01T00:00Z"), "cannot be used with --move-to"),
    ],
)
def test_a_tick_that_cannot_be_skipped_is_reported(prompt: CliPrompt, reported: tuple[str, ...], reason: str) -> None:
    done = prompt.run("jobs", "skip", "report", *reported)

    assert done.code == 2
    assert reason in "\n".join(done.err)


# ---- resume --------------------------------------------------------------------------------------

BEAT = """
jobs:
  - { name: beat, function: heart.beat, schedule: "* * * * * *", enabled: false }
"""


def resting(prompt: CliPrompt, seconds: int = 100) -> CliPrompt:
    """Pause the job so many seconds ago."""
    prompt.write(BEAT)
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")

    async def earlier(store: SqlStore) -> None:
        found = await store.schedules.find("default", "beat")
        assert found is not None
        at = found.mark_at - seconds * 1000
        before = replace(found, mark_at=at, paused_at=at)
        verdict = verdict_before_edit(found, now=found.mark_at)
        assert await store.schedules.change(verdict, before, now=at, actor="ada", tzdata="")

    prompt.with_store(earlier)
    return prompt


def test_resuming_says_what_the_pause_swallowed_and_how_to_run_it(prompt: CliPrompt) -> None:
    goes_on, swallowed, hint = resting(prompt).lines("jobs", "resume", "beat")

    assert goes_on.startswith("beat is resumed; its next run is at ")
    assert swallowed.startswith("10")
    assert "runs missed during the pause" in swallowed
    assert hint.startswith("to run them: gnomon jobs backfill beat --from ")


@pytest.mark.parametrize(
    ("choice", "runs"), [(["latest"], 1), (["all"], 100), (["spread", "10m"], 100), (["since 2020-01-01"], 100)]
)
def test_missed_ticks_run_on_request(prompt: CliPrompt, choice: list[str], runs: int) -> None:
    *_, reported = resting(prompt).lines("jobs", "resume", "beat", "--missed", *choice)

    assert int(reported.split()[0]) >= runs
    assert "will run" in reported
    assert len(prompt.data("executions", "list", "-n", "1000")) == int(reported.split()[0])


@pytest.mark.parametrize(
    "choice", [["often"], ["since"], ["all", "10m"], ["spread", "soon"], ["since 2020-01-01", "x"]]
)
def test_an_invalid_choice_is_refused_and_the_pause_stays(prompt: CliPrompt, choice: list[str]) -> None:
    done = resting(prompt).run("jobs", "resume", "beat", "--missed", *choice)

    assert done.code == 2
    assert prompt.data("jobs", "show", "beat")["paused"]


# ---- backfill ------------------------------------------------------------------------------------

WEEK = ("jobs", "backfill", "report", "--from", "2026-03-02", "--to", "2026-03-06")


def test_a_preview_says_what_would_run_and_changes_nothing(prompt: CliPrompt) -> None:
    *times, reported = prompt.lines(*WEEK, "--dry-run")

    assert (times[0], times[-1]) == ("Mon 2026-03-02 09:00:00 EST", "Fri 2026-03-06 09:00:00 EST")
    assert reported == "5 would run, 0 had a run before"
    assert prompt.lines("jobs", "backfills") == ["no backfills"]


def test_a_backfill_is_listed_with_its_progress_and_cancelled(prompt: CliPrompt) -> None:
    [said] = prompt.lines(*WEEK, "--max-parallel", "2", "--detach")
    backfill = said.split()[0]

    [listed] = prompt.data("jobs", "backfills", "report")
    [cancelled] = prompt.lines("jobs", "backfill", "--cancel", backfill)

    assert said.endswith("has 5 planned times to run")
    assert (listed["backfill_id"], listed["state"], listed["planned"], listed["max_parallel"]) == (
        backfill,
        "under way",
        5,
        2,
    )
    assert cancelled == f"{backfill} of report is cancelled: 0 ran, 0 had a run before, 0 failed"
    shown = prompt.lines("jobs", "backfills")[1]
    assert "cancelled" in shown
    assert "  Mon 2026-03-02 00:00:00 EST  Fri 2026-03-06 23:59:59 EST  " in shown


def test_a_backfill_of_a_deleted_job_is_listed_in_utc(prompt: CliPrompt) -> None:
    prompt.lines(*WEEK, "--detach")
    prompt.lines("jobs", "delete", "report", "--yes")

    assert "  Mon 2026-03-02 05:00:00 UTC  " in prompt.lines("jobs", "backfills")[1]


def test_without_a_worker_nobody_waits(prompt: CliPrompt) -> None:
    done = prompt.run(*WEEK)

    assert (done.code, done.err) == (0, ["no worker is alive: the backfill starts when one is"])


@pytest.mark.parametrize(
    ("reported", "reason"),
    [
        (("report",), "a backfill needs a job, --from and --to"),
        (("report", "--cancel", "bf_1"), "takes only the id"),
        (("--cancel", "bf_1"), "there is no backfill 'bf_1'"),
        (("report", "--from", "2026-03-02", "--to", "2199-01-01"), "is in the future"),
    ],
)
def test_a_backfill_that_makes_no_sense_is_refused(prompt: CliPrompt, reported: tuple[str, ...], reason: str) -> None:
    done = prompt.run("jobs", "backfill", *reported)

    assert done.code == 2
    assert reason in "\n".join(done.err)
