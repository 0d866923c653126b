"""The router: chooses the pool or the worker of each task."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from gnomon.config.sections import RoutingSettings
from gnomon.core.runs.admission import AdmissionRequest
from gnomon.core.runs.routing import (
    DEFAULT_POOL,
    Placement,
    Pools,
    Unroutable,
    WorkerCandidate,
    route,
    tenant_limit_reached,
)
from gnomon.ports.runtime import Clock
from gnomon.ports.store import ExecutionStore
from gnomon.ports.tasks import InFlightCounts, worker_candidates

#: How long to cache which worker can run what; and how busy workers are, where that matters.
_WORKERS_SECONDS = 10.0
_LOADS_SECONDS = 1.0
#: How long a placement counts as recent.
_RECENT_SECONDS = 60.0
#: The placement of a task; None if it needs none, since any worker of the default pool can run it.
PlacementResult = Placement | Unroutable | None


class Router:
    """Routes tasks. Most may go to any worker and cost one lookup in a set; only others are weighed."""

    def __init__(
        self, store: ExecutionStore, clock: Clock, settings: RoutingSettings, *, on_directed: Callable[[], None]
    ) -> None:
        """`on_directed` is called when a task was placed that not every worker may take."""
        self._store = store
        self._clock = clock
        self._limits = dict(settings.tenant_limits)
        self._usual_limit = settings.default_tenant_limit
        self._overload = settings.overload_percent
        self._pools: Pools | None = None
        self._candidates: list[WorkerCandidate] = []
        #: The functions that every worker of the default pool can run.
        self._common: frozenset[str] = frozenset()
        self._read_at = float("-inf")
        self._recent = Counter[str]()
        self._recent_since = float("-inf")
        self._on_directed = on_directed

    @property
    def pools(self) -> Pools | None:
        """The pools that tasks are routed by; None if there is no pools file."""
        return self._pools

    def use_pools(self, pools: Pools | None) -> None:
        """Route by these pools, as the pools file defines them; None if there is no such file."""
        self._pools = pools

    async def place_all(self, requests: Sequence[AdmissionRequest]) -> Sequence[PlacementResult]:
        """The placement of each task."""
        plain = self._pools is None and not self.limited
        if plain and self._cached(_WORKERS_SECONDS) and not any(map(self._unusual, requests)):
            return [None] * len(requests)
        if not self._cached(_LOADS_SECONDS) or self._unknown_functions(requests):
            await self._read_workers()
            if plain and not any(map(self._unusual, requests)):
                return [None] * len(requests)
        return self._weighed(
            requests, await self._store.placement.in_flight_counts() if self._weighing(requests) else None
        )

    # ---- limits ------------------------------------------------------------------------------

    @property
    def limited(self) -> bool:
        """Whether any tenant has a limit on its tasks in flight."""
        return bool(self._limits or self._usual_limit)

    def tenant_limit(self, tenant: str) -> tuple[str, int] | None:
        """The tenant and its limit of tasks in flight; None if it has no limit."""
        limit = self._limits.get(tenant, self._usual_limit)
        return (tenant, limit) if limit else None

    # ---- workers -----------------------------------------------------------------------------

    def invalidate(self) -> None:
        """Read the workers again before the next placement."""
        self._read_at = float("-inf")

    def _cached(self, seconds: float) -> bool:
        return self._clock.elapsed() - self._read_at <= seconds

    def _unusual(self, request: AdmissionRequest) -> bool:
        """Whether the task needs a placement; also if it may have had another one before."""
        step = request.step
        return step.route is not None or step.function not in self._common or request.waiting.task.fence > 0

    def _unknown_functions(self, requests: Iterable[AdmissionRequest]) -> bool:
        wanted = {request.step.function for request in requests}
        return not wanted <= frozenset().union(*(candidate.functions for candidate in self._candidates))

    def _weighing(self, requests: Iterable[AdmissionRequest]) -> bool:
        """Whether the load of workers matters for any of the requests."""
        demanding = (
            one.step.route is not None and (one.step.route.labels or one.step.route.requires) for one in requests
        )
        return self._pools is not None or self.limited or any(demanding)

    async def _read_workers(self) -> None:
        self._candidates = worker_candidates(await self._store.workers.alive())
        self._read_at = self._clock.elapsed()
        ours = [candidate.functions for candidate in self._candidates if candidate.pool == DEFAULT_POOL]
        self._common = frozenset.intersection(*ours) if ours else frozenset()
        if self._read_at - self._recent_since > _RECENT_SECONDS:
            self._recent, self._recent_since = Counter(), self._read_at

    # ---- placement ---------------------------------------------------------------------------

    def _weighed(
        self, requests: Sequence[AdmissionRequest], in_flight_counts: InFlightCounts | None
    ) -> list[PlacementResult]:
        candidates = {
            candidate.worker: candidate for candidate in _with_load(self._candidates, in_flight_counts, self._recent)
        }
        tenants = Counter[str]({} if in_flight_counts is None else in_flight_counts.tenants)
        over = Counter[str]()
        found: list[PlacementResult] = []
        for request in requests:
            tenant = request.waiting.run.tenant
            tenant_limit = self.tenant_limit(tenant)
            if tenant_limit is not None and tenants[tenant] >= tenant_limit[1]:
                found.append(tenant_limit_reached(*tenant_limit, ahead=over[tenant]))
                over[tenant] += 1
                continue
            step, there = request.step, list(candidates.values())
            placed = route(step.function, step.route, there, self._pools, overload_percent=self._overload)
            if isinstance(placed, Unroutable):
                found.append(placed)
                continue
            tenants[tenant] += 1
            self._recent[placed.worker] += 1
            candidate = candidates[placed.worker]
            candidates[placed.worker] = replace(
                candidate, active=candidate.active + 1, recent=self._recent[placed.worker]
            )
            if placed.placement.directed_to is not None or placed.placement.function is not None:
                self._on_directed()
            found.append(placed.placement)
        return found


def _with_load(
    candidates: Sequence[WorkerCandidate], in_flight_counts: InFlightCounts | None, recent: Counter[str]
) -> list[WorkerCandidate]:
    """The candidates with their load: their own tasks, and a share of those that wait for any worker of the pool."""
    if in_flight_counts is None:
        return [replace(candidate, recent=recent[candidate.worker]) for candidate in candidates]
    many = Counter(candidate.pool for candidate in candidates)
    found = []
    for candidate in candidates:
        waiting = in_flight_counts.scheduled.get(None if candidate.pool == DEFAULT_POOL else candidate.pool, 0)
        own = in_flight_counts.in_hand.get(candidate.worker, 0) + in_flight_counts.directed.get(candidate.worker, 0)
        found.append(
            replace(candidate, active=own + -(-waiting // many[candidate.pool]), recent=recent[candidate.worker])
        )
    return found
