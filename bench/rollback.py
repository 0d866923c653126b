"""How fast a run of many steps is rolled back: one compensation after the other, each in a commit of its own."""

import argparse
import asyncio
import sys
from time import perf_counter, process_time
from typing import Any

import gnomon
from gnomon.app.node import Node
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from node_setup import FUNCTIONS, StepEvents, job_service_of, launcher_of, node_on
from report import table, write_section

NOW = 1_772_452_800_000


@FUNCTIONS.function("refuse")
async def refuse() -> None:
    """A step that gives up for good."""
    raise gnomon.GiveUp("refused")


def graph_of(count: int) -> dict[str, Any]:
    """So many steps beside each other, each with a compensation, and one after all of them that gives up."""
    names = [f"s{number}" for number in range(count)]
    steps = [{"step": name, "function": "note", "compensate": {"function": "note"}} for name in names]
    return {"name": "trip", "dag": [*steps, {"step": "pay", "function": "refuse", "depends_on": names}]}


def items_of(count: int) -> dict[str, Any]:
    """A step with so many items and a compensation, and one after it that gives up."""
    undo = {"function": "note-any"}
    each = {"step": "each", "function": "note-any", "foreach": list(range(count)), "compensate": undo}
    return {"name": "trip", "dag": [each, {"step": "pay", "function": "refuse", "depends_on": ["each"]}]}


async def rolled_back(kind: str, job: dict[str, Any], count: int) -> tuple[float, float]:
    """Compensations a second: by the clock, and of processor time. It begins with the first compensation."""
    async with node_on(kind, StepEvents()) as node:
        await job_service_of(node).apply([read_job(job, Defaults(), now=NOW)], actor="bench")
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        triggered = await launcher_of(node).trigger("trip", actor="bench")
        await _until(node, triggered.run_id, began=True)
        clock, processor = perf_counter(), process_time()
        await _until(node, triggered.run_id, began=False)
        took = perf_counter() - clock, process_time() - processor
        stop.set()
        await running
    return count / took[0], count / took[1]


async def _until(node: Node, run_id: Any, *, began: bool) -> None:  # noqa: ANN401 - an id
    while (run := await node.store.executions.find_run(run_id)) is None or not (
        run.rollback is not None if began else run.over
    ):
        await asyncio.sleep(0.01)
    assert began or run.rollback == "complete", run


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--items", type=int, default=1000)
    options.add_argument("--steps", type=int, default=250)
    chosen = options.parse_args()
    sys.setswitchinterval(0.0005)
    rows = []
    for kind in ("SQLite", "PostgreSQL 18"):
        for what, count, job in (
            ("items of a step", chosen.items, items_of(chosen.items)),
            ("steps of a graph", chosen.steps, graph_of(chosen.steps)),
        ):
            by_clock, by_processor = asyncio.run(rolled_back(kind, job, count))
            rows.append([f"{kind}: {count:,} {what}", f"{by_clock:,.0f}", f"{by_processor:,.0f}"])
    body = table(["undone", "a second", "a second of processor time"], rows)
    write_section(
        "Rollback of a run", f"{body}\n\nNo-op compensations, one after the other, each in a commit of its own."
    )


if __name__ == "__main__":
    main()
