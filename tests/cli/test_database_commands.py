"""`gnomon db clean` on a real database."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from acceptance.test_killed_cleaners import RUNS, prepared
from gnomon.adapters.archive import read_archive
from support.cli_prompt import CliPrompt


@pytest.fixture
def prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CliPrompt:
    made = CliPrompt(tmp_path, monkeypatch, capsys)
    asyncio.run(prepared(str(tmp_path / "gnomon.db")))
    return made


def runs_left(folder: Path) -> int:
    with sqlite3.connect(folder / "gnomon.db") as file:
        [(count,)] = file.execute("SELECT count(*) FROM run").fetchall()
    return int(count)


@pytest.mark.req("H-11")
def test_a_dry_run_says_what_would_go(prompt: CliPrompt, tmp_path: Path) -> None:
    assert prompt.lines("db", "clean", "--dry-run") == [
        "kind  would be deleted",
        f"runs  {RUNS}",
        "ticks whose runs still exist are not counted: they are deleted after their runs",
    ]
    assert runs_left(tmp_path) == RUNS


@pytest.mark.req("H-11")
def test_what_is_old_is_archived_beside_the_file_and_gone(prompt: CliPrompt, tmp_path: Path) -> None:
    done = prompt.data("db", "clean")

    assert done["gone"] == {"runs": RUNS}
    assert done["archived_rows"] == {"run": RUNS, "task": RUNS, "attempt": RUNS, "payload": 2 * RUNS}
    assert runs_left(tmp_path) == 0
    assert sum(row["table"] == "run" for row in read_archive(tmp_path / "gnomon.db.archive")) == RUNS
    assert prompt.lines("db", "clean") == ["nothing is older than its retention"]


def test_who_wants_no_archive_gets_none(prompt: CliPrompt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_EXECUTION__ARCHIVE_DIR", "none")

    prompt.lines("db", "clean")

    assert runs_left(tmp_path) == 0
    assert not (tmp_path / "gnomon.db.archive").exists()


def test_on_a_server_nothing_goes_until_a_folder_is_named(prompt: CliPrompt) -> None:
    done = prompt.run("db", "clean", "--database", "postgresql://ada@nowhere/gnomon")

    assert done.code == 2
    assert "execution.archive_dir" in done.err[0]
