"""Under constant load the database stops growing: weeks of real services on a real file, in virtual time."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from contracts.store import HOUR, NOON
from gnomon.adapters.archive import FolderArchive, read_archive
from gnomon.adapters.sql import SqlStore, open_sqlite, schema
from gnomon.adapters.sql.sqlite import PRAGMAS, SqliteTransactions
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.maintenance.cleaner import Cleaner
from gnomon.services.operations.jobs import JobService
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker
from gnomon.testing.clock import CountedIds, VirtualClock
from support.execution import ExecutionHarness
from support.sqlite_files import new_sqlite_file

JOBS, WEEKS, RETENTION_DAYS = 25, 4, 3
#: Every so often they run.
PERIOD_HOURS = 3
A_DAY = 24 // PERIOD_HOURS
#: The tables that grow with runs, not with the actions of operators.
GROWING = ("run", "task", "attempt", "task_log", "payload", "tick")

#: A commit that finds so many pages in the log takes them over, with what it has brought itself.
LARGEST_LOG = 2 * int(PRAGMAS["wal_autocheckpoint"]) * 4096


class LoadedNode:
    """A node, period by period."""

    def __init__(self, store: SqlStore, clock: VirtualClock, archive: Path) -> None:
        self.store, self.clock = store, clock
        flags = {"cleaner.dedupe": "1d", "cleaner.pause": "0s", "execution.history_retention_days": RETENTION_DAYS}
        self.harness = ExecutionHarness(store=store, clock=clock, flags=flags)
        settings, events = self.harness.settings, self.harness.events
        elector = Elector(store.shards, clock, events, settings.leader, holder="node", alone=True)
        self.ticker = Ticker(store.ledger, elector, clock, events, settings.ticker, on_runs_created=lambda: None)
        place = FolderArchive(archive)
        self.cleaner = Cleaner(
            store.retention,
            store.jobs,
            place,
            clock,
            events,
            settings=settings,
            lease=AlwaysHeldSingleton(),
            store_now=store.now,
        )

    async def register(self) -> None:
        said = [
            {"name": f"job-{n}", "function": "reports.make", "schedule": f"0 */{PERIOD_HOURS} * * *"}
            for n in range(JOBS)
        ]
        jobs = [read_job(one, Defaults(), now=self.clock.now()) for one in said]
        await JobService(self.store.jobs, self.store.schedules, self.store.history, self.clock, CountedIds()).apply(
            jobs, actor="ada"
        )

    async def period(self) -> None:
        """The jobs come due, run and end."""
        self.clock.advance(PERIOD_HOURS * HOUR)
        while not await self.ticker.step():
            pass
        await self.harness.run_until_idle()
        self.harness.runner.end_all(output=b'"' + b"x" * 500 + b'"')
        await self.harness.run_until_idle()

    async def rows(self) -> dict[str, int]:
        def count(conn: sa.Connection) -> dict[str, int]:
            asked = {name: sa.select(sa.func.count()).select_from(schema.metadata.tables[name]) for name in GROWING}
            return {name: conn.scalar(query) or 0 for name, query in asked.items()}

        return await self.store.transactions.read(count)


def size_of(plant: LoadedNode, file: Path) -> int:
    """The size of the database after its log, which is no history, was merged into it."""
    transactions = plant.store.transactions.engine
    assert isinstance(transactions, SqliteTransactions)
    transactions.checkpoint()
    return file.stat().st_size


@pytest.fixture
async def plant(tmp_path: Path) -> AsyncIterator[LoadedNode]:
    clock = VirtualClock(NOON)
    store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")), now=clock.now)
    made = LoadedNode(store, clock, tmp_path / "archive")
    await made.register()
    yield made
    await store.close()


@pytest.mark.req("H-11")
@pytest.mark.req("Z-09")
@pytest.mark.guarantee("S19")
async def test_under_constant_load_the_database_stops_growing(plant: LoadedNode, tmp_path: Path) -> None:
    made = JOBS * A_DAY * 7 * WEEKS
    weeks: list[dict[str, int]] = []
    sizes: list[int] = []
    file = tmp_path / "gnomon.db"
    for number in range(1, WEEKS * 7 * A_DAY + 1):
        await plant.period()
        if number % A_DAY == 0:
            await plant.cleaner.clean()
        if number % (7 * A_DAY) == 0:
            weeks.append(await plant.rows())
            sizes.append(size_of(plant, file))
            assert file.with_name("gnomon.db-wal").stat().st_size <= LARGEST_LOG

    assert weeks[0]["run"] == pytest.approx(JOBS * A_DAY * RETENTION_DAYS, abs=JOBS)
    assert weeks == [weeks[0]] * WEEKS
    # Room that was let go of is used again.
    assert sizes[-1] <= sizes[1] * 1.02
    archived = [row["run_id"] for row in read_archive(tmp_path / "archive") if row["table"] == "run"]
    assert len(archived) == len(set(archived)) == made - weeks[-1]["run"]
