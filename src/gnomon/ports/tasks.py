"""The path of a task: pending, admitted, claimed by a worker, ended.

Every method is one transaction. The store's clock alone decides whether a lease has expired; `now` is the caller's time
and is recorded in the history.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.model import MOST_SUB_RUN_TASKS, RunId, TaskId
from gnomon.core.runs.admission import Admission, AdmissionRequest, FanOut, FanOutResult, ReadyTask
from gnomon.core.runs.deadlines import OverdueEnd, OverdueTask
from gnomon.core.runs.fair_share import TenantShares
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.progress import AttemptProgress
from gnomon.core.runs.reconcile import OpenAttempt
from gnomon.core.runs.routing import DEFAULT_POOL, Placement, WorkerCandidate

#: The caller of `take` knows no task yet.
NO_KNOWN_TASKS: Mapping[TaskId, AdmissionRequest] = MappingProxyType({})
#: A task and the number of one of its attempts.
AttemptRef = tuple[TaskId, int]
#: The position of a task among those that wait for their time: that time, and the task's id.
QueuePosition = tuple[int, str]


class LeaseRenewal(Struct, frozen=True):
    """The answer to a worker that renews its leases."""

    #: Attempts that the worker no longer owns: their results will be rejected.
    lost: frozenset[AttemptRef]
    #: Attempts whose runs are being cancelled.
    to_cancel: frozenset[AttemptRef]


class TakeFilter(Struct, frozen=True):
    """The tasks that a worker may take, besides those that are directed at it by name."""

    #: The worker's pool; None is the default pool.
    pool: str | None = None
    #: Of the tasks that not every worker of the pool can run, only those that call one of these; None: all of them.
    functions: tuple[str, ...] | None = None
    #: Only tasks that not every worker of the pool may take: directed at this worker, or calling one of the functions.
    chosen: bool = False
    #: Only tasks that have been available since then, besides those that are directed at this worker; None: all.
    available_by: int | None = None


#: Every task that waits in the default pool.
DEFAULT_TAKE_FILTER = TakeFilter()


class InFlightCounts(Struct, frozen=True):
    """The number of tasks that workers have, or that wait for one."""

    #: Open attempts, and tasks that wait for one particular worker, by worker.
    in_hand: Mapping[str, int]
    directed: Mapping[str, int]
    #: Tasks that wait for any worker of a pool; the default pool is None.
    scheduled: Mapping[str | None, int]
    #: All of these together, by tenant; and the open attempts alone.
    tenants: Mapping[str, int]
    tenants_in_hand: Mapping[str, int]


class OpenAttemptsPage(Struct, frozen=True):
    """Open attempts in the order of their tasks, and the store's time."""

    attempts: Sequence[OpenAttempt]
    now: int


class PendingTasks(Protocol):
    """Tasks on their way to a worker: reading the PENDING ones and admitting them."""

    async def waiting(self, now: int, *, limit: int, in_turns: bool = False) -> Sequence[ReadyTask]:
        """PENDING tasks that wait for nothing but admission, and whose time has come; earliest first.

        If there are more than `limit`, these are the earliest of all; with `in_turns`, the earliest of each tenant, so
        that tenants have equal shares.
        """
        ...

    async def unroutable_tasks(self, *, after: QueuePosition, limit: int) -> Sequence[ReadyTask]:
        """PENDING tasks that no worker could take and that are to be routed again later; earliest first."""
        ...

    async def next_available_at(self) -> int | None:
        """The earliest time at which a task that waits for its time becomes available."""
        ...

    async def admit(self, admissions: Sequence[Admission], *, now: int) -> Mapping[TaskId, Admission]:
        """Carry out every admission whose task is still PENDING under the same fence; return these by their tasks.

        An admission behind an attempt is void unless that attempt succeeded. An admission is also void if its tenant
        has reached its limit of tasks. One with an action limit is counted as an action of its tenant until the end of
        ACTION_WINDOW_MS, or until the attempt turns out never to have begun; beyond the limit the task is denied
        instead, and the denial is what is returned. A denial keeps the error of an attempt that failed before.

        A task that ends here may end its run. ClockAhead, and nothing is written, if `now` is a second or more later
        than the time by the store's clock: the tasks may have been read before their time.
        """
        ...

    async def fan_out(
        self, fan_outs: Sequence[FanOut], *, now: int, most_sub_run_tasks: int = MOST_SUB_RUN_TASKS
    ) -> FanOutResult:
        """Start every task that is still PENDING under its fence and that no worker carries out.

        Such a task is RUNNING until all its items, or its run, have ended. Without items or run it ends at once.
        The tasks of all sub-runs under one run at the top are counted. A task that would make them more than
        `most_sub_run_tasks` stays PENDING. ClockAhead as by `admit`.
        """
        ...

    async def actions_since(self, tenant: str, *, since: int, besides: AttemptRef | None = None) -> int:
        """The number of actions of the tenant that were counted after that instant, without that one attempt."""
        ...


class Attempts(Protocol):
    """Attempts at tasks: claimed by workers under a lease, started, renewed, reported."""

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
        """Give SCHEDULED tasks that match `reach` to the worker, each under a new attempt whose fence it then has.

        Tenants take turns, as `shares` says; None stands for a taker that has had no task so far. Of a tenant's tasks
        the lowest rank comes first, then the earliest. Fewer tasks than `limit` are taken only if there are no more.

        With `begin` the tasks are RUNNING, and this is the grant to start them; otherwise they are DISPATCHED. Tasks in
        `known` that were not tried since are not read again.
        """
        ...

    async def begin(
        self, held: Collection[AttemptRef], *, now: int, worker: str | None = None
    ) -> frozenset[AttemptRef]:
        """Grant the start of the tasks that are DISPATCHED under these attempts; return the attempts that may start.

        With a worker, the attempts belong to it from then on, and a grant that it already had is repeated. It gets no
        attempt that was dispatched to another worker or, if it is enrolled, to another pool.
        """
        ...

    async def renew(self, worker: str, held: Collection[AttemptRef], *, lease_ms: int) -> LeaseRenewal:
        """Extend the leases of the attempts that the worker still owns.

        It lost those that another worker started, and it never had those that were dispatched to another.
        """
        ...

    async def cancel_requests(self, worker: str) -> frozenset[AttemptRef]:
        """The worker's open attempts whose runs are being cancelled."""
        ...

    async def report(self, endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        """Carry out every ending whose attempt still counts; return those attempts. The others change nothing.

        An ending that assumes an expired lease is void if the lease was renewed. An ending that a worker reports is
        void if another worker started the attempt, or if it was dispatched to another worker or pool. The first ending
        of an attempt makes any other void.

        A task that ends may end its run, and a run that ends releases the next queued run of its schedule. A one-shot
        that is to be deleted after its run is deleted if the run succeeded and paused if it failed.
        """
        ...

    async def keep_progress(self, progress: AttemptProgress, *, worker: str | None, now: int) -> bool:
        """Keep the log and the usage of a running attempt so far; False if the attempt has ended, or is another's.

        Idempotent. Its log is read with these lines from now on. If the attempt is lost, its end has this usage and
        these lines; any other end has its own. `worker` is the remote worker that reports; None for our own processes.
        """
        ...

    async def assigned_tasks(self, held: Collection[AttemptRef]) -> Sequence[ReadyTask]:
        """The tasks that are DISPATCHED or RUNNING under these attempts."""
        ...

    async def open_attempts(self, *, after: TaskId, limit: int) -> OpenAttemptsPage:
        """Attempts that have not ended, of tasks that come after `after`."""
        ...


class TaskDeadlines(Protocol):
    """Tasks with a deadline. Those that only wait for their items or for another run are left to these."""

    async def next_end_at(self, *, grace_ms: int) -> int | None:
        """The earliest time at which a task that is not over has passed its deadline.

        A task that a worker has been given is ended by that worker, and counts only `grace_ms` later.
        """
        ...

    async def overdue(self, now: int, *, grace_ms: int, after: QueuePosition, limit: int) -> Sequence[OverdueTask]:
        """The tasks that count as past their deadlines, by deadline and id, behind that position.

        ClockAhead if `now` is a second or more later than the time by the store's clock.
        """
        ...

    async def end_overdue(self, ends: Sequence[OverdueEnd], *, now: int) -> frozenset[TaskId]:
        """End every task that still has no open attempt, and none since it was read; return those tasks.

        It leaves a dead letter, and may end its run. ClockAhead as by `overdue`.
        """
        ...


class TaskPlacement(Protocol):
    """Placements of SCHEDULED tasks, and the amount of work in flight."""

    async def in_flight_counts(self) -> InFlightCounts:
        """The number of tasks that workers have, and that wait for them."""
        ...

    async def placements(self, tasks: Collection[TaskId]) -> Mapping[TaskId, Placement]:
        """The placement of each of the tasks that is SCHEDULED."""
        ...

    async def chosen(self) -> Collection[Placement]:
        """Placements of SCHEDULED tasks that not every worker of their pool may take, without their rank."""
        ...

    async def recall_stranded(self) -> Sequence[tuple[TaskId, RunId]]:
        """Return stranded tasks to PENDING so that they are placed again; return them with their runs.

        A task is stranded if its worker is dead or draining, or if no worker of its pool can run it any more.
        """
        ...


class HostLoad(Struct, frozen=True):
    """The load of a machine in percent; None if it cannot be measured."""

    cpu: int | None = None
    gpu: int | None = None


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A worker's registration."""

    #: Unique to this start of the process.
    worker: str
    functions: tuple[str, ...]
    slots: int
    pool: str = DEFAULT_POOL
    started_at: int
    #: Capabilities that tasks may require, and labels that tasks may select.
    capabilities: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    #: The number of tasks that the worker had at its last heartbeat.
    in_hand: int = 0
    load: HostLoad = HostLoad()
    #: The worker finishes its tasks and takes no others.
    draining: bool = False
    #: The time of its last heartbeat by the store's clock. The store sets it, whatever the worker sends.
    seen_at: int = 0


def worker_candidate(card: WorkerInfo) -> WorkerCandidate:
    """The worker with the fields that routing needs, as it was at its last heartbeat."""
    return WorkerCandidate(
        worker=card.worker,
        pool=card.pool,
        functions=frozenset(card.functions),
        slots=card.slots,
        active=card.in_hand,
        cpu=card.load.cpu,
        gpu=card.load.gpu,
        capabilities=frozenset(card.capabilities),
        labels=card.labels,
    )


def worker_candidates(cards: Iterable[WorkerInfo]) -> list[WorkerCandidate]:
    """The workers that may be given tasks."""
    return [worker_candidate(card) for card in cards if not card.draining]


def as_seen_by_tenant(card: WorkerInfo, in_hand: int) -> WorkerInfo:
    """The worker as a tenant sees it that has so many tasks there: without labels, load and the tasks of others."""
    return replace(card, in_hand=in_hand, load=HostLoad(), labels={})


class Workers(Protocol):
    """The registered workers. The store's clock decides which are alive."""

    async def register(self, card: WorkerInfo, *, ttl_ms: int) -> None:
        """Register the worker, or renew its registration; it counts as alive for `ttl_ms`.

        If it lacks a function that all others of its pool have, the SCHEDULED tasks that any worker of the pool could
        take become PENDING, so that they are placed again with the names of their functions.
        """
        ...

    async def alive(self) -> Sequence[WorkerInfo]:
        """The workers that are alive, by name."""
        ...

    async def deregister(self, worker: str) -> None:
        """Remove the worker."""
        ...

    async def in_hand_of(self, tenant: str) -> Mapping[str, int]:
        """The number of open attempts of the tenant, by worker."""
        ...
