"""`gnomon audit` on a real database."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from gnomon.adapters.sql import open_sqlite
from support.cli_prompt import CliPrompt


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    prompt = CliPrompt(tmp_path, monkeypatch, capsys)
    prompt.make_database()
    prompt.lines("jobs", "apply", "-f", "jobs.yaml")
    return prompt


def seal(prompt: CliPrompt) -> None:
    async def done() -> None:
        store = await open_sqlite(str(prompt.folder / "gnomon.db"))
        await store.audit.seal(limit=100)
        await store.close()

    asyncio.run(done())


def tamper(prompt: CliPrompt, statement: str) -> None:
    with sqlite3.connect(prompt.folder / "gnomon.db") as conn:
        conn.execute(statement)
    conn.close()


@pytest.mark.req("H-23")
def test_everything_that_was_typed_is_written_down(prompt: CliPrompt) -> None:
    letter = prompt.failed()
    prompt.lines("jobs", "pause", "report")
    prompt.lines("jobs", "resume", "report")
    prompt.lines("executions", "cancel", prompt.triggered())
    prompt.lines("dead-letters", "replay", letter)
    prompt.lines("dead-letters", "resolve", letter)
    prompt.lines("events", "emit", "model.drift")
    prompt.lines("jobs", "delete", "cleanup", "--yes")

    reported = [(one["actor"], one["action"], one["kind"]) for one in reversed(prompt.data("audit", "list"))]

    assert reported == [
        ("ada", "deploy", "workflow"),
        ("ada", "deploy", "workflow"),
        ("ada", "register", "job"),
        ("ada", "register", "job"),
        ("ada", "trigger", "job"),
        ("ada", "pause", "job"),
        ("ada", "resume", "job"),
        ("ada", "trigger", "job"),
        ("ada", "cancel", "execution"),
        ("ada", "replay", "job"),
        ("ada", "resolve", "dead_letter"),
        ("ada", "emit", "event"),
        ("ada", "delete", "job"),
    ]


def test_entries_are_listed_for_people(prompt: CliPrompt) -> None:
    prompt.lines("jobs", "pause", "report")

    [heading, line] = prompt.lines("audit", "list", "--name", "report", "--action", "pause")

    assert heading.split() == ["at", "actor", "action", "what", "details", "sealed"]
    assert "ada    pause   job report" in line


def test_looking_changes_nothing_and_no_entries_are_said_to_be_none(prompt: CliPrompt) -> None:
    assert prompt.lines("audit", "list", "--actor", "nobody") == ["no entries"]
    assert prompt.lines("audit", "list", "--since", "2999-01-01T00:00:00Z") == ["no entries"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("list", "--action", "destroy"), "error: action: 'destroy' must be one of register, update"),
        (("list", "--since", "soon"), "error: --since: 'soon' is no time such as"),
        (("list", "--until", "2026-01-32"), "error: --until: '2026-01-32' is no time such as"),
        (("verify", "--expect", "abc"), "error: expect: 'abc' is not a hash"),
        (("verify", "--expect", "abc", "--head", "head"), "error: --expect and --head"),
    ],
)
def test_a_usage_error_is_reported(prompt: CliPrompt, arguments: tuple[str, ...], error: str) -> None:
    done = prompt.run("audit", *arguments)

    assert done.code == 2
    assert error.removeprefix("error: ") in done.err[0]


@pytest.mark.req("H-23")
def test_a_whole_chain_is_proven(prompt: CliPrompt) -> None:
    seal(prompt)

    shown = prompt.lines("audit", "verify")

    assert shown[0] == "intact: 4 entries"
    assert prompt.lines("audit", "verify", "--expect", shown[-1].removeprefix("head ")) == shown


@pytest.mark.req("H-23")
def test_a_broken_chain_ends_with_1_and_says_where(prompt: CliPrompt) -> None:
    seal(prompt)
    tamper(prompt, "UPDATE audit SET actor = 'eve' WHERE seq = 2")

    done = prompt.run("audit", "verify")

    assert done.code == 1
    assert done.out[:2] == ["entry 2 was changed", "BROKEN: 4 entries"]
    assert prompt.run("audit", "verify", "-o", "json").data()["flaws"] == [{"seq": 2, "reason": "entry 2 was changed"}]


@pytest.mark.req("H-23")
def test_a_file_keeps_the_head_so_that_an_end_that_was_cut_off_is_missed(prompt: CliPrompt) -> None:
    seal(prompt)
    first = prompt.lines("audit", "verify", "--head", "head")
    assert (prompt.folder / "head").read_text() == first[-1].removeprefix("head ") + "\n"
    tamper(prompt, "DELETE FROM audit WHERE seq = 4")

    done = prompt.run("audit", "verify", "--head", "head")

    assert done.code == 1
    assert done.out[0].startswith("the expected entry is not there")
    assert (prompt.folder / "head").read_text() == first[-1].removeprefix("head ") + "\n"
