"""Notices that a transaction leaves behind, delivered after its commit and never before.

The SQL functions know what they change: runs started, tasks taken, a topic that other processes should look at. They
leave a notice on the connection (`notify_after_commit`, `hint_after_commit`). `AfterCommitTransactions` collects the
notices of each transaction body and delivers them once the commit has succeeded. A body that was rolled back leaves no
notice, and a body that ran twice, because its first transaction was lost, leaves its notices once.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import sqlalchemy as sa

from gnomon.adapters.sql.transactions import TransactionBody, Transactions
from gnomon.ports.commit_observer import CommitObserver
from gnomon.ports.coordination import HintCallback, HintTopic

T = TypeVar("T")
#: Calls the method of an observer that reports the change.
CommitNotice = Callable[[CommitObserver], None]
#: The key of `Connection.info` under which the current body collects its notices.
_NOTICES = "gnomon.notices"


class _Notices:
    """The notices of one transaction body."""

    __slots__ = ("changes", "topics")

    def __init__(self) -> None:
        self.changes: list[CommitNotice] = []
        #: Ordered, each topic once.
        self.topics: dict[HintTopic, None] = {}


def hint_after_commit(conn: sa.Connection, topic: HintTopic) -> None:
    """Send the hint to other processes once the transaction is committed; does nothing if no one observes the store."""
    notices: _Notices | None = conn.info.get(_NOTICES)
    if notices is not None:
        notices.topics[topic] = None


def notify_after_commit(conn: sa.Connection, notice: CommitNotice) -> None:
    """Report the change to every observer once the transaction is committed; does nothing if there is none."""
    notices: _Notices | None = conn.info.get(_NOTICES)
    if notices is not None:
        notices.changes.append(notice)


class AfterCommitTransactions:
    """Transactions that report each commit to observers, and send its hints, each topic once."""

    def __init__(
        self, engine: Transactions, *, observers: Sequence[CommitObserver] = (), hint: HintCallback | None = None
    ) -> None:
        self._engine = engine
        self._observers = tuple(observers)
        self._hint = hint

    async def write(self, job: TransactionBody[T], *, apart: bool = False) -> T:
        """See Transactions.write."""

        def collecting(conn: sa.Connection) -> tuple[T, _Notices]:
            notices = _Notices()
            outer: _Notices | None = conn.info.get(_NOTICES)
            conn.info[_NOTICES] = notices
            try:
                return job(conn), notices
            finally:
                del conn.info[_NOTICES]
                if outer is not None:
                    outer.changes += notices.changes
                    outer.topics |= notices.topics
                    conn.info[_NOTICES] = outer

        result, notices = await self._engine.write(collecting, apart=apart)
        self._deliver(notices)
        return result

    def _deliver(self, notices: _Notices) -> None:
        if self._hint is not None:
            for topic in notices.topics:
                self._hint(topic)
        for observer in self._observers:
            for notice in notices.changes:
                notice(observer)

    async def read(self, job: TransactionBody[T]) -> T:
        """See Transactions.read."""
        return await self._engine.read(job)

    def now(self, conn: sa.Connection) -> int:
        """See Transactions.now."""
        return self._engine.now(conn)

    async def close(self) -> None:
        """See Transactions.close."""
        await self._engine.close()


class HintingTransactions(AfterCommitTransactions):
    """Transactions that send hints only."""

    def __init__(self, engine: Transactions, tell: HintCallback) -> None:
        super().__init__(engine, hint=tell)


class ObservedTransactions(AfterCommitTransactions):
    """Transactions with one observer."""

    def __init__(self, engine: Transactions, observer: CommitObserver) -> None:
        super().__init__(engine, observers=(observer,))
