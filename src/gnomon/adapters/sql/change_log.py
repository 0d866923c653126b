"""The log of changes, written in the transactions whose changes it has, while a server follows it."""

import time
from collections.abc import Callable, Collection, Sequence

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.transactions import Transactions
from gnomon.ports.change_log import NOTICED_WITHIN_SECONDS, Change, ChangeCollector, LoggedChanges

_FOLLOWED = bulk.statement("SELECT 1 FROM change_follower WHERE server <> ? AND until_at > ? LIMIT 1")
_FOLLOW = bulk.statement(
    "INSERT INTO change_follower (server, until_at) VALUES (?, ?)"
    " ON CONFLICT (server) DO UPDATE SET until_at = excluded.until_at"
)
_FORGET_FOLLOWERS = bulk.statement("DELETE FROM change_follower WHERE until_at < ?")
_UNFOLLOW = bulk.statement("DELETE FROM change_follower WHERE server = ?")
_ADD = bulk.statement("INSERT INTO change_log (origin, created_at, changes) VALUES (?, ?, ?)")
_LAST = bulk.statement("SELECT coalesce(max(number), 0) FROM change_log")
# The last entry stays, so that SQLite does not give its number to another one.
_FORGET = bulk.statement(
    "DELETE FROM change_log WHERE created_at < ? AND number < (SELECT max(number) FROM change_log)"
)
# Entries are removed once no server follows: retention does not know the log.
_UNREAD = "NOT EXISTS (SELECT 1 FROM change_follower)"
_FORGET_ALL = bulk.statement(
    f"DELETE FROM change_log WHERE {_UNREAD} AND number < (SELECT max(number) FROM change_log)"  # noqa: S608 - our own text
)
_EMPTY = bulk.statement(f"UPDATE change_log SET changes = ? WHERE {_UNREAD}")  # noqa: S608 - as above
_log = schema.change_log.c


class ChangeLogWriter:
    """Logs the changes of the transactions of one process, if a server other than itself follows them."""

    def __init__(
        self,
        origin: str,
        collector: Callable[[int], ChangeCollector],
        *,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`origin` names the process; `collector` makes the collector of a transaction, from its time."""
        self._origin = origin
        self._new_collector = collector
        self._elapsed = elapsed
        self._followed, self._asked_at = False, -NOTICED_WITHIN_SECONDS

    def collector(self, conn: sa.Connection, now: Callable[[], int]) -> ChangeCollector | None:
        """The collector of the current transaction; None while no other server follows."""
        elapsed = self._elapsed()
        if elapsed - self._asked_at >= NOTICED_WITHIN_SECONDS:
            self._followed = bool(bulk.fetch_rows(conn, _FOLLOWED, self._origin, now()))
            self._asked_at = elapsed
        return self._new_collector(now()) if self._followed else None

    def write(self, conn: sa.Connection, changes: Sequence[Change], now: int) -> None:
        """Log these changes."""
        if changes:
            bulk.execute_statement(conn, _ADD, self._origin, now, msgspec.json.encode(changes))


class SqlChangeLog:
    """Implements ChangeLog."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def follow(self, server: str, *, ttl_ms: int) -> int:
        """See ChangeLog.follow."""

        def follow(conn: sa.Connection) -> int:
            now = self._transactions.now(conn)
            bulk.execute_statement(conn, _FORGET_FOLLOWERS, now)
            bulk.execute_statement(conn, _FOLLOW, server, now + ttl_ms)
            [(last,)] = bulk.fetch_rows(conn, _LAST)
            return int(last)

        return await self._transactions.write(follow)

    async def unfollow(self, server: str) -> None:
        """See ChangeLog.unfollow."""

        def unfollow(conn: sa.Connection) -> None:
            bulk.execute_statement(conn, _UNFOLLOW, server)
            bulk.execute_statement(conn, _FORGET_ALL)
            bulk.execute_statement(conn, _EMPTY, b"[]")

        await self._transactions.write(unfollow)

    async def read(self, after: int, *, late: Collection[int], limit: int) -> Sequence[LoggedChanges]:
        """See ChangeLog.read."""
        query = (
            sa.select(_log.number, _log.origin, _log.changes)
            .where(sa.or_(_log.number > after, _log.number.in_(sorted(late))))
            .order_by(_log.number)
            .limit(limit)
        )
        rows = await self._transactions.read(lambda conn: conn.execute(query).all())
        return [
            LoggedChanges(number, origin, msgspec.json.decode(raw, type=list[Change])) for number, origin, raw in rows
        ]

    async def forget(self, *, older_than_ms: int) -> None:
        """See ChangeLog.forget."""

        def forget(conn: sa.Connection) -> None:
            bulk.execute_statement(conn, _FORGET, self._transactions.now(conn) - older_than_ms)

        await self._transactions.write(forget)
