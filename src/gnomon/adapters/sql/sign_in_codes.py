"""Codes that sign a browser in, in their table: one for each caller."""

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import audit, bulk
from gnomon.core.audit import sign_in_code_entry
from gnomon.ports.auth import Caller
from gnomon.ports.sign_in_codes import SignInCode

_FORGET_EXPIRED = bulk.statement("DELETE FROM sign_in_code WHERE expires_at <= ?")
_KEEP = bulk.statement(
    "INSERT INTO sign_in_code (tenant, subject, digest, caller, expires_at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (tenant, subject) DO UPDATE SET digest = excluded.digest, caller = excluded.caller,"
    " expires_at = excluded.expires_at"
)
#: Of two that take a code at once, one gets the row.
_TAKE = bulk.statement("DELETE FROM sign_in_code WHERE digest = ? AND expires_at > ? RETURNING caller")


def issue(conn: sa.Connection, code: SignInCode, actor: str, now: int) -> None:
    """See SignInCodes.issue."""
    bulk.execute_statement(conn, _FORGET_EXPIRED, now)
    caller, text = code.caller, msgspec.json.encode(code.caller).decode()
    bulk.execute_statement(conn, _KEEP, caller.tenant, caller.subject, code.digest, text, code.expires_at)
    audit.write(conn, [sign_in_code_entry(caller.tenant, caller.subject, code.expires_at, actor, now)])


def take(conn: sa.Connection, digest: str, now: int) -> Caller | None:
    """See SignInCodes.take."""
    for row in bulk.fetch_rows(conn, _TAKE, digest, now):
        return msgspec.json.decode(row[0], type=Caller)
    return None
