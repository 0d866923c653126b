"""Approvals of commands, and the policy of commands at the command line, on a real database."""

from pathlib import Path

import pytest

from support.cli_prompt import CliPrompt

TAG = "jobs:\n  - {name: tagger, command: git tag v1}\n"


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    """All commands are guarded."""
    monkeypatch.setenv("GNOMON_SECURITY__PROFILE", "guarded")
    prompt = CliPrompt(tmp_path, monkeypatch, capsys)
    prompt.write(TAG)
    return prompt


@pytest.mark.req("Z-04")
def test_a_command_that_the_policy_would_refuse_is_not_added(prompt: CliPrompt) -> None:
    prompt.write("jobs:\n  - {name: bad, command: rm -rf x}\n")

    done = prompt.run("jobs", "apply", "-f", "jobs.yaml")

    assert (done.code, done.out) == (2, [])
    assert "blocked by security policy: command not allowed: rm -rf x" in done.err[-1]
    assert prompt.lines("jobs", "list") == ["no jobs: gnomon jobs apply -f FILE registers them"]


@pytest.mark.req("Z-04")
def test_jobs_of_the_machine_are_open_by_default(prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GNOMON_SECURITY__PROFILE")
    prompt.write("jobs:\n  - {name: free, command: rm -rf x}\n")

    assert prompt.lines("jobs", "apply", "-f", "jobs.yaml")[-1] == "1 created in the new database gnomon.db"


def test_a_command_of_medium_risk_is_added_with_a_warning_that_says_what_to_type(prompt: CliPrompt) -> None:
    done = prompt.run("jobs", "apply", "-f", "jobs.yaml")

    assert done.code == 0
    assert done.err[0].startswith("warning: tagger: command: command not allowed: git tag v1")
    assert "gnomon approvals ask tagger" in done.err[0]


def test_an_approval_is_asked_for_given_shown_and_revoked(prompt: CliPrompt) -> None:
    prompt.run("jobs", "apply", "-f", "jobs.yaml")

    [asked] = prompt.lines("approvals", "ask", "tagger", "--reason", "it only tags")
    how = asked.split()[-4:]
    waiting = prompt.lines("approvals", "show", how[1])
    [said] = prompt.lines("approvals", *how)
    listed, shown = prompt.lines("jobs", "list"), prompt.lines("jobs", "show", "tagger")
    [revoked] = prompt.lines("approvals", "revoke", how[1])

    assert asked.startswith("tagger waits for 1 person with the role admin: gnomon approvals approve apr_")
    assert any("main: git tag v1" in line for line in waiting)
    assert said.startswith("tagger may run its commands as they are now, until they change")
    assert listed[1].endswith("cli, approved")
    [approved] = [line for line in shown if line.startswith("approved")]
    assert approved.split(maxsplit=1)[1].startswith("by ada since ")
    assert approved.endswith(": it only tags")
    assert revoked == "tagger may not run its commands any more"
    assert prompt.lines("jobs", "list")[1].endswith("cli")


@pytest.mark.req("Z-04")
@pytest.mark.parametrize(
    "change",
    [
        ("jobs", "trigger", "tagger"),
        ("jobs", "pause", "tagger"),
        ("jobs", "delete", "tagger", "--yes"),
        ("approvals", "ask", "tagger"),
        ("jobs", "apply", "-f", "jobs.yaml"),
        ("events", "emit", "something"),
    ],
    ids=" ".join,
)
def test_read_only_refuses_every_change_and_lists_everything(
    prompt: CliPrompt, monkeypatch: pytest.MonkeyPatch, change: tuple[str, ...]
) -> None:
    prompt.run("jobs", "apply", "-f", "jobs.yaml")
    monkeypatch.setenv("GNOMON_SECURITY__AUTONOMY", "read_only")
    prompt.write(TAG.replace("v1", "v2"))

    done = prompt.run(*change)

    assert done.code != 0
    assert "blocked by security policy: autonomy is read-only" in done.err[-1]
    assert prompt.lines("jobs", "list")[1].startswith("tagger")
    assert prompt.data("jobs", "show", "tagger")["definition"]["command"] == "git tag v1"
