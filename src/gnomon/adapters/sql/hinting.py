"""Telling others of what a transaction made true, once it is committed and not before."""

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from gnomon.adapters.sql.transactions import Job, Transactions
from gnomon.ports.hints import Topic

T = TypeVar("T")
_TOPICS = "gnomon.hints"


def hint(conn: sa.Connection, topic: Topic) -> None:
    """Remember to tell this once the transaction is committed, if anyone listens."""
    topics: dict[Topic, None] | None = conn.info.get(_TOPICS)
    if topics is not None:
        topics[topic] = None


class Hinted:
    """An engine that tells after each commit what its jobs have hinted at. What was taken back is never told."""

    def __init__(self, engine: Transactions, tell: Callable[[Topic], None]) -> None:
        self._engine = engine
        self._tell = tell

    async def write(self, job: Job[T], *, apart: bool = False) -> T:
        """See Transactions.write."""

        def hinting(conn: sa.Connection) -> tuple[T, dict[Topic, None]]:
            topics: dict[Topic, None] = {}
            conn.info[_TOPICS] = topics
            try:
                return job(conn), topics
            finally:
                conn.info.pop(_TOPICS, None)

        done, topics = await self._engine.write(hinting, apart=apart)
        for topic in topics:
            self._tell(topic)
        return done

    async def read(self, job: Job[T]) -> T:
        """See Transactions.read."""
        return await self._engine.read(job)

    def now(self, conn: sa.Connection) -> int:
        """See Transactions.now."""
        return self._engine.now(conn)

    async def close(self) -> None:
        """See Transactions.close."""
        await self._engine.close()
