"""How many no-op runs a second go all the way: taken, run, reported, with history. Peers in the same run."""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import Callable
from time import perf_counter, sleep, time
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from huey import SqliteHuey

from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.model import RunId, RunSource
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from node_setup import STARTED_AT, job_service_of, launcher_of, node_on
from report import table, write_section

NOW = 1_772_452_800_000
_BATCH = 1000


async def ours(kind: str, count: int) -> tuple[float, float]:
    """Runs launched a second, and runs a second from the first to the last body; every run is over at the end."""
    async with node_on(kind) as node:
        said = {"name": "note", "function": "note", "overlap": "allow"}
        await job_service_of(node).apply([read_job(said, Defaults(), now=NOW)], actor="bench")
        schedule = await node.store.schedules.find("default", "note")
        assert schedule is not None
        began = perf_counter()
        for first in range(0, count, _BATCH):
            runs = [
                new_requested_run(RunId(f"run_{number:08}"), schedule, source=RunSource.API, now=NOW)
                for number in range(first, min(first + _BATCH, count))
            ]
            await node.store.runs.launch([LaunchRequest(run=run, first_steps=("main",)) for run in runs], now=NOW)
        launching = count / (perf_counter() - began)
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        while len(STARTED_AT) < count or await _active(node.store):
            await asyncio.sleep(0.02)
        stop.set()
        await running
        assert len(STARTED_AT) == count
        return launching, count / (STARTED_AT[-1] - STARTED_AT[0])


async def _active(store: Any) -> int:  # noqa: ANN401 - a store of either kind
    found = await store.schedules.find("default", "note")
    return int(found.active_runs)


async def trigger_to_start(kind: str, count: int) -> list[float]:
    """Milliseconds from asking for a run to the beginning of its body, one after the other on an idle node."""
    async with node_on(kind) as node:
        said = {"name": "note", "function": "note", "overlap": "allow"}
        await job_service_of(node).apply([read_job(said, Defaults(), now=NOW)], actor="bench")
        launcher, stop, late = launcher_of(node), asyncio.Event(), []
        running = asyncio.create_task(node.run(stop))
        await asyncio.sleep(0.5)
        for number in range(count):
            asked = time()
            await launcher.trigger("note", actor="bench")
            node.check_soon()
            while len(STARTED_AT) <= number:
                await asyncio.sleep(0.0002)
            late.append((STARTED_AT[number] - asked) * 1000)
        stop.set()
        await running
        return late


def huey_on_sqlite(count: int) -> tuple[float, float]:
    """The same with huey on SQLite with synchronous=FULL and one worker thread, its best."""
    with tempfile.TemporaryDirectory() as folder:
        huey = SqliteHuey(filename=f"{folder}/huey.db", fsync=True, results=False)
        begun: list[float] = []

        @huey.task()  # type: ignore[untyped-decorator]  # the peer has no types
        def noted() -> None:
            begun.append(perf_counter())

        began = perf_counter()
        for _ in range(count):
            noted()
        launching = count / (perf_counter() - began)
        consumer = huey.create_consumer(workers=1, periodic=False, initial_delay=0.001, max_delay=0.01)
        consumer.start()
        _wait_for(lambda: len(begun) == count)
        consumer.stop(graceful=True)
        return launching, count / (begun[-1] - begun[0])


def apscheduler_on_sqlite(count: int) -> tuple[float, float]:
    """The same with APScheduler 3 on SQLite and ten threads, its default."""
    with tempfile.TemporaryDirectory() as folder:
        _BEGUN.clear()
        scheduler = BackgroundScheduler(
            jobstores={"default": SQLAlchemyJobStore(url=f"sqlite:///{folder}/jobs.db")},
            executors={"default": ThreadPoolExecutor(10)},
            job_defaults={"misfire_grace_time": None},
        )
        scheduler.start(paused=True)
        began = perf_counter()
        for _ in range(count):
            scheduler.add_job(noted_by_apscheduler)
        launching = count / (perf_counter() - began)
        scheduler.resume()
        _wait_for(lambda: len(_BEGUN) == count)
        scheduler.shutdown()
        return launching, count / (_BEGUN[-1] - _BEGUN[0])


_BEGUN: list[float] = []


def noted_by_apscheduler() -> None:
    """The body of the peer's jobs."""
    _BEGUN.append(perf_counter())


def _wait_for(condition: Callable[[], bool]) -> None:
    done = threading.Event()
    while not condition() and not done.is_set():
        sleep(0.01)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--count", type=int, default=20_000)
    chosen = options.parse_args()
    sys.setswitchinterval(0.0005)
    rows = []
    figures: dict[str, tuple[float, float]] = {}
    for kind in ("SQLite", "PostgreSQL 18"):
        figures[f"gnomon on {kind}, with history"] = asyncio.run(ours(kind, chosen.count))
    late = asyncio.run(trigger_to_start("SQLite", 300))
    sys.setswitchinterval(0.005)
    figures["huey on SQLite (synchronous=FULL), 1 thread"] = huey_on_sqlite(chosen.count)
    figures["APScheduler 3 on SQLite, 10 threads"] = apscheduler_on_sqlite(chosen.count // 4)
    best = max(rate for name, (_, rate) in figures.items() if not name.startswith("gnomon"))
    for name, (launching, rate) in figures.items():
        rows.append([name, f"{launching:,.0f}", f"{rate:,.0f}", f"{rate / best:.1f}x"])
    body = table(["scheduler", "launched per second", "run per second", "against the best peer"], rows)
    ordered = sorted(late)
    note = (
        f"{chosen.count:,} no-op coroutines, launched before the worker starts, in one process; from the first to the "
        "last body, all of them reported at the end. Ours keeps the run, the task and the attempt of each, durably. "
        "Peers keep nothing. From a trigger inside the process to the beginning of its body, one at a time on SQLite: "
        "p50 "
        f"{ordered[len(ordered) // 2]:.1f} ms, p99 {ordered[int(len(ordered) * 0.99)]:.1f} ms."
    )
    write_section("Throughput: no-op runs, end to end", f"{body}\n\n{note}")


if __name__ == "__main__":
    main()
