"""PostgreSQL: jobs pile up and are written together, as on SQLite; but here others write, too.

Nothing relies on there being one writer, nor on a session: no setting, no lock and no prepared statement has to
outlive its transaction. So it works behind a pooler that deals out connections by the transaction.
"""

import asyncio
from collections import deque
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from gnomon.adapters.sql.bulk import MAY_COPY
from gnomon.adapters.sql.failures import DEADLOCK, lost, sqlstate_of, translated
from gnomon.adapters.sql.transactions import MOST_TOGETHER, Job, Outcome, run_together, settle
from gnomon.errors import StoreUnavailable

T = TypeVar("T")
_NOW = sa.text("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")


def engine_for(url: str, *, statement_cache: bool, pool_size: int) -> AsyncEngine:
    """An engine on the database. A connection that has died is noticed and replaced before it is used."""
    connect: dict[str, Any] = {}
    if not statement_cache:
        # Without a name a statement is gone with the next one, so none is left on a connection that the pooler
        # gives to someone else.
        connect = {
            "statement_cache_size": 0,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": str,
        }
    address = sa.make_url(url).set(drivername="postgresql+asyncpg")
    return create_async_engine(
        address,
        pool_size=pool_size,
        pool_pre_ping=True,
        connect_args=connect,
        execution_options={MAY_COPY: statement_cache},
    )


class _Asked(NamedTuple):
    job: Job[Any]
    answer: "asyncio.Future[Any]"


class PostgresTransactions:
    """The engine on one database. It belongs to the event loop in which it was made."""

    def __init__(self, url: str, *, statement_cache: bool, pool_size: int) -> None:
        self._engine = engine_for(url, statement_cache=statement_cache, pool_size=pool_size)
        self._asked: deque[_Asked] = deque()
        self._writer: asyncio.Task[None] | None = None
        self._closing = False
        #: How many transactions there were, with success or without.
        self.commits = 0

    def now(self, conn: sa.Connection) -> int:
        """See Transactions.now."""
        return int(conn.execute(_NOW).scalar_one())

    async def read(self, job: Job[T]) -> T:
        """See Transactions.read."""
        if self._closing:
            raise StoreUnavailable("the store is closed")
        try:
            async with self._engine.connect() as conn:
                return await conn.run_sync(job)
        except Exception as error:
            failure = translated(error)
            if failure is error:
                raise
            raise failure from error

    async def write(self, job: Job[T]) -> T:
        """See Transactions.write."""
        if self._closing:
            raise StoreUnavailable("the store is closed")
        asked = _Asked(job, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_all(), name="gnomon-write")
        answer: T = await asked.answer
        return answer

    async def close(self) -> None:
        """See Transactions.close."""
        self._closing = True
        if self._writer is not None:
            await self._writer
        await self._engine.dispose()

    # ---- the writer's task -------------------------------------------------------------------

    async def _write_all(self) -> None:
        """Write until nothing is left to write."""
        while self._asked:
            batch = [self._asked.popleft() for _ in range(min(len(self._asked), MOST_TOGETHER))]
            outcomes = await self._run([asked.job for asked in batch])
            settle([(asked.answer, outcome) for asked, outcome in zip(batch, outcomes, strict=True)])

    async def _run(self, jobs: list[Job[Any]]) -> list[Outcome]:
        outcomes = await self._run_together(jobs)
        if len(jobs) == 1:
            return outcomes
        # Together they may have taken locks in an order that another process found crossing its own. Alone they
        # take them in one order: schedules by uid, after shards.
        return [
            (await self._run_together([job]))[0] if _crossed(outcome) else outcome
            for job, outcome in zip(jobs, outcomes, strict=True)
        ]

    async def _run_together(self, jobs: list[Job[Any]]) -> list[Outcome]:
        try:
            async with self._engine.connect() as conn:
                outcomes = await conn.run_sync(run_together, jobs)
                self.commits += 1
                return outcomes
        except Exception as error:  # noqa: BLE001 - it is handed to those who wait
            return [Outcome(error=lost(error)) for _ in jobs]


def _crossed(outcome: Outcome) -> bool:
    cause = outcome.error.__cause__ if outcome.error else None
    return cause is not None and sqlstate_of(cause) == DEADLOCK
