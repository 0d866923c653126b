"""The parts of the SQL store about tasks: queue, attempts, placement and workers."""

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa

from gnomon.adapters.sql import (
    actions,
    attempt_progress,
    deadlines,
    placement,
    tasks,
    workers,
)
from gnomon.adapters.sql.fan_out import fan_out
from gnomon.adapters.sql.transactions import Transactions
from gnomon.core.ledger.plan import NODE_TOLERANCE_MS, refuse_clock_ahead
from gnomon.core.model import (
    MOST_SUB_RUN_TASKS,
    RunId,
    TaskId,
)
from gnomon.core.runs.admission import Admission, AdmissionRequest, FanOut, FanOutResult, ReadyTask
from gnomon.core.runs.deadlines import OverdueEnd, OverdueTask
from gnomon.core.runs.fair_share import TenantShares
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.progress import AttemptProgress
from gnomon.core.runs.routing import Placement
from gnomon.ports.tasks import (
    DEFAULT_TAKE_FILTER,
    NO_KNOWN_TASKS,
    AttemptRef,
    InFlightCounts,
    LeaseRenewal,
    OpenAttemptsPage,
    QueuePosition,
    TakeFilter,
    WorkerInfo,
)


class SqlTasks:
    """Implements PendingTasks."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def waiting(self, now: int, *, limit: int, in_turns: bool = False) -> Sequence[ReadyTask]:
        """See PendingTasks.waiting."""
        return await self._transactions.read(lambda conn: tasks.waiting(conn, now, limit, in_turns=in_turns))

    async def unroutable_tasks(self, *, after: QueuePosition, limit: int) -> Sequence[ReadyTask]:
        """See PendingTasks.unroutable_tasks."""
        return await self._transactions.read(lambda conn: tasks.unroutable_tasks(conn, after, limit))

    async def next_available_at(self) -> int | None:
        """See PendingTasks.next_available_at."""
        return await self._transactions.read(tasks.next_available_at)

    async def admit(self, admissions: Sequence[Admission], *, now: int) -> Mapping[TaskId, Admission]:
        """See PendingTasks.admit."""
        store_now = self._transactions.now
        return await self._transactions.write(lambda conn: tasks.admit(conn, admissions, now, store_now))

    async def fan_out(
        self, fan_outs: Sequence[FanOut], *, now: int, most_sub_run_tasks: int = MOST_SUB_RUN_TASKS
    ) -> FanOutResult:
        """See PendingTasks.fan_out."""

        def body(conn: sa.Connection) -> FanOutResult:
            refuse_clock_ahead(now, self._transactions.now(conn), tolerance_ms=NODE_TOLERANCE_MS)
            return fan_out(conn, fan_outs, now, most_sub_run_tasks)

        return await self._transactions.write(body)

    async def actions_since(self, tenant: str, *, since: int, besides: AttemptRef | None = None) -> int:
        """See PendingTasks.actions_since."""
        return await self._transactions.read(lambda conn: actions.count_since(conn, tenant, since, besides))


class SqlActionCounts:
    """Implements ActionCounts."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def count(self, action_id: str, tenant: str, *, limit: int, now: int) -> bool:
        """See ActionCounts.count."""
        return await self._transactions.write(
            lambda conn: actions.count_model_action(conn, action_id, tenant, limit, now)
        )

    async def reserve(self, task_id: str, number: int, tenant: str, *, count: int, limit: int, now: int) -> bool:
        """See ActionCounts.reserve."""
        return await self._transactions.write(
            lambda conn: actions.reserve_agent_actions(conn, task_id, number, tenant, count=count, limit=limit, now=now)
        )

    async def give_back(self, action_id: str) -> None:
        """See ActionCounts.give_back."""
        await self._transactions.write(lambda conn: actions.give_back_model_action(conn, action_id))


class SqlAttempts:
    """Implements Attempts."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def take(  # noqa: PLR0913 - everything that limits a take
        self,
        worker: str,
        *,
        limit: int,
        lease_ms: int,
        now: int,
        begin: bool = True,
        known: Mapping[TaskId, AdmissionRequest] = NO_KNOWN_TASKS,
        reach: TakeFilter = DEFAULT_TAKE_FILTER,
        shares: TenantShares | None = None,
    ) -> Sequence[ReadyTask]:
        """See Attempts.take."""
        engine = self._transactions

        def take(conn: sa.Connection) -> Sequence[ReadyTask]:
            if conn.dialect.name == "postgresql":
                return tasks.take_on_postgres(
                    conn, worker, limit, lease_ms, now, begin=begin, known=known, reach=reach, shares=shares
                )
            until = engine.now(conn) + lease_ms
            return tasks.take(conn, worker, limit, until, now, begin=begin, known=known, reach=reach, shares=shares)

        # A caller that knows no task is not waiting for an admission in the same commit.
        return await engine.write(take, apart=begin and not known)

    async def begin(
        self, held: Collection[AttemptRef], *, now: int, worker: str | None = None
    ) -> frozenset[AttemptRef]:
        """See Attempts.begin."""
        return await self._transactions.write(lambda conn: tasks.begin(conn, held, now, worker))

    async def renew(self, worker: str, held: Collection[AttemptRef], *, lease_ms: int) -> LeaseRenewal:
        """See Attempts.renew."""
        engine = self._transactions
        return await engine.write(lambda conn: tasks.renew(conn, worker, held, engine.now(conn) + lease_ms))

    async def cancel_requests(self, worker: str) -> frozenset[AttemptRef]:
        """See Attempts.cancel_requests."""
        return await self._transactions.read(lambda conn: tasks.cancel_requests(conn, worker))

    async def report(self, endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        """See Attempts.report."""
        return await self._transactions.write(lambda conn: tasks.report(conn, endings))

    async def keep_progress(self, progress: AttemptProgress, *, worker: str | None, now: int) -> bool:
        """See Attempts.keep_progress."""
        return await self._transactions.write(lambda conn: attempt_progress.keep_progress(conn, progress, worker, now))

    async def assigned_tasks(self, held: Collection[AttemptRef]) -> Sequence[ReadyTask]:
        """See Attempts.assigned_tasks."""
        return await self._transactions.read(lambda conn: tasks.assigned_tasks(conn, held))

    async def open_attempts(self, *, after: TaskId, limit: int) -> OpenAttemptsPage:
        """See Attempts.open_attempts."""
        engine = self._transactions
        return await engine.read(lambda conn: tasks.open_attempts(conn, after, limit, engine.now(conn)))


class SqlTaskDeadlines:
    """Implements TaskDeadlines."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def next_end_at(self, *, grace_ms: int) -> int | None:
        """See TaskDeadlines.next_end_at."""
        return await self._transactions.read(lambda conn: deadlines.next_end_at(conn, grace_ms))

    async def overdue(self, now: int, *, grace_ms: int, after: QueuePosition, limit: int) -> Sequence[OverdueTask]:
        """See TaskDeadlines.overdue."""
        store_now = self._transactions.now
        return await self._transactions.read(
            lambda conn: deadlines.overdue(conn, now, grace_ms, after, limit, store_now)
        )

    async def end_overdue(self, ends: Sequence[OverdueEnd], *, now: int) -> frozenset[TaskId]:
        """See TaskDeadlines.end_overdue."""
        store_now = self._transactions.now
        return await self._transactions.write(lambda conn: deadlines.end_overdue(conn, ends, now, store_now))


class SqlTaskPlacement:
    """Implements TaskPlacement."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def in_flight_counts(self) -> InFlightCounts:
        """See TaskPlacement.in_flight_counts."""
        return await self._transactions.read(placement.in_flight_counts)

    async def placements(self, task_ids: Collection[TaskId]) -> Mapping[TaskId, Placement]:
        """See TaskPlacement.placements."""
        return await self._transactions.read(lambda conn: placement.placements(conn, task_ids))

    async def chosen(self) -> Collection[Placement]:
        """See TaskPlacement.chosen."""
        return await self._transactions.read(placement.chosen)

    async def recall_stranded(self) -> Sequence[tuple[TaskId, RunId]]:
        """See TaskPlacement.recall_stranded."""
        engine = self._transactions
        return await engine.write(lambda conn: placement.recall_stranded(conn, engine.now(conn)))


class SqlWorkers:
    """Implements Workers."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def register(self, card: WorkerInfo, *, ttl_ms: int) -> None:
        """See Workers.register."""
        engine = self._transactions
        await engine.write(lambda conn: placement.register(conn, card, ttl_ms, engine.now(conn)))

    async def alive(self) -> Sequence[WorkerInfo]:
        """See Workers.alive."""
        engine = self._transactions
        return await engine.read(lambda conn: workers.workers(conn, engine.now(conn)))

    async def deregister(self, worker: str) -> None:
        """See Workers.deregister."""
        await self._transactions.write(lambda conn: workers.deregister_worker(conn, worker))

    async def in_hand_of(self, tenant: str) -> Mapping[str, int]:
        """See Workers.in_hand_of."""
        return await self._transactions.read(lambda conn: workers.in_hand_of(conn, tenant))
