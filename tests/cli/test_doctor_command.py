"""`gnomon doctor` on databases in every state."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from gnomon.config.settings import Settings
from gnomon.ports.maintenance import StoreStats
from gnomon.services.observability.health import Severity, disk_finding, store_findings
from support.gnomon_processes import TESTS, up

WELL = StoreStats(
    store_at=1_000_000,
    schema=3,
    jobs=5,
    due=0,
    oldest_due_at=None,
    overdue=0,
    ready_since_at=None,
    workers=1,
    shards=256,
    holders=1,
    unresolved=0,
)
NOW = 1_000_000


def doctor(database: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gnomon", "doctor", "--database", database, *words]
    return subprocess.run(command, cwd=TESTS, capture_output=True, text=True, timeout=30, check=False)


def grades(answer: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {one["about"]: one["grade"] for one in json.loads(answer.stdout)}


@pytest.mark.req("Z-11")
def test_while_a_node_runs_all_is_well(tmp_path: Path) -> None:
    with up(tmp_path / "gnomon.db") as running:
        running.line_with("scheduling on")
        # Once it answers, its ticker decides and its worker is registered.
        while "warning" in grades(answer := doctor(str(tmp_path / "gnomon.db"), "-o", "json")).values():
            pass

    assert answer.returncode == 0
    assert set(grades(answer)) == {
        "database",
        "schema",
        "leader",
        "workers",
        "ledger",
        "tasks",
        "dead letters",
        "clock",
        "disk",
        "time zones",
    }


def test_a_database_on_which_nobody_works_is_worth_a_look_but_not_wrong(tmp_path: Path) -> None:
    with up(tmp_path / "gnomon.db") as running:
        running.line_with("scheduling on")
        running.terminate()

    answer = doctor(str(tmp_path / "gnomon.db"))

    assert answer.returncode == 0
    assert "no node decides ticks" in answer.stdout
    assert "no worker is alive" in answer.stdout


def test_a_server_that_does_not_answer_is_wrong_and_its_password_is_not_shown() -> None:
    answer = doctor("postgresql://ada:hunter2@127.0.0.1:1/gnomon", "-o", "json")

    assert answer.returncode == 1
    assert grades(answer)["database"] == "error"
    assert "hunter2" not in answer.stdout + answer.stderr


def test_a_file_with_something_else_in_it_is_wrong_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE theirs (x)")

    answer = doctor(str(file), "-o", "json")

    assert (answer.returncode, grades(answer)["schema"]) == (1, "error")
    with sqlite3.connect(file) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


def test_a_database_that_is_not_there_is_a_mistake_and_is_not_made(tmp_path: Path) -> None:
    answer = doctor(str(tmp_path / "nowhere.db"))

    assert answer.returncode == 2
    assert answer.stderr.startswith("error: there is no database")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "about", "grade"),
    [
        ({}, "ledger", Severity.OK),
        ({"shards": 0, "holders": 0}, "leader", Severity.WARNING),
        ({"shards": 128}, "leader", Severity.WARNING),
        ({"workers": 0}, "workers", Severity.WARNING),
        ({"due": 1, "oldest_due_at": NOW - 1000}, "ledger", Severity.OK),
        ({"due": 1, "oldest_due_at": NOW - 60_000, "overdue": 1}, "ledger", Severity.ERROR),
        ({"ready_since_at": NOW - 1000}, "tasks", Severity.OK),
        ({"ready_since_at": NOW - 61_000}, "tasks", Severity.WARNING),
        ({"unresolved": 2}, "dead letters", Severity.WARNING),
        ({"store_at": NOW - 2_001}, "clock", Severity.WARNING),
        ({"store_at": NOW + 30_001}, "clock", Severity.ERROR),
    ],
)
def test_what_is_found_is_graded(change: dict[str, int], about: str, grade: Severity) -> None:
    found = {one.about: one.grade for one in store_findings(replace(WELL, **change), Settings(), now=NOW)}

    assert found[about] is grade
    assert all(other is Severity.OK for name, other in found.items() if name != about)


@pytest.mark.parametrize(
    ("mib", "grade"), [(63, Severity.ERROR), (64, Severity.WARNING), (1023, Severity.WARNING), (1024, Severity.OK)]
)
def test_a_disk_is_graded_by_what_is_free(mib: int, grade: Severity) -> None:
    found = disk_finding(mib * 2**20)

    assert found is not None
    assert found.grade is grade


def test_a_server_has_no_disk_of_ours() -> None:
    assert disk_finding(None) is None
