"""No data that reaches a job names a secret: halves, whole names, event bodies, replays."""

import time
from pathlib import Path
from typing import Any

import pytest

from support.effort import thorough
from support.hostile_target import HostileTarget, Launch, Shape, hostile_target

VALUE = "canary-5a2c"
HALVES = {"first": "${sec", "last": "ret:KEY}"}
WHOLE = {"first": "${secret:KEY}", "last": "$"}
EXPECTED = [f"${{secret:KEY}}$|{VALUE}", f"${{secret:KEY}}|{VALUE}"]


def jobs(folder: Path) -> list[dict[str, Any]]:
    """A job that is triggered with data, and one that hears of data in events, fails and leaves dead letters."""
    return [
        {
            "name": "joined",
            "command": f'printf "%s|%s\\n" "$JOINED" "$MINE" >> {folder}/triggered',
            "env": {"JOINED": "${input.first}${input.last}", "MINE": "${secret:KEY}"},
            "input": {"first": "", "last": ""},
            "overlap": "allow",
        },
        {
            "name": "listening",
            "command": f'printf "%s|%s\\n" "$JOINED" "$MINE" >> {folder}/heard; exit 1',
            "on": {"event": "said"},
            "env": {"JOINED": "${input.event.body.first}${input.event.body.last}", "MINE": "${input.mine}"},
            "input": {"mine": "${secret:KEY}"},
            "dead_letter": True,
            "overlap": "allow",
        },
    ]


def ask(target: HostileTarget, method: str, path: str, body: object = None) -> dict[str, Any]:
    answer = target.ask(method, path, body)
    assert answer.status_code < 300, answer.text
    found: dict[str, Any] = answer.json()
    return found


def received(file: Path, count: int) -> list[str]:
    """The lines that commands have written, once there are so many."""
    while not file.exists() or len(lines := file.read_text().splitlines()) < count:
        time.sleep(0.02)
    return sorted(lines)


@pytest.mark.req("H-22")
@pytest.mark.parametrize("shape", [Shape.SQLITE, thorough(Shape.POSTGRES), thorough(Shape.NATS)])
def test_data_reaches_a_command_as_it_is_and_the_definition_gets_its_secret(tmp_path: Path, shape: Shape) -> None:
    triggered, heard = tmp_path / "triggered", tmp_path / "heard"
    launch = Launch(worker_environment={"KEY": VALUE})
    with hostile_target(
        shape, tmp_path, launch, GNOMON_SECRETS__ALLOW="KEY", GNOMON_SECURITY__PROFILE="open"
    ) as target:
        for job in jobs(tmp_path):
            ask(target, "POST", "/v1/jobs", job)
        for data in (HALVES, WHOLE):
            ask(target, "POST", "/v1/jobs/joined/trigger", {"input": data})
            ask(target, "POST", "/v1/events", {"name": "said", "body": data})
        assert received(triggered, 2) == EXPECTED
        assert received(heard, 2) == EXPECTED
        while len(ask(target, "GET", "/v1/dead-letters")["items"]) < len(EXPECTED):
            time.sleep(0.02)
        ask(target, "POST", "/v1/dead-letters/replay-all")
        assert received(heard, 4) == sorted(EXPECTED * 2)
