"""Retention of definitions: backfills that ended long ago, and versions of workflows that nothing needs any more."""

from collections.abc import Sequence

import msgspec
import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.archive_records import records, row_to_json
from gnomon.adapters.sql.rows import column_list
from gnomon.core.model import RunId
from gnomon.ports.maintenance import (
    HISTORY_START,
    ArchiveRecord,
    RetentionBatch,
    RetentionKind,
    RetentionPosition,
    VersionsOfRuns,
    WorkflowVersion,
)

#: The estimated number of ticks of a backfill.
_TICKS_OF_A_BACKFILL = 100
_BACKFILLS = bulk.statement(
    "SELECT backfill_id, ended_at FROM backfill WHERE ended_at < ? AND backfill_id > ? AND NOT EXISTS"
    " (SELECT 1 FROM backfill_tick AS t JOIN run ON run.run_id = t.run_id WHERE t.backfill_id = backfill.backfill_id)"
    " ORDER BY backfill_id LIMIT ?"
)
_REMOVE_TICKS = bulk.statement(
    "DELETE FROM backfill_tick WHERE (backfill_id, planned_at) IN"
    " (SELECT backfill_id, planned_at FROM backfill_tick WHERE backfill_id IN KEYS LIMIT ?)"
)
_ANY_TICK = bulk.statement("SELECT 1 FROM backfill_tick WHERE backfill_id IN KEYS LIMIT 1")
_REMOVE_BACKFILLS = bulk.statement("DELETE FROM backfill WHERE backfill_id IN KEYS")
#: NOT IN, because both databases then read the schedules once, and not once for each version.
_NO_SCHEDULE = (
    "(tenant, workflow_id, version) NOT IN (SELECT tenant, workflow_id, workflow_version FROM schedule)"
    " AND (tenant, workflow_id) NOT IN (SELECT s.tenant, s.workflow_id FROM backfill AS b"
    " JOIN schedule AS s ON s.uid = b.schedule_uid WHERE b.ended_at IS NULL)"
)
_SUPERSEDED = bulk.statement(
    f"SELECT {column_list(schema.workflow.c)} FROM workflow"  # noqa: S608 - our own names, here and below
    " WHERE (tenant, workflow_id, version) > (?, ?, ?) AND EXISTS (SELECT 1 FROM workflow AS v"
    " WHERE v.tenant = workflow.tenant AND v.workflow_id = workflow.workflow_id AND v.version > workflow.version"
    " AND v.created_at < ?)"
    f" AND {_NO_SCHEDULE} ORDER BY tenant, workflow_id, version LIMIT ?"
)
_REMOVE_WORKFLOW = bulk.Statement(
    f"DELETE FROM workflow WHERE (tenant, workflow_id, version) = (?, ?, ?) AND {_NO_SCHEDULE}",  # noqa: S608
    "DELETE FROM workflow WHERE (tenant, workflow_id, version) IN"  # noqa: S608
    f" (SELECT * FROM unnest($1::text[], $2::text[], $3::integer[])) AND {_NO_SCHEDULE}",
)
_VERSIONS = bulk.statement(
    "SELECT run_id, tenant, workflow_id, workflow_version FROM run WHERE run_id > ? ORDER BY run_id LIMIT ?"
)


def expired_backfills(conn: sa.Connection, before_at: int, after: RetentionPosition, limit: int) -> RetentionBatch:
    """See ExpiredDefinitions.expired_backfills."""
    most = max(1, limit // _TICKS_OF_A_BACKFILL)
    found = bulk.fetch_rows(conn, _BACKFILLS, before_at, after[1], most)
    ended = {name: int(at) for name, at in found}
    names = list(ended)
    rows = records(conn, schema.backfill, "backfill_id", names, ended)
    rows += records(conn, schema.backfill_tick, "backfill_id", names, ended)
    further = (0, names[-1]) if len(names) == most else None
    return RetentionBatch(kind=RetentionKind.BACKFILLS, names=tuple(names), records=rows, after=further)


def remove_backfills(conn: sa.Connection, names: Sequence[str], limit: int) -> bool:
    """Delete about `limit` ticks of these backfills, and the backfills once none is left. False while some are."""
    bulk.execute_statement(conn, _REMOVE_TICKS, list(names), limit)
    if bulk.fetch_rows(conn, _ANY_TICK, list(names)):
        return False
    bulk.execute_statement(conn, _REMOVE_BACKFILLS, list(names))
    return True


def superseded_workflows(conn: sa.Connection, before_at: int, after: RetentionPosition, limit: int) -> RetentionBatch:
    """See ExpiredDefinitions.superseded_workflows."""
    place = ("", "", 0) if after == HISTORY_START else msgspec.json.decode(after[1], type=tuple[str, str, int])
    found = bulk.fetch_rows(conn, _SUPERSEDED, *place, before_at, limit)
    names = tuple((str(row[0]), str(row[1]), int(row[2])) for row in found)
    rows = [row_to_json(schema.workflow, row) for row in found]
    return RetentionBatch(
        kind=RetentionKind.WORKFLOWS,
        names=names,
        records=[ArchiveRecord("workflow", row, int(row["created_at"])) for row in rows],
        after=(0, msgspec.json.encode(names[-1]).decode()) if len(names) == limit else None,
    )


def remove_workflows(conn: sa.Connection, names: Sequence[WorkflowVersion]) -> None:
    """Delete these versions, except those that a schedule has come to need."""
    bulk.execute_many(conn, _REMOVE_WORKFLOW, list(names))


def versions_of_runs(conn: sa.Connection, after: RunId, limit: int) -> VersionsOfRuns:
    """See ExpiredDefinitions.versions_of_runs."""
    found = bulk.fetch_rows(conn, _VERSIONS, after, limit)
    versions = frozenset((str(tenant), str(name), int(version)) for _, tenant, name, version in found)
    return VersionsOfRuns(versions, RunId(found[-1][0]) if len(found) == limit else None)
