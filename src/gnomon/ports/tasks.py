"""The way of a task: from waiting, through the gate, into the hands of a worker and to its end.

Every method is one transaction. Leases are judged by the store's clock alone; `now` is when the caller says that things
happen, and stands in the history.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from msgspec import Struct

from gnomon.core.model import RunId, TaskId
from gnomon.core.runs.admission import Admission, AdmissionRequest, FanOut, ReadyTask
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.reconcile import OpenAttempt
from gnomon.core.runs.routing import DEFAULT_POOL, Placement, WorkerCandidate
from gnomon.ports.runs import Payloads

#: No task is known to whoever takes some.
NO_KNOWN_TASKS: Mapping[TaskId, AdmissionRequest] = MappingProxyType({})
#: A task and the attempt that someone has in hand.
AttemptRef = tuple[TaskId, int]
#: Where a task stands among those that wait for their time: when that comes, and its name.
QueuePosition = tuple[int, str]


class LeaseRenewal(Struct, frozen=True):
    """What a worker learns when it shows that it is alive."""

    #: Attempts that are no longer its own: whatever comes of them counts for nothing.
    lost: frozenset[AttemptRef]
    #: Attempts whose runs are to be cancelled.
    to_cancel: frozenset[AttemptRef]


class TakeFilter(Struct, frozen=True):
    """Which tasks may be given to a worker, besides those that are directed at it by name."""

    #: The one that it is in; None is the default one.
    pool: str | None = None
    #: Of tasks that not everybody in the pool can run, only those that call one of these; None: all of them.
    functions: tuple[str, ...] | None = None
    #: Only those that not everybody in the pool may take: directed at it by name, or calling one of the functions.
    chosen: bool = False


#: Whatever waits in the default pool.
DEFAULT_TAKE_FILTER = TakeFilter()


class InFlightCounts(Struct, frozen=True):
    """How much there is to do, counted."""

    #: Attempts that have not ended, and tasks that wait for one worker alone, by worker.
    in_hand: Mapping[str, int]
    directed: Mapping[str, int]
    #: Tasks that wait for any worker of a pool; the default one is None.
    scheduled: Mapping[str | None, int]
    #: All of these together, by tenant.
    tenants: Mapping[str, int]


class OpenAttemptsPage(Struct, frozen=True):
    """Attempts that have not ended, in the order of their tasks, and what time it is at the store."""

    attempts: Sequence[OpenAttempt]
    now: int


class TaskStore(Protocol):
    """What dispatchers, workers and the reconciler need."""

    async def waiting(self, now: int, *, limit: int) -> Sequence[ReadyTask]:
        """PENDING tasks that wait for nothing but the gate, and whose time has come; earliest first."""
        ...

    async def unroutable_tasks(self, *, after: QueuePosition, limit: int) -> Sequence[ReadyTask]:
        """PENDING tasks that nobody could take and that are to be tried again later; earliest first."""
        ...

    async def next_available_at(self) -> int | None:
        """When the next of those that wait for their time has it."""
        ...

    async def admit(self, admissions: Sequence[Admission], *, now: int) -> frozenset[TaskId]:
        """Carry out every admission whose task is still PENDING, under the same fence; these come back.

        One that is behind an attempt is void unless that succeeded, and one for which its tenant has no room is void,
        too. A task that is over may end its run.
        """
        ...

    async def fan_out(self, unfoldings: Sequence[FanOut], *, now: int) -> frozenset[TaskId]:
        """Begin every task that is still PENDING under its fence and that no worker carries out; these come back.

        It is RUNNING until all its items, or its run, are over, and ends with them; with nothing to wait for, at once.
        """
        ...

    async def take(
        self,
        worker: str,
        *,
        limit: int,
        lease_ms: int,
        now: int,
        begin: bool = True,
        known: Mapping[TaskId, AdmissionRequest] = NO_KNOWN_TASKS,
        reach: TakeFilter = DEFAULT_TAKE_FILTER,
    ) -> Sequence[ReadyTask]:
        """Give SCHEDULED tasks within its reach to the worker, each under a new attempt whose fence it then has.

        Those of the lowest rank come first, then the earliest. With `begin` they are RUNNING, and this is the
        grant to start them; otherwise they are DISPATCHED. Of those that are `known`, and have not been tried since,
        nothing need be read again.
        """
        ...

    async def begin(
        self, held: Collection[AttemptRef], *, now: int, worker: str | None = None
    ) -> frozenset[AttemptRef]:
        """Grant the start of what is DISPATCHED under these attempts; those that may start come back.

        With a worker, they are its own from then on, and what it was granted before it is granted again.
        """
        ...

    async def renew(self, worker: str, held: Collection[AttemptRef], *, lease_ms: int) -> LeaseRenewal:
        """Extend the leases of what the worker still has. What another has begun it has not."""
        ...

    async def cancel_requests(self, worker: str) -> frozenset[AttemptRef]:
        """What the worker has in hand of runs that are to be cancelled."""
        ...

    async def report(self, endings: Sequence[TaskCompletion]) -> frozenset[AttemptRef]:
        """Carry out every ending whose attempt still counts; these come back, and the others change nothing.

        One that rests on a lease that was over is void if that was renewed; one that is told by a worker, if another
        has begun the attempt.

        The first ending of an attempt makes any other void. A task that is over may end its run, and a run that is over
        lets the next one of its schedule go on. A one-shot that is to be deleted after its run is gone once that has
        succeeded, and paused once it has failed.
        """
        ...

    async def assigned_tasks(self, held: Collection[AttemptRef]) -> Sequence[ReadyTask]:
        """What is in somebody's hands under these attempts."""
        ...

    async def in_flight_counts(self) -> InFlightCounts:
        """How much workers have, and how much waits for them."""
        ...

    async def placements(self, tasks: Collection[TaskId]) -> Mapping[TaskId, Placement]:
        """Where those of the tasks were placed that are SCHEDULED."""
        ...

    async def chosen(self) -> Collection[Placement]:
        """Where tasks are SCHEDULED that not everybody of their pool may take; their rank is left out."""
        ...

    async def recall_stranded(self) -> Sequence[tuple[TaskId, RunId]]:
        """What waits in vain is to be placed again; these tasks come back, with their runs.

        The worker that it is for is not alive, or takes nothing more; or none of its pool can run it any more.
        """
        ...

    async def open_attempts(self, *, after: TaskId, limit: int) -> OpenAttemptsPage:
        """Attempts that have not ended, of tasks that come after `after`."""
        ...


class HostLoad(Struct, frozen=True):
    """How busy a machine is, in percent; None for what cannot be told."""

    cpu: int | None = None
    gpu: int | None = None


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """A worker as it presents itself."""

    #: A name that no other start of a process has ever had.
    worker: str
    functions: tuple[str, ...]
    slots: int
    pool: str = DEFAULT_POOL
    started_at: int
    #: What tasks may ask for by name, and by what they may be kept to certain workers.
    capabilities: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    #: How many tasks it had in hand when it was last heard of.
    in_hand: int = 0
    load: HostLoad = HostLoad()
    #: It finishes what it has, and takes nothing more.
    draining: bool = False
    #: When it was last heard of, by the store's clock: the store says so, whatever the worker may think.
    seen_at: int = 0


def worker_candidates(cards: Iterable[WorkerInfo]) -> list[WorkerCandidate]:
    """Those of the workers who may be given something, as far as it matters for that."""
    return [
        WorkerCandidate(
            worker=card.worker,
            pool=card.pool,
            functions=frozenset(card.functions),
            slots=card.slots,
            cpu=card.load.cpu,
            gpu=card.load.gpu,
            capabilities=frozenset(card.capabilities),
            labels=card.labels,
        )
        for card in cards
        if not card.draining
    ]


class Workers(Protocol):
    """Every method is one transaction. The store's clock says who is alive."""

    async def register_worker(self, card: WorkerInfo, *, ttl_ms: int) -> None:
        """The worker is known, and counts as alive for so long."""
        ...

    async def workers(self) -> Sequence[WorkerInfo]:
        """Those alive, by name."""
        ...

    async def deregister_worker(self, worker: str) -> None:
        """The worker is known no longer."""
        ...


class TaskQueue(TaskStore, Workers, Payloads, Protocol):
    """Where work is handed out, what came of it, and who is there to take it."""
