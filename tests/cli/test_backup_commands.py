"""`gnomon db backup` and `gnomon db restore`, beside a scheduler that runs."""

import json
import sqlite3
import subprocess
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.command_line import run_command
from support.gnomon_processes import TESTS, up

JOBS = """
jobs:
  - name: report
    schedule: "every 1 second"
    command: "true"
    delivery: at_most_once
"""


def gnomon(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = run_command(*words, folder=TESTS)
    assert done.returncode == code, done.stderr
    return done


def last_tick(database: Path) -> int:
    """When the newest tick of the file was planned."""
    with closing(sqlite3.connect(database)) as reader:
        [[newest]] = reader.execute("SELECT max(last_at) FROM tick")
        return int(newest)


@pytest.mark.guarantee("S5")
def test_a_running_scheduler_is_backed_up_and_its_backup_restored(tmp_path: Path) -> None:
    database, backup, other = tmp_path / "gnomon.db", tmp_path / "backup.db", tmp_path / "other.db"
    (tmp_path / "jobs.yaml").write_text(JOBS)
    with up(database, "--jobs", str(tmp_path / "jobs.yaml")) as running:
        running.line_with("report in ")
        made = json.loads(gnomon("db", "backup", str(backup), "--database", str(database), "-o", "json").stdout)
        busy = gnomon("db", "restore", str(backup), "--database", str(database), "--replace", code=2)
        assert "a scheduler runs on" in busy.stderr
        # The lines of earlier runs may still be unread.
        while last_tick(database) <= made["backup_at"]:
            running.line_with("report in ")

    done = gnomon("db", "restore", str(backup), "--database", str(other), "-o", "json")

    found = json.loads(done.stdout)
    assert found["backup_at"] == made["backup_at"]
    [missed] = found["missed"]
    assert (missed["job"], missed["count"] > 0) == ("report", True)
    assert '"database_restored"' in done.stderr
    at = datetime.fromtimestamp(missed["last_at"] / 1000, UTC).isoformat()
    assert "store_uncertain" in gnomon("why", "report", "--at", at, "--database", str(other), "-o", "json").stdout
    assert "ticks" in gnomon("db", "restore", str(backup), "--database", str(other), "--replace").stdout
