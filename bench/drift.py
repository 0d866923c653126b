"""How late a body begins: one schedule a second, and many due in the same second. Peers in the same run."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import sleep, time
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from node_setup import STARTED_AT, job_service_of, node_on, quantiles
from report import table, write_section

_BEGUN: list[float] = []


def noted() -> None:
    """The body of the peer's jobs."""
    _BEGUN.append(time())


# ---- one schedule a second -----------------------------------------------------------------------


async def ours_each_second(seconds: int) -> list[float]:
    """Milliseconds from each planned second to the beginning of its body."""
    async with node_on("SQLite") as node:
        said = {"name": "note", "function": "note", "schedule": "* * * * * *", "overlap": "allow"}
        await job_service_of(node).apply([read_job(said, Defaults(), now=round(time() * 1000))], actor="bench")
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        while len(STARTED_AT) <= seconds:
            await asyncio.sleep(0.1)
        stop.set()
        await running
        return [begun % 1 * 1000 for begun in STARTED_AT[1:]]


def apscheduler_each_second(make_store: Callable[[], Any], seconds: int) -> list[float]:
    """The same measurement with APScheduler 3."""
    scheduler = _apscheduler(make_store())
    scheduler.start()
    scheduler.add_job(noted, "cron", second="*")
    sleep(seconds + 1.5)
    scheduler.shutdown()
    return [begun % 1 * 1000 for begun in _BEGUN[1:]]


def _apscheduler(store: Any) -> BackgroundScheduler:  # noqa: ANN401 - the peer has no types
    _BEGUN.clear()
    return BackgroundScheduler(
        jobstores={"default": store},
        executors={"default": ThreadPoolExecutor(10)},
        timezone=UTC,
        job_defaults={"misfire_grace_time": None},
    )


def each_second(seconds: int) -> None:
    """Measure and write the section."""
    rows = [["gnomon on SQLite", quantiles(asyncio.run(ours_each_second(seconds)))]]
    with tempfile.TemporaryDirectory() as folder:
        stores = {
            "APScheduler 3 in memory": MemoryJobStore,
            "APScheduler 3 on SQLite": lambda: SQLAlchemyJobStore(url=f"sqlite:///{folder}/jobs.db"),
        }
        rows += [[name, quantiles(apscheduler_each_second(make, seconds))] for name, make in stores.items()]
    note = f"From the planned second to the beginning of the body, over {seconds} seconds after the first."
    write_section("Drift: one schedule a second", f"{table(['scheduler', 'late by'], rows)}\n\n{note}")


# ---- many in the same second ---------------------------------------------------------------------


async def our_storm(count: int, ahead: int) -> tuple[list[float], float]:
    """Milliseconds from the planned second to each body, and the seconds that registering took."""
    async with node_on("SQLite") as node:
        due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=ahead)
        cron = f"{due.second} {due.minute} {due.hour} * * *"
        now = round(time() * 1000)
        jobs = [
            read_job({"name": f"job-{number}", "function": "note", "schedule": cron}, Defaults(), now=now)
            for number in range(count)
        ]
        began = time()
        await job_service_of(node).apply(jobs, actor="bench")
        registering = time() - began
        del jobs
        assert time() < due.timestamp() - 1, "registering took too long: look further ahead"
        stop = asyncio.Event()
        running = asyncio.create_task(node.run(stop))
        while len(STARTED_AT) < count:
            await asyncio.sleep(0.05)
        stop.set()
        await running
        return [(begun - due.timestamp()) * 1000 for begun in STARTED_AT], registering


def apscheduler_storm(make_store: Callable[[], Any], count: int, ahead: int) -> tuple[list[float], float]:
    """The same measurement with APScheduler 3."""
    scheduler = _apscheduler(make_store())
    scheduler.start()
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=ahead)
    began = time()
    for number in range(count):
        scheduler.add_job(noted, "cron", id=f"{number}", hour=due.hour, minute=due.minute, second=due.second)
    registering = time() - began
    while len(_BEGUN) < count:
        sleep(0.05)
    scheduler.shutdown()
    return [(begun - due.timestamp()) * 1000 for begun in _BEGUN], registering


def storms(sizes: list[int]) -> None:
    """Measure and write the section."""
    rows = []
    for size in sizes:
        late, registering = asyncio.run(our_storm(size, ahead=5 + size // 2500))
        rows.append([f"gnomon on SQLite, {size:,}", f"{registering:.1f} s", quantiles(late)])
    with tempfile.TemporaryDirectory() as folder:
        late, registering = apscheduler_storm(MemoryJobStore, 10_000, ahead=6)
        rows.append(["APScheduler 3 in memory, 10,000", f"{registering:.1f} s", quantiles(late)])
        durable = SQLAlchemyJobStore(url=f"sqlite:///{folder}/jobs.db")
        late, registering = apscheduler_storm(lambda: durable, 10_000, ahead=30)
        rows.append(["APScheduler 3 on SQLite, 10,000", f"{registering:.1f} s", quantiles(late)])
    note = "All due in one second, until their bodies begin. Ours decides, records and runs each of them durably."
    write_section(
        "Storm: until the bodies begin", f"{table(['scheduler', 'registered in', 'late by'], rows)}\n\n{note}"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("--sizes", type=int, nargs="*", default=[10_000, 100_000])
    options.add_argument("--only", choices=["seconds", "storms"])
    chosen = options.parse_args()
    sys.setswitchinterval(0.0005)
    if chosen.only != "storms":
        each_second(chosen.seconds)
    if chosen.only != "seconds":
        storms(chosen.sizes)


if __name__ == "__main__":
    main()
