"""How fast steps follow each other: four in a row, a hundred such runs at once, ten thousand side by side.

Peers run from an environment of their own (`.venv/peers`), each in a process, in the same run.
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import Any

from gnomon.app.node import Node
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import RunId
from node_setup import STARTED_AT, StepEvents, job_service_of, launcher_of, node_on
from report import table, write_section

STEP_EVENTS = StepEvents()
NOW = 1_772_452_800_000
PEERS = {
    "huey on SQLite (synchronous=FULL)": "huey_chain.py",
    "Celery on Redis, 8 threads": "celery_chain.py",
    "Dagster, in process": "dagster_job.py",
    "Prefect, in process": "prefect_flow.py",
}
FOUR: dict[str, Any] = {
    "name": "four",
    "overlap": "allow",
    "dag": [{"step": "a", "function": "note"}]
    + [{"step": after, "function": "note", "depends_on": [before]} for before, after in ("ab", "bc", "cd")],
}
WIDE: dict[str, Any] = {
    "name": "wide",
    "overlap": "allow",
    "dag": [{"step": "each", "function": "note-any", "foreach": "${input.items}"}],
}


async def measured(kind: str, said: dict[str, Any], act: Callable[[Node], Awaitable[Any]]) -> Any:  # noqa: ANN401
    """Run an action on a running node that has the job; return its result."""
    async with node_on(kind, STEP_EVENTS) as node:
        await job_service_of(node).apply([read_job(said, Defaults(), now=NOW)], actor="bench")
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        await asyncio.sleep(0.5)
        try:
            return await act(node)
        finally:
            stop.set()
            await running


async def over(node: Node, run_id: RunId) -> None:
    """Wait until the run has ended."""
    while not (run := await node.store.executions.find_run(run_id)) or not run.over:
        await asyncio.sleep(0.001)
    assert run.status == "completed", run


async def in_a_row(node: Node) -> tuple[float, float]:
    """Milliseconds for one run of four steps, and for a hundred at once."""
    launcher, one = launcher_of(node), []
    for number in range(60):
        began = perf_counter()
        triggered = await launcher.trigger("four", actor="bench")
        await STEP_EVENTS.succeeded(triggered.run_id, "d")
        if number >= 10:
            one.append((perf_counter() - began) * 1000)
    began = perf_counter()
    many = [await launcher.trigger("four", actor="bench") for _ in range(100)]
    for triggered in many:
        await STEP_EVENTS.succeeded(triggered.run_id, "d")
    took = (perf_counter() - began) * 1000
    for triggered in many:
        await over(node, triggered.run_id)
    return statistics.median(one), took


async def side_by_side(node: Node, count: int) -> float:
    """Items a second of one run with so many."""
    launcher = launcher_of(node)
    STARTED_AT.clear()
    began = perf_counter()
    triggered = await launcher.trigger("wide", actor="bench", input={"items": list(range(count))})
    node.check_soon()
    await over(node, triggered.run_id)
    assert len(STARTED_AT) == count
    return count / (perf_counter() - began)


def peer(script: str) -> dict[str, float]:
    """The time that a peer needs."""
    here = Path(__file__).parent
    python = here.parent / ".venv" / "peers" / "bin" / "python"
    done = subprocess.run(  # noqa: S603 - our own scripts
        [str(python), str(here / "peers" / script)], capture_output=True, text=True, timeout=300, check=True
    )
    found: dict[str, float] = json.loads(done.stdout[done.stdout.rindex("{") :])
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--items", type=int, default=10_000)
    options.add_argument("--without-peers", action="store_true")
    chosen = options.parse_args()
    sys.setswitchinterval(0.0005)
    rows = []
    for kind in ("SQLite", "PostgreSQL 18"):
        one, hundred = asyncio.run(measured(kind, FOUR, in_a_row))
        rows.append([f"gnomon on {kind}, durable, with history", f"{one:.1f} ms", f"{hundred:,.0f} ms"])
    for name, script in {} if chosen.without_peers else PEERS.items():
        found = peer(script)
        rows.append([name, f"{found['one']:.1f} ms", f"{found['hundred']:,.0f} ms"])
    rate = asyncio.run(measured("SQLite", WIDE, lambda node: side_by_side(node, chosen.items)))
    body = table(["scheduler", "four steps in a row, warm", "a hundred of these at once"], rows)
    note = (
        "From the trigger until the end of the last step is announced, after its commit; no-op steps. "
        "Dagster and Prefect run one after the other: a hundred "
        f"is a hundred times the mean of ten. One run with {chosen.items:,} items side by side, on SQLite: {rate:,.0f} "
        "items a second, from the trigger until the run is over."
    )
    write_section("Workflows: steps in a row and side by side", f"{body}\n\n{note}")


if __name__ == "__main__":
    main()
