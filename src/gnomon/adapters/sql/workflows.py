"""Workflows by version, and changesets that register workflows and their schedules together."""

from collections.abc import Sequence
from hashlib import sha256

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schedules, schema
from gnomon.adapters.sql.rows import load_workflow, stored_workflow
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.schedules import JobChangeset

_workflow = schema.workflow.c
_NEWEST = (
    sa.select(_workflow.definition, _workflow.digest)
    .where(_workflow.tenant == sa.bindparam("owner"), _workflow.workflow_id == sa.bindparam("name"))
    .order_by(_workflow.version.desc())
    .limit(1)
)
_ADD = bulk.insert_statement(
    schema.workflow,
    tuple(column.name for column in schema.workflow.columns),
    "ON CONFLICT (tenant, workflow_id, version) DO NOTHING",
)
_NEWEST_OF_EACH = (
    "SELECT definition, digest FROM workflow AS w WHERE tenant = ? AND {} AND version ="
    " (SELECT max(version) FROM workflow AS v WHERE v.tenant = w.tenant AND v.workflow_id = w.workflow_id)"
    " ORDER BY workflow_id"
)
_NEWEST_OF_THESE = bulk.statement(_NEWEST_OF_EACH.format("workflow_id IN KEYS"))
_NEWEST_AFTER = bulk.statement(f"{_NEWEST_OF_EACH.format('workflow_id > ?')} LIMIT ?")


class ChangesetConflict(Exception):
    """A part of a changeset cannot be applied, so none of it is."""


def workflow(conn: sa.Connection, tenant: str, workflow_id: str, version: int | None) -> Workflow | None:
    """See Jobs.workflow."""
    if version is not None:
        return load_workflow(conn, tenant, workflow_id, version)
    found = conn.execute(_NEWEST, {"owner": tenant, "name": workflow_id}).first()
    return None if found is None else stored_workflow(*found)


def newest_workflows(conn: sa.Connection, tenant: str, workflow_ids: Sequence[str]) -> Sequence[Workflow]:
    """See Jobs.newest_workflows."""
    found = bulk.fetch_rows(conn, _NEWEST_OF_THESE, tenant, sorted(set(workflow_ids)))
    return [stored_workflow(*row) for row in found]


def list_workflows(conn: sa.Connection, tenant: str, after: str, limit: int) -> Sequence[Workflow]:
    """See Jobs.list_workflows."""
    return [stored_workflow(*row) for row in bulk.fetch_rows(conn, _NEWEST_AFTER, tenant, after, limit)]


def apply(conn: sa.Connection, changeset: JobChangeset, now: int, actor: str, tzdata: str) -> None:
    """See Jobs.apply. ChangesetConflict if a part cannot be applied: the caller must roll back the rest."""
    rows = [_row(one, now, actor) for one in changeset.workflows]
    if len(bulk.execute_returning_keys(conn, _ADD, rows, "digest", at=4)) < len(rows):
        raise ChangesetConflict
    if schedules.add(conn, changeset.added, actor, tzdata):
        raise ChangesetConflict
    if not schedules.change_all(conn, changeset.edits, now, actor, tzdata):
        raise ChangesetConflict
    # In a fixed order, so that two transactions that remove the same schedules do not deadlock.
    for verdict in sorted(changeset.removed, key=lambda one: one.schedule.uid):
        if not schedules.delete(conn, verdict, now, actor):
            raise ChangesetConflict


def _row(one: Workflow, now: int, actor: str) -> tuple[object, ...]:
    definition = msgspec.json.encode(one)
    digest = sha256(definition).hexdigest()
    return one.tenant, one.workflow_id, one.version, definition.decode(), digest, now, actor
