"""`gnomon db clean` on a real database."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from acceptance.test_killed_cleaners import RUNS, prepared
from gnomon.adapters.archive import read_archive, unpacked_rows
from support.cli_prompt import CliPrompt
from support.object_storage import BUCKET, KEY_ID, REGION, SECRET, object_storage


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
def test_expired_records_are_archived_beside_the_file_and_removed(prompt: CliPrompt, tmp_path: Path) -> None:
    done = prompt.data("db", "clean")

    assert done["gone"] == {"runs": RUNS}
    assert done["archived_rows"] == {"run": RUNS, "task": RUNS, "attempt": RUNS, "payload": 2 * RUNS}
    assert runs_left(tmp_path) == 0
    assert sum(row["table"] == "run" for row in read_archive(tmp_path / "gnomon.db.archive")) == RUNS
    assert prompt.lines("db", "clean") == ["nothing is older than its retention"]


def test_the_archive_can_be_turned_off(prompt: CliPrompt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GNOMON_EXECUTION__ARCHIVE_DIR", "none")

    prompt.lines("db", "clean")

    assert runs_left(tmp_path) == 0
    assert not (tmp_path / "gnomon.db.archive").exists()


@pytest.mark.req("H-11")
def test_expired_records_are_archived_in_object_storage_before_they_are_removed(
    prompt: CliPrompt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    secret.chmod(0o600)
    monkeypatch.setenv("GNOMON_EXECUTION__ARCHIVE", f"s3://{BUCKET}/mine")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"file:{secret}")
    monkeypatch.setenv("AWS_REGION", REGION)
    with object_storage() as storage:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", storage.endpoint)
        storage.refuses = "AccessDenied"
        refused = prompt.run("db", "clean")
        assert (refused.code, "AccessDenied" in refused.err[0], SECRET in str(refused)) == (1, True, False)
        assert runs_left(tmp_path) == RUNS
        storage.refuses = ""

        assert prompt.data("db", "clean")["gone"] == {"runs": RUNS}

        assert all(key.startswith("mine/") for key in storage.objects)
        rows = [row for key, content in storage.objects.items() for row in unpacked_rows(content, key)]
    assert sum(row["table"] == "run" for row in rows) == RUNS
    assert runs_left(tmp_path) == 0
    assert not (tmp_path / "gnomon.db.archive").exists()


def test_on_a_server_a_command_archives_only_where_the_servers_do(prompt: CliPrompt) -> None:
    done = prompt.run("db", "clean", "--database", "postgresql://ada@nowhere/gnomon")

    assert done.code == 2
    assert "execution.archive_dir" in done.err[0]
