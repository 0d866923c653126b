"""The router: knows the workers and the pools, and says where each task goes."""

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

#: How long to believe what was read about who can run what; and about how busy they are, where that matters.
_WORKERS_SECONDS = 10.0
_LOADS_SECONDS = 1.0
#: For how long a placement is a recent one.
_RECENT_SECONDS = 60.0
#: Where a task goes: None is where it would in any case.
PlacementResult = Placement | Unroutable | None


class Router:
    """Most tasks may go to anybody, and cost one look into a set; only of others it is weighed who gets them."""

    def __init__(
        self, place: ExecutionStore, clock: Clock, settings: RoutingSettings, *, on_directed: Callable[[], None]
    ) -> None:
        """`on_directed` is called when a task was placed that not every worker may take."""
        self._place = place
        self._clock = clock
        self._limits = dict(settings.tenant_limits)
        self._usual_limit = settings.default_tenant_limit
        self._overload = settings.overload_percent
        self._pools: Pools | None = None
        self._seats: list[WorkerCandidate] = []
        #: What everybody in the default pool can run.
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
        """Where each of the tasks goes."""
        plain = self._pools is None and not self.limited
        if plain and self._believed(_WORKERS_SECONDS) and not any(map(self._unusual, requests)):
            return [None] * len(requests)
        if not self._believed(_LOADS_SECONDS) or self._unheard_of(requests):
            await self._look()
            if plain and not any(map(self._unusual, requests)):
                return [None] * len(requests)
        return self._weighed(
            requests, await self._place.placement.in_flight_counts() if self._weighing(requests) else None
        )

    # ---- limits ------------------------------------------------------------------------------

    @property
    def limited(self) -> bool:
        """Whether any tenant may only have so many tasks on their way."""
        return bool(self._limits or self._usual_limit)

    def tenant_limit(self, tenant: str) -> tuple[str, int] | None:
        """The tenant, and how many tasks it may have on their way; None if any number."""
        limit = self._limits.get(tenant, self._usual_limit)
        return (tenant, limit) if limit else None

    # ---- who is there ------------------------------------------------------------------------

    def invalidate(self) -> None:
        """Nothing that was read about workers is believed any more."""
        self._read_at = float("-inf")

    def _believed(self, seconds: float) -> bool:
        return self._clock.elapsed() - self._read_at <= seconds

    def _unusual(self, request: AdmissionRequest) -> bool:
        """Whether it must be said where the task goes: also to one that may have been placed elsewhere before."""
        step = request.step
        return step.route is not None or step.function not in self._common or request.waiting.task.fence > 0

    def _unheard_of(self, requests: Iterable[AdmissionRequest]) -> bool:
        wanted = {request.step.function for request in requests}
        return not wanted <= frozenset().union(*(seat.functions for seat in self._seats))

    def _weighing(self, requests: Iterable[AdmissionRequest]) -> bool:
        """Whether it matters how busy everybody is."""
        picky = (one.step.route is not None and (one.step.route.labels or one.step.route.requires) for one in requests)
        return self._pools is not None or self.limited or any(picky)

    async def _look(self) -> None:
        self._seats = worker_candidates(await self._place.workers.alive())
        self._read_at = self._clock.elapsed()
        ours = [seat.functions for seat in self._seats if seat.pool == DEFAULT_POOL]
        self._common = frozenset.intersection(*ours) if ours else frozenset()
        if self._read_at - self._recent_since > _RECENT_SECONDS:
            self._recent, self._recent_since = Counter(), self._read_at

    # ---- who gets it -------------------------------------------------------------------------

    def _weighed(
        self, requests: Sequence[AdmissionRequest], in_flight_counts: InFlightCounts | None
    ) -> list[PlacementResult]:
        seats = {seat.worker: seat for seat in _with_load(self._seats, in_flight_counts, self._recent)}
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
            step, there = request.step, list(seats.values())
            placed = route(step.function, step.route, there, self._pools, overload_percent=self._overload)
            if isinstance(placed, Unroutable):
                found.append(placed)
                continue
            tenants[tenant] += 1
            self._recent[placed.worker] += 1
            seat = seats[placed.worker]
            seats[placed.worker] = replace(seat, active=seat.active + 1, recent=self._recent[placed.worker])
            if placed.placement.directed_to is not None or placed.placement.function is not None:
                self._on_directed()
            found.append(placed.placement)
        return found


def _with_load(
    seats: Sequence[WorkerCandidate], in_flight_counts: InFlightCounts | None, recent: Counter[str]
) -> list[WorkerCandidate]:
    """The seats with what each has, and its share of what waits for anybody in its pool."""
    if in_flight_counts is None:
        return [replace(seat, recent=recent[seat.worker]) for seat in seats]
    many = Counter(seat.pool for seat in seats)
    found = []
    for seat in seats:
        waiting = in_flight_counts.scheduled.get(None if seat.pool == DEFAULT_POOL else seat.pool, 0)
        own = in_flight_counts.in_hand.get(seat.worker, 0) + in_flight_counts.directed.get(seat.worker, 0)
        found.append(replace(seat, active=own + -(-waiting // many[seat.pool]), recent=recent[seat.worker]))
    return found
