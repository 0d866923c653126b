"""What jobs note in their transaction is told once that is committed, and not before."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

import sqlalchemy as sa

from gnomon.adapters.sql.transactions import TransactionBody, Transactions
from gnomon.ports.commit_observer import CommitObserver
from gnomon.ports.coordination import HintTopic

T = TypeVar("T")
NoteT = TypeVar("NoteT")


def append_note(conn: sa.Connection, place: str, note: object) -> None:
    """Remember this until the transaction is committed, if anyone listens there."""
    notes: list[object] | None = conn.info.get(place)
    if notes is not None:
        notes.append(note)


class AfterCommitTransactions(ABC, Generic[NoteT]):
    """An engine that tells after each commit what its jobs have noted. What was taken back is never told."""

    #: Where jobs leave their notes.
    place: ClassVar[str]

    def __init__(self, engine: Transactions) -> None:
        self._engine = engine

    @abstractmethod
    def _notify(self, notes: Sequence[NoteT]) -> None:
        """They have come true, in this order."""

    async def write(self, job: TransactionBody[T], *, apart: bool = False) -> T:
        """See Transactions.write."""

        def noting(conn: sa.Connection) -> tuple[T, list[NoteT]]:
            notes: list[NoteT] = []
            # Somebody else may listen there, too.
            others: list[NoteT] | None = conn.info.pop(self.place, None)
            conn.info[self.place] = notes
            try:
                return job(conn), notes
            finally:
                del conn.info[self.place]
                if others is not None:
                    others += notes
                    conn.info[self.place] = others

        done, notes = await self._engine.write(noting, apart=apart)
        self._notify(notes)
        return done

    async def read(self, job: TransactionBody[T]) -> T:
        """See Transactions.read."""
        return await self._engine.read(job)

    def now(self, conn: sa.Connection) -> int:
        """See Transactions.now."""
        return self._engine.now(conn)

    async def close(self) -> None:
        """See Transactions.close."""
        await self._engine.close()


_TOPICS = "gnomon.hints"


def hint_after_commit(conn: sa.Connection, topic: HintTopic) -> None:
    """Remember to tell this once the transaction is committed, if anyone listens."""
    append_note(conn, _TOPICS, topic)


class HintingTransactions(AfterCommitTransactions[HintTopic]):
    """An engine that tells others what its jobs have hinted at, each topic once."""

    place = _TOPICS

    def __init__(self, engine: Transactions, tell: Callable[[HintTopic], None]) -> None:
        super().__init__(engine)
        self._send_hint = tell

    def _notify(self, notes: Sequence[HintTopic]) -> None:
        for topic in dict.fromkeys(notes):
            self._send_hint(topic)


#: What is to be told.
CommitNotice = Callable[[CommitObserver], None]
_NOTES = "gnomon.notes"


def notify_after_commit(conn: sa.Connection, told: CommitNotice) -> None:
    """Remember to tell this once the transaction is committed, if anyone listens."""
    append_note(conn, _NOTES, told)


class ObservedTransactions(AfterCommitTransactions[CommitNotice]):
    """An engine that tells whoever counts what its jobs have noted."""

    place = _NOTES

    def __init__(self, engine: Transactions, tally: CommitObserver) -> None:
        super().__init__(engine)
        self._observer = tally

    def _notify(self, notes: Sequence[CommitNotice]) -> None:
        for told in notes:
            told(self._observer)
