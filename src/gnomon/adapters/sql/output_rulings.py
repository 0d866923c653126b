"""Rulings on outputs, and the outputs that are held back, written in the transactions that act on them."""

from collections.abc import Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import audit, bulk, schema
from gnomon.adapters.sql.rows import OUTPUT_RULING, column_list, output_ruling_of, output_ruling_row
from gnomon.core.audit import output_held_entry
from gnomon.core.model import TaskId
from gnomon.core.output_policy.records import output_record
from gnomon.core.output_policy.ruling import StoredOutputRuling
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.states import TaskState

_COLUMNS = (*(column.name for column in OUTPUT_RULING), "body")
_OF_TASK = bulk.statement(
    f"SELECT {column_list(OUTPUT_RULING)} FROM output_ruling WHERE task_id = ? AND tenant = ?"  # noqa: S608 - our own
    " ORDER BY number DESC LIMIT 1"
)
_ADD_CHECK = bulk.insert_statement(
    schema.output_check, ("task_id", "added_at"), "ON CONFLICT (task_id) DO UPDATE SET added_at = excluded.added_at"
)
#: It takes the place of a ruling that has redacted the same output before.
_WRITE_LATE = bulk.insert_statement(
    schema.output_ruling,
    _COLUMNS,
    "ON CONFLICT (task_id, number) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS if name not in ("task_id", "number")),
)
_EXEMPT = bulk.statement("SELECT 1 FROM output_exemption WHERE tenant = ? AND content_digest = ?")


def write(conn: sa.Connection, ended: Sequence[TaskCompletion]) -> None:
    """Write the rulings on the outputs of these attempts, and what is held back of them."""
    checked = [one for one in ended if one.check is not None]
    _add_late_checks(conn, checked)
    made = [(record, one.check.held if one.check else None) for one in checked if (record := output_record(one))]
    if not made:
        return
    bulk.insert_rows(
        conn, schema.output_ruling, [(*output_ruling_row(record), held) for record, held in made], _COLUMNS
    )
    audit.write(conn, [output_held_entry(record) for record, held in made if held is not None])


def _add_late_checks(conn: sa.Connection, checked: Sequence[TaskCompletion]) -> None:
    """Add the outputs that are stored now, and have to be checked."""
    late = [one for one in checked if one.check is not None and one.check.late]
    rows = [(one.task_id, one.ended_at) for one in late if one.state is TaskState.SUCCEEDED and one.output is not None]
    bulk.execute_many(conn, _ADD_CHECK, rows)


def write_late(conn: sa.Connection, record: StoredOutputRuling, held: bytes | None) -> None:
    """Write the ruling on an output that was stored, and what is held back of it."""
    bulk.execute_many(conn, _WRITE_LATE, [(*output_ruling_row(record), held)])
    if held is not None:
        audit.write(conn, [output_held_entry(record)])


def of_task(conn: sa.Connection, tenant: str, task_id: TaskId) -> StoredOutputRuling | None:
    """See OutputRulings.of_task."""
    return next(map(output_ruling_of, bulk.fetch_rows(conn, _OF_TASK, task_id, tenant)), None)


def is_exempt(conn: sa.Connection, tenant: str, content_digest: str) -> bool:
    """See OutputRulings.is_exempt."""
    return bool(list(bulk.fetch_rows(conn, _EXEMPT, tenant, content_digest)))
