"""`gnomon announcements`, and what executions and the configuration show of them."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from contracts.store import NOON
from gnomon.adapters.sql.store import SqlStore
from gnomon.core.announcements.model import AnnouncementState
from gnomon.core.model import Result, RunId
from gnomon.ports.announcements import AnnouncementClaim, AnnouncementUpdate
from support.cli_prompt import CliPrompt
from support.task_steps import completion_of, take_task

JOBS = """
jobs:
  - name: backup
    function: storage/backup
    announce: {channel: ops, to: C1}
    overlap: allow
"""
SETTINGS = """
channels:
  ops: {kind: slack, token: xoxb-very-secret}
"""
CONFIG = ("--config", "gnomon.yaml")


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    prompt = CliPrompt(tmp_path, monkeypatch, capsys)
    prompt.write(JOBS)
    (tmp_path / "gnomon.yaml").write_text(SETTINGS)
    return prompt


def reported(prompt: CliPrompt, *, given_up: bool = True) -> str:
    """An execution of the job has ended, and its announcement was given up, or waits."""
    prompt.lines("jobs", "apply", "-f", "jobs.yaml", *CONFIG)
    execution = prompt.triggered("backup")

    async def work(store: SqlStore) -> None:
        run = await store.executions.find_run(RunId(execution))
        assert run is not None
        taken = await take_task(store, "worker-1", run, now=run.planned_at)
        definition = await store.jobs.workflow("default", "backup")
        done = completion_of(taken, Result.SUCCEEDED, now=run.planned_at + 1, definition=definition)
        await store.attempts.report([done])
        if given_up:
            claim = AnnouncementClaim(holder="a", limit=1, per_channel=1, claim_ms=1)
            [held] = await store.announcement_queue.claim(claim)
            over = replace(held, state=AnnouncementState.GIVEN_UP, tries=3, ended_at=NOON, note="answered 403")
            await store.announcement_queue.update([AnnouncementUpdate(announcement=over)], now=run.planned_at)

    prompt.with_store(work)
    return execution


@pytest.mark.req("Z-07")
def test_a_failed_announcement_is_listed_shown_and_retried(prompt: CliPrompt) -> None:
    execution = reported(prompt)

    [header, row] = prompt.lines("announcements", "list")
    columns = ["announcement", "job", "moment", "channel", "state", "planned", "failed tries", "note"]
    assert re.split(r"\s{2,}", header.strip()) == columns
    name = row.split()[0]
    assert "given up" in row
    assert row.endswith("answered 403")
    shown = "\n".join(prompt.lines("announcements", "show", name[:-1]))
    for part in (execution, "success", "C1", "given up", "answered 403"):
        assert part in shown
    [listed] = prompt.data("announcements", "list", "--state", "given_up", "--job", "backup")
    assert (listed["announcement_id"], listed["execution_id"]) == (name, execution)
    assert prompt.data("announcements", "list", "--state", "sent") == []

    assert prompt.lines("announcements", "retry", name) == [f"{name} is tried again"]
    again = prompt.run("announcements", "retry", name)

    assert again.code == 1
    assert "is pending: only one that was given up is tried again" in again.err[0]
    assert prompt.data("announcements", "show", name)["state"] == "pending"


@pytest.mark.req("Z-07")
def test_an_execution_stays_completed_and_shows_that_it_was_not_announced(prompt: CliPrompt) -> None:
    execution = reported(prompt)

    [header, row] = prompt.lines("executions", "list")
    shown = prompt.lines("executions", "show", execution)

    assert header.endswith("announced")
    assert "completed" in row
    assert row.endswith("not announced")
    assert any(line.endswith("success to ops (C1): given up: answered 403") for line in shown)
    [data] = prompt.data("executions", "list")
    assert (data["status"], data["announced"]) == ("completed", "given_up")


def test_an_execution_that_is_to_be_announced_says_so(prompt: CliPrompt) -> None:
    reported(prompt, given_up=False)

    assert prompt.lines("executions", "list")[1].endswith("to be announced")


def test_nothing_is_said_of_announcements_where_there_are_none(prompt: CliPrompt) -> None:
    prompt.write(JOBS.replace("    announce: {channel: ops, to: C1}\n", ""))
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")
    prompt.triggered("backup")

    assert not prompt.lines("executions", "list")[0].endswith("announced")
    assert prompt.lines("announcements", "list") == ["no announcements"]


@pytest.mark.req("Z-14")
def test_a_job_with_a_channel_that_the_configuration_lacks_is_refused_and_changes_nothing(prompt: CliPrompt) -> None:
    refused = prompt.run("jobs", "apply", "-f", "jobs.yaml")
    assert refused.code != 0
    assert "announce.channel: 'ops' is no channel of the settings" in refused.err[0]
    planned = prompt.run("jobs", "plan", "-f", "jobs.yaml")
    assert "is no channel of the settings" in "\n".join(planned.err)
    assert prompt.data("jobs", "list") == []

    prompt.write(JOBS.replace(", to: C1", ""))
    without = prompt.run("jobs", "apply", "-f", "jobs.yaml", *CONFIG)
    assert "announce.to" in without.err[0]
    assert "a channel of kind slack needs a recipient" in without.err[0]
    assert prompt.data("jobs", "list") == []


@pytest.mark.req("Z-07")
def test_the_configuration_hides_tokens(prompt: CliPrompt) -> None:
    lines = prompt.lines("config", "show", "channels", *CONFIG)
    whole = prompt.run("config", "show", "-o", "json", *CONFIG)

    assert any(line.split() == ["channels.ops.token", "[hidden]", "file"] for line in lines)
    assert {"setting": "channels.ops.kind", "value": "slack", "origin": "file"} in whole.data()
    assert "very-secret" not in "\n".join([*lines, *whole.out])
