"""What jobs note in their transaction is told once that is committed, and not before."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar

import sqlalchemy as sa

from gnomon.adapters.sql.transactions import Job, Transactions

T = TypeVar("T")
Note = TypeVar("Note")


def leave_note(conn: sa.Connection, place: str, note: object) -> None:
    """Remember this until the transaction is committed, if anyone listens there."""
    notes: list[object] | None = conn.info.get(place)
    if notes is not None:
        notes.append(note)


class AfterCommit(ABC, Generic[Note]):
    """An engine that tells after each commit what its jobs have noted. What was taken back is never told."""

    #: Where jobs leave their notes.
    place: ClassVar[str]

    def __init__(self, engine: Transactions) -> None:
        self._engine = engine

    @abstractmethod
    def _tell(self, notes: Sequence[Note]) -> None:
        """They have come true, in this order."""

    async def write(self, job: Job[T], *, apart: bool = False) -> T:
        """See Transactions.write."""

        def noting(conn: sa.Connection) -> tuple[T, list[Note]]:
            notes: list[Note] = []
            # Somebody else may listen there, too.
            others: list[Note] | None = conn.info.pop(self.place, None)
            conn.info[self.place] = notes
            try:
                return job(conn), notes
            finally:
                del conn.info[self.place]
                if others is not None:
                    others += notes
                    conn.info[self.place] = others

        done, notes = await self._engine.write(noting, apart=apart)
        self._tell(notes)
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
