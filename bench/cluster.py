"""How many no-op runs a second a server and one worker in a process of its own bring to their end, with history.

`--alone` leaves NATS out: the worker takes from PostgreSQL by itself. `--profile FILE` writes a profile of the server.
"""

import argparse
import asyncio
import contextlib
import cProfile
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from gnomon.app import Node
from gnomon.core.jobs import read_job
from gnomon.core.launching import Launch, wanted_run
from gnomon.core.model import RunId, Source
from gnomon.core.requests import Defaults
from gnomon.settings import load
from nodes import NoEvents, book_of, quantiles
from report import keep, table
from support.bus_servers import Nats
from support.servers import postgres

NOW = 1_772_452_800_000
_BATCH = 1000
_SECONDS, _ROUNDS = 5, 100
_WORKER = Path(__file__).parent / "cluster_worker.py"


@contextlib.contextmanager
def worker(kind: str, environment: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A worker in a process of its own, once it runs."""
    command = [sys.executable, str(_WORKER), kind]
    process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own script
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stdout.close()


@contextlib.asynccontextmanager
async def cluster(*, alone: bool, slots: int) -> AsyncIterator[Node]:
    """A server that does not execute, and a worker that does."""
    async with postgres(18).database() as url:
        with contextlib.ExitStack() as stack:
            settings: dict[str, object] = {"database.url": url, "worker.slots": slots, "metrics.enabled": False}
            environment = {"GNOMON_WORKER__SLOTS": str(slots)}
            if alone:
                environment["GNOMON_DATABASE__URL"] = url
            else:
                bus = stack.enter_context(Nats())
                settings["nats.url"] = environment["GNOMON_NATS__URL"] = bus.url
            node = await Node.open(load(flags=settings), events=NoEvents(), dispatches=True)
            stop = asyncio.Event()
            running = asyncio.create_task(node.run(stop))
            stack.enter_context(worker("postgres" if alone else "nats", environment))
            try:
                yield node
            finally:
                stop.set()
                await running
                await node.close()


async def _active(store: Any) -> int:  # noqa: ANN401 - a store of either kind
    found = await store.find("default", "note")
    return int(found.active_runs)


async def measured(*, alone: bool, count: int, slots: int, profile: str | None) -> float:
    """Runs a second, from the first that is asked for to the end of the last."""
    async with cluster(alone=alone, slots=slots) as node:
        said = {"name": "note", "function": "note", "overlap": "allow"}
        await book_of(node).apply([read_job(said, Defaults(), now=NOW)], actor="bench")
        while not await node.store.workers():
            await asyncio.sleep(0.02)
        await _launched(node, 200)
        while await _active(node.store):
            await asyncio.sleep(0.02)
        profiler = cProfile.Profile() if profile else None
        if profiler is not None:
            profiler.enable()
        began = perf_counter()
        await _launched(node, count)
        while await _active(node.store):
            await asyncio.sleep(0.02)
        rate = count / (perf_counter() - began)
        if profiler is not None:
            profiler.disable()
            profiler.dump_stats(str(profile))
        return rate


async def lateness(*, alone: bool, rate: int, slots: int) -> list[float]:
    """Milliseconds from taking a task out of the store to the beginning of its body, at so many a second."""
    async with cluster(alone=alone, slots=slots) as node:
        said = {"name": "note", "function": "stamp", "overlap": "allow"}
        await book_of(node).apply([read_job(said, Defaults(), now=NOW)], actor="bench")
        while not await node.store.workers():
            await asyncio.sleep(0.02)
        began, each = perf_counter(), rate // _ROUNDS
        for number in range(_ROUNDS * _SECONDS):
            await asyncio.sleep(max(0.0, began + number / _ROUNDS - perf_counter()))
            await _launched(node, each, f"{number:06}")
        while await _active(node.store):
            await asyncio.sleep(0.02)
        schedule = await node.store.find("default", "note")
        assert schedule is not None
        tasks = [
            task.task_id
            for task in await node.store.tasks(await node.store.runs(schedule.uid, before=1 << 62, limit=100_000))
        ]
        begun = await node.store.payloads(tasks, "output")
        taken = {one.task_id: one.dispatched_at for one in await node.store.attempts(tasks)}
    return [float(begun[name] or b"nan") * 1000 - taken[name] for name in sorted(taken)][rate:]


async def _launched(node: Node, count: int, mark: str = "") -> None:
    schedule = await node.store.find("default", "note")
    assert schedule is not None
    for first in range(0, count, _BATCH):
        names = [f"run_{mark or count:0>8}{number:08}" for number in range(first, min(count, first + _BATCH))]
        runs = [wanted_run(RunId(name), schedule, source=Source.API, now=NOW) for name in names]
        await node.store.launch([Launch(run=run, first_steps=("main",)) for run in runs], now=NOW)
        node.look()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=20_000)
    options.add_argument("--slots", type=int, default=1000)
    options.add_argument("--alone", action="store_true", help="only PostgreSQL, without NATS")
    options.add_argument("--rate", type=int, default=500, help="at how many runs a second lateness is measured")
    options.add_argument("--profile", metavar="FILE", help="where to leave a profile of the server")
    chosen = options.parse_args()
    sys.setswitchinterval(0.0005)
    rate = asyncio.run(measured(alone=chosen.alone, count=chosen.count, slots=chosen.slots, profile=chosen.profile))
    name = "PostgreSQL 18 alone" if chosen.alone else "PostgreSQL 18 and NATS"
    body = table(["gnomon server and one worker", "runs per second"], [[name, f"{rate:,.0f}"]])
    note = f"{chosen.count:,} no-op coroutines, launched and brought to their end, with history, {chosen.slots} slots."
    if chosen.profile:
        print(f"{body}\n\n{note}")
    else:
        late = asyncio.run(lateness(alone=chosen.alone, rate=chosen.rate, slots=chosen.slots))
        note += f" From being taken to the beginning of the body, at {chosen.rate} a second: {quantiles(late)}."
        keep(f"Cluster: no-op runs on {name}", f"{body}\n\n{note}")


if __name__ == "__main__":
    main()
