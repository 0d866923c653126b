"""The free slots of remote workers: how many tasks may be sent to each pool, and to each worker."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from gnomon.core.runs.routing import Placement, is_relieved
from gnomon.core.subjects import DEFAULT_POOL
from gnomon.core.worker_ids import is_remote
from gnomon.ports.messaging import TaskOutbox
from gnomon.ports.runtime import Clock
from gnomon.ports.store import ExecutionStore
from gnomon.ports.tasks import AttemptRef, TakeFilter, WorkerInfo, worker_candidate, worker_candidates

#: How long to cache the workers, and the number of messages under way.
CACHE_SECONDS = 1.0
#: The same while a pool is full and tasks wait: other servers may have freed slots.
CACHE_WHEN_FULL_SECONDS = 0.05


class PoolSlots(Struct):
    """The slots of a pool, and the tasks under way to its workers as far as this process knows."""

    slots: int = 0
    #: Tasks under way that this process sent, and that others sent.
    ours: int = 0
    others: int = 0
    asked_at: float = float("-inf")
    #: Whether the last take may have left tasks behind.
    more: bool = False

    @property
    def free(self) -> int:
        """How many tasks may be sent now."""
        return max(0, self.slots - self.ours - self.others)


class DirectedTask(Struct, frozen=True):
    """A task that was sent to one worker only. It takes a slot there, although the bus does not count it."""

    pool: str
    worker: str
    at: float


class PoolCapacity:
    """Tracks the workers on the bus and their free slots. Stale data costs time only."""

    def __init__(
        self, store: ExecutionStore, queue: TaskOutbox, clock: Clock, *, lease_ms: int, overload_percent: int
    ) -> None:
        self._store = store
        self._queue = queue
        self._clock = clock
        self._lease_seconds = lease_ms / 1000
        self._overload_percent = overload_percent
        self._pools: dict[str, PoolSlots] = {DEFAULT_POOL: PoolSlots()}
        self._cards: Sequence[WorkerInfo] = ()
        self._reaches: dict[str, TakeFilter] = {DEFAULT_POOL: TakeFilter()}
        self._read_at = float("-inf")
        self._directed: dict[AttemptRef, DirectedTask] = {}

    @property
    def pools(self) -> Collection[str]:
        """The pools that have had workers on the bus, and the default pool."""
        return self._pools.keys()

    def invalidate(self) -> None:
        """Read everything again before the next use."""
        self._read_at = float("-inf")
        for pool_slots in self._pools.values():
            pool_slots.asked_at = float("-inf")

    # ---- workers -----------------------------------------------------------------------------

    async def read(self) -> None:
        """Read the workers and the slots of each pool, unless they are cached."""
        asked_at = self._clock.elapsed()
        if asked_at - self._read_at < CACHE_SECONDS:
            return
        workers = [card for card in await self._store.workers.alive() if not card.draining]
        self._cards = [card for card in workers if is_remote(card.worker)]
        for card in self._cards:
            self._pools.setdefault(card.pool, PoolSlots())
        for pool, pool_slots in self._pools.items():
            pool_slots.slots = sum(self._usable_slots(card) for card in self._cards if card.pool == pool)
            self._reaches[pool] = _take_filter(pool, self._cards, workers)
        self._expire_directed(asked_at)
        self._read_at = asked_at

    def is_relieved(self, card: WorkerInfo) -> bool:
        """Whether the worker is overloaded and another one of its pool on the bus can have its tasks."""
        return is_relieved(worker_candidate(card), worker_candidates(self._cards), self._overload_percent)

    def _usable_slots(self, card: WorkerInfo) -> int:
        """The slots that are in use or may be filled from the pool."""
        return min(card.slots, card.in_hand) if self.is_relieved(card) else card.slots

    def _expire_directed(self, now: float) -> None:
        """Forget directed tasks of workers that are gone, or that have long been idle."""
        idle = {card.worker: card.in_hand == 0 for card in self._cards}
        self._directed = {
            held: one
            for held, one in self._directed.items()
            if one.worker in idle and not (idle[one.worker] and now - one.at > self._lease_seconds)
        }

    # ---- free slots --------------------------------------------------------------------------

    async def count(self) -> None:
        """Ask the bus how many messages are under way to each pool, unless that is cached."""
        for pool, pool_slots in self._pools.items():
            asked_at = self._clock.elapsed()
            if asked_at - pool_slots.asked_at < (CACHE_WHEN_FULL_SECONDS if self._is_full(pool) else CACHE_SECONDS):
                continue
            before = pool_slots.ours
            under_way = await self._queue.under_way(pool)
            # Messages that were sent meanwhile are not in the answer of the bus.
            sent_since = max(0, pool_slots.ours - before)
            ours = min(max(0, before), under_way)
            pool_slots.ours, pool_slots.others, pool_slots.asked_at = ours + sent_since, under_way - ours, asked_at

    def free(self, pool: str) -> int:
        """How many tasks may be sent to the pool now."""
        there = sum(one.pool == pool for one in self._directed.values()) if self._directed else 0
        return max(0, self._pools[pool].free - there)

    def reach(self, pool: str) -> TakeFilter:
        """The tasks that every worker of the pool on the bus can run."""
        return self._reaches[pool]

    @property
    def slots(self) -> int:
        """How many slots there are in all pools."""
        return sum(pool_slots.slots for pool_slots in self._pools.values())

    @property
    def full(self) -> bool:
        """Whether tasks wait for a pool that has no free slot."""
        return any(map(self._is_full, self._pools))

    def _is_full(self, pool: str) -> bool:
        pool_slots = self._pools[pool]
        return pool_slots.more and pool_slots.slots > 0 and not self.free(pool)

    def record_take(self, pool: str, *, all_of_it: bool) -> None:
        """Record a take for the pool, and whether it found all tasks there were."""
        self._pools[pool].more = not all_of_it

    # ---- sent and returned -------------------------------------------------------------------

    def sent(self, pool: str) -> None:
        """Count a task as under way to the pool."""
        self._pools[pool].ours += 1

    def record_returned(self, pool: str, count: int = 1) -> None:
        """Count so many tasks as no longer under way to the pool."""
        pool_slots = self._pools.setdefault(pool, PoolSlots())
        pool_slots.ours = max(0, pool_slots.ours - count)

    def directed_sent(self, held: AttemptRef, pool: str, worker: str) -> None:
        """Count a task as sent to this worker only."""
        self._directed[held] = DirectedTask(pool, worker, self._clock.elapsed())

    def directed_ended(self, held: Iterable[AttemptRef]) -> int:
        """Free the slots of those that were sent to one worker only; return how many these are."""
        return sum(self._directed.pop(one, None) is not None for one in held) if self._directed else 0

    # ---- workers of directed tasks ------------------------------------------------------------

    def candidates(
        self, chosen: Collection[Placement], in_hand: Mapping[str, int]
    ) -> list[tuple[WorkerInfo, TakeFilter]]:
        """The workers with free slots that can take some of these directed tasks, each with what it may take."""
        found = []
        for card in sorted(self._cards, key=lambda card: (in_hand.get(card.worker, 0) - card.slots, card.worker)):
            pool = None if card.pool == DEFAULT_POOL else card.pool
            here = [where for where in chosen if where.pool == pool]
            common = self._reaches[card.pool].functions or ()
            own = {one.function for one in here if one.directed_to is None and one.function not in common}
            functions = tuple(sorted(own & set(card.functions) - {None}, key=str))
            if functions or any(one.directed_to == card.worker for one in here):
                found.append((card, TakeFilter(pool, tuple(map(str, functions)), chosen=True)))
        return [(card, reach) for card, reach in found if card.slots > in_hand.get(card.worker, 0)]


def _take_filter(pool: str, cards: Sequence[WorkerInfo], workers: Sequence[WorkerInfo]) -> TakeFilter:
    """The tasks of a pool that all its workers can run; without a limit if all of them can run the same functions."""
    alike = len({card.functions for card in workers if card.pool == pool}) <= 1
    functions_of = (frozenset(card.functions) for card in cards if card.pool == pool)
    functions = None if alike else tuple(sorted(frozenset.intersection(*functions_of) if cards else ()))
    return TakeFilter(None if pool == DEFAULT_POOL else pool, functions)
