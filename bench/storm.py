"""How fast ticks are decided: many due in one second, a million registered, one a second. Peers in the same run."""

import argparse
import asyncio
import gc
import resource
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from apscheduler.events import EVENT_JOB_SUBMITTED
from apscheduler.executors.base import BaseExecutor
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler

from gnomon.adapters.host import RandomIds, SystemClock
from gnomon.adapters.sql.connect import open_postgres, open_sqlite
from gnomon.adapters.sql.store import SqlStore
from gnomon.config.sections import LeaderSettings, TickerSettings
from gnomon.core.ledger.edits import new_schedule
from gnomon.core.model import Overlap, ScheduleUid, Spec
from gnomon.core.triggers import Every
from gnomon.services.operations.schedules import ScheduleService
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker
from gnomon.testing.clock import Recorder, VirtualClock
from report import table, write_section
from support.postgres_server import postgres

NOON = 1_772_452_800_000
PEER_JOBS = 10_000


@asynccontextmanager
async def sqlite_store() -> AsyncIterator[SqlStore]:
    with tempfile.TemporaryDirectory() as folder:
        store = await open_sqlite(f"{folder}/gnomon.db", now=SystemClock().now)
        yield store
        await store.close()


@asynccontextmanager
async def postgres_store() -> AsyncIterator[SqlStore]:
    async with postgres(18).database() as url:
        store = await open_postgres(url)
        yield store
        await store.close()


class ElectorIgnoringClockSkew(Elector):
    """Leads although the clock of this process was moved and differs from the store's."""

    def _clock_is_off(self, skew: int) -> bool:
        del skew
        return False


async def storm(store: SqlStore, count: int) -> tuple[float, float]:
    """Seconds to register `count` schedules, and to decide them all when they are due at once."""
    clock = VirtualClock(NOON - 3_600_000)
    schedules = ScheduleService(store.schedules, store.history, clock, RandomIds())
    requests = [
        {"schedule_id": f"job-{number}", "schedule": "0 12 * * *", "workflow_id": "work"} for number in range(count)
    ]
    began = perf_counter()
    await schedules.upsert_all(requests, actor="bench")
    registering = perf_counter() - began
    # A process that ticks does not have the objects of the registration.
    del requests
    gc.collect()

    clock.advance(3_600_000)
    events = Recorder()
    elector = ElectorIgnoringClockSkew(store.shards, clock, events, LeaderSettings(), holder="bench")
    ticker = Ticker(store.ledger, elector, clock, events, TickerSettings(), on_runs_created=lambda: None)
    await elector.step()
    began = perf_counter()
    while not await ticker.step():
        pass
    deciding = perf_counter() - began
    assert not await store.ledger.due(clock.now(), shards=frozenset(range(256)), limit=1)
    return registering, deciding


class NoWork(BaseExecutor):  # type: ignore[misc]  # the peer has no types
    """Accepts every job and does nothing: only the scheduler is measured."""

    def _do_submit_job(self, job: Any, run_times: Any) -> None:  # noqa: ANN401, ARG002 - the peer's types
        self._run_job_success(job.id, [])


def nothing() -> None:
    """The body of the peers' jobs."""


def apscheduler_storm(make_store: Callable[[], Any]) -> tuple[float, float]:
    """The same with APScheduler 3: add jobs, then let it process those that are due."""
    scheduler = BackgroundScheduler(
        jobstores={"default": make_store()},
        executors={"default": NoWork()},
        timezone=UTC,
        job_defaults={"misfire_grace_time": None},
    )
    scheduler.start(paused=True)
    due = datetime.now(UTC) + timedelta(hours=1)
    began = perf_counter()
    for number in range(PEER_JOBS):
        scheduler.add_job(nothing, "interval", days=1, start_date=due, id=f"job-{number}")
    registering = perf_counter() - began
    past = datetime.now(UTC) - timedelta(seconds=1)
    for job in scheduler.get_jobs():
        job.modify(next_run_time=past)
    submitted: list[object] = []
    scheduler.add_listener(submitted.append, EVENT_JOB_SUBMITTED)
    scheduler.state = 1
    began = perf_counter()
    scheduler._process_jobs()  # noqa: SLF001 - its one pass over what is due
    deciding = perf_counter() - began
    scheduler.shutdown(wait=False)
    assert len(submitted) == PEER_JOBS
    return registering, deciding


async def ticking(store: SqlStore, count: int, period_s: int, seconds: float) -> tuple[list[int], float]:
    """Lateness of decisions, in ms, with `count` schedules of one period spread evenly, and the memory in MiB."""
    clock = SystemClock()
    now = clock.now()
    spec_start = now - now % 1000
    for first in range(0, count, 1000):
        made = []
        for number in range(first, min(first + 1000, count)):
            anchor = spec_start + number * period_s * 1000 // count
            every = Every(timedelta(seconds=period_s), datetime.fromtimestamp(anchor / 1000, UTC))
            spec = Spec(trigger=every, workflow_id="work", overlap=Overlap.ALLOW)
            made.append(new_schedule(ScheduleUid(f"sch_{number:08}"), "default", f"job-{number}", spec, now=now))
        await store.schedules.add(made, actor="bench", tzdata="")
    events = Recorder()
    elector = Elector(store.shards, clock, events, LeaderSettings(), holder="bench")
    ticker = Ticker(store.ledger, elector, clock, events, TickerSettings(), on_runs_created=lambda: None)
    # Ticks that came due during the registration are caught up first; then the measurement starts.
    await ticker.step()
    while (await store.ledger.next_due_at(shards=frozenset(range(256))) or 0) < clock.now() - 100:
        await ticker.step()
    start = clock.now()
    while clock.now() < start + seconds * 1000:
        wait = await ticker.step()
        await asyncio.sleep(wait)
    late = await lateness(store, start)
    return late, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def lateness(store: SqlStore, since: int) -> list[int]:
    import sqlalchemy as sa

    def read(conn: sa.Connection) -> list[int]:
        rows = conn.execute(
            sa.text("select decided_at - planned_at from tick where planned_at >= :since and kind = 'fired'"),
            {"since": since},
        )
        return [row[0] for row in rows]

    return await store.transactions.read(read)


def quantiles(late: list[int]) -> str:
    late.sort()
    p99 = late[min(len(late) - 1, int(len(late) * 0.99))]
    return f"p50 {statistics.median(late):.0f} ms, p99 {p99} ms, worst {late[-1]} ms over {len(late):,} fires"


async def storms(sizes: list[int]) -> None:
    rows = []
    base: dict[int, float] = {}
    for size in sizes:
        for name, opened in (("SQLite", sqlite_store), ("PostgreSQL 18", postgres_store)):
            async with opened() as store:
                registering, deciding = await storm(store, size)
            base.setdefault(size, deciding)
            rate = f"{size / deciding:,.0f}"
            rows.append([f"gnomon on {name}", f"{size:,}", f"{registering:.2f} s", f"{deciding:.2f} s", rate])
    with tempfile.TemporaryDirectory() as folder:
        peers = {
            "APScheduler 3 in memory": MemoryJobStore,
            "APScheduler 3 on SQLite": lambda: SQLAlchemyJobStore(url=f"sqlite:///{folder}/jobs.db"),
        }
        for name, make in peers.items():
            registering, deciding = await asyncio.to_thread(apscheduler_storm, make)
            rate = f"{PEER_JOBS / deciding:,.0f}"
            rows.append([name, f"{PEER_JOBS:,}", f"{registering:.2f} s", f"{deciding:.2f} s", rate])
    body = table(["scheduler", "schedules", "registered in", "all decided in", "decided per second"], rows)
    note = (
        "Ours: the decision, the run and its first task are durable for each tick (SQLite synchronous=FULL, PostgreSQL "
        "fsync on). APScheduler keeps no history; its executor does nothing here."
    )
    write_section("Storm: schedules due in the same second", f"{body}\n\n{note}")


async def steady(count: int, seconds: float) -> None:
    async with sqlite_store() as store:
        one, _ = await ticking(store, 1, 1, 60)
    async with sqlite_store() as store:
        many, memory = await ticking(store, count, count // 1000, seconds)
    body = (
        f"One schedule a second, SQLite: {quantiles(one)}.\n\n"
        f"{count:,} schedules registered, 1,000 fires a second, SQLite: {quantiles(many)}; {memory:.0f} MiB at most."
    )
    write_section("Lateness of decisions", body)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sizes", type=int, nargs="*", default=[10_000, 100_000])
    options.add_argument("--registered", type=int, default=1_000_000)
    options.add_argument("--seconds", type=float, default=60)
    options.add_argument("--only", choices=["storms", "steady"])
    chosen = options.parse_args()
    if chosen.only != "steady":
        asyncio.run(storms(chosen.sizes))
    if chosen.only != "storms":
        asyncio.run(steady(chosen.registered, chosen.seconds))


if __name__ == "__main__":
    main()
