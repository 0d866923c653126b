"""The table of commits that are not counted yet: written with each commit, and emptied by a server that counts them."""

from collections.abc import Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk
from gnomon.adapters.sql.transactions import Transactions

_NOW_SQLITE = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_NOW_POSTGRES = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_ADD = bulk.Statement(
    f"INSERT INTO metrics_outbox (created_at, changes) VALUES ({_NOW_SQLITE}, ?)",  # noqa: S608 - our own words
    f"INSERT INTO metrics_outbox (created_at, changes) VALUES ({_NOW_POSTGRES}, $1)",  # noqa: S608
)
_ANY = bulk.statement("SELECT 1 FROM metrics_outbox LIMIT 1")
# A server that takes entries at the same time gets others, and does not wait.
_TAKE = bulk.statement(
    "DELETE FROM metrics_outbox WHERE number IN"
    " (SELECT number FROM metrics_outbox ORDER BY number LIMIT ? FOR UPDATE SKIP LOCKED) RETURNING changes"
)
_DISCARD = bulk.Statement(
    f"DELETE FROM metrics_outbox WHERE created_at < {_NOW_SQLITE} - ?",  # noqa: S608
    f"DELETE FROM metrics_outbox WHERE created_at < {_NOW_POSTGRES} - $1",  # noqa: S608
)


def add_to_outbox(conn: sa.Connection, changes: bytes) -> None:
    """Write the changes of the current transaction, to be counted once it is committed."""
    bulk.execute_statement(conn, _ADD, changes)


class SqlMetricsOutbox:
    """Implements MetricsOutbox."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def take(self, *, limit: int) -> Sequence[bytes]:
        """See MetricsOutbox.take."""
        # Most often there is nothing to take, and a look costs no commit.
        if not await self._transactions.read(lambda conn: bulk.fetch_rows(conn, _ANY)):
            return ()
        rows = await self._transactions.write(lambda conn: bulk.fetch_rows(conn, _TAKE, limit))
        return [bytes(changes) for (changes,) in rows]

    async def discard(self, *, older_than_ms: int) -> None:
        """See MetricsOutbox.discard."""
        if await self._transactions.read(lambda conn: bulk.fetch_rows(conn, _ANY)):
            await self._transactions.write(lambda conn: bulk.execute_statement(conn, _DISCARD, older_than_ms))
