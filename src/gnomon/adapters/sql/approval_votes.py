"""Decisions about approvals of tasks: votes, expiry, and questions that are asked again.

Each is one transaction, which also moves or ends the tasks. It locks the counters of schedules, then tasks with their
runs, then approvals: the order of every transaction that ends tasks.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from gnomon.adapters.sql import approvals, audit, bulk, schema
from gnomon.adapters.sql.actions import give_back_reserved, give_back_untaken, with_earlier_errors
from gnomon.adapters.sql.after_commit import hint_after_commit, notify_runs
from gnomon.adapters.sql.graph import LOCKED_TASKS, EndedTask, end_tasks, lock_counters
from gnomon.adapters.sql.rows import load_workflow, task_and_run_of
from gnomon.adapters.sql.rulings import write_rulings
from gnomon.adapters.sql.transitions import StateChange, state_update, write_changes
from gnomon.core.approvals.decide import counted, expired
from gnomon.core.approvals.model import Approval, ApprovalStatus, Vote
from gnomon.core.audit import voted_entry
from gnomon.core.model import Run, RunId, Task, TaskId
from gnomon.core.runs.admission import refused_admission, reopened_wait
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.errors import ApprovalClosed, NotFound
from gnomon.ports.approvals import Reopened, ReopenPosition
from gnomon.ports.coordination import HintTopic

_OWNERS = bulk.statement("SELECT run_id, schedule_uid FROM run WHERE run_id IN KEYS")
_DUE = bulk.statement(
    f"SELECT approval_id, task_id, run_id FROM approval WHERE {schema.AWAITED} AND expires_at <= ?"  # noqa: S608 - our own
    " ORDER BY expires_at, approval_id LIMIT ?"
)
_NEXT_EXPIRY = bulk.statement(f"SELECT min(expires_at) FROM approval WHERE {schema.AWAITED}")  # noqa: S608
_OUTDATED = bulk.statement(
    f"SELECT approval_id, task_id, run_id, version FROM approval WHERE {schema.AWAITED} AND version < ?"  # noqa: S608
    " AND (version, approval_id) > (?, ?) ORDER BY version, approval_id LIMIT ?"
)
_TO_APPROVE = bulk.statement(
    "SELECT task_id, EXISTS (SELECT 1 FROM approval"  # noqa: S608
    f" WHERE approval.task_id = task.task_id AND approval.{schema.AWAITED})"
    f" FROM task WHERE {schema.TO_APPROVE} AND task_id > ? ORDER BY task_id LIMIT ?"
)
_MOVE = state_update("wait_reason", "available_at", "note")
_FIRST: ReopenPosition = (-1, "")
#: A task in these states has an open question: it waits for votes, or the gate is asked about it again.
_OPEN = (TaskState.APPROVAL_REQUIRED, TaskState.PENDING)


class _LockedTask(NamedTuple):
    """A task that is locked, with its run and its approvals."""

    task: Task
    run: Run
    approvals: Sequence[Approval]


def vote(conn: sa.Connection, tenant: str, approval_id: str, cast: Vote, digest: str) -> Approval:
    """See Approvals.vote."""
    found = approvals.find(conn, tenant, approval_id)
    if found is None:
        raise NotFound("approval", approval_id)
    if found.request is None:
        return _vote_on_commands(conn, tenant, approval_id, cast, digest)
    locked = _lock(conn, [(found.request.task_id, found.request.run_id)])
    held = locked.tasks.get(found.request.task_id)
    current = next((one for one in held.approvals if one.approval_id == approval_id), found) if held else found
    if current.status is ApprovalStatus.WAITING and (held is None or held.task.state not in _OPEN):
        raise ApprovalClosed(approval_id, ApprovalStatus.VOID)
    after = _counted(conn, current, cast, digest)
    if held is not None and after.status is ApprovalStatus.APPROVED:
        _go_on(conn, [held.task], None, WaitReason.READY, cast.at)
    if held is not None and after.status is ApprovalStatus.REJECTED:
        _deny(conn, [(held, after)], locked, cast.at)
    return after


def _vote_on_commands(conn: sa.Connection, tenant: str, approval_id: str, cast: Vote, digest: str) -> Approval:
    found = approvals.find(conn, tenant, approval_id, lock=True)
    if found is None:
        raise NotFound("approval", approval_id)
    return _counted(conn, found, cast, digest)


def _counted(conn: sa.Connection, current: Approval, cast: Vote, digest: str) -> Approval:
    """Write the vote on an approval that is locked; return the approval as it is then."""
    after = counted(current, cast, digest=digest)
    approvals.add_vote(conn, current, cast)
    approvals.update(conn, [after])
    audit.write(conn, [voted_entry(after, cast)])
    notify_runs(conn, lambda observer: observer.approvals_changed([after]))
    return after


def next_expiry(conn: sa.Connection) -> int | None:
    """See ApprovalUpkeep.next_expiry."""
    [(found,)] = bulk.fetch_rows(conn, _NEXT_EXPIRY)
    return None if found is None else int(found)


def expire(conn: sa.Connection, now: int, limit: int) -> int:
    """See ApprovalUpkeep.expire."""
    rows = bulk.fetch_rows(conn, _DUE, now, limit)
    if not rows:
        return 0
    wanted = {row[0] for row in rows}
    locked = _lock(conn, [(task_id, run_id) for _, task_id, run_id in rows])
    ended: list[Approval] = []
    denied: list[tuple[_LockedTask, Approval]] = []
    for held in locked.tasks.values():
        for one in held.approvals:
            after = expired(one, now=now) if one.approval_id in wanted else None
            if after is None:
                continue
            if held.task.state in _OPEN:
                ended.append(after)
                denied.append((held, after))
            else:
                ended.append(approvals.as_ended(one, now))
    there = {one.approval_id for one in ended}
    gone = [task_id for name, task_id, _ in rows if name not in there and task_id not in locked.tasks]
    approvals.void_of_ended(conn, gone, now)
    approvals.update(conn, ended)
    notify_runs(conn, lambda observer: observer.approvals_changed(ended))
    _deny(conn, denied, locked, now)
    return len(ended) + len(gone)


def reopen(conn: sa.Connection, version: int, after: ReopenPosition | None, now: int, limit: int) -> Reopened:
    """See ApprovalUpkeep.reopen."""
    rows = bulk.fetch_rows(conn, _OUTDATED, version, *(after or _FIRST), limit)
    if not rows:
        return Reopened(tasks=0, left=0, after=None)
    locked = _lock(conn, [(task_id, run_id) for _, task_id, run_id, _ in rows])
    waiting = [held.task for held in locked.tasks.values() if held.task.state is TaskState.APPROVAL_REQUIRED]
    _go_on(conn, waiting, reopened_wait(version), WaitReason.POLICY, now)
    over = [
        task_id
        for _, task_id, *_ in rows
        if task_id not in locked.tasks or locked.tasks[task_id].task.state not in _OPEN
    ]
    approvals.void_of_ended(conn, over, now)
    last = (rows[-1][3], rows[-1][0]) if len(rows) == limit else None
    return Reopened(tasks=len(waiting), left=len(rows) - len(over), after=last)


class AwaitingTasks(NamedTuple):
    """A page of tasks that wait for votes."""

    #: Those about which nobody is asked.
    unasked: list[str]
    #: The last of the page if there may be more.
    after: TaskId | None


def awaiting_tasks(conn: sa.Connection, after: TaskId, limit: int) -> AwaitingTasks:
    """The tasks that wait for votes behind that one."""
    rows = bulk.fetch_rows(conn, _TO_APPROVE, after, limit)
    last = TaskId(rows[-1][0]) if len(rows) == limit else None
    return AwaitingTasks([name for name, asked in rows if not asked], last)


def resume(conn: sa.Connection, names: Sequence[str], now: int) -> int:
    """Let those of these tasks go on about which nobody is asked; return how many."""
    tasks = [task for task, _ in map(task_and_run_of, bulk.fetch_rows(conn, LOCKED_TASKS, list(names)))]
    asked = approvals.of_tasks(conn, list(names))
    waiting = {name for name, some in asked.items() if any(one.status is ApprovalStatus.WAITING for one in some)}
    stuck = [one for one in tasks if one.state is TaskState.APPROVAL_REQUIRED and one.task_id not in waiting]
    _go_on(conn, stuck, None, WaitReason.READY, now)
    return len(stuck)


class _Locked(NamedTuple):
    """Locked tasks by their ids, and the counters of the schedules of their runs."""

    tasks: dict[str, _LockedTask]
    end: Callable[[Sequence[EndedTask]], None]


def _lock(conn: sa.Connection, wanted: Sequence[tuple[str, str]]) -> _Locked:
    """Lock these tasks, each given with its run, and their approvals."""
    runs: list[str] = sorted({run_id for _, run_id in wanted})
    owners = [(RunId(run_id), uid) for run_id, uid in bulk.fetch_rows(conn, _OWNERS, runs)]
    counters = lock_counters(conn, owners)
    names: list[str] = sorted({task_id for task_id, _ in wanted})
    found = [task_and_run_of(row) for row in bulk.fetch_rows(conn, LOCKED_TASKS, names)]
    of_tasks = approvals.of_tasks(conn, names, lock=True)
    tasks = {str(task.task_id): _LockedTask(task, run, of_tasks[task.task_id]) for task, run in found}
    return _Locked(tasks, lambda over: end_tasks(conn, over, counters))


def _go_on(conn: sa.Connection, tasks: Iterable[Task], note: str | None, wait: WaitReason, now: int) -> None:
    """Let tasks that wait for votes be admitted. One about which the gate is asked again goes on by itself."""
    moved = [
        StateChange(task.task_id, task.state, TaskState.PENDING, (wait.value, now, note))
        for task in tasks
        if task.state is TaskState.APPROVAL_REQUIRED
    ]
    write_changes(conn, _MOVE, moved)
    if moved:
        hint_after_commit(conn, HintTopic.READY)


def _deny(conn: sa.Connection, denied: Sequence[tuple[_LockedTask, Approval]], locked: _Locked, now: int) -> None:
    """End tasks that were rejected, or that nobody approved in time."""
    if not denied:
        return
    ends = {}
    for held, approval in denied:
        workflow = load_workflow(conn, held.run.tenant, held.run.workflow_id, held.run.workflow_version)
        ends[held.task.task_id] = refused_admission(held.task, held.run, workflow, approval, now=now)
    ends |= with_earlier_errors(conn, list(ends.values()))
    changes = [
        StateChange(
            held.task.task_id,
            held.task.state,
            TaskState.DENIED,
            (WaitReason.READY.value, now, ends[held.task.task_id].note),
        )
        for held, _ in denied
    ]
    write_changes(conn, _MOVE, changes)
    write_rulings(conn, [(one.task_id, one.run_id, one.ruling) for one in ends.values() if one.ruling], now)
    names: list[str] = list(ends)
    give_back_untaken(conn, names)
    give_back_reserved(conn, names)
    locked.end(
        [
            EndedTask(ends[held.task.task_id], held.run, ends[held.task.task_id].note, now, held.task.parent)
            for held, _ in denied
        ]
    )
