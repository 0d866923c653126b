"""The free slots of workers elsewhere: how much may be sent to each pool, and to workers by name."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from gnomon.core.runs.routing import Placement
from gnomon.core.subjects import DEFAULT_POOL, REMOTE_WORKER_PREFIX
from gnomon.ports.messaging import TaskOutbox
from gnomon.ports.runtime import Clock
from gnomon.ports.store import ExecutionStore
from gnomon.ports.tasks import AttemptRef, TakeFilter, WorkerInfo

#: How long to believe what was read about workers, and what the bus says is under way.
CACHE_SECONDS = 1.0
#: The same when there is no room for what waits: somebody else may have made some.
CACHE_WHEN_FULL_SECONDS = 0.05


class PoolSlots(Struct):
    """What is under way to the workers of a pool, as far as we know."""

    slots: int = 0
    #: Sent by us and not yet heard of, and sent by others.
    ours: int = 0
    others: int = 0
    asked_at: float = float("-inf")
    #: Whether the last time there may have been more to take than was taken.
    more: bool = False

    @property
    def free(self) -> int:
        """How many tasks may be sent now."""
        return max(0, self.slots - self.ours - self.others)


class DirectedTask(Struct, frozen=True):
    """A task that was sent to one worker alone: it has a slot there, though the bus does not count it."""

    pool: str
    worker: str
    at: float


class PoolCapacity:
    """Knows the workers that are reached over the bus. What it knows may be old, and costs time only."""

    def __init__(self, place: ExecutionStore, queue: TaskOutbox, clock: Clock, *, lease_ms: int) -> None:
        self._place = place
        self._queue = queue
        self._clock = clock
        self._lease_seconds = lease_ms / 1000
        self._pools: dict[str, PoolSlots] = {DEFAULT_POOL: PoolSlots()}
        self._cards: Sequence[WorkerInfo] = ()
        self._reaches: dict[str, TakeFilter] = {DEFAULT_POOL: TakeFilter()}
        self._read_at = float("-inf")
        self._directed: dict[AttemptRef, DirectedTask] = {}

    @property
    def pools(self) -> Collection[str]:
        """Those that somebody was in who is reached over the bus, and the default one."""
        return self._pools.keys()

    def invalidate(self) -> None:
        """Nothing that was read is believed any more."""
        self._read_at = float("-inf")
        for room in self._pools.values():
            room.asked_at = float("-inf")

    # ---- who is there ------------------------------------------------------------------------

    async def read(self) -> None:
        """It is known who is there, and how many slots each pool has."""
        asked_at = self._clock.elapsed()
        if asked_at - self._read_at < CACHE_SECONDS:
            return
        everybody = [card for card in await self._place.workers.alive() if not card.draining]
        self._cards = [card for card in everybody if card.worker.startswith(f"{REMOTE_WORKER_PREFIX}_")]
        for card in self._cards:
            self._pools.setdefault(card.pool, PoolSlots())
        for pool, room in self._pools.items():
            room.slots = sum(card.slots for card in self._cards if card.pool == pool)
            self._reaches[pool] = _take_filter(pool, self._cards, everybody)
        self._expire_directed(asked_at)
        self._read_at = asked_at

    def _expire_directed(self, now: float) -> None:
        """What was sent to workers that are gone, or that have long since nothing in hand, takes up no slot."""
        idle = {card.worker: card.in_hand == 0 for card in self._cards}
        self._directed = {
            held: one
            for held, one in self._directed.items()
            if one.worker in idle and not (idle[one.worker] and now - one.at > self._lease_seconds)
        }

    # ---- how much room there is --------------------------------------------------------------

    async def count(self) -> None:
        """It is known how much is under way to each pool."""
        for pool, room in self._pools.items():
            asked_at = self._clock.elapsed()
            if asked_at - room.asked_at < (CACHE_WHEN_FULL_SECONDS if self._is_full(pool) else CACHE_SECONDS):
                continue
            before = room.ours
            under_way = await self._queue.under_way(pool)
            # What was sent meanwhile is not in what the bus has said.
            sent_since = max(0, room.ours - before)
            ours = min(max(0, before), under_way)
            room.ours, room.others, room.asked_at = ours + sent_since, under_way - ours, asked_at

    def free(self, pool: str) -> int:
        """How many tasks may be sent to the pool now."""
        there = sum(one.pool == pool for one in self._directed.values()) if self._directed else 0
        return max(0, self._pools[pool].free - there)

    def reach(self, pool: str) -> TakeFilter:
        """What everybody of the pool can run who is reached over the bus."""
        return self._reaches[pool]

    @property
    def slots(self) -> int:
        """How many there are in all."""
        return sum(room.slots for room in self._pools.values())

    @property
    def full(self) -> bool:
        """Whether more waits somewhere than there is room for."""
        return any(map(self._is_full, self._pools))

    def _is_full(self, pool: str) -> bool:
        room = self._pools[pool]
        return room.more and room.slots > 0 and not self.free(pool)

    def record_take(self, pool: str, *, all_of_it: bool) -> None:
        """Something was taken for the pool: all that there was, or perhaps not."""
        self._pools[pool].more = not all_of_it

    # ---- what is sent and comes back ---------------------------------------------------------

    def sent(self, pool: str) -> None:
        """A task is under way to anybody of the pool."""
        self._pools[pool].ours += 1

    def record_returned(self, pool: str, count: int = 1) -> None:
        """So many are not any more."""
        room = self._pools.setdefault(pool, PoolSlots())
        room.ours = max(0, room.ours - count)

    def directed_sent(self, held: AttemptRef, pool: str, worker: str) -> None:
        """A task goes to this worker alone."""
        self._directed[held] = DirectedTask(pool, worker, self._clock.elapsed())

    def directed_ended(self, held: Iterable[AttemptRef]) -> int:
        """How many of these had been sent to one worker alone; they take up no slot any more."""
        return sum(self._directed.pop(one, None) is not None for one in held) if self._directed else 0

    # ---- who gets what not everybody can run -------------------------------------------------

    def candidates(
        self, chosen: Collection[Placement], in_hand: Mapping[str, int]
    ) -> list[tuple[WorkerInfo, TakeFilter]]:
        """Who has room for some of what waits for certain workers, and what that puts within its reach."""
        found = []
        for card in sorted(self._cards, key=lambda card: (in_hand.get(card.worker, 0) - card.slots, card.worker)):
            pool = None if card.pool == DEFAULT_POOL else card.pool
            here = [where for where in chosen if where.pool == pool]
            everybody = self._reaches[card.pool].functions or ()
            own = {one.function for one in here if one.directed_to is None and one.function not in everybody}
            functions = tuple(sorted(own & set(card.functions) - {None}, key=str))
            if functions or any(one.directed_to == card.worker for one in here):
                found.append((card, TakeFilter(pool, tuple(map(str, functions)), chosen=True)))
        return [(card, reach) for card, reach in found if card.slots > in_hand.get(card.worker, 0)]


def _take_filter(pool: str, cards: Sequence[WorkerInfo], everybody: Sequence[WorkerInfo]) -> TakeFilter:
    """Without limits if all of the pool can run the same, wherever they are: then nothing waits for some of them."""
    alike = len({card.functions for card in everybody if card.pool == pool}) <= 1
    common = (frozenset(card.functions) for card in cards if card.pool == pool)
    functions = None if alike else tuple(sorted(frozenset.intersection(*common) if cards else ()))
    return TakeFilter(None if pool == DEFAULT_POOL else pool, functions)
