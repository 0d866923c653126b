"""The versions of the policy in their table."""

from collections.abc import Sequence

import sqlalchemy as sa
from msgspec.structs import asdict

from gnomon.adapters.sql import audit, bulk, schema
from gnomon.adapters.sql.rows import Row
from gnomon.core.audit import policy_applied_entry
from gnomon.core.policy.version import PolicyVersion, next_version

_version = schema.policy_version.c
_FIELDS = PolicyVersion.__struct_fields__
_VERSIONS = sa.select(*(_version[name] for name in _FIELDS)).order_by(_version.version.desc())
_NEWEST = bulk.statement("SELECT max(version) FROM policy_version")
#: Two servers that apply a policy at the same time take turns.
_LOCK = sa.text("LOCK TABLE policy_version IN SHARE ROW EXCLUSIVE MODE")


def add(conn: sa.Connection, body: str, author: str, now: int, expected: int | None) -> PolicyVersion:
    """See Policies.add."""
    if conn.dialect.name == "postgresql":
        conn.execute(_LOCK)
    last = newest(conn)
    made = next_version(last, body, author=author, now=now, expected=expected)
    if made is not last:
        conn.execute(sa.insert(schema.policy_version).values(asdict(made)))
        audit.write(conn, [policy_applied_entry(last, made)])
    return made


def newest(conn: sa.Connection) -> PolicyVersion | None:
    """See Policies.newest."""
    return next(iter(page(conn, None, 1)), None)


def newest_number(conn: sa.Connection) -> int:
    """See Policies.newest_number."""
    [(number,)] = bulk.fetch_rows(conn, _NEWEST)
    return number or 0


def find(conn: sa.Connection, version: int) -> PolicyVersion | None:
    """See Policies.find."""
    row = conn.execute(_VERSIONS.where(_version.version == version)).first()
    return None if row is None else _policy_version_of(row)


def page(conn: sa.Connection, before: int | None, limit: int) -> Sequence[PolicyVersion]:
    """See Policies.page."""
    query = _VERSIONS if before is None else _VERSIONS.where(_version.version < before)
    return [_policy_version_of(row) for row in conn.execute(query.limit(limit))]


def _policy_version_of(row: Row) -> PolicyVersion:
    return PolicyVersion(**dict(zip(_FIELDS, row, strict=True)))
