"""Dry runs as processes: one at a time, and none is left behind."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from contracts.store import NOON
from gnomon.adapters import dry_run_process
from gnomon.adapters.dry_run_process import DryRunProcesses
from gnomon.errors import TooMany, UsageError

ENDLESS = msgspec.json.encode(
    {
        "jobs": [{"name": f"job-{n}", "function": "f", "schedule": "every second"} for n in range(500)],
        "from_at": NOON,
        "days": 92,
        "timezone": "UTC",
        "lasts_ms": 0,
        "overlap": "skip",
        "catchup": "none",
        "jitter_ms": 0,
        "lookahead_ms": 60_000,
        "catchup_cap": 100,
    }
)


def dry_runs() -> list[str]:
    """The processes of dry runs whose parent is this process."""
    children = Path("/proc/self/task").glob("*/children")
    ids = [one for file in children for one in file.read_text().split()]
    return [one for one in ids if b"dry_run_process" in Path(f"/proc/{one}/cmdline").read_bytes()]


async def test_a_simulation_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run_process, "_SECONDS", 1.0)

    with pytest.raises(UsageError, match="simulate fewer days or jobs"):
        await DryRunProcesses().run(ENDLESS)

    assert dry_runs() == []


async def test_a_second_simulation_is_refused_until_the_first_is_over_or_cancelled() -> None:
    runner = DryRunProcesses()
    first = asyncio.create_task(runner.run(ENDLESS))
    while not dry_runs():  # noqa: ASYNC110 - no event tells that a process has started
        await asyncio.sleep(0.01)

    with pytest.raises(TooMany, match="another simulation is running"):
        await runner.run(ENDLESS)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert dry_runs() == []


async def test_a_request_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(UsageError):
        await DryRunProcesses().run(b"{}")
