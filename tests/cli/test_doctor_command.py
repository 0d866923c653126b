"""`gnomon doctor` on databases in every state."""

import json
import sqlite3
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from gnomon.config.settings import Settings, load
from gnomon.ports.maintenance import HeldTasks, MarksAhead, StoreStats
from gnomon.services.observability.health import (
    Finding,
    Severity,
    disk_finding,
    held_tasks_finding,
    marks_finding,
    store_findings,
)
from support.command_line import run_command
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
BUSY = "pool_overloaded: both workers of pool 'gpu' are overloaded"


def doctor(database: str, *words: str) -> subprocess.CompletedProcess[str]:
    return run_command("doctor", "--database", database, *words, folder=TESTS)


def grades(answer: subprocess.CompletedProcess[str]) -> dict[str, str]:
    return {one["about"]: one["grade"] for one in json.loads(answer.stdout)}


def of_the_node(answer: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """The grades without those that depend on the kernel and on the user of the tests."""
    return {about: grade for about, grade in grades(answer).items() if about not in ("sandbox", "limits")}


@pytest.mark.req("Z-11")
def test_while_a_node_runs_all_is_well(tmp_path: Path) -> None:
    with up(tmp_path / "gnomon.db") as running:
        running.line_with("scheduling on")
        # Once it answers, its ticker decides and its worker is registered.
        while set(of_the_node(answer := doctor(str(tmp_path / "gnomon.db"), "-o", "json")).values()) != {"ok"}:
            pass

    assert answer.returncode == 0
    assert set(of_the_node(answer)) == {
        "database",
        "schema",
        "leader",
        "workers",
        "ledger",
        "marks",
        "tasks",
        "dead letters",
        "policy",
        "clock",
        "retention",
        "disk",
        "time zones",
    }


@pytest.mark.req("Z-11")
def test_a_database_on_which_nothing_decides_or_executes_is_wrong(tmp_path: Path) -> None:
    with up(tmp_path / "gnomon.db") as running:
        running.line_with("scheduling on")
        running.terminate()

    answer = doctor(str(tmp_path / "gnomon.db"))

    assert answer.returncode == 1
    assert "no node decides ticks: start one with gnomon up" in answer.stdout
    assert "no worker is alive: gnomon up starts one" in answer.stdout


def test_in_a_fleet_the_commands_of_a_fleet_are_named() -> None:
    fleet = load(flags={"database.url": "postgresql://scheduler@db/gnomon"})
    nobody = replace(WELL, shards=0, holders=0, workers=0)
    said = {one.about: one.message for one in store_findings(nobody, fleet, now=NOW)}

    assert said["leader"] == "no node decides ticks: start one with gnomon server"
    assert said["workers"] == "no worker is alive: gnomon worker starts one"


@pytest.mark.req("H-15")
def test_tasks_that_no_worker_can_take_are_named_with_what_is_missing() -> None:
    stranded = replace(
        WELL,
        ready_since_at=NOW - 75_400,
        unroutable=109,
        unroutable_since_at=NOW - 75_400,
        unroutable_reason="no_workers: no worker has registered the function 'company/greet'",
    )
    said = {one.about: one for one in store_findings(stranded, Settings(), now=NOW)}
    one_task = {one.about: one for one in store_findings(replace(stranded, unroutable=1), Settings(), now=NOW)}

    missing = "no worker has registered the function 'company/greet'"
    assert said["tasks"] == Finding("tasks", Severity.ERROR, f"109 wait, the oldest for 75 s: {missing}")
    assert one_task["tasks"].message == f"1 waits for 75 s: {missing}"


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
        ({"shards": 0, "holders": 0}, "leader", Severity.ERROR),
        ({"shards": 128}, "leader", Severity.WARNING),
        ({"workers": 0}, "workers", Severity.ERROR),
        ({"due": 1, "oldest_due_at": NOW - 1000}, "ledger", Severity.OK),
        ({"due": 1, "oldest_due_at": NOW - 60_000, "overdue": 1}, "ledger", Severity.ERROR),
        ({"ready_since_at": NOW - 1000}, "tasks", Severity.OK),
        ({"ready_since_at": NOW - 61_000}, "tasks", Severity.WARNING),
        ({"unroutable": 1, "unroutable_since_at": NOW - 60_000}, "tasks", Severity.WARNING),
        ({"unroutable": 1, "unroutable_since_at": NOW - 60_001}, "tasks", Severity.ERROR),
        (
            {"unroutable": 1, "unroutable_since_at": 0, "unroutable_reason": "pool_overloaded: a"},
            "tasks",
            Severity.WARNING,
        ),
        ({"unresolved": 2}, "dead letters", Severity.WARNING),
        ({"store_at": NOW - 2_001}, "clock", Severity.WARNING),
        ({"store_at": NOW + 30_001}, "clock", Severity.ERROR),
    ],
)
def test_findings_have_grades(change: dict[str, object], about: str, grade: Severity) -> None:
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


@pytest.mark.guarantee("S16", "S21")
def test_marks_that_are_ahead_of_the_clock_are_wrong() -> None:
    well, silent = MarksAhead(0), MarksAhead(16, NOW + 3_576_000)

    assert marks_finding(well, now=NOW).grade is Severity.OK
    assert marks_finding(silent, now=NOW).grade is Severity.ERROR
    assert "16 jobs decide nothing" in marks_finding(silent, now=NOW).message


def test_an_agent_whose_model_has_lost_its_price_is_a_warning(tmp_path: Path) -> None:
    agents = {
        "model": "local:small",
        "providers": {"local": {"kind": "openai", "url": "http://127.0.0.1:1/v1"}},
        "prices": {"local:small": {"input": 1, "output": 1}},
        "max_cost_per_day": 5,
    }
    database, config, job = (tmp_path / name for name in ("gnomon.db", "gnomon.yaml", "jobs.yaml"))
    job.write_text(json.dumps({"jobs": [{"name": "triage", "agent": {"prompt": "Sort the errors."}}]}))
    config.write_text(json.dumps({"agents": agents}))
    applied = run_command(
        "jobs", "apply", "-f", str(job), "--database", str(database), "--config", str(config), folder=tmp_path
    )
    fit = doctor(str(database), "--config", str(config), "-o", "json")
    config.write_text(json.dumps({"agents": {**agents, "prices": {}}}))
    unfit = doctor(str(database), "--config", str(config), "-o", "json")

    assert applied.returncode == 0, applied.stderr
    assert "agents" not in grades(fit)
    [found] = [one for one in json.loads(unfit.stdout) if one["about"] == "agents"]
    assert found["grade"] == "warning"
    assert "the agent of triage cannot start: agent.model: 'local:small' has no price" in json.dumps(found)


@pytest.mark.req("Z-11")
@pytest.mark.parametrize(
    ("held", "finding"),
    [
        (HeldTasks(), Finding("policy", Severity.OK, "it holds no task back")),
        (HeldTasks(to_approve=1), Finding("policy", Severity.OK, "1 task to be approved (gnomon approvals list)")),
        (
            HeldTasks(put_off=3, reason="budget b of policy 2 puts it off"),
            Finding("policy", Severity.WARNING, "3 tasks put off: budget b of policy 2 puts it off"),
        ),
        (
            HeldTasks(by_breakers=2, breakers=("stripe", "acme/mail")),
            Finding(
                "policy",
                Severity.WARNING,
                "2 tasks behind breakers; not closed: stripe, acme/mail (gnomon breakers list)",
            ),
        ),
    ],
    ids=["nothing", "approvals", "put off", "breakers"],
)
def test_tasks_that_are_held_back_are_named(held: HeldTasks, finding: Finding) -> None:
    assert held_tasks_finding(held) == finding
