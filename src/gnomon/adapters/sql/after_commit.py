"""Notices that a transaction leaves behind, delivered after its commit and never before.

The SQL functions know what they change: runs started, tasks taken, a topic that other processes should look at. They
leave a notice on the connection (`notify_runs`, `notify_activity`, `hint_after_commit`). `AfterCommitTransactions`
collects the notices of each transaction body and delivers them once the commit has succeeded. A body that was rolled
back leaves no notice, and a body that ran twice, because its first transaction was lost, leaves its notices once.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import sqlalchemy as sa

from gnomon.adapters.sql.transactions import TransactionBody, Transactions
from gnomon.ports.commit_observer import ActivityObserver, CommitObserver, RunObserver
from gnomon.ports.coordination import HintCallback, HintTopic

T = TypeVar("T")
#: Calls the method of an observer that reports the change.
RunNotice = Callable[[RunObserver], None]
ActivityNotice = Callable[[ActivityObserver], None]
#: The key of `Connection.info` under which the current body collects its notices.
_NOTICES = "gnomon.notices"


class _Notices:
    """The notices of one transaction body."""

    __slots__ = ("activity", "runs", "topics")

    def __init__(self) -> None:
        self.runs: list[RunNotice] = []
        self.activity: list[ActivityNotice] = []
        #: Ordered, each topic once.
        self.topics: dict[HintTopic, None] = {}


def hint_after_commit(conn: sa.Connection, topic: HintTopic) -> None:
    """Send the hint to other processes once the transaction is committed; does nothing if no one observes the store."""
    notices: _Notices | None = conn.info.get(_NOTICES)
    if notices is not None:
        notices.topics[topic] = None


def notify_runs(conn: sa.Connection, notice: RunNotice) -> None:
    """Report a change of runs to the observers once the transaction is committed; does nothing if there is none."""
    notices: _Notices | None = conn.info.get(_NOTICES)
    if notices is not None:
        notices.runs.append(notice)


def notify_activity(conn: sa.Connection, notice: ActivityNotice) -> None:
    """Report decided ticks or moved tasks once the transaction is committed; does nothing if there is no observer."""
    notices: _Notices | None = conn.info.get(_NOTICES)
    if notices is not None:
        notices.activity.append(notice)


class AfterCommitTransactions:
    """Transactions that report each commit to observers, and send its hints, each topic once."""

    def __init__(
        self, engine: Transactions, *, observers: Sequence[CommitObserver] = (), hint: HintCallback | None = None
    ) -> None:
        self._engine = engine
        self._run_observers = [one for one in observers if isinstance(one, RunObserver)]
        self._activity_observers = [one for one in observers if isinstance(one, ActivityObserver)]
        self._hint = hint

    async def write(self, body: TransactionBody[T], *, apart: bool = False) -> T:
        """See Transactions.write."""

        def collecting(conn: sa.Connection) -> tuple[T, _Notices]:
            notices = _Notices()
            conn.info[_NOTICES] = notices
            try:
                return body(conn), notices
            finally:
                del conn.info[_NOTICES]

        result, notices = await self._engine.write(collecting, apart=apart)
        self._deliver(notices)
        return result

    def _deliver(self, notices: _Notices) -> None:
        if self._hint is not None:
            for topic in notices.topics:
                self._hint(topic)
        for run_observer in self._run_observers:
            for run_notice in notices.runs:
                run_notice(run_observer)
        for observer in self._activity_observers:
            for notice in notices.activity:
                notice(observer)

    async def read(self, body: TransactionBody[T]) -> T:
        """See Transactions.read."""
        return await self._engine.read(body)

    def now(self, conn: sa.Connection) -> int:
        """See Transactions.now."""
        return self._engine.now(conn)

    async def close(self) -> None:
        """See Transactions.close."""
        await self._engine.close()
