"""One-shot schedules: deleted or paused in the transaction that ends their run, after everything else in it.

The deletion of a schedule ends its queued runs, and the end of a run retires its one-shot schedule. If each of them
called the other, a schedule could change in the middle of its own change. The end of a run therefore only leaves the
schedule on the connection (`retire_at_end`), and `RetiringTransactions` retires it after the transaction body. Both are
committed together: a crash leaves no schedule behind that has run and could run again.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import sqlalchemy as sa

from gnomon.adapters.sql.transactions import TransactionBody, Transactions
from gnomon.core.model import RunStatus, ScheduleUid

T = TypeVar("T")
#: The key of `Connection.info` under which the current body collects the schedules.
_ENDED = "gnomon.ended_one_shots"


class EndedOneShot(NamedTuple):
    """A one-shot schedule whose run has ended, with the status and the time of the end."""

    uid: ScheduleUid
    status: RunStatus
    at: int


def retire_at_end(conn: sa.Connection, ended: EndedOneShot) -> None:
    """Have the schedule retired at the end of the transaction body."""
    found: list[EndedOneShot] = conn.info[_ENDED]
    found.append(ended)


class RetiringTransactions:
    """Transactions that retire the one-shot schedules whose runs they end."""

    def __init__(self, engine: Transactions, *, retire: Callable[[sa.Connection, EndedOneShot], None]) -> None:
        #: The transactions of the database itself.
        self.engine = engine
        self._retire = retire

    async def write(self, body: TransactionBody[T], *, apart: bool = False) -> T:
        """See Transactions.write."""

        def retiring(conn: sa.Connection) -> T:
            ended: list[EndedOneShot] = []
            conn.info[_ENDED] = ended
            try:
                result = body(conn)
                # The end of one schedule may end the runs of others.
                for one in ended:
                    self._retire(conn, one)
                return result
            finally:
                del conn.info[_ENDED]

        return await self.engine.write(retiring, apart=apart)

    async def read(self, body: TransactionBody[T]) -> T:
        """See Transactions.read."""
        return await self.engine.read(body)

    def now(self, conn: sa.Connection) -> int:
        """See Transactions.now."""
        return self.engine.now(conn)

    async def close(self) -> None:
        """See Transactions.close."""
        await self.engine.close()
