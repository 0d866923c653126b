"""`gnomon cron` on a real database and at a server: every command, and every kind of nonsense."""

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from contracts.store import TTL
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import plan
from gnomon.core.model import Result, Run
from support.api_server import background_scheduler
from support.cli_prompt import CliPrompt, CommandResult
from support.gnomon_processes import up
from support.task_steps import finish_run, runs_of

LATER = (datetime.now(UTC) + timedelta(days=30)).replace(microsecond=0)


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    return CliPrompt(tmp_path, monkeypatch, capsys)


def definition(prompt: CliPrompt, name: str) -> dict[str, Any]:
    found: dict[str, Any] = prompt.data("jobs", "show", name)["definition"]
    return found


def refused(prompt: CliPrompt, *words: str) -> str:
    """The error of a command that is refused."""
    done = prompt.run("cron", *words)
    assert (done.code, done.out, len(done.err)) == (2, [], 1), done
    return done.err[0].removeprefix("error: ")


def names(prompt: CliPrompt) -> list[str]:
    return [one["job"] for one in prompt.data("cron", "list")]


# ---- adding --------------------------------------------------------------------------------------


@pytest.mark.req("Z-12")
def test_a_command_that_needs_an_approval_is_added_with_a_warning(prompt: CliPrompt) -> None:
    added = prompt.run("cron", "add", "0 9 * * *", "git push origin main", "--name", "publish")
    changed = prompt.run("cron", "update", "publish", "--command", "git push origin next")

    for done in (added, changed):
        assert (done.code, len(done.out)) == (0, 1)
        [warning] = done.err
        assert warning.startswith("warning: publish: command: ")
        assert "gnomon " in warning


@pytest.mark.req("Z-06", "Z-08", "Z-09")
def test_add_makes_an_ordinary_job_with_the_retries_and_history_of_the_settings(prompt: CliPrompt) -> None:
    [said] = prompt.lines("cron", "add", "*/5 * * * *", 'echo "hi there"', "--tz", "Asia/Tokyo")

    assert re.fullmatch(r"echo-hi-there is added; its next run is at \w+ [-0-9]+ [:0-9]+ JST", said)
    found = definition(prompt, "echo-hi-there")
    assert (found["schedule"], found["timezone"], found["command"]) == ("*/5 * * * *", "Asia/Tokyo", 'echo "hi there"')
    assert found["retry"] == {
        "max_attempts": 4,
        "initial_delay": "200ms",
        "multiplier": 2.0,
        "max_delay": "30s",
        "jitter": "250ms",
    }
    assert (found["retention"], found["tags"]) == ({"runs": 50}, ["cron"])
    assert prompt.data("jobs", "show", "echo-hi-there")["origin"] == "cron"


@pytest.mark.req("Z-06")
def test_the_settings_of_a_seed_decide_about_retries_and_history(prompt: CliPrompt) -> None:
    (prompt.folder / "gnomon.yaml").write_text(
        "reliability: {scheduler_retries: 1, provider_backoff_ms: 500}\ncron: {max_run_history: 7}\n"
    )
    prompt.lines("cron", "add", "@daily", "pwd", "--config", "gnomon.yaml")

    found = definition(prompt, "pwd")
    assert (found["retry"]["max_attempts"], found["retry"]["initial_delay"]) == (2, "500ms")
    assert found["retention"] == {"runs": 7}


@pytest.mark.req("Z-08")
def test_each_kind_of_schedule_has_a_command(prompt: CliPrompt) -> None:
    prompt.lines("cron", "add", "every weekday at 9am", "pwd", "--name", "sentence")
    prompt.lines("cron", "add-at", LATER.isoformat(), "pwd", "--name", "instant")
    prompt.lines("cron", "add-at", f"{LATER:%Y-%m-%dT%H:%M}", "pwd", "--tz", "Europe/Berlin", "--name", "local")
    prompt.lines("cron", "add-at", LATER.isoformat(), "pwd", "--keep", "--name", "kept")
    prompt.lines("cron", "add-every", "90000", "pwd", "--name", "interval")
    # Instants are kept in milliseconds.
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    prompt.lines("cron", "once", "90", "pwd", "--name", "delayed")
    after = datetime.now(UTC)

    assert definition(prompt, "sentence")["schedule"] == "0 9 * * 1-5"
    assert (definition(prompt, "instant")["at"], definition(prompt, "instant")["delete_after_run"]) == (
        LATER.isoformat(),
        True,
    )
    assert "delete_after_run" not in definition(prompt, "kept")
    assert datetime.fromisoformat(definition(prompt, "local")["at"]).utcoffset() is not None
    assert definition(prompt, "interval")["every"] == "1m30s"
    at = datetime.fromisoformat(definition(prompt, "delayed")["at"])
    assert before <= at - timedelta(minutes=90) <= after
    assert definition(prompt, "delayed")["delete_after_run"] is True


def test_names_that_are_not_given_are_made_of_the_command_and_unique(prompt: CliPrompt) -> None:
    for _ in range(3):
        prompt.lines("cron", "add", "@daily", "echo +%s")

    assert sorted(names(prompt)) == ["echo-s", "echo-s-2", "echo-s-3"]


def test_data_for_programs_is_that_of_the_api(prompt: CliPrompt) -> None:
    added = prompt.data("cron", "add", "@daily", "pwd")

    assert (added["job"], added["change"]) == ("pwd", "created")


@pytest.mark.req("Z-14")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("add", "61 * * * *", "pwd"), "minute field has 61"),
        (("add", "tomorrow", "pwd"), "names one moment"),
        (("add", "2030-01-01T00:00:00Z", "pwd"), "is one instant: use gnomon cron add-at"),
        (("add", "@daily", "pwd", "--tz", "Mars/City"), "is not an IANA time zone"),
        (("add", "@daily", " "), "command: ' ' must be a text"),
        (("add", "@daily", ""), "command: '' must be a text"),
        (("add", "@daily", "echo ${secret:X}"), "names a secret"),
        (("add", "@daily", "pwd", "--name", "Not Valid"), "name: 'Not Valid' must be"),
        (("add", "@daily", "pwd", "--name", ""), "name: '' must be"),
        (("add", "0 0 30 2 *", "pwd"), "never"),
        (("add-at", "2020-01-01T00:00:00Z", "pwd"), "INSTANT: '2020-01-01T00:00:00Z' is over"),
        (("add-at", "2030-01-01T00:00", "pwd"), "names no time zone"),
        (("add-at", "2030-01-01T00:00", "pwd", "--tz", "Mars/City"), "is not an IANA time zone"),
        (("add-at", "soon", "pwd"), "is not an instant"),
        (("add-at", "10000-01-01T00:00:00Z", "pwd"), "is not an instant"),
        (("add-every", "0", "pwd"), "is no interval"),
        (("add-every", "5", "pwd"), "every: '5ms' must be from 100ms"),
        (("add-every", "often", "pwd"), "is no duration"),
        (("once", "0", "pwd"), "is no delay"),
        (("once", "5x", "pwd"), "is no duration"),
        (("once", "", "pwd"), "is no duration"),
        (("once", "99999999d", "pwd"), "must be from"),
        (("once", "4000d", "pwd"), "is longer than 3660d"),
    ],
)
def test_nonsense_is_refused_and_makes_neither_job_nor_database(
    prompt: CliPrompt, words: tuple[str, ...], reason: str
) -> None:
    done = prompt.run("cron", *words)

    assert (done.code, done.out) == (2, [])
    assert reason in done.err[0]
    assert prompt.run("cron", "list").out in ([], ['no jobs: gnomon cron add "*/5 * * * *" COMMAND adds one'])


def test_a_missing_argument_names_the_command(prompt: CliPrompt) -> None:
    for words in (("add", "@daily"), ("once",), ("update",), ("runs",), ("remove",)):
        done = prompt.run("cron", *words)
        assert (done.code, "missing argument" in done.err[0]) == (2, True)


def test_a_name_that_another_job_has_is_refused_also_for_the_same_definition(prompt: CliPrompt) -> None:
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")
    prompt.lines("cron", "add", "@daily", "pwd", "--name", "daily")

    for name, command in (("daily", "ls"), ("daily", "pwd"), ("report", "pwd")):
        done = prompt.run("cron", "add", "@daily", command, "--name", name)
        assert (done.code, done.out) == (1, [])
        assert done.err == [f"error: there is another job {name!r}: change that, or take another name"]
    assert definition(prompt, "daily")["command"] == "pwd"


# ---- listing -------------------------------------------------------------------------------------


def test_the_list_is_ordered_by_the_next_run_and_has_only_these_jobs(prompt: CliPrompt) -> None:
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")
    prompt.lines("cron", "add-at", LATER.isoformat(), "pwd", "--name", "a-last")
    prompt.lines("cron", "add-every", "1d", "pwd", "--name", "b-middle")
    prompt.lines("cron", "add-every", "1h", "pwd", "--name", "c-first")
    prompt.lines("cron", "add-every", "1m", "pwd", "--name", "a-paused")
    prompt.lines("cron", "pause", "a-paused")

    lines = prompt.lines("cron", "list")

    assert [line.split()[0] for line in lines] == ["job", "c-first", "b-middle", "a-last", "a-paused"]
    assert names(prompt) == ["c-first", "b-middle", "a-last", "a-paused"]


# ---- delivery ------------------------------------------------------------------------------------

CHANNELS = "channels: {ops: {kind: slack, token: xoxb-x}, hook: {kind: webhook, url: 'http://127.0.0.1/', secret: x}}"


@pytest.mark.req("Z-07")
@pytest.mark.parametrize(
    "words", [("add", "@daily"), ("add-at", LATER.isoformat()), ("add-every", "5m"), ("once", "1d")]
)
def test_a_delivery_becomes_an_announcement(prompt: CliPrompt, tmp_path: Path, words: tuple[str, str]) -> None:
    (tmp_path / "gnomon.yaml").write_text(CHANNELS)
    given = {"mode": "Announce", "channel": "OPS", "to": "C1", "best_effort": False}
    prompt.lines("cron", *words, "pwd", "--name", "told", "--delivery", json.dumps(given), "--config", "gnomon.yaml")

    assert definition(prompt, "told")["announce"] == {"channel": "ops", "to": "C1", "best_effort": False}


@pytest.mark.req("Z-07")
def test_an_update_replaces_or_ends_a_delivery_and_keeps_one_that_it_does_not_name(
    prompt: CliPrompt, tmp_path: Path
) -> None:
    (tmp_path / "gnomon.yaml").write_text(CHANNELS)
    config = ("--config", "gnomon.yaml")
    told = '{"mode": "announce", "channel": "ops", "to": "%s"}'
    prompt.lines("cron", "add", "@daily", "pwd", "--name", "told", "--delivery", told % "C1", *config)

    for words, announce in (
        (("--command", "ls"), {"channel": "ops", "to": "C1"}),
        (("--delivery", told % "C2"), {"channel": "ops", "to": "C2"}),
        (("--delivery", '{"mode": "none"}'), None),
        (("--command", "pwd"), None),
        (("--delivery", told % "C3", "--command", "ls"), {"channel": "ops", "to": "C3"}),
    ):
        prompt.lines("cron", "update", "told", *words, *config)
        assert definition(prompt, "told").get("announce") == announce


@pytest.mark.req("Z-07", "Z-14")
@pytest.mark.parametrize(
    ("delivery", "reason"),
    [
        ("announce", "--delivery: 'announce' is not JSON"),
        ("[]", "--delivery"),
        ('{"mode": "mail"}', "must be announce or none"),
        ('{"mode": "announce", "to": "C1"}', "delivery.channel is required for announce mode"),
        ('{"mode": "announce", "channel": "ops"}', "delivery.to is required for announce mode"),
        ('{"mode": "announce", "channel": "nobody", "to": "C1"}', "announce.channel: 'nobody' is no channel"),
        ('{"mode": "announce", "channel": "ops", "to": "a b"}', "announce.to: 'a b' must be the id of a channel"),
        ('{"mode": "announce", "channel": "hook", "to": "C1"}', "means nothing to a channel of kind webhook"),
        ('{"mode": "announce", "channel": "ops", "to": "C1", "after": 3}', "--delivery.after"),
    ],
)
def test_a_delivery_that_is_wrong_adds_nothing(prompt: CliPrompt, tmp_path: Path, delivery: str, reason: str) -> None:
    (tmp_path / "gnomon.yaml").write_text(CHANNELS)
    prompt.lines("cron", "add", "@daily", "pwd", "--name", "first")

    assert reason in refused(prompt, "add", "@daily", "pwd", "--delivery", delivery, "--config", "gnomon.yaml")
    assert names(prompt) == ["first"]


# ---- changing ------------------------------------------------------------------------------------


@pytest.mark.req("Z-08")
def test_an_update_changes_what_it_names_and_keeps_the_rest(prompt: CliPrompt) -> None:
    prompt.lines("cron", "add", "0 9 * * *", "pwd", "--name", "daily", "--tz", "Asia/Tokyo")
    before = definition(prompt, "daily")

    for words, changes in (
        (("--tz", "UTC"), {"timezone": "UTC"}),
        (("--expression", "0 7 * * *"), {"schedule": "0 7 * * *"}),
        (("--command", "pwd -P"), {"command": "pwd -P"}),
        (("--expression", "@hourly", "--tz", "Europe/Rome"), {"schedule": "@hourly", "timezone": "Europe/Rome"}),
    ):
        assert prompt.lines("cron", "update", "daily", *words)[0].startswith("daily is changed; its next run is at ")
        before |= changes
        assert definition(prompt, "daily") == before
    assert prompt.lines("cron", "update", "daily", "--tz", "Europe/Rome") == ["daily is unchanged: it was so already"]
    assert prompt.data("jobs", "show", "daily")["origin"] == "cron"


def test_an_update_of_the_other_kinds(prompt: CliPrompt) -> None:
    prompt.lines("cron", "add-every", "1h", "pwd", "--name", "interval")
    prompt.lines("cron", "once", "1h", "pwd", "--name", "single")

    prompt.lines("cron", "update", "interval", "--every", "1800000")
    prompt.lines("cron", "update", "single", "--at", f"{LATER:%Y-%m-%dT%H:%M:%S}", "--tz", "UTC")

    assert definition(prompt, "interval")["every"] == "30m"
    assert definition(prompt, "single")["at"] == LATER.isoformat()


@pytest.mark.req("Z-14")
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "nothing would change"),
        (("--every", "5m"), "--every: '5m' does not fit: daily runs by a schedule, which --expression changes"),
        (("--at", "2030-01-01T00:00:00Z"), "--at: '2030-01-01T00:00:00Z' does not fit"),
        (("--expression", "61 * * * *"), "minute field has 61"),
        (("--expression", "2030-01-01T00:00:00Z"), "is one instant"),
        (("--tz", "Mars/City"), "is not an IANA time zone"),
        (("--command", " "), "must be a text"),
    ],
)
def test_an_update_that_is_wrong_changes_nothing(prompt: CliPrompt, words: tuple[str, ...], reason: str) -> None:
    prompt.lines("cron", "add", "@daily", "pwd", "--name", "daily")
    before = prompt.data("jobs", "show", "daily")

    done = prompt.run("cron", "update", "daily", *words)

    assert (done.code, done.out) == (2, [])
    assert reason in done.err[0]
    assert prompt.data("jobs", "show", "daily") == before


def test_an_update_of_an_instant_to_one_that_is_over_is_refused(prompt: CliPrompt) -> None:
    prompt.lines("cron", "once", "1h", "pwd", "--name", "single")

    assert "is over: now is" in refused(prompt, "update", "single", "--at", "2020-01-01T00:00:00Z")


def test_names_may_be_shortened_but_not_ambiguous(prompt: CliPrompt) -> None:
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")
    for name in ("backup-a", "backup-b", "other"):
        prompt.lines("cron", "add", "@daily", "pwd", "--name", name)

    for command in ("pause", "resume", "remove", "run", "runs", "update"):
        assert refused(prompt, command, "backup") == "'backup' is the beginning of several names: backup-a, backup-b"
        assert refused(prompt, command, "nosuch") == "there is no job of gnomon cron 'nosuch'"
        assert "report is no job of gnomon cron: it comes from cli" in refused(prompt, command, "report")
    assert prompt.lines("cron", "pause", "OTH") == ["other is paused"]
    assert prompt.lines("cron", "remove", "backup-a") == ["backup-a is removed; its history stays"]
    assert sorted(names(prompt)) == ["backup-b", "other"]


def test_pause_and_resume(prompt: CliPrompt) -> None:
    prompt.lines("cron", "add-every", "1h", "pwd", "--name", "hourly")

    assert prompt.lines("cron", "pause", "hourly") == ["hourly is paused"]
    assert prompt.data("cron", "list")[0]["state"] == "paused"
    changed = prompt.lines("cron", "update", "hourly", "--command", "pwd -P")
    assert changed == ["hourly is changed, and paused: gnomon cron resume hourly starts it"]
    [said] = prompt.lines("cron", "resume", "hourly")
    assert said.startswith("hourly is resumed; its next run is at ")


# ---- one-shots -----------------------------------------------------------------------------------


def single(prompt: CliPrompt, **fields: object) -> None:
    """Make a job of these commands for this very moment."""
    at = datetime.now(UTC).isoformat()
    job = {"name": "single", "command": "pwd", "at": at, "delete_after_run": True, "tags": ["cron"], **fields}
    prompt.write(json.dumps({"jobs": [job]}))
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")


def decided(prompt: CliPrompt, result: Result | None = None) -> Run | None:
    """Let a scheduler decide the tick of the job, and a worker end its run."""

    async def work(store: SqlStore) -> Run | None:
        schedule = await store.schedules.find("default", "single")
        assert schedule is not None
        terms = await store.shards.claim("node", ttl_ms=TTL, limit=SHARDS, by_force=True)
        now = await store.now()
        assert await store.ledger.decide([plan(schedule, now=now)], now=now, terms=terms)
        for run in await runs_of(store, schedule):
            assert result is not None
            assert await finish_run(store, run, result=result, now=now)
            return run
        return None

    return prompt.with_store(work)


@pytest.mark.req("Z-08")
@pytest.mark.parametrize("once", [True, False])
def test_a_one_shot_whose_moment_was_missed_says_so(
    prompt: CliPrompt,
    monkeypatch: pytest.MonkeyPatch,
    once: bool,  # noqa: FBT001 - a case
) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    single(prompt, at=at.isoformat(), misfire_grace="0s", delete_after_run=once)
    real_clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real_clock() + 3601 * 10**9)

    assert prompt.data("cron", "list")[0]["state"] == "missed", "no scheduler has decided it yet"
    assert decided(prompt) is None
    assert prompt.data("cron", "list")[0]["state"] == "missed"
    assert prompt.lines("cron", "list")[1].split()[:2] == ["single", "missed"]
    assert prompt.data("jobs", "show", "single")["state"] == "missed"


@pytest.mark.req("Z-08")
def test_a_one_shot_is_gone_after_success_and_its_runs_are_still_shown(prompt: CliPrompt) -> None:
    single(prompt)
    run = decided(prompt, Result.SUCCEEDED)
    assert run is not None

    assert prompt.data("cron", "list") == []
    [shown] = prompt.data("cron", "runs", "single")
    assert (shown["execution_id"], shown["status"], shown["trigger"]) == (run.run_id, "completed", "schedule")


@pytest.mark.req("Z-08")
def test_a_one_shot_that_is_kept_is_done_after_its_run(prompt: CliPrompt) -> None:
    single(prompt, delete_after_run=False)
    assert decided(prompt, Result.SUCCEEDED) is not None

    assert prompt.data("cron", "list")[0]["state"] == "done"


@pytest.mark.req("Z-08")
def test_a_one_shot_that_failed_is_disabled_with_its_history_and_may_get_another_instant(prompt: CliPrompt) -> None:
    single(prompt)
    assert decided(prompt, Result.FAILED) is not None

    assert prompt.data("cron", "list")[0]["state"] == "paused"
    assert [one["status"] for one in prompt.data("cron", "runs", "single")] == ["failed"]
    prompt.lines("cron", "update", "single", "--at", LATER.isoformat())
    assert prompt.lines("cron", "resume", "single")[0].startswith("single is resumed; its next run is at ")


@pytest.mark.req("Z-08")
def test_a_one_shot_whose_time_is_over_is_not_resumed(prompt: CliPrompt) -> None:
    single(prompt, enabled=False)

    assert "single runs once, and its time is over" in refused(prompt, "resume", "single")
    assert prompt.data("cron", "list")[0]["state"] == "paused"


# ---- runs ----------------------------------------------------------------------------------------


@pytest.mark.req("Z-09")
def test_runs_of_a_job_are_shown_newest_first_and_their_output_is_cut(prompt: CliPrompt) -> None:
    prompt.lines("cron", "add", "@daily", "pwd", "--name", "daily")
    assert prompt.lines("cron", "runs", "daily") == ["no runs"]
    for number in range(3):
        execution = prompt.triggered("daily", "--force")
        stdout = json.dumps({"status": 0, "stdout": f"{number}" * 600}).encode()
        prompt.finish_execution(execution, output=stdout)

    shown = prompt.data("cron", "runs", "daily", "--limit", "2")

    assert [one["output"] for one in shown] == ["2" * 500 + "...", "1" * 500 + "..."]
    for one in shown:
        assert one["status"] == "completed"
        started, completed = (datetime.fromisoformat(one[field]) for field in ("started_at", "completed_at"))
        assert one["duration_ms"] == (completed - started) / timedelta(milliseconds=1)
    lines = prompt.lines("cron", "runs", "daily")
    assert [line.split()[0] for line in lines[:1]] == ["execution"]
    assert len(lines) == 4


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1001"])
def test_a_limit_of_nothing_is_refused(prompt: CliPrompt, limit: str) -> None:
    assert "--limit" in refused(prompt, "runs", "daily", "--limit", limit)


@pytest.mark.req("Z-02", "Z-08")
@pytest.mark.timeout(120)
def test_a_forced_run_waits_for_its_end_and_shows_what_it_printed(prompt: CliPrompt) -> None:
    prompt.lines("cron", "add", "@yearly", "echo one; echo two", "--name", "good")
    prompt.lines("cron", "add", "@yearly", "cat missing", "--name", "bad")
    prompt.lines("cron", "pause", "good")
    with up(prompt.folder / "gnomon.db", imports=()) as running:
        good, bad = prompt.run("cron", "run", "good"), prompt.run("cron", "run", "bad", "-o", "json")
        assert running.terminate() == 0

    assert (good.code, good.out[1:], good.err) == (0, ["one", "two"], [])
    assert re.fullmatch(r"run_\w+ completed in .*", good.out[0])
    assert bad.code == 1
    assert (bad.data()["status"], bad.data()["job"]) == ("failed", "bad")
    assert bad.data()["error"] == "exit status 1: cat: missing: No such file or directory"
    assert prompt.data("cron", "runs", "bad")[0]["trigger"] == "manual"
    assert prompt.data("cron", "list")[-1]["state"] == "paused", "a forced run resumes nothing"


# ---- at a server ---------------------------------------------------------------------------------


class ServerPrompt(CliPrompt):
    """A prompt beside a server, without a database of its own."""

    address: str

    def run(self, *arguments: str) -> CommandResult:
        """Send the command to the server."""
        return super().run("--server", self.address, *arguments)


@pytest.fixture
def remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[ServerPrompt]:
    found = ServerPrompt(tmp_path, monkeypatch, capsys)
    (tmp_path / "server").mkdir()
    with background_scheduler(tmp_path / "server" / "gnomon.db") as server:
        found.address = str(server.address)
        monkeypatch.setenv("GNOMON_TOKEN", (tmp_path / "server" / "gnomon.db.token").read_text().strip())
        yield found


@pytest.mark.timeout(120)
def test_every_command_works_at_a_server(remote: ServerPrompt) -> None:
    remote.lines("cron", "add", "@yearly", "echo hello", "--name", "yearly")
    remote.lines("cron", "add-at", LATER.isoformat(), "pwd", "--name", "instant")
    remote.lines("cron", "add-every", "1h", "pwd", "--name", "interval")
    remote.lines("cron", "once", "1h", "pwd", "--name", "single")

    assert names(remote)[:2] == ["interval", "single"]
    assert set(names(remote)[2:]) == {"instant", "yearly"}
    assert remote.data("jobs", "show", "yearly")["origin"] == "api"
    remote.lines("cron", "update", "interval", "--every", "2h")
    remote.lines("cron", "pause", "interval")
    remote.lines("cron", "resume", "interval")
    assert remote.lines("cron", "run", "yearly")[1:] == ["hello"]
    assert [one["output"] for one in remote.data("cron", "runs", "yearly")] == ["hello"]
    remote.lines("cron", "remove", "single")
    assert "is the beginning of several names" in refused(remote, "remove", "in")
    assert not (remote.folder / "gnomon.db").exists()
