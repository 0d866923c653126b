"""What jobs note in their transaction is told once that is committed, and not before."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

import sqlalchemy as sa

from gnomon.adapters.sql.transactions import Job, Transactions
from gnomon.ports.commit_observer import Tally
from gnomon.ports.coordination import Topic

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


_TOPICS = "gnomon.hints"


def hint(conn: sa.Connection, topic: Topic) -> None:
    """Remember to tell this once the transaction is committed, if anyone listens."""
    leave_note(conn, _TOPICS, topic)


class Hinted(AfterCommit[Topic]):
    """An engine that tells others what its jobs have hinted at, each topic once."""

    place = _TOPICS

    def __init__(self, engine: Transactions, tell: Callable[[Topic], None]) -> None:
        super().__init__(engine)
        self._tell_others = tell

    def _tell(self, notes: Sequence[Topic]) -> None:
        for topic in dict.fromkeys(notes):
            self._tell_others(topic)


#: What is to be told.
CommitNote = Callable[[Tally], None]
_NOTES = "gnomon.notes"


def note(conn: sa.Connection, told: CommitNote) -> None:
    """Remember to tell this once the transaction is committed, if anyone listens."""
    leave_note(conn, _NOTES, told)


class Tallied(AfterCommit[CommitNote]):
    """An engine that tells whoever counts what its jobs have noted."""

    place = _NOTES

    def __init__(self, engine: Transactions, tally: Tally) -> None:
        super().__init__(engine)
        self._tally = tally

    def _tell(self, notes: Sequence[CommitNote]) -> None:
        for told in notes:
            told(self._tally)
