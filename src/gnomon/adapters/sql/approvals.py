"""Standing approvals in their table."""

from collections.abc import Collection, Sequence

import sqlalchemy as sa
from msgspec.structs import asdict, replace
from sqlalchemy.dialects import postgresql, sqlite

from gnomon.adapters.sql import audit, schema
from gnomon.adapters.sql.rows import Row
from gnomon.core.approvals import Approval, ApprovalKind
from gnomon.core.audit import approval_revoked_entry, approved_entry

_approval = schema.approval.c
_FIELDS = Approval.__struct_fields__
#: As literal text: a database uses a partial index only if the query repeats its condition word for word.
_STANDS = sa.text(schema.STANDING)
_STANDING = (
    sa.select(*(_approval[name] for name in _FIELDS))
    .where(
        _STANDS,
        _approval.tenant == sa.bindparam("tenant"),
        _approval.kind == sa.bindparam("kind"),
        _approval.subject.in_(sa.bindparam("subjects", expanding=True)),
    )
    .order_by(_approval.granted_at, _approval.approval_id)
)


def grant(conn: sa.Connection, approval: Approval) -> bool:
    """See Approvals.grant."""
    dialect = postgresql if conn.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(schema.approval).values(asdict(approval))
    added = conn.execute(insert.on_conflict_do_nothing()).rowcount == 1
    if added:
        audit.write(conn, [approved_entry(approval)])
    return added


def revoke(conn: sa.Connection, tenant: str, kind: ApprovalKind, subject: str, actor: str, now: int) -> int:
    """See Approvals.revoke."""
    revoked = [replace(one, revoked_at=now, revoked_by=actor) for one in standing(conn, tenant, kind, [subject])]
    ended = 0
    for one in revoked:
        of_one = sa.update(schema.approval).where(_approval.approval_id == one.approval_id, _STANDS)
        # Of two transactions that revoke the same approval, only one does.
        if conn.execute(of_one.values(revoked_at=now, revoked_by=actor)).rowcount:
            audit.write(conn, [approval_revoked_entry(one)])
            ended += 1
    return ended


def standing(conn: sa.Connection, tenant: str, kind: ApprovalKind, subjects: Collection[str]) -> Sequence[Approval]:
    """See Approvals.standing."""
    wanted = {"tenant": tenant, "kind": kind.value, "subjects": sorted(subjects)}
    return [_approval_of(row) for row in conn.execute(_STANDING, wanted)]


def _approval_of(row: Row) -> Approval:
    found = Approval(**dict(zip(_FIELDS, row, strict=True)))
    return replace(found, kind=ApprovalKind(found.kind))
