"""Outputs that are held back: reading them, and what follows from their release or deletion."""

from collections.abc import Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import audit, bulk, dead_letters, schema
from gnomon.adapters.sql.advances import STEPS, AdvancingRun
from gnomon.adapters.sql.completion import EndedRun, insert_payloads
from gnomon.adapters.sql.graph import advance_runs, cascade_run_ends, lock_counters
from gnomon.adapters.sql.rows import (
    OUTPUT_RULING,
    RUN,
    TASK,
    column_list,
    load_workflow,
    output_ruling_of,
    run_of,
    task_of,
)
from gnomon.adapters.sql.transitions import StateChange, state_update, write_changes
from gnomon.core.audit import Action, held_output_entry
from gnomon.core.model import Run, RunStatus, Task, TaskId
from gnomon.core.output_policy.ruling import HeldDecision, HeldOutput, HeldStatus
from gnomon.core.runs.advance import never_run, released
from gnomon.core.runs.outcomes import dead_letter_id
from gnomon.core.runs.states import TaskState
from gnomon.errors import HeldOutputDecided, NotFound
from gnomon.ports.output_policy import HeldOutputQuery

_held = schema.output_ruling.c
_NAMES = column_list(OUTPUT_RULING)
_FIND = bulk.statement(
    f"SELECT {_NAMES}, body FROM output_ruling WHERE task_id = ? AND tenant = ? AND status IS NOT NULL"  # noqa: S608 - our own names, here and below
    " ORDER BY number DESC LIMIT 1"
)
_LOCK = bulk.statement(
    f"SELECT {_NAMES}, body FROM output_ruling WHERE task_id = ? AND tenant = ? AND status IS NOT NULL"  # noqa: S608
    " ORDER BY number DESC LIMIT 1 FOR UPDATE"
)
_DECIDE = bulk.update_statement(
    schema.output_ruling, ("status", "decided_by", "decided_at", "decided_why", "body"), by=("task_id", "number")
)
_EXEMPT = bulk.insert_statement(
    schema.output_exemption,
    ("tenant", "content_digest", "task_id", "exempted_by", "exempted_at"),
    "ON CONFLICT (tenant, content_digest) DO NOTHING",
)
_OWNER = bulk.statement("SELECT schedule_uid FROM run WHERE run_id = ?")
_RUN = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE run_id IN KEYS ORDER BY run_id FOR UPDATE")  # noqa: S608
_TASK = bulk.statement(f"SELECT {column_list(TASK)} FROM task WHERE task_id = ?")  # noqa: S608
_RELEASE = state_update("note")
_REOPEN = bulk.update_statement(schema.run, ("status", "completed_at", "error"), by=("run_id",))
_FORGET = bulk.statement("DELETE FROM task WHERE task_id IN KEYS")


def page(conn: sa.Connection, query: HeldOutputQuery) -> Sequence[HeldOutput]:
    """See HeldOutputs.page."""
    place = sa.tuple_(_held.ruled_at, _held.task_id)
    found = (
        sa.select(*OUTPUT_RULING)
        .where(_held.tenant == query.tenant, sa.text(f"output_ruling.{schema.HELD_BACK}"))
        .order_by(_held.ruled_at.desc(), _held.task_id.desc())
        .limit(query.limit)
    )
    if query.status is not None:
        found = found.where(_held.status == query.status.value)
    if query.after is not None:
        found = found.where(place < sa.tuple_(*query.after))
    return [HeldOutput(ruling=output_ruling_of(row), body=None) for row in conn.execute(found)]


def find(conn: sa.Connection, tenant: str, task_id: TaskId) -> HeldOutput | None:
    """See HeldOutputs.find."""
    rows = bulk.fetch_rows(conn, _FIND, task_id, tenant)
    return next((_held_of(row) for row in rows), None)


def look(conn: sa.Connection, tenant: str, task_id: TaskId, looked: HeldDecision) -> HeldOutput:
    """See HeldOutputs.look."""
    held = find(conn, tenant, task_id)
    if held is None:
        raise NotFound("output that is held back", task_id)
    audit.write(conn, [held_output_entry(Action.LOOK, held.ruling, looked)])
    return held


def release(conn: sa.Connection, tenant: str, task_id: TaskId, output: bytes, decided: HeldDecision) -> bool:
    """See HeldOutputs.release."""
    found = find(conn, tenant, task_id)
    if found is None:
        raise NotFound("output that is held back", task_id)
    run_id = found.ruling.run_id
    counters = lock_counters(conn, [(run_id, uid) for (uid,) in bulk.fetch_rows(conn, _OWNER, run_id)])
    [run] = map(run_of, bulk.fetch_rows(conn, _RUN, [run_id]))
    _decide(conn, tenant, task_id, HeldStatus.RELEASED, decided)
    [task] = map(task_of, bulk.fetch_rows(conn, _TASK, task_id))
    write_changes(conn, _RELEASE, [StateChange(task_id, task.state, TaskState.SUCCEEDED, (None,))])
    insert_payloads(conn, [(task_id, "output", output)])
    exempt = (tenant, found.ruling.content_digest, task_id, decided.actor, decided.at)
    bulk.execute_many(conn, _EXEMPT, [exempt])
    open_run = released(run, task, held_at=found.ruling.ruled_at)
    if open_run is None:
        return False
    if run.over:
        bulk.execute_many(conn, _REOPEN, [(open_run.status.value, None, None, run_id)])
        counts = counters.counts(run.schedule_uid)
        if counts is not None and run.schedule_uid is not None:
            counts.add_run(queued=False, replaces=False)
            counters.write([run.schedule_uid])
    cascade_run_ends(conn, _ended(conn, open_run, decided.at), counters)
    return True


def _ended(conn: sa.Connection, run: Run, now: int) -> Sequence[EndedRun]:
    """Let the steps start that waited for the output; return the run if that was its last step."""
    workflow = load_workflow(conn, run.tenant, run.workflow_id, run.workflow_version)
    if workflow is None:
        return [EndedRun(run, RunStatus.FAILED, "its workflow is gone", now)]
    if workflow.is_single_step:
        return [EndedRun(run, RunStatus.COMPLETED, None, now, workflow.announce)]
    steps: list[Task] = list(map(task_of, bulk.fetch_rows(conn, STEPS, [run.run_id])))
    if names := never_run(steps):
        bulk.execute_statement(conn, _FORGET, names)
    return advance_runs(conn, [AdvancingRun(run, workflow, now)])


def discard(conn: sa.Connection, tenant: str, task_id: TaskId, decided: HeldDecision) -> None:
    """See HeldOutputs.discard."""
    if find(conn, tenant, task_id) is None:
        raise NotFound("output that is held back", task_id)
    _decide(conn, tenant, task_id, HeldStatus.DISCARDED, decided)


def _decide(conn: sa.Connection, tenant: str, task_id: TaskId, status: HeldStatus, decided: HeldDecision) -> None:
    """Write the decision, once, with its audit entry; nothing is held any more, and the dead letter is resolved."""
    [held] = map(_held_of, bulk.fetch_rows(conn, _LOCK, task_id, tenant))
    if held.ruling.status is not HeldStatus.HELD:
        raise HeldOutputDecided(task_id, str(held.ruling.status))
    row = (status.value, decided.actor, decided.at, decided.reason, None, task_id, held.ruling.number)
    bulk.execute_many(conn, _DECIDE, [row])
    dead_letters.resolve(conn, tenant, [dead_letter_id(task_id)], f"output {status.value}", decided.at)
    action = Action.RELEASE if status is HeldStatus.RELEASED else Action.DISCARD
    audit.write(conn, [held_output_entry(action, held.ruling, decided)])


def _held_of(row: Sequence[object]) -> HeldOutput:
    *ruling, body = row
    return HeldOutput(ruling=output_ruling_of(ruling), body=body if body is None else bytes(body))  # type: ignore[call-overload]
