"""Shares of tenants in a real Gnomon: a file, PostgreSQL with separate workers, and a fleet with NATS."""

import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from gnomon.app.auth import new_token
from gnomon.ports.auth import Role
from support.hostile_target import HostileTarget, Launch, Shape, hostile_target

_BACKLOG = 24
_SHAPES = [
    Shape.SQLITE,
    pytest.param(Shape.POSTGRES, marks=pytest.mark.thorough),
    pytest.param(Shape.NATS, marks=pytest.mark.thorough),
]


@pytest.fixture(scope="module", params=_SHAPES)
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileTarget]:
    folder = tmp_path_factory.mktemp("shares")
    settings = {
        "GNOMON_WORKER__MAX_CONCURRENT": "2",
        "GNOMON_SHELL__TENANTS": "noisy,quiet",
        "GNOMON_SECURITY__PROFILE": "open",
        "GNOMON_AUTH__CLOCK_SKEW": "0s",
    }
    with hostile_target(request.param, folder, Launch(), **settings) as running:
        yield running


def test_a_backlog_of_commands_of_one_tenant_does_not_delay_another(target: HostileTarget) -> None:
    for tenant in ("noisy", "quiet"):
        said = {"name": "work", "command": "sleep 0.4", "overlap": "allow"}
        assert target.ask("POST", "/v1/jobs", said, caller=f"admin/{tenant}").status_code == 201
    for _ in range(_BACKLOG):
        assert target.ask("POST", "/v1/jobs/work/trigger", caller="admin/noisy").status_code == 202

    asked = target.ask("POST", "/v1/jobs/work/trigger", caller="admin/quiet").json()
    while not (ours := target.ask("GET", f"/v1/executions/{asked['execution_id']}", caller="admin/quiet").json())[
        "completed_at"
    ]:
        time.sleep(0.02)

    assert ours["status"] == "completed", ours
    theirs = target.ask("GET", "/v1/executions?limit=1000", caller="admin/noisy").json()["items"]
    ends = [one["completed_at"] or "later" for one in theirs]
    waiting = [end for end in ends if end > ours["planned_at"]]
    assert len(waiting) > 10, "the backlog was gone before the other tenant asked"
    # Two were running, and others ran beside ours and while its result was written.
    assert len([end for end in waiting if end < ours["completed_at"]]) <= 6


def test_a_stream_ends_when_its_token_expires(target: HostileTarget) -> None:
    short = new_token(target.settings, Role.VIEWER, subject="short", tenant="default", lasts_ms=2_000).token
    with httpx.stream("GET", f"{target.address}/v1/stream", headers={"Authorization": f"Bearer {short}"}) as stream:
        assert stream.status_code == 200
        lines = list(stream.iter_lines())

    assert "event: end" in lines
    assert any("the token has expired" in line for line in lines)


def test_the_streams_of_one_caller_leave_places_to_others(target: HostileTarget) -> None:
    with ExitStack() as opened:
        answers = [
            opened.enter_context(
                httpx.stream(
                    "GET",
                    f"{target.address}/v1/stream",
                    headers={"Authorization": f"Bearer {target.token('viewer/greedy')}"},
                )
            )
            for _ in range(30)
        ]
        others = [
            opened.enter_context(
                httpx.stream(
                    "GET", f"{target.address}/v1/stream", headers={"Authorization": f"Bearer {target.token(caller)}"}
                )
            )
            for caller in ("admin/greedy", "viewer")
        ]

        assert [one.status_code for one in answers] == [200] * 25 + [429] * 5
        assert [one.status_code for one in others] == [200, 200]
