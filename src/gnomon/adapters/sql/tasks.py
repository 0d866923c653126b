"""Tasks from admission to report: the ports PendingTasks and Attempts.

Every run passes here several times, so every statement handles many tasks at once.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from gnomon.adapters.sql import announcements, approvals, bulk, schema
from gnomon.adapters.sql.actions import (
    give_back_reserved,
    give_back_unstarted,
    give_back_untaken,
    with_earlier_error,
    with_earlier_errors,
    within_budgets,
)
from gnomon.adapters.sql.after_commit import hint_after_commit, notify_activity
from gnomon.adapters.sql.breakers import lock_breakers, lock_recorded_breakers, record_attempts, within_breakers
from gnomon.adapters.sql.budgets import (
    give_back_unspent,
    lock_budgets,
    lock_settled_budgets,
    reserve_budgets,
    settle_budgets,
)
from gnomon.adapters.sql.completion import (
    AttemptEnd,
    ConcurrencyCounters,
    insert_payloads,
    record_started,
    start_runs,
    write_attempt_ends,
)
from gnomon.adapters.sql.graph import EndedTask, end_tasks, lock_counters
from gnomon.adapters.sql.payloads import ready_tasks
from gnomon.adapters.sql.placement import (
    TAKE_ORDER,
    lock_rules,
    lock_tenant_limits,
    pool_condition,
    pool_parameters,
    take_condition,
    take_parameters,
    within_tenant_limits,
    write_placements,
)
from gnomon.adapters.sql.rows import (
    ATTEMPT,
    RUN,
    TASK,
    Row,
    attempt_of,
    column_list,
    run_of,
    task_and_run_of,
)
from gnomon.adapters.sql.rulings import PERMISSION_COLUMNS, in_flight_by_rule, permission_values, write_rulings
from gnomon.adapters.sql.transitions import StateChange, state_update, transition, transition_sql, write_changes
from gnomon.core.ledger.plan import NODE_TOLERANCE_MS, refuse_clock_ahead
from gnomon.core.model import Result, Run, RunStatus, TaskId
from gnomon.core.runs.admission import (
    Admission,
    AdmissionRequest,
    ReadyTask,
    approved_meanwhile,
    limited_rules,
    within_concurrency,
)
from gnomon.core.runs.fair_share import TenantShares, take_in_turns
from gnomon.core.runs.outcomes import TaskCompletion, cancel_instead_of_retry, costs_nothing
from gnomon.core.runs.reconcile import OpenAttempt
from gnomon.core.runs.states import ASSIGNED, TaskState
from gnomon.core.worker_ids import may_hold
from gnomon.ports.commit_observer import DeniedTask
from gnomon.ports.coordination import HintTopic
from gnomon.ports.tasks import (
    DEFAULT_TAKE_FILTER,
    NO_KNOWN_TASKS,
    AttemptRef,
    LeaseRenewal,
    OpenAttemptsPage,
    QueuePosition,
    TakeFilter,
)

_PENDING = TaskState.PENDING.value
_SUCCEEDED = TaskState.SUCCEEDED.value
_WITH_RUN = f"""
SELECT {column_list(TASK)}, {column_list(RUN)}, payload.body, own.body
FROM {{tasks}} JOIN run ON run.run_id = task.run_id
LEFT JOIN payload ON payload.owner_id = CASE WHEN task.parent IS NULL THEN task.run_id END AND payload.kind = 'input'
LEFT JOIN payload AS own ON own.owner_id = CASE WHEN task.has_input THEN task.task_id END AND own.kind = 'input'
"""  # noqa: S608 - our own names, here and below


def _page(condition: str, *, order: str = "task.available_at, task.task_id", lock: str = "") -> bulk.Statement:
    """The first tasks that meet the condition, with their runs and inputs.

    PostgreSQL chooses the tasks before it joins other tables, so that it locks and looks up no other rows.
    """
    first = f"WHERE {condition} ORDER BY {order} LIMIT ?"
    chosen = f"(SELECT * FROM task {first}{lock}) AS task"  # noqa: S608
    return bulk.Statement(
        bulk.statement(_WITH_RUN.format(tasks="task") + first).sqlite,
        bulk.statement(_WITH_RUN.format(tasks=chosen)).postgresql,
    )


_WAITING = _page(f"{schema.WAITS} AND task.available_at <= ?")
_WAITING_TENANT = f"SELECT tenant FROM task WHERE {schema.WAITS}"  # noqa: S608
_WAITING_TENANTS = bulk.statement(
    f"WITH RECURSIVE waiting (tenant) AS (SELECT ({_WAITING_TENANT} ORDER BY tenant LIMIT 1) UNION ALL"  # noqa: S608
    f" SELECT ({_WAITING_TENANT} AND task.tenant > waiting.tenant ORDER BY tenant LIMIT 1)"
    " FROM waiting WHERE tenant IS NOT NULL) SELECT tenant FROM waiting WHERE tenant IS NOT NULL"
)
_WAITING_OF_TENANT = bulk.statement(
    f"SELECT task_id FROM task WHERE {schema.WAITS} AND task.tenant = ? AND task.available_at <= ?"  # noqa: S608
    " ORDER BY tenant, available_at, task_id LIMIT ?"
)
_TURNED_AWAY = _page(
    f"{schema.WAITS} AND wait_reason = 'route' AND routings > 0 AND (task.available_at, task.task_id) > (?, ?)"
)
_BY_NAME = bulk.statement(f"{_WITH_RUN.format(tasks='task')} WHERE task.task_id IN KEYS")
_NEXT = bulk.statement(f"SELECT available_at FROM task WHERE {schema.WAITS} ORDER BY available_at, task_id LIMIT 1")  # noqa: S608
_STATE_OF_SOME = """
SELECT task_id, state, fence, parent, unroutable_since, {now} FROM task
WHERE task_id IN KEYS ORDER BY task_id FOR UPDATE
"""
#: With the states, a server tells its time, which saves a round trip.
_STATES = bulk.Statement(
    bulk.statement(_STATE_OF_SOME.format(now=bulk.SERVER_CLOCK.sqlite)).sqlite,
    bulk.statement(_STATE_OF_SOME.format(now=bulk.SERVER_CLOCK.postgresql)).postgresql,
)
_RUNS = bulk.statement(f"SELECT {column_list(RUN)} FROM run WHERE run_id IN KEYS ORDER BY run_id FOR UPDATE")  # noqa: S608


def _lock_held_tasks(columns: str, also: str = "") -> bulk.Statement:
    """The query for tasks with these columns, which locks them and their runs. `also` joins further tables."""
    query = f"""
    SELECT task.task_id, task.fence, task.state, {columns} FROM task JOIN run ON run.run_id = task.run_id {also}
    WHERE task.task_id IN KEYS
    """  # noqa: S608
    # In the order of runs: two transactions that end different steps of the same runs do not deadlock.
    locking = " ORDER BY task.run_id, task.task_id FOR UPDATE OF task, run"
    return bulk.Statement(bulk.statement(query).sqlite, bulk.statement(query + locking).postgresql)


#: The worker of an attempt that nobody has started does not change, so that its row need not be locked.
_HELD = _lock_held_tasks(
    f"attempt.worker, task.pool, {column_list(RUN)}",
    "JOIN attempt ON attempt.task_id = task.task_id AND attempt.number = task.fence",
)
_RENEWING = (
    "SELECT task.task_id, task.fence, task.state, run.cancel_requested_at,"
    " attempt.worker, attempt.started_at, task.pool FROM task"
    " JOIN run ON run.run_id = task.run_id"
    " JOIN attempt ON attempt.task_id = task.task_id AND attempt.number = task.fence"
    " WHERE task.task_id IN KEYS AND attempt.ended_at IS NULL"
)
# The lock waits for a transaction that is ending one of the attempts: the worker has then lost it.
_RENEWED = bulk.Statement(
    bulk.statement(_RENEWING).sqlite,
    bulk.statement(f"{_RENEWING} ORDER BY attempt.task_id FOR UPDATE OF attempt").postgresql,
)
#: With the columns of a run that may have changed since one of its tasks was taken.
_REPORTED = _lock_held_tasks(
    "task.parent, run.status, run.started_at, run.completed_at, run.cancel_requested_at, run.error"
)
_OPEN = bulk.statement(
    f"SELECT {column_list(TASK)}, {column_list(RUN)}, {column_list(ATTEMPT)}"  # noqa: S608
    " FROM attempt JOIN task ON task.task_id = attempt.task_id JOIN run ON run.run_id = task.run_id"
    f" WHERE {schema.OPEN} AND attempt.task_id > ? ORDER BY attempt.task_id LIMIT ?"
)
# Few runs are being cancelled, so the join starts from them: SQLite keeps the order of a CROSS JOIN.
_TO_STOP = bulk.statement(
    "SELECT attempt.task_id, attempt.number FROM run CROSS JOIN task CROSS JOIN attempt"  # noqa: S608
    f" WHERE {schema.TO_STOP} AND task.run_id = run.run_id AND attempt.task_id = task.task_id AND {schema.OPEN}"
    " AND attempt.worker = ?"
)
_LEASES = bulk.statement(
    f"SELECT task_id, number, lease_until FROM attempt WHERE task_id IN KEYS AND {schema.OPEN} FOR UPDATE"  # noqa: S608
)
_NEW_ATTEMPT = "fence = fence + 1, note = NULL, unroutable_since = NULL"
#: By whether the tasks start at once.
_TAKEN_STATE = {False: TaskState.DISPATCHED, True: TaskState.RUNNING}
_TAKE = {begin: transition([TaskState.SCHEDULED], state, also=_NEW_ATTEMPT) for begin, state in _TAKEN_STATE.items()}
_START = transition([TaskState.DISPATCHED], TaskState.RUNNING)
_HAS_INPUT = bulk.statement("UPDATE task SET has_input = true WHERE task_id IN KEYS")
_ADMISSION_COLUMNS = ("wait_reason", "available_at", "routings", "note", "skipped")
_ADMIT = state_update(*_ADMISSION_COLUMNS)
#: The same for tasks that the policy permits.
_PERMIT = state_update(*_ADMISSION_COLUMNS, *PERMISSION_COLUMNS)
_UNROUTABLE = bulk.update_statement(schema.task, ("unroutable_since",), by=("task_id",))
_BEGIN = bulk.update_statement(schema.attempt, ("started_at",), by=("task_id", "number"))
_BEGIN_BY = bulk.update_statement(schema.attempt, ("started_at", "worker"), by=("task_id", "number"))
_HOLDERS = bulk.statement(
    "SELECT attempt.task_id, attempt.number, attempt.worker, attempt.started_at, task.pool"  # noqa: S608
    " FROM attempt JOIN task ON task.task_id = attempt.task_id"
    f" WHERE attempt.task_id IN KEYS AND attempt.{schema.OPEN}"
)
_WITH = bulk.statement(f"SELECT task_id, number FROM attempt WHERE task_id IN KEYS AND {schema.OPEN} AND worker = ?")  # noqa: S608
_RENEW = bulk.update_statement(schema.attempt, ("lease_until",), by=("task_id", "number"))


class _TakeStatements(NamedTuple):
    """The queries by which a worker finds tasks to take."""

    #: Tasks of the only tenant that has any in the pool, none if there are several: with all columns, and ids alone.
    whole: bulk.Statement
    names: bulk.Statement
    #: The tenants with tasks in the pool.
    tenants: bulk.Statement
    #: The ids of the first tasks of some tenants: on PostgreSQL of several with the share of each, on SQLite of one.
    first: bulk.Statement


@cache
def _take_statements(in_pool: str, condition: str) -> _TakeStatements:
    """The queries for tasks that meet the condition, among those in the pool."""
    lock = " FOR UPDATE SKIP LOCKED"
    of_pool = f"SELECT tenant FROM task WHERE {in_pool}"  # noqa: S608 - our own names, here and below
    first = f"{of_pool} ORDER BY pool, tenant LIMIT 1"
    last = f"{of_pool} ORDER BY pool DESC, tenant DESC LIMIT 1"
    alone = f"{condition} AND task.tenant = (SELECT CASE WHEN ({first}) = ({last}) THEN ({first}) END)"
    chosen = f"SELECT task_id, fence, tenant FROM task WHERE {condition} AND task.tenant"  # noqa: S608
    return _TakeStatements(
        _page(alone, order=TAKE_ORDER, lock=lock),
        bulk.statement(f"SELECT task_id, fence FROM task WHERE {alone} ORDER BY {TAKE_ORDER} LIMIT ?{lock}"),  # noqa: S608
        # One lookup in the index for each tenant, however many tasks it has.
        bulk.statement(
            f"WITH RECURSIVE waiting (tenant) AS (SELECT ({first}) UNION ALL"  # noqa: S608
            f" SELECT ({of_pool} AND task.tenant > waiting.tenant ORDER BY pool, tenant LIMIT 1)"
            " FROM waiting WHERE tenant IS NOT NULL) SELECT tenant FROM waiting WHERE tenant IS NOT NULL"
        ),
        bulk.Statement(
            bulk.statement(f"{chosen} = ? ORDER BY {TAKE_ORDER} LIMIT ?").sqlite,
            bulk.statement(
                "SELECT task.task_id, task.fence, task.tenant"  # noqa: S608
                " FROM unnest(?::text[], ?::bigint[]) AS share (tenant, most)"
                f" CROSS JOIN LATERAL ({chosen} = share.tenant ORDER BY {TAKE_ORDER} LIMIT share.most{lock}) AS task"
            ).postgresql,
        ),
    )


# ---- the gate ------------------------------------------------------------------------------------


def waiting(conn: sa.Connection, now: int, limit: int, *, in_turns: bool = False) -> Sequence[ReadyTask]:
    """See PendingTasks.waiting."""
    rows = bulk.fetch_rows(conn, _WAITING, now, limit)
    if in_turns and len(rows) == limit:
        tenants = [tenant for (tenant,) in bulk.fetch_rows(conn, _WAITING_TENANTS)]
        if len(tenants) > 1:
            rows = bulk.fetch_rows(conn, _BY_NAME, _waiting_in_turns(conn, now, limit, tenants))
    return sorted(ready_tasks(conn, rows), key=_earliest)


def _waiting_in_turns(conn: sa.Connection, now: int, limit: int, tenants: Sequence[str]) -> list[str]:
    def first_of_each(wanted: Mapping[str, int]) -> Mapping[str, Sequence[str]]:
        return {
            tenant: [name for (name,) in bulk.fetch_rows(conn, _WAITING_OF_TENANT, tenant, now, count)]
            for tenant, count in wanted.items()
        }

    return take_in_turns(TenantShares(), limit, tenants, first_of_each)


def unroutable_tasks(conn: sa.Connection, after: QueuePosition, limit: int) -> Sequence[ReadyTask]:
    """See PendingTasks.unroutable_tasks."""
    return sorted(ready_tasks(conn, bulk.fetch_rows(conn, _TURNED_AWAY, *after, limit)), key=_earliest)


def next_available_at(conn: sa.Connection) -> int | None:
    """See PendingTasks.next_available_at."""
    found = bulk.fetch_rows(conn, _NEXT)
    return found[0][0] if found else None


def admit(
    conn: sa.Connection, admissions: Sequence[Admission], now: int, store_now: bulk.StoreNow
) -> Mapping[TaskId, Admission]:
    """See PendingTasks.admit."""
    lock_tenant_limits(conn, admissions)
    rules = limited_rules(admissions)
    lock_rules(conn, rules)
    lock_budgets(conn, admissions)
    lock_breakers(conn, admissions, now)
    may_end = [one for one in admissions if one.over or one.action_limit is not None or one.may_be_denied]
    counters = lock_counters(conn, ((one.run_id, one.schedule_uid) for one in may_end))
    names: list[str] = [one.task_id for one in admissions]
    before: list[str] = [one.behind[0] for one in admissions if one.behind is not None]
    found = {row[0]: row for row in bulk.fetch_rows(conn, _STATES, [*names, *before])}
    for row in islice(found.values(), 1):
        store_at = store_now(conn) if row[5] is None else row[5]
        refuse_clock_ahead(now, store_at, tolerance_ms=NODE_TOLERANCE_MS)
    succeeded = {(row[0], row[2]) for row in found.values() if row[1] == _SUCCEEDED}
    pending = {name: row for name, row in found.items() if row[1] == _PENDING}
    admitted: dict[TaskId, Admission] = {}
    for one in admissions:
        # The first admission of a task counts, unless the task has had another attempt since it was read.
        as_read = one.task_id in pending and one.fence in (None, pending[one.task_id][2])
        if as_read and (one.behind is None or one.behind in succeeded):
            admitted.setdefault(one.task_id, one)
    fences = {name: row[2] for name, row in pending.items()}
    admitted = within_tenant_limits(conn, admitted)
    if rules:
        admitted = {
            one.task_id: one for one in within_concurrency([*admitted.values()], in_flight_by_rule(conn), now=now)
        }
    admitted = within_breakers(conn, admitted, now)
    admitted = reserve_budgets(conn, admitted, fences, now)
    admitted = within_budgets(conn, admitted, fences, now)
    _ask_first(conn, admitted, now)
    over = [one for one in admitted.values() if one.over]
    if over:
        admitted |= with_earlier_errors(conn, [one for one in over if one.state is TaskState.DENIED])
    plain = [one for one in admitted.values() if one.ruling is None or not one.ruling.allows]
    permitted = [(one, one.ruling) for one in admitted.values() if one.ruling is not None and one.ruling.allows]
    write_changes(conn, _ADMIT, [_admission_change(one) for one in plain])
    write_changes(conn, _PERMIT, [_admission_change(one, *permission_values(ruling)) for one, ruling in permitted])
    write_placements(conn, admitted.values())
    write_rulings(conn, [(one.task_id, one.run_id, one.ruling) for one in admitted.values() if one.ruling], now)
    unknown = {name for name, row in pending.items() if row[4] is None}
    since = [(one.unroutable_since, name) for name, one in admitted.items() if one.unroutable_since and name in unknown]
    bulk.execute_many(conn, _UNROUTABLE, since)
    _keep_inputs(conn, [(one.task_id, one.own_input) for one in admitted.values() if one.own_input is not None])
    if over:
        parents = {task_id: parent for task_id, _, _, parent, *_ in pending.values()}
        _reject(conn, [(one, parents[one.task_id]) for one in admitted.values() if one.over], counters, now)
    if admitted:
        hint_after_commit(conn, HintTopic.WORK)
    return admitted


def _ask_first(conn: sa.Connection, admitted: dict[TaskId, Admission], now: int) -> None:
    """Write and announce the approvals for which tasks ask, and void others. An approved task does not wait."""
    asked = [one.approval for one in admitted.values() if one.approval is not None]
    if asked:
        done = approvals.ask_for(conn, asked, now)
        announcements.write(conn, [one for name in done.new for one in admitted[name].announcements])
        for name in done.approved:
            admitted[name] = approved_meanwhile(admitted[name], now)
    approvals.void_unasked(conn, [name for name, one in admitted.items() if one.voids_approval], now)


def _admission_change(one: Admission, *permission: object) -> StateChange:
    values = one.wait_reason._value_, one.available_at, one.routings, one.note, one.skipped, *permission
    return StateChange(one.task_id, TaskState.PENDING, one.state, values)


def _keep_inputs(conn: sa.Connection, given: Sequence[tuple[str, bytes]]) -> None:
    if given:
        bulk.execute_statement(conn, _HAS_INPUT, [task_id for task_id, _ in given])
        insert_payloads(conn, [(task_id, "input", body) for task_id, body in given])


def _reject(
    conn: sa.Connection, over: Sequence[tuple[Admission, TaskId | None]], counters: ConcurrencyCounters, now: int
) -> None:
    """End tasks whose admission was a rejection. Each is paired with its parent task, if it is an item of a fan-out."""
    give_back_untaken(conn, [one.task_id for one, _ in over])
    give_back_reserved(conn, [one.task_id for one, _ in over])
    give_back_unspent(conn, [one.task_id for one, _ in over])
    denied = [DeniedTask(one.rule, one.topic) for one, _ in over if one.rule or one.topic]
    notify_activity(conn, lambda observer: observer.denied(denied))
    names: list[str] = sorted({one.run_id for one, _ in over})
    runs = {run.run_id: run for run in map(run_of, bulk.fetch_rows(conn, _RUNS, names))}
    end_tasks(conn, [EndedTask(one, runs[one.run_id], one.note, now, parent) for one, parent in over], counters)


# ---- attempts ------------------------------------------------------------------------------------


def take(  # noqa: PLR0913 - as the port has them
    conn: sa.Connection,
    worker: str,
    limit: int,
    lease_until: int,
    now: int,
    *,
    begin: bool,
    known: Mapping[TaskId, AdmissionRequest] = NO_KNOWN_TASKS,
    reach: TakeFilter = DEFAULT_TAKE_FILTER,
    shares: TenantShares | None = None,
) -> Sequence[ReadyTask]:
    """See Attempts.take."""
    ready = lock_ready_tasks(conn, worker, limit, known, reach, shares or TenantShares())
    if not ready:
        return ready
    names: list[str] = [one.task.task_id for one in ready]
    bulk.execute_statement(conn, _TAKE[begin], names)
    moments = [one.taken_at(now) for one in ready]
    made = [
        (one.task.task_id, one.task.fence + 1, worker, lease_until, at, at if begin else None)
        for one, at in zip(ready, moments, strict=True)
    ]
    bulk.insert_rows(conn, schema.attempt, made)
    notify_activity(conn, lambda observer: observer.taken(ready, now))
    if begin:
        start_runs(conn, [one.run for one in ready], now)
    return [as_taken(one, _TAKEN_STATE[begin], now if begin else None) for one in ready]


def lock_ready_tasks(
    conn: sa.Connection,
    worker: str,
    limit: int,
    known: Mapping[TaskId, AdmissionRequest],
    reach: TakeFilter,
    shares: TenantShares,
) -> list[ReadyTask]:
    """The tasks that the worker may take, locked until the end of the transaction.

    Tasks in `known` whose fence is unchanged are not read again.
    """
    statements = _take_statements(pool_condition(reach), take_condition(reach))
    parameters, pool = take_parameters(reach, worker), pool_parameters(reach)
    alone = statements.names if known else statements.whole
    rows = bulk.fetch_rows(conn, alone, *parameters, *pool, *pool, *pool, limit)
    if rows and not known:
        return sorted(ready_tasks(conn, rows), key=_earliest)
    ready: dict[str, ReadyTask | None] = {}
    for name, fence in rows or _names_in_turns(conn, statements, parameters, pool, limit, shares):
        request = known.get(name)
        ready[name] = request.waiting if request is not None and request.waiting.task.fence == fence else None
    unknown = [name for name, waiting in ready.items() if waiting is None]
    if unknown:
        ready |= {one.task.task_id: one for one in ready_tasks(conn, bulk.fetch_rows(conn, _BY_NAME, unknown))}
    return [waiting for waiting in ready.values() if waiting is not None]


def _names_in_turns(
    conn: sa.Connection,
    statements: _TakeStatements,
    parameters: Sequence[object],
    pool: Sequence[object],
    limit: int,
    shares: TenantShares,
) -> Sequence[tuple[TaskId, int]]:
    """The ids and fences of tasks of several tenants, which take turns."""
    tenants = [tenant for (tenant,) in bulk.fetch_rows(conn, statements.tenants, *pool, *pool)]

    def first_of_each(wanted: Mapping[str, int]) -> Mapping[str, Sequence[tuple[TaskId, int]]]:
        if conn.dialect.name == "postgresql":
            rows = bulk.fetch_rows(conn, statements.first, list(wanted), list(wanted.values()), *parameters)
        else:
            rows = [
                row
                for tenant, count in wanted.items()
                for row in bulk.fetch_rows(conn, statements.first, *parameters, tenant, count)
            ]
        found: dict[str, list[tuple[TaskId, int]]] = {tenant: [] for tenant in wanted}
        for name, fence, tenant in rows:
            found[tenant].append((name, fence))
        return found

    return take_in_turns(shares, limit, tenants, first_of_each)


def as_taken(one: ReadyTask, state: TaskState, started_at: int | None) -> ReadyTask:
    """The task after it was taken, made from the row that was read before."""
    task, run = one.task, one.run
    if started_at is not None and run.started_at is None:
        run = replace(run, status=RunStatus.RUNNING, started_at=started_at)
    held = replace(task, state=state, fence=task.fence + 1, note=None)
    return ReadyTask(task=held, run=run, input=one.input, own_input=one.own_input)


def begin(
    conn: sa.Connection, held: Collection[AttemptRef], now: int, worker: str | None = None
) -> frozenset[AttemptRef]:
    """See Attempts.begin."""
    found = _found(conn, held, _HELD)
    granted = {
        one
        for one in held
        if one in found and found[one][2] == TaskState.DISPATCHED and _may_begin(worker, *found[one][3:5])
    }
    if granted:
        names: list[str] = [task_id for task_id, _ in granted]
        bulk.execute_statement(conn, _START, names)
        if worker is None:
            bulk.execute_many(conn, _BEGIN, [(now, *one) for one in granted])
        else:
            bulk.execute_many(conn, _BEGIN_BY, [(now, worker, *one) for one in granted])
        start_runs(conn, [run_of(found[one][5:]) for one in granted], now)
    again = [one for one in held if one not in granted and one in found] if worker is not None else []
    if again:
        running: list[str] = [one[0] for one in again if found[one][2] == TaskState.RUNNING]
        granted |= {(name, number) for name, number in bulk.fetch_rows(conn, _WITH, running, worker)}.intersection(
            again
        )
    return frozenset(granted)


def _may_begin(worker: str | None, holder: str, pool: str | None) -> bool:
    return worker is None or may_hold(worker, holder=holder, started=False, pool=pool)


def assigned_tasks(conn: sa.Connection, held: Collection[AttemptRef]) -> Sequence[ReadyTask]:
    """See Attempts.assigned_tasks."""
    names: list[str] = [task_id for task_id, _ in held]
    found = ready_tasks(conn, bulk.fetch_rows(conn, _BY_NAME, names))
    wanted = set(held)
    return [one for one in found if one.task.state in ASSIGNED and (one.task.task_id, one.task.fence) in wanted]


def renew(conn: sa.Connection, worker: str, held: Collection[AttemptRef], lease_until: int) -> LeaseRenewal:
    """See Attempts.renew."""
    found = _found(conn, held, _RENEWED)
    ours = [one for one in held if one in found and found[one][2] in ASSIGNED and _is_held(worker, *found[one][4:])]
    bulk.execute_many(conn, _RENEW, [(lease_until, *one) for one in sorted(ours)])
    to_cancel = frozenset(one for one in ours if found[one][3] is not None)
    return LeaseRenewal(lost=frozenset(held) - frozenset(ours), to_cancel=to_cancel)


def _is_held(worker: str, holder: str, started_at: int | None, pool: str | None) -> bool:
    return may_hold(worker, holder=holder, started=started_at is not None, pool=pool)


def _found(conn: sa.Connection, held: Collection[AttemptRef], query: bulk.Statement) -> dict[AttemptRef, Row]:
    """The rows of the tasks by their current attempts. The query returns task id and fence first."""
    names: list[str] = [task_id for task_id, _ in held]
    return {(row[0], row[1]): row for row in bulk.fetch_rows(conn, query, names)}


def cancel_requests(conn: sa.Connection, worker: str) -> frozenset[AttemptRef]:
    """See Attempts.cancel_requests."""
    return frozenset((task_id, number) for task_id, number in bulk.fetch_rows(conn, _TO_STOP, worker))


def open_attempts(conn: sa.Connection, after: TaskId, limit: int, now: int) -> OpenAttemptsPage:
    """See Attempts.open_attempts."""
    page = []
    for row in bulk.fetch_rows(conn, _OPEN, after, limit):
        task, run = task_and_run_of(row)
        page.append(OpenAttempt(task=task, run=run, attempt=attempt_of(row[-len(ATTEMPT) :])))
    return OpenAttemptsPage(page, now)


# ---- the end -------------------------------------------------------------------------------------


def report(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
    """See Attempts.report."""
    lock_settled_budgets(conn, endings)
    lock_recorded_breakers(conn, endings)
    counters = lock_counters(conn, ((one.run_id, one.schedule_uid) for one in endings))
    found = _found(conn, [(one.task_id, one.fence) for one in endings], _REPORTED)
    renewed, holders = _renewed(conn, endings), _holders(conn, endings)
    counted: dict[AttemptRef, AttemptEnd] = {}
    over = []
    for one in endings:
        held = one.task_id, one.fence
        row = found.get(held)
        if row is None or row[2] not in ASSIGNED or held in counted or held in renewed:
            continue
        if one.reported_by is not None and held in holders and not _is_held(one.reported_by, *holders[held]):
            continue
        run, parent = _refresh_run(one.run, row[4:]), row[3]
        ending = one if run.cancel_requested_at is None else cancel_instead_of_retry(one)
        if ending.result is Result.DENIED:
            ending = with_earlier_error(conn, ending)
        counted[held] = AttemptEnd(TaskState(row[2]), ending)
        if ending.over:
            over.append(EndedTask(ending, run, ending.error, ending.ended_at, parent))
    write_attempt_ends(conn, list(counted.values()))
    unstarted = [
        end.completion
        for end in counted.values()
        if costs_nothing(end.completion, started=end.before is TaskState.RUNNING)
    ]
    give_back_unstarted(conn, unstarted)
    settle_budgets(conn, [end.completion for end in counted.values()], unstarted)
    end_tasks(conn, over, counters)
    record_attempts(conn, [end.completion for end in counted.values()])
    return frozenset(counted)


def _refresh_run(run: Run, changed: Row) -> Run:
    """The run with the columns that may have changed since it was read."""
    status, started_at, completed_at, cancel_requested_at, error = changed
    if (status, started_at, cancel_requested_at, error) == (run.status, run.started_at, None, None):
        return run
    return replace(
        run,
        status=RunStatus(status),
        started_at=started_at,
        completed_at=completed_at,
        cancel_requested_at=cancel_requested_at,
        error=error,
    )


def _renewed(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
    """The attempts that are reported as lost, but whose leases were renewed since."""
    lost = {(one.task_id, one.fence): one.lease_until for one in endings if one.lease_until is not None}
    if not lost:
        return frozenset()
    names: list[str] = [task_id for task_id, _ in lost]
    leases = {(task_id, number): until for task_id, number, until in bulk.fetch_rows(conn, _LEASES, names)}
    return frozenset(held for held, until in lost.items() if leases.get(held) != until)


def _holders(conn: sa.Connection, endings: Sequence[TaskCompletion]) -> dict[AttemptRef, Row]:
    """Worker, start and pool of the open attempts that remote workers report."""
    names: list[str] = [one.task_id for one in endings if one.reported_by is not None]
    rows = bulk.fetch_rows(conn, _HOLDERS, names) if names else ()
    return {(row[0], row[1]): row[2:] for row in rows}


def _earliest(waiting: ReadyTask) -> tuple[int, str]:
    return waiting.task.available_at, waiting.task.task_id


def _take_on_postgres(state: TaskState) -> bulk.Statement:
    """The statement that moves tasks, starts their runs and adds their attempts in one round trip.

    Leases count from now by the clock of the server.
    """
    move = transition_sql([TaskState.SCHEDULED], state, where="task_id = ANY ($1::text[])", also=_NEW_ATTEMPT)
    return bulk.Statement(
        "",
        f"""
WITH moved AS ({move}),
started AS (UPDATE run SET status = 'running', started_at = $6 WHERE run_id = ANY ($7::text[]) AND started_at IS NULL)
INSERT INTO attempt (task_id, number, worker, lease_until, dispatched_at, started_at)
SELECT v.task_id, v.number, $3::text, (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $4::bigint,
    v.at, CASE WHEN $6::bigint IS NOT NULL THEN v.at END
FROM unnest($1::text[], $2::bigint[], $5::bigint[]) AS v (task_id, number, at)
""",  # noqa: S608
    )


_TAKE_ON_POSTGRES = {begin: _take_on_postgres(state) for begin, state in _TAKEN_STATE.items()}


def take_on_postgres(  # noqa: PLR0913 - as the port has them
    conn: sa.Connection,
    worker: str,
    limit: int,
    lease_ms: int,
    now: int,
    *,
    begin: bool,
    known: Mapping[TaskId, AdmissionRequest],
    reach: TakeFilter,
    shares: TenantShares | None = None,
) -> Sequence[ReadyTask]:
    """See Attempts.take."""
    ready = lock_ready_tasks(conn, worker, limit, known, reach, shares or TenantShares())
    if not ready:
        return ready
    started_at = now if begin else None
    names, fences = [one.task.task_id for one in ready], [one.task.fence + 1 for one in ready]
    runs = sorted({one.run.run_id for one in ready if begin and one.run.started_at is None})
    parameters = names, fences, worker, lease_ms, [one.taken_at(now) for one in ready], started_at, runs
    bulk.execute_statement(conn, _TAKE_ON_POSTGRES[begin], *parameters)
    notify_activity(conn, lambda observer: observer.taken(ready, now))
    if begin:
        record_started(conn, [one.run for one in ready], now)
    return [as_taken(one, _TAKEN_STATE[begin], started_at) for one in ready]
