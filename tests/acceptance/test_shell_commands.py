"""Commands under `gnomon up`: no code, no import, and nothing left of them when it is killed."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runners.runner_harness import alive, environment_of_tests, read_numbers
from support.command_line import run_command
from support.gnomon_processes import up

JOBS = """
jobs:
  - name: greeting
    command: 'echo "hello $WHO"; echo "and $(cat)" >&2'
    env: {WHO: "${input.who}"}
    stdin: good bye
    input: {who: world}
  - name: long
    command: 'echo $$ >> PIDS; sh -c "echo \\$\\$ >> PIDS; sleep 600; :"; :'
  - name: chain
    dag:
      - {step: first, command: "echo 41"}
      - {step: second, command: 'expr "$N" + 1', env: {N: "${steps.first.output.stdout}"}, depends_on: [first]}
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "jobs.yaml").write_text(JOBS)
    return tmp_path


def gnomon(place: Path, *words: str) -> str:
    done = run_command(*words, "--database", str(place / "gnomon.db"), folder=place)
    assert done.returncode == 0, done.stderr
    return done.stdout


def until(condition: Callable[[], object]) -> None:
    """Wait for what another process does: there is nothing to await."""
    while not condition():
        time.sleep(0.02)


def environment() -> dict[str, str]:
    return {**environment_of_tests(), "GNOMON_WORKER__DRAIN": "0s"}


@pytest.mark.req("Z-02")
def test_a_command_needs_nothing_but_a_file(place: Path) -> None:
    jobs = str(place / "jobs.yaml")
    with up(place / "gnomon.db", "--jobs", jobs, imports=(), environment=environment()) as running:
        done = json.loads(gnomon(place, "jobs", "trigger", "greeting", "--wait", "-o", "json"))
        chain = json.loads(gnomon(place, "jobs", "trigger", "chain", "--wait", "-o", "json"))
        shown = gnomon(place, "jobs", "show", "greeting")
        drawn = gnomon(place, "executions", "show", chain["execution_id"])
        logs = gnomon(place, "executions", "logs", done["execution_id"])
        assert running.terminate() == 0

    assert (done["status"], chain["status"]) == ("completed", "completed")
    assert 'commands   echo "hello $WHO"; echo "and $(cat)" >&2' in shown
    assert '{"status":0,"stdout":"42","stderr":""}' in drawn
    assert [line.split("  ")[-1] for line in logs.splitlines()] == ["hello world", "and good bye"]


@pytest.mark.guarantee("S11", "S9")
def test_kill_9_takes_the_command_along_and_the_next_start_runs_it_again(place: Path) -> None:
    jobs, pids = str(place / "jobs.yaml"), place / "gnomon.db.workspace" / "PIDS"
    with up(place / "gnomon.db", "--jobs", jobs, imports=(), environment=environment()) as victim:
        gnomon(place, "jobs", "trigger", "long")
        until(lambda: pids.exists() and len(read_numbers(pids)) == 2)
        first = read_numbers(pids)
        victim.kill()
    until(lambda: not any(map(alive, first)))

    with up(place / "gnomon.db", "--jobs", jobs, imports=(), environment=environment()) as successor:
        until(lambda: len(read_numbers(pids)) == 4)
        assert successor.terminate() == 0

    assert not any(map(alive, read_numbers(pids)))
