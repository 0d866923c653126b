"""Placement of tasks: the port TaskPlacement, and the conditions under which a worker may take a task."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import bulk, schema
from gnomon.adapters.sql.after_commit import hint_after_commit
from gnomon.adapters.sql.transitions import transition_sql
from gnomon.adapters.sql.workers import register_worker, workers
from gnomon.core.model import ENGINE, RunId, TaskId
from gnomon.core.runs.admission import Admission
from gnomon.core.runs.routing import DEFAULT_POOL, Placement, is_stranded
from gnomon.core.runs.states import TaskState
from gnomon.ports.coordination import HintTopic
from gnomon.ports.tasks import InFlightCounts, TakeFilter, WorkerInfo, worker_candidates

#: The order in which the tasks of a tenant are taken. The index has it, also for tasks without a pool.
TAKE_ORDER = "task.pool, task.tenant, task.rank, task.available_at, task.task_id"
_PLACE = bulk.update_statement(schema.task, ("pool", "rank", "directed_to", "function"), by=("task_id",))
_HELD = bulk.statement(
    "SELECT attempt.worker, task.tenant, count(*) FROM attempt JOIN task ON task.task_id = attempt.task_id"  # noqa: S608 - our own names, here and below
    f" WHERE {schema.OPEN} AND attempt.worker <> '{ENGINE}' GROUP BY attempt.worker, task.tenant"
)
_SCHEDULED = bulk.statement(
    f"SELECT pool, directed_to, tenant, count(*) FROM task WHERE {schema.SCHEDULED} GROUP BY pool, directed_to, tenant"  # noqa: S608
)
_PLACED = bulk.statement(
    f"SELECT task_id, pool, rank, directed_to, function FROM task WHERE task_id IN KEYS AND {schema.SCHEDULED}"  # noqa: S608
)
_TARGETED = bulk.statement(f"SELECT DISTINCT pool, directed_to, function FROM task WHERE {schema.TARGETED}")  # noqa: S608
#: The condition of the index on targeted tasks, beside their state.
_TARGETED_TASK = "(task.directed_to IS NOT NULL OR task.function IS NOT NULL)"
_UNPLACED = "wait_reason = 'ready', pool = NULL, rank = 0, directed_to = NULL, function = NULL"
_RECALL = transition_sql(
    [TaskState.SCHEDULED], TaskState.PENDING, where=f"{_TARGETED_TASK} AND {{place}}", also=_UNPLACED, by_state=True
)
_RECALL_COMMON = transition_sql(
    [TaskState.SCHEDULED],
    TaskState.PENDING,
    where="{place} AND directed_to IS NULL AND function IS NULL",
    also=_UNPLACED,
    by_state=True,
)
_ONE_AT_A_TIME = sa.text("SELECT pg_advisory_xact_lock(hashtextextended(:tenant, 7163071908))")


def pool_condition(reach: TakeFilter) -> str:
    """The condition of SCHEDULED tasks of the worker's pool. `pool_parameters` returns its parameters."""
    return f"{schema.SCHEDULED} AND " + ("task.pool IS NULL" if reach.pool is None else "task.pool = ?")


def pool_parameters(reach: TakeFilter) -> list[object]:
    """The parameters of `pool_condition`."""
    return [] if reach.pool is None else [reach.pool]


def take_condition(reach: TakeFilter) -> str:
    """The condition of tasks that a worker may take. `take_parameters` returns its parameters."""
    scheduled = pool_condition(reach)
    if reach.chosen:
        ours = "task.directed_to = ? OR (task.directed_to IS NULL AND task.function IN KEYS)"
        return f"{scheduled} AND {_TARGETED_TASK} AND ({ours})"
    functions = "" if reach.functions is None else " AND (task.function IS NULL OR task.function IN KEYS)"
    others = "task.directed_to IS NULL" + ("" if reach.available_by is None else " AND task.available_at <= ?")
    return f"{scheduled}{functions} AND ({others} OR task.directed_to = ?)"


def take_parameters(reach: TakeFilter, worker: str) -> list[object]:
    """The parameters of `take_condition`."""
    pool = pool_parameters(reach)
    if reach.chosen:
        return [*pool, worker, list(reach.functions or ())]
    functions = [] if reach.functions is None else [list(reach.functions)]
    since = [] if reach.available_by is None else [reach.available_by]
    return [*pool, *functions, *since, worker]


def write_placements(conn: sa.Connection, admissions: Collection[Admission]) -> None:
    """Write the placements of the admitted tasks."""
    placed = [(one.task_id, one.placement) for one in admissions if one.placement is not None]
    bulk.execute_many(conn, _PLACE, [(at.pool, at.rank, at.directed_to, at.function, name) for name, at in placed])


def lock_tenant_limits(conn: sa.Connection, admissions: Sequence[Admission]) -> None:
    """Keep other transactions from admitting tasks of the tenants that have limits on tasks or actions."""
    if conn.dialect.name == "postgresql":
        limits = (limit for one in admissions for limit in (one.tenant_limit, one.action_limit) if limit is not None)
        for tenant in sorted({tenant for tenant, _ in limits}):
            lock_tenant(conn, tenant)


def lock_tenant(conn: sa.Connection, tenant: str) -> None:
    """Keep other transactions from counting tasks or actions of the tenant. SQLite has one writer anyway."""
    if conn.dialect.name == "postgresql":
        conn.execute(_ONE_AT_A_TIME, {"tenant": tenant})


def lock_rules(conn: sa.Connection, rules: Sequence[str]) -> None:
    """Keep other transactions from admitting tasks by these rules of the policy, which are in order."""
    for rule in rules:
        # No tenant has such a name.
        lock_tenant(conn, f"rule {rule}")


def within_tenant_limits(conn: sa.Connection, admitted: dict[TaskId, Admission]) -> dict[TaskId, Admission]:
    """The admissions without those that would exceed the limits of their tenants."""
    if all(one.tenant_limit is None for one in admitted.values()):
        return admitted
    in_flight = Counter(in_flight_counts(conn).tenants)
    kept = {}
    for name, one in admitted.items():
        if one.tenant_limit is not None:
            tenant, limit = one.tenant_limit
            if in_flight[tenant] >= limit:
                continue
            in_flight[tenant] += 1
        kept[name] = one
    return kept


def in_flight_counts(conn: sa.Connection) -> InFlightCounts:
    """See TaskPlacement.in_flight_counts."""
    in_hand, directed, tenants, held = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    scheduled = Counter[str | None]()
    for worker, tenant, count in bulk.fetch_rows(conn, _HELD):
        in_hand[worker] += count
        held[tenant] += count
    for pool, directed_to, tenant, count in bulk.fetch_rows(conn, _SCHEDULED):
        tenants[tenant] += count
        if directed_to is None:
            scheduled[pool] += count
        else:
            directed[directed_to] += count
    return InFlightCounts(
        in_hand=in_hand, directed=directed, scheduled=scheduled, tenants=tenants + held, tenants_in_hand=held
    )


def placements(conn: sa.Connection, tasks: Collection[TaskId]) -> Mapping[TaskId, Placement]:
    """See TaskPlacement.placements."""
    names: list[str] = list(tasks)
    return {TaskId(name): Placement(*where) for name, *where in bulk.fetch_rows(conn, _PLACED, names)}


def chosen(conn: sa.Connection) -> Collection[Placement]:
    """See TaskPlacement.chosen."""
    return [Placement(pool, 0, worker, function) for pool, worker, function in bulk.fetch_rows(conn, _TARGETED)]


def register(conn: sa.Connection, info: WorkerInfo, ttl_ms: int, now: int) -> None:
    """See Workers.register."""
    if not register_worker(conn, info, ttl_ms, now):
        return
    place, values = ("pool IS NULL", []) if info.pool == DEFAULT_POOL else ("pool = ?", [info.pool])
    bulk.execute_statement(conn, bulk.statement(_RECALL_COMMON.format(place=place)), *values)
    hint_after_commit(conn, HintTopic.READY)


def recall_stranded(conn: sa.Connection, now: int) -> Sequence[tuple[TaskId, RunId]]:
    """See TaskPlacement.recall_stranded."""
    places = chosen(conn)
    candidates = worker_candidates(workers(conn, now)) if places else []
    found: list[tuple[TaskId, RunId]] = []
    for where in places:
        if is_stranded(where, candidates):
            columns = {"pool": where.pool, "directed_to": where.directed_to, "function": where.function}
            place = " AND ".join(f"{name} IS NULL" if it is None else f"{name} = ?" for name, it in columns.items())
            values = [it for it in columns.values() if it is not None]
            statement = bulk.statement(f"{_RECALL.format(place=place)} RETURNING task_id, run_id")
            recalled = bulk.fetch_rows(conn, statement, *values)
            found += [(TaskId(task_id), RunId(run_id)) for task_id, run_id in recalled]
    return found
