"""The policy of commands on a real `gnomon up`: jobs of files are open, those over HTTP are guarded and counted."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import gnomon
from gnomon.core.responses.executions import ExecutionDetail
from gnomon.errors import FieldError
from support.gnomon_processes import GnomonProcess, up

OPEN = {"GNOMON_AUTH__VERIFY_TOKENS": "false", "GNOMON_AUTH__ACCEPT_UNVERIFIED": "true"}
JOBS = """
jobs:
  - name: nightly
    command: "touch x; rm -rf x; git init -q . ; git -c user.name=a -c user.email=a@b commit -q --allow-empty -m 1"
"""
REFUSED = "blocked by security policy: "


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "gnomon.db"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOBS)
    return file


@contextmanager
def served(database: Path, jobs: Path) -> Iterator[tuple[GnomonProcess, gnomon.Client]]:
    """A running `gnomon up` with these jobs, and a client of it."""
    with up(database, "--jobs", str(jobs), "--port", "0", environment=OPEN) as running:
        address = running.line_with("answering on ").split()[-1]
        with gnomon.Client(address) as client:
            yield running, client


def run(client: gnomon.Client, job: str) -> ExecutionDetail:
    """Trigger the job, and wait for its end."""
    return client.finished(client.trigger(job).execution_id, timeout=60)


@pytest.mark.req("Z-04")
def test_a_job_of_a_file_is_open_and_the_same_over_http_is_guarded(database: Path, jobs: Path) -> None:
    with served(database, jobs) as (_, client):
        assert run(client, "nightly").status == "completed"

        definition = dict(client.job("nightly").definition or {})
        with pytest.raises(FieldError, match="command not allowed: touch x; rm -rf x") as refused:
            client.register({**definition, "name": "copy"})
        with pytest.raises(FieldError, match="command not allowed"):
            client.update("nightly", {**definition, "schedule": "0 4 * * *"})

        assert "command" in str(refused.value)
        assert [one.job for one in client.jobs()] == ["nightly"]
        assert run(client, "nightly").status == "completed"


@pytest.mark.req("Z-04")
def test_an_approval_makes_a_command_of_medium_risk_run_until_it_changes(database: Path, jobs: Path) -> None:
    with served(database, jobs) as (_, client):
        assert run(client, "nightly").status == "completed"
        added = client.register({"name": "tagger", "command": "git tag v1"})
        refused = run(client, "tagger")
        asked = client.ask_for_approval("tagger", reason="it only tags")
        client.approve(asked.approval_id, digest=asked.digest)
        approved = run(client, "tagger")
        client.update("tagger", {"command": "git tag v2"})
        changed = run(client, "tagger")
        letters = list(client.dead_letters())

    assert "gnomon approvals ask tagger" in added.warnings[0]
    assert (refused.status, approved.status, changed.status) == ("failed", "completed", "failed")
    for ended in (refused, changed):
        assert (ended.error or "").startswith(f"{REFUSED}command not allowed: git tag")
        assert "gnomon approvals ask tagger" in (ended.error or "")
    assert [one.reason for one in letters] == ["safety_denied"] * 2


@pytest.mark.req("Z-12")
def test_the_twenty_first_action_within_an_hour_is_denied_also_after_kill_9(database: Path, jobs: Path) -> None:
    said: dict[str, Any] = {"name": "greet", "command": "echo hello"}
    with served(database, jobs) as (running, client):
        client.register(said)
        first = [run(client, "greet").status for _ in range(10)]
        assert run(client, "nightly").status == "completed"
        running.kill()
    with served(database, jobs) as (_, client):
        second = [run(client, "greet").status for _ in range(10)]
        refused, still_open = run(client, "greet"), run(client, "nightly")
        left = client.security()

    assert first + second == ["completed"] * 20
    assert (refused.status, refused.error) == ("failed", f"{REFUSED}rate limit exceeded")
    assert still_open.status == "completed"
    assert (left.actions_per_hour, left.actions_spent, left.actions_left) == (20, 20, 0)
