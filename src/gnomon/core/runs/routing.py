"""Routing: the pool of a task, and the worker if not every worker of the pool may take it.

`route` decides from the requirements of the task, the table of `pools.yaml` and the known workers.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from gnomon.core.runs.workflow import Priority, RoutingRequirements

#: The pool of workers and tasks that name none.
DEFAULT_POOL = "default"
#: Labels of a task with a meaning of their own, and prefixes of labels that the worker must have, too.
PREFERRED_POOL, PREFERRED_WORKER = "preferred_pool", "preferred_worker_id"
PLACEMENT_LABEL_PREFIXES = ("placement.", "constraint.", "node.")
#: In the table of topics: every topic that is not named.
ANY_TOPIC = "*"
#: Tasks of a lower rank are taken first.
RANKS = {Priority.CRITICAL: -1, Priority.INTERACTIVE: 0, Priority.BATCH: 1}
#: A worker with a load of this many percent gets no more tasks.
OVERLOADED_PERCENT = 90
#: How long an overloaded worker leaves a task to others, and how long one that is only busier than another.
_OVERLOADED_HOLD_MS, _BUSIER_HOLD_MS = 2_000, 50
#: Scores that differ by less count as equal: loads are measured seconds apart.
_SCORE_TOLERANCE = 0.25
_NO_REQUIREMENTS = RoutingRequirements()
_LIMIT_RETRY_MS, _MAX_LIMIT_RETRY_MS = 500, 30_000


class ReasonCode(StrEnum):
    """Why a task could not be placed."""

    NO_POOL_MAPPING = "no_pool_mapping"
    NO_WORKERS = "no_workers"
    POOL_OVERLOADED = "pool_overloaded"
    TENANT_LIMIT = "tenant_limit"
    DISPATCH_FAILED = "dispatch_failed"


class Pools(Struct, frozen=True):
    """The table of `pools.yaml`: the pools of each topic, and the capabilities of each pool, in lower case."""

    topics: Mapping[str, tuple[str, ...]]
    capabilities: Mapping[str, frozenset[str]] = {}


class WorkerCandidate(Struct, frozen=True, kw_only=True):
    """A worker, with the properties that routing considers."""

    worker: str
    pool: str = DEFAULT_POOL
    functions: frozenset[str]
    slots: int
    #: How many tasks it has, or is about to get.
    active: int = 0
    #: Load in percent; None if unknown.
    cpu: int | None = None
    gpu: int | None = None
    #: In lower case.
    capabilities: frozenset[str] = frozenset()
    labels: Mapping[str, str] = {}
    #: How many tasks were recently placed with it.
    recent: int = 0

    def overloaded(self, percent: int) -> bool:
        """Whether the load of its slots, CPU or GPU is at least `percent`, so that it gets no more tasks."""
        full = self.slots > 0 and self.active * 100 >= self.slots * percent
        return full or (self.cpu or 0) >= percent or (self.gpu or 0) >= percent

    @property
    def score(self) -> float:
        """Its load; routing chooses the lowest."""
        return self.active + (self.cpu or 0) / 100 + (self.gpu or 0) / 100


class Placement(Struct, frozen=True, gc=False):
    """The place where a task waits until a worker takes it."""

    #: None is the default pool.
    pool: str | None = None
    #: Tasks of a lower rank are taken first.
    rank: int = 0
    #: The only worker that may take it; None for any of the pool.
    directed_to: str | None = None
    #: The function that the worker must have registered; None if every worker of the pool has.
    function: str | None = None


class WorkerPlacement(Struct, frozen=True):
    """A placement, and the worker chosen for it; another worker may take the task first."""

    placement: Placement
    worker: str


class Unroutable(Struct, frozen=True):
    """The reason why a task cannot be placed for now."""

    code: ReasonCode
    reason: str
    #: When to route again, if not after the usual backoff; such a try does not count.
    after_ms: int | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"


def route(
    function: str,
    requirements: RoutingRequirements | None,
    candidates: Sequence[WorkerCandidate],
    pools: Pools | None,
    *,
    overload_percent: int = OVERLOADED_PERCENT,
) -> WorkerPlacement | Unroutable:
    """The placement of a task that calls the function. Without `pools` any able worker of its pool may take it.

    With `pools`, overloaded workers are passed over. The least busy worker decides the pool; among equals the one
    with the fewest recent placements, then the first by name.
    """
    requirements = requirements or _NO_REQUIREMENTS
    names = _pools_for(function, requirements, pools)
    if isinstance(names, Unroutable):
        return names
    able = [candidate for candidate in candidates if candidate.pool in names and function in candidate.functions]
    needed = frozenset(requirements.requires) if pools is None else frozenset()
    labels = {key: value for key, value in requirements.labels.items() if key.startswith(PLACEMENT_LABEL_PREFIXES)}
    fit = [
        candidate
        for candidate in able
        if needed <= candidate.capabilities and labels.items() <= candidate.labels.items()
    ]
    if not fit:
        return Unroutable(ReasonCode.NO_WORKERS, _no_candidate(function, names, candidates, able, pools))
    free = [candidate for candidate in fit if not candidate.overloaded(overload_percent)]
    for candidate in free:
        if candidate.worker == requirements.labels.get(PREFERRED_WORKER):
            return _placed(candidate, function, requirements, candidates, directed=True)
    directed = bool(labels or needed)
    if not free and (directed or pools is not None):
        which = f"all {len(fit)} workers" if len(fit) > 1 else fit[0].worker
        state = "are overloaded" if len(fit) > 1 else "is overloaded"
        return Unroutable(ReasonCode.POOL_OVERLOADED, f"{which} of {_named(names)} {state}")
    best = min(free or fit, key=lambda candidate: (candidate.score, candidate.recent, candidate.worker))
    return _placed(best, function, requirements, candidates, directed=directed)


def _pools_for(function: str, requirements: RoutingRequirements, pools: Pools | None) -> tuple[str, ...] | Unroutable:
    """The pools that may run the task."""
    pool = requirements.pool or requirements.labels.get(PREFERRED_POOL)
    if pools is None:
        return (pool or DEFAULT_POOL,)
    topic = requirements.topic or function
    names = pools.topics.get(topic) or pools.topics.get(ANY_TOPIC) or ()
    if not names:
        return Unroutable(ReasonCode.NO_POOL_MAPPING, f"no pool is named for the topic {topic!r}")
    if pool is not None:
        if pool not in names:
            return Unroutable(ReasonCode.NO_POOL_MAPPING, f"the topic {topic!r} does not go to pool {pool!r}")
        names = (pool,)
    needed = frozenset(requirements.requires)
    capable = tuple(name for name in names if needed <= pools.capabilities.get(name, frozenset()))
    if not capable:
        lacking = f"no pool of the topic {topic!r} has all of {', '.join(requirements.requires)}"
        return Unroutable(ReasonCode.NO_POOL_MAPPING, lacking)
    return capable


def _placed(
    best: WorkerCandidate,
    function: str,
    requirements: RoutingRequirements,
    candidates: Sequence[WorkerCandidate],
    *,
    directed: bool,
) -> WorkerPlacement:
    mixed = any(function not in candidate.functions for candidate in candidates if candidate.pool == best.pool)
    placement = Placement(
        pool=None if best.pool == DEFAULT_POOL else best.pool,
        rank=RANKS[requirements.priority],
        directed_to=best.worker if directed else None,
        function=function if mixed and not directed else None,
    )
    return WorkerPlacement(placement, best.worker)


def _no_candidate(
    function: str,
    names: Sequence[str],
    candidates: Sequence[WorkerCandidate],
    able: Sequence[WorkerCandidate],
    pools: Pools | None,
) -> str:
    """The reason why there is no worker for the task."""
    if able:
        return f"no worker of {_named(names)} has the labels or capabilities that it asks for"
    if pools is None and tuple(names) == (DEFAULT_POOL,):
        return f"no worker has registered the function {function!r}"
    if not any(candidate.pool in names for candidate in candidates):
        return f"no worker of {_named(names)} is alive"
    return f"no worker of {_named(names)} has registered the function {function!r}"


def _named(names: Sequence[str]) -> str:
    return f"pool {names[0]!r}" if len(names) == 1 else f"the pools {', '.join(map(repr, names))}"


def tenant_limit_reached(tenant: str, limit: int, ahead: int) -> Unroutable:
    """The refusal of a task whose tenant has reached its limit, while `ahead` other tasks of it wait for the same.

    Waiting tasks are routed again in groups as large as the limit, so that thousands do not retry all the time.
    """
    group = 1 + ahead // limit
    reason = f"tenant {tenant!r} has {limit} tasks in flight, which is its limit"
    return Unroutable(ReasonCode.TENANT_LIMIT, reason, after_ms=min(group * _LIMIT_RETRY_MS, _MAX_LIMIT_RETRY_MS))


def is_relieved(worker: WorkerCandidate, others: Iterable[WorkerCandidate], overload_percent: int) -> bool:
    """Whether the worker is overloaded, and another one that can run all of its functions is not."""
    return worker.overloaded(overload_percent) and bool(_available_peers(worker, others, overload_percent))


def hold_back_ms(worker: WorkerCandidate, others: Iterable[WorkerCandidate], overload_percent: int) -> int:
    """How long a task must have waited before this worker takes it, so that less busy workers come first.

    The time is bounded: whatever the others do, no task waits for ever. If all are overloaded, nobody holds back.
    """
    free = _available_peers(worker, others, overload_percent)
    if not free:
        return 0
    if worker.overloaded(overload_percent):
        return _OVERLOADED_HOLD_MS
    return _BUSIER_HOLD_MS if min(one.score for one in free) + _SCORE_TOLERANCE < worker.score else 0


def _available_peers(
    worker: WorkerCandidate, others: Iterable[WorkerCandidate], overload_percent: int
) -> list[WorkerCandidate]:
    """The other workers of the pool that are not overloaded and can run everything that this one can."""
    return [
        one
        for one in others
        if one.worker != worker.worker
        and one.pool == worker.pool
        and worker.functions <= one.functions
        and not one.overloaded(overload_percent)
    ]


def lacks_common_function(functions: Iterable[str], others: Sequence[Iterable[str]]) -> bool:
    """Whether a worker that joins a pool lacks a function that all others of the pool have.

    Tasks that wait there without the name of their function are then no longer for every worker of the pool.
    """
    return bool(others) and not frozenset.intersection(*map(frozenset, others)) <= frozenset(functions)


def is_stranded(where: Placement, candidates: Iterable[WorkerCandidate]) -> bool:
    """Whether no worker can take a task from there: its worker is gone, or no worker of the pool has its function."""
    if where.directed_to is not None:
        return all(candidate.worker != where.directed_to for candidate in candidates)
    pool = where.pool or DEFAULT_POOL
    return where.function is not None and not any(
        candidate.pool == pool and where.function in candidate.functions for candidate in candidates
    )
