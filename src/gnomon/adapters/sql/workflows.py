"""Workflows and their schedules, registered together."""

from collections.abc import Sequence
from hashlib import sha256

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schedules, schema
from gnomon.adapters.sql.rows import decoded, definition
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.schedules import Application

_workflow = schema.workflow.c
_NEWEST = (
    sa.select(_workflow.definition)
    .where(_workflow.tenant == sa.bindparam("owner"), _workflow.workflow_id == sa.bindparam("name"))
    .order_by(_workflow.version.desc())
    .limit(1)
)
_ADD = bulk.inserting(
    schema.workflow,
    tuple(column.name for column in schema.workflow.columns),
    "ON CONFLICT (tenant, workflow_id, version) DO NOTHING",
)
_NEWEST_OF_EACH = (
    "SELECT definition FROM workflow AS w WHERE tenant = ? AND {} AND version ="
    " (SELECT max(version) FROM workflow AS v WHERE v.tenant = w.tenant AND v.workflow_id = w.workflow_id)"
    " ORDER BY workflow_id"
)
_NEWEST_OF_THESE = bulk.statement(_NEWEST_OF_EACH.format("workflow_id IN KEYS"))
_NEWEST_AFTER = bulk.statement(f"{_NEWEST_OF_EACH.format('workflow_id > ?')} LIMIT ?")


class Void(Exception):
    """A wish could not be carried out whole."""


def workflow(conn: sa.Connection, tenant: str, workflow_id: str, version: int | None) -> Workflow | None:
    """See Jobs.workflow."""
    if version is not None:
        return definition(conn, tenant, workflow_id, version)
    found: str | None = conn.scalar(_NEWEST, {"owner": tenant, "name": workflow_id})
    return None if found is None else decoded(found)


def newest_workflows(conn: sa.Connection, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
    """See Jobs.newest_workflows."""
    found = bulk.rows(conn, _NEWEST_OF_THESE, tenant, sorted(set(workflow_ids)))
    return [decoded(text) for (text,) in found]


def page_of_workflows(conn: sa.Connection, tenant: str, after: str, limit: int) -> Sequence[Workflow]:
    """See Jobs.page_of_workflows."""
    return [decoded(text) for (text,) in bulk.rows(conn, _NEWEST_AFTER, tenant, after, limit)]


def apply(conn: sa.Connection, wish: Application, now: int, actor: str, tzdata: str) -> None:
    """See Jobs.apply. Void if it cannot be carried out whole: what was done of it is to be taken back."""
    rows = [_row(one, now, actor) for one in wish.workflows]
    if len(bulk.those(conn, _ADD, rows, "digest", at=4)) < len(rows):
        raise Void
    if schedules.add(conn, wish.added, actor, tzdata):
        raise Void
    if not schedules.change_all(conn, wish.edits, now, actor, tzdata):
        raise Void
    # In one order, so that two who remove the same do not wait for each other.
    for verdict in sorted(wish.removed, key=lambda one: one.schedule.uid):
        if not schedules.delete(conn, verdict, now, actor):
            raise Void


def _row(one: Workflow, now: int, actor: str) -> tuple[object, ...]:
    definition = msgspec.json.encode(one)
    digest = sha256(definition).hexdigest()
    return one.tenant, one.workflow_id, one.version, definition.decode(), digest, now, actor
