"""Telling someone who counts what a transaction made true, once it is committed and not before."""

from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa

from gnomon.adapters.sql.transactions import Job, Transactions
from gnomon.ports.tally import Tally

T = TypeVar("T")
#: What is to be told.
Note = Callable[[Tally], None]
_NOTES = "gnomon.notes"


def note(conn: sa.Connection, told: Note) -> None:
    """Remember to tell this once the transaction is committed, if anyone listens."""
    notes: list[Note] | None = conn.info.get(_NOTES)
    if notes is not None:
        notes.append(told)


class Tallied:
    """An engine that tells after each commit what its jobs have noted. What was taken back is never told."""

    def __init__(self, engine: Transactions, tally: Tally) -> None:
        self._engine = engine
        self._tally = tally

    async def write(self, job: Job[T], *, apart: bool = False) -> T:
        """See Transactions.write."""

        def noting(conn: sa.Connection) -> tuple[T, list[Note]]:
            notes: list[Note] = []
            # Somebody else may count, too.
            others: list[Note] | None = conn.info.pop(_NOTES, None)
            conn.info[_NOTES] = notes
            try:
                return job(conn), notes
            finally:
                del conn.info[_NOTES]
                if others is not None:
                    others += notes
                    conn.info[_NOTES] = others

        done, notes = await self._engine.write(noting, apart=apart)
        for told in notes:
            told(self._tally)
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
