"""Where a task goes: to which pool, and if not everybody there will do, to which worker.

One function decides it, from what the task asks for, what `pools.yaml` says, and what is known of the workers.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from gnomon.core.runs.workflow import Priority, RoutingRequirements

#: Where workers are, and where tasks go, unless anybody says otherwise.
DEFAULT_POOL = "default"
#: Labels of a task that have a meaning of their own, and those that a worker must have, too.
PREFERRED_POOL, PREFERRED_WORKER = "preferred_pool", "preferred_worker_id"
PLACEMENT_LABEL_PREFIXES = ("placement.", "constraint.", "node.")
#: In a table of topics: all that are not named.
ANY_TOPIC = "*"
#: The lower, the sooner.
RANKS = {Priority.CRITICAL: -1, Priority.INTERACTIVE: 0, Priority.BATCH: 1}
#: From so many percent on a worker is given nothing more.
OVERLOADED_PERCENT = 90
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
    """What `pools.yaml` says: which pools a topic may go to, and what each pool is capable of, in lower case."""

    topics: Mapping[str, tuple[str, ...]]
    capabilities: Mapping[str, frozenset[str]] = {}


class WorkerCandidate(Struct, frozen=True, kw_only=True):
    """A worker, as far as it matters for who gets a task."""

    worker: str
    pool: str = DEFAULT_POOL
    functions: frozenset[str]
    slots: int
    #: How many tasks it has, or is about to be given.
    active: int = 0
    #: In percent; None for what cannot be told.
    cpu: int | None = None
    gpu: int | None = None
    #: In lower case.
    capabilities: frozenset[str] = frozenset()
    labels: Mapping[str, str] = {}
    #: How many were placed with it lately.
    recent: int = 0

    def overloaded(self, percent: int) -> bool:
        """Whether it is given nothing more, because its slots, its cores or its graphics card are so busy."""
        full = self.slots > 0 and self.active * 100 >= self.slots * percent
        return full or (self.cpu or 0) >= percent or (self.gpu or 0) >= percent

    @property
    def score(self) -> float:
        """How busy it is: the lowest is chosen."""
        return self.active + (self.cpu or 0) / 100 + (self.gpu or 0) / 100


class Placement(Struct, frozen=True, gc=False):
    """Where a task waits to be taken."""

    #: None is the default one.
    pool: str | None = None
    #: The lower, the sooner.
    rank: int = 0
    #: The only worker that may take it.
    directed_to: str | None = None
    #: What whoever takes it must be able to run; None if all of the pool can.
    function: str | None = None


class WorkerPlacement(Struct, frozen=True):
    """A placement, and the worker that was chosen for it, though others may be quicker."""

    placement: Placement
    worker: str


class Unroutable(Struct, frozen=True):
    """Why a task goes nowhere for now."""

    code: ReasonCode
    reason: str
    #: When to ask again, if that is not for the usual backoff to say; then it is not counted either.
    after_ms: int | None = None

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"


def route(
    function: str,
    wish: RoutingRequirements | None,
    seats: Sequence[WorkerCandidate],
    pools: Pools | None,
    *,
    overload_percent: int = OVERLOADED_PERCENT,
) -> WorkerPlacement | Unroutable:
    """Where a task that calls the function goes. Without `pools` its workers take from its pool what they can.

    With `pools`, whoever is overloaded is passed over; the least busy decides the pool, and among equals the one with
    the fewest placements lately, then the first by name.
    """
    wish = wish or _NO_REQUIREMENTS
    names = _pools_for(function, wish, pools)
    if isinstance(names, Unroutable):
        return names
    able = [seat for seat in seats if seat.pool in names and function in seat.functions]
    needed = frozenset(wish.requires) if pools is None else frozenset()
    placing = {key: value for key, value in wish.labels.items() if key.startswith(PLACEMENT_LABEL_PREFIXES)}
    fit = [seat for seat in able if needed <= seat.capabilities and placing.items() <= seat.labels.items()]
    if not fit:
        return Unroutable(ReasonCode.NO_WORKERS, _no_candidate(function, names, seats, able, pools))
    free = [seat for seat in fit if not seat.overloaded(overload_percent)]
    for seat in free:
        if seat.worker == wish.labels.get(PREFERRED_WORKER):
            return _placed(seat, function, wish, seats, directed=True)
    directed = bool(placing or needed)
    if not free and (directed or pools is not None):
        which = f"all {len(fit)} workers" if len(fit) > 1 else fit[0].worker
        return Unroutable(ReasonCode.POOL_OVERLOADED, f"{which} of {_named(names)} {_have(fit)} enough to do")
    best = min(free or fit, key=lambda seat: (seat.score, seat.recent, seat.worker))
    return _placed(best, function, wish, seats, directed=directed)


def _pools_for(function: str, wish: RoutingRequirements, pools: Pools | None) -> tuple[str, ...] | Unroutable:
    """The pools that come into question."""
    wanted = wish.pool or wish.labels.get(PREFERRED_POOL)
    if pools is None:
        return (wanted or DEFAULT_POOL,)
    topic = wish.topic or function
    names = pools.topics.get(topic) or pools.topics.get(ANY_TOPIC) or ()
    if not names:
        return Unroutable(ReasonCode.NO_POOL_MAPPING, f"no pool is named for the topic {topic!r}")
    if wanted is not None:
        if wanted not in names:
            return Unroutable(ReasonCode.NO_POOL_MAPPING, f"the topic {topic!r} does not go to pool {wanted!r}")
        names = (wanted,)
    needed = frozenset(wish.requires)
    capable = tuple(name for name in names if needed <= pools.capabilities.get(name, frozenset()))
    if not capable:
        lacking = f"no pool of the topic {topic!r} has all of {', '.join(wish.requires)}"
        return Unroutable(ReasonCode.NO_POOL_MAPPING, lacking)
    return capable


def _placed(
    best: WorkerCandidate, function: str, wish: RoutingRequirements, seats: Sequence[WorkerCandidate], *, directed: bool
) -> WorkerPlacement:
    mixed = any(function not in seat.functions for seat in seats if seat.pool == best.pool)
    placement = Placement(
        pool=None if best.pool == DEFAULT_POOL else best.pool,
        rank=RANKS[wish.priority],
        directed_to=best.worker if directed else None,
        function=function if mixed and not directed else None,
    )
    return WorkerPlacement(placement, best.worker)


def _no_candidate(
    function: str,
    names: Sequence[str],
    seats: Sequence[WorkerCandidate],
    able: Sequence[WorkerCandidate],
    pools: Pools | None,
) -> str:
    """Why there is no worker."""
    if able:
        return f"no worker of {_named(names)} has the labels or capabilities that it asks for"
    if pools is None and tuple(names) == (DEFAULT_POOL,):
        return f"no worker has registered the function {function!r}"
    if not any(seat.pool in names for seat in seats):
        return f"no worker of {_named(names)} is alive"
    return f"no worker of {_named(names)} has registered the function {function!r}"


def _named(names: Sequence[str]) -> str:
    return f"pool {names[0]!r}" if len(names) == 1 else f"the pools {', '.join(map(repr, names))}"


def _have(fit: Sequence[WorkerCandidate]) -> str:
    return "has" if len(fit) == 1 else "have"


def tenant_limit_reached(tenant: str, limit: int, ahead: int) -> Unroutable:
    """A task waits whose tenant has as many on their way as it may, behind so many others that wait for the same.

    As many as may be on their way ask again together, so that thousands that wait do not all ask all the time.
    """
    turns = 1 + ahead // limit
    reason = f"tenant {tenant!r} has {limit} tasks on their way, which is its limit"
    return Unroutable(ReasonCode.TENANT_LIMIT, reason, after_ms=min(turns * _LIMIT_RETRY_MS, _MAX_LIMIT_RETRY_MS))


def is_stranded(where: Placement, seats: Iterable[WorkerCandidate]) -> bool:
    """Whether a task waits there for nobody: the one that it is for is gone, or nobody is left who can run it."""
    if where.directed_to is not None:
        return all(seat.worker != where.directed_to for seat in seats)
    pool = where.pool or DEFAULT_POOL
    return where.function is not None and not any(
        seat.pool == pool and where.function in seat.functions for seat in seats
    )
