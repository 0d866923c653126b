"""Notices that a transaction leaves behind, delivered after its commit and never before.

The SQL functions know what they change: runs started, tasks taken, a topic that other processes should look at. They
leave a notice on the connection (`notify_runs`, `notify_activity`, `hint_after_commit`). `AfterCommitTransactions`
collects the notices of each transaction body and delivers them once the commit has succeeded. A body that was rolled
back leaves no notice, and a body that ran twice, because its first transaction was lost, leaves its notices once.

A process whose commits another process counts has a journal instead: the notices of a body are written to the outbox in
its own transaction, so that a commit is counted even if the process dies right after it.
"""

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TypeVar

import sqlalchemy as sa

from gnomon.adapters.sql.change_log import ChangeLogWriter
from gnomon.adapters.sql.metrics_outbox import add_to_outbox
from gnomon.adapters.sql.transactions import TransactionBody, Transactions
from gnomon.ports.change_log import LetterObserver
from gnomon.ports.commit_observer import (
    ActivityObserver,
    AnnouncementObserver,
    CommitJournal,
    CommitObserver,
    LogObserver,
    RunObserver,
    WriteObserver,
)
from gnomon.ports.coordination import HintCallback, HintTopic

T = TypeVar("T")
#: Calls the method of an observer that reports the change.
RunNotice = Callable[[RunObserver], None]
ActivityNotice = Callable[[ActivityObserver], None]
LogNotice = Callable[[LogObserver], None]
LetterNotice = Callable[[LetterObserver], None]
#: The key of `Connection.info` under which the current body collects its notices.
_NOTICES = "gnomon.notices"


class _Notices:
    """The notices of one transaction body."""

    __slots__ = ("activity", "announced", "letters", "logs", "runs", "topics", "waited")

    def __init__(self) -> None:
        self.runs: list[RunNotice] = []
        self.activity: list[ActivityNotice] = []
        self.logs: list[LogNotice] = []
        self.letters: list[LetterNotice] = []
        #: Whether announcements are to be sent.
        self.announced = False
        #: Seconds from the request of the write to the beginning of its transaction.
        self.waited = 0.0
        #: Ordered, each topic once.
        self.topics: dict[HintTopic, None] = {}

    @property
    def has_changes(self) -> bool:
        """Whether there are any that followers receive."""
        return bool(self.runs or self.activity or self.logs or self.letters)

    def journal(self, conn: sa.Connection, journal: CommitJournal) -> None:
        """Write the changes to the outbox, if there are any that count."""
        if not self.runs and not self.activity:
            return
        for run_notice in self.runs:
            run_notice(journal)
        for notice in self.activity:
            notice(journal)
        changes = journal.encoded()
        if changes is not None:
            add_to_outbox(conn, changes)


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


def notify_logs(conn: sa.Connection, notice: LogNotice) -> None:
    """Report kept lines to the observers once the transaction is committed; does nothing if there is no observer."""
    notices: _Notices | None = conn.info.get(_NOTICES)
    if notices is not None:
        notices.logs.append(notice)


def is_observed(conn: sa.Connection) -> bool:
    """Whether somebody observes what the transaction commits."""
    return conn.info.get(_NOTICES) is not None


def notify_letters(conn: sa.Connection, notice: LetterNotice) -> None:
    """Report dead letters once the transaction is committed; does nothing if there is no observer."""
    notices: _Notices | None = conn.info.get(_NOTICES)
    if notices is not None:
        notices.letters.append(notice)


def notify_announcements(conn: sa.Connection) -> None:
    """Signal announcements to this process once the transaction is committed; do nothing without observer."""
    notices: _Notices | None = conn.info.get(_NOTICES)
    if notices is not None:
        notices.announced = True


class AfterCommitTransactions:
    """Transactions that report each commit to observers, and send its hints, each topic once."""

    def __init__(
        self,
        engine: Transactions,
        *,
        observers: Sequence[CommitObserver] = (),
        hint: HintCallback | None = None,
        journal: Callable[[], CommitJournal] | None = None,
        change_log: ChangeLogWriter | None = None,
    ) -> None:
        """`journal` makes the journal of one transaction; `change_log` writes down its changes for other servers."""
        self._engine = engine
        self._journal = journal
        self._change_log = change_log
        self._letter_observers = [one for one in observers if isinstance(one, LetterObserver)]
        self._log_observers = [one for one in observers if isinstance(one, LogObserver)]
        self._announcement_observers = [one for one in observers if isinstance(one, AnnouncementObserver)]
        self._run_observers = [one for one in observers if isinstance(one, RunObserver)]
        self._activity_observers = [one for one in observers if isinstance(one, ActivityObserver)]
        self._write_observers = [one for one in observers if isinstance(one, WriteObserver)]
        self._hint = hint

    async def write(self, body: TransactionBody[T], *, apart: bool = False) -> T:
        """See Transactions.write."""
        asked_at = perf_counter()

        def collecting(conn: sa.Connection) -> tuple[T, _Notices]:
            notices = _Notices()
            notices.waited = perf_counter() - asked_at
            conn.info[_NOTICES] = notices
            try:
                result = body(conn)
                if self._journal is not None:
                    notices.journal(conn, self._journal())
                self._log_changes(conn, notices)
                return result, notices
            finally:
                del conn.info[_NOTICES]

        result, notices = await self._engine.write(collecting, apart=apart)
        self._deliver(notices)
        return result

    def _log_changes(self, conn: sa.Connection, notices: _Notices) -> None:
        """Log the changes of the transaction in the same transaction, if another server follows them."""
        if self._change_log is None or not notices.has_changes:
            return
        collector = self._change_log.collector(conn, lambda: self._engine.now(conn))
        if collector is None:
            return
        for run_notice in notices.runs:
            run_notice(collector)
        for notice in notices.activity:
            notice(collector)
        for log_notice in notices.logs:
            log_notice(collector)
        for letter_notice in notices.letters:
            letter_notice(collector)
        self._change_log.write(conn, collector.collected(), self._engine.now(conn))

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
        for write_observer in self._write_observers if notices.activity else ():
            write_observer.write_waited(round(notices.waited * 1000))
        self._deliver_rarer(notices)

    def _deliver_rarer(self, notices: _Notices) -> None:
        for letter_observer in self._letter_observers:
            for letter_notice in notices.letters:
                letter_notice(letter_observer)
        for log_observer in self._log_observers:
            for log_notice in notices.logs:
                log_notice(log_observer)
        for announcement_observer in self._announcement_observers if notices.announced else ():
            announcement_observer.announcements_written()

    async def read(self, body: TransactionBody[T]) -> T:
        """See Transactions.read."""
        return await self._engine.read(body)

    def now(self, conn: sa.Connection) -> int:
        """See Transactions.now."""
        return self._engine.now(conn)

    async def close(self) -> None:
        """See Transactions.close."""
        await self._engine.close()
