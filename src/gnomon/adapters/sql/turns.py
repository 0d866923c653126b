"""Leases and turns in rows, judged by the store's clock. A turn is a lease that its owner renews by name."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from gnomon.adapters.sql import bulk
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.leases import checked_key, checked_ttl

_TAKE_TURN = bulk.statement(
    "INSERT INTO turn (name, holder, until_at, token) VALUES (?, ?, ?, 1) ON CONFLICT (name)"
    " DO UPDATE SET holder = excluded.holder, until_at = excluded.until_at, token = turn.token + 1"
    " WHERE turn.holder = excluded.holder OR turn.until_at <= ? RETURNING token"
)
_ACQUIRE = bulk.statement(
    "INSERT INTO turn (name, holder, until_at, token) VALUES (?, ?, ?, 1) ON CONFLICT (name)"
    " DO UPDATE SET holder = excluded.holder, until_at = excluded.until_at, token = turn.token + 1"
    " WHERE turn.until_at <= ? RETURNING token"
)
_RENEW = bulk.statement("UPDATE turn SET until_at = ? WHERE name = ? AND token = ? AND until_at > ? RETURNING token")
#: The row stays, so that the next token is higher.
_RELEASE = bulk.statement("UPDATE turn SET until_at = 0 WHERE name = ? AND token = ? AND until_at > ? RETURNING token")
_GIVE_UP = bulk.statement("UPDATE turn SET until_at = 0 WHERE holder = ? AND name NOT LIKE ?")
#: Names of leases and of turns never meet.
_PREFIX = "lease:"


def take_turn(conn: sa.Connection, name: str, holder: str, until_at: int, now: int) -> bool:
    """See Turns.take_turn."""
    return bool(bulk.rows(conn, _TAKE_TURN, name, holder, until_at, now))


def give_turns_up(conn: sa.Connection, holder: str) -> None:
    """See Turns.give_turns_up."""
    bulk.run(conn, _GIVE_UP, holder, f"{_PREFIX}%")


class SqlLeases:
    """The port Leases. There is a row for every key that was ever used."""

    ordered = True

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def acquire(self, key: str, owner: str, *, ttl_ms: int) -> int | None:
        """See Leases.acquire."""
        name, holder, span = _PREFIX + checked_key("key", key), checked_key("owner", owner), checked_ttl(ttl_ms)

        def acquire(conn: sa.Connection) -> int | None:
            now = self._transactions.now(conn)
            return _token(bulk.rows(conn, _ACQUIRE, name, holder, now + span, now))

        return await self._transactions.write(acquire)

    async def renew(self, key: str, token: int, *, ttl_ms: int) -> int | None:
        """See Leases.renew."""
        name, span = _PREFIX + checked_key("key", key), checked_ttl(ttl_ms)

        def renew(conn: sa.Connection) -> int | None:
            now = self._transactions.now(conn)
            return _token(bulk.rows(conn, _RENEW, now + span, name, token, now))

        return await self._transactions.write(renew)

    async def release(self, key: str, token: int) -> bool:
        """See Leases.release."""
        name = _PREFIX + checked_key("key", key)

        def release(conn: sa.Connection) -> bool:
            return bool(bulk.rows(conn, _RELEASE, name, token, self._transactions.now(conn)))

        return await self._transactions.write(release)


def _token(found: Sequence[Sequence[Any]]) -> int | None:
    """The only column of the only row, if there is one."""
    return next((int(token) for (token,) in found), None)
