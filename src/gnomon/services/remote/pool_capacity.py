"""The free slots of workers elsewhere: how much may be sent to each pool, and to workers by name."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from gnomon.core.runs.routing import Placement
from gnomon.core.subjects import DEFAULT_POOL, FIELD
from gnomon.ports.messaging import Outgoing
from gnomon.ports.runtime import Clock
from gnomon.ports.tasks import Held, Reach, WorkerCard, Workplace

#: How long to believe what was read about workers, and what the bus says is under way.
BELIEVED_SECONDS = 1.0
#: The same when there is no room for what waits: somebody else may have made some.
DOUBTED_SECONDS = 0.05


class Room(Struct):
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


class Addressed(Struct, frozen=True):
    """A task that was sent to one worker alone: it has a slot there, though the bus does not count it."""

    pool: str
    worker: str
    at: float


class Vacancies:
    """Knows the workers that are reached over the bus. What it knows may be old, and costs time only."""

    def __init__(self, place: Workplace, queue: Outgoing, clock: Clock, *, lease_ms: int) -> None:
        self._place = place
        self._queue = queue
        self._clock = clock
        self._lease_seconds = lease_ms / 1000
        self._rooms: dict[str, Room] = {DEFAULT_POOL: Room()}
        self._cards: Sequence[WorkerCard] = ()
        self._reaches: dict[str, Reach] = {DEFAULT_POOL: Reach()}
        self._read_at = float("-inf")
        self._addressed: dict[Held, Addressed] = {}

    @property
    def pools(self) -> Collection[str]:
        """Those that somebody was in who is reached over the bus, and the default one."""
        return self._rooms.keys()

    def look_again(self) -> None:
        """Nothing that was read is believed any more."""
        self._read_at = float("-inf")
        for room in self._rooms.values():
            room.asked_at = float("-inf")

    # ---- who is there ------------------------------------------------------------------------

    async def read(self) -> None:
        """It is known who is there, and how many slots each pool has."""
        asked_at = self._clock.elapsed()
        if asked_at - self._read_at < BELIEVED_SECONDS:
            return
        everybody = [card for card in await self._place.workers() if not card.draining]
        self._cards = [card for card in everybody if card.worker.startswith(f"{FIELD}_")]
        for card in self._cards:
            self._rooms.setdefault(card.pool, Room())
        for pool, room in self._rooms.items():
            room.slots = sum(card.slots for card in self._cards if card.pool == pool)
            self._reaches[pool] = _reach(pool, self._cards, everybody)
        self._forget_addressed(asked_at)
        self._read_at = asked_at

    def _forget_addressed(self, now: float) -> None:
        """What was sent to workers that are gone, or that have long since nothing in hand, takes up no slot."""
        idle = {card.worker: card.in_hand == 0 for card in self._cards}
        self._addressed = {
            held: one
            for held, one in self._addressed.items()
            if one.worker in idle and not (idle[one.worker] and now - one.at > self._lease_seconds)
        }

    # ---- how much room there is --------------------------------------------------------------

    async def count(self) -> None:
        """It is known how much is under way to each pool."""
        for pool, room in self._rooms.items():
            asked_at = self._clock.elapsed()
            if asked_at - room.asked_at < (DOUBTED_SECONDS if self._is_cramped(pool) else BELIEVED_SECONDS):
                continue
            before = room.ours
            under_way = await self._queue.under_way(pool)
            # What was sent meanwhile is not in what the bus has said.
            sent_since = max(0, room.ours - before)
            ours = min(max(0, before), under_way)
            room.ours, room.others, room.asked_at = ours + sent_since, under_way - ours, asked_at

    def free(self, pool: str) -> int:
        """How many tasks may be sent to the pool now."""
        there = sum(one.pool == pool for one in self._addressed.values()) if self._addressed else 0
        return max(0, self._rooms[pool].free - there)

    def reach(self, pool: str) -> Reach:
        """What everybody of the pool can run who is reached over the bus."""
        return self._reaches[pool]

    @property
    def slots(self) -> int:
        """How many there are in all."""
        return sum(room.slots for room in self._rooms.values())

    @property
    def cramped(self) -> bool:
        """Whether more waits somewhere than there is room for."""
        return any(map(self._is_cramped, self._rooms))

    def _is_cramped(self, pool: str) -> bool:
        room = self._rooms[pool]
        return room.more and room.slots > 0 and not self.free(pool)

    def took(self, pool: str, *, all_of_it: bool) -> None:
        """Something was taken for the pool: all that there was, or perhaps not."""
        self._rooms[pool].more = not all_of_it

    # ---- what is sent and comes back ---------------------------------------------------------

    def sent(self, pool: str) -> None:
        """A task is under way to anybody of the pool."""
        self._rooms[pool].ours += 1

    def returned(self, pool: str, count: int = 1) -> None:
        """So many are not any more."""
        room = self._rooms.setdefault(pool, Room())
        room.ours = max(0, room.ours - count)

    def addressed(self, held: Held, pool: str, worker: str) -> None:
        """A task goes to this worker alone."""
        self._addressed[held] = Addressed(pool, worker, self._clock.elapsed())

    def came_back(self, held: Iterable[Held]) -> int:
        """How many of these had been sent to one worker alone; they take up no slot any more."""
        return sum(self._addressed.pop(one, None) is not None for one in held) if self._addressed else 0

    # ---- who gets what not everybody can run -------------------------------------------------

    def candidates(self, chosen: Collection[Placement], in_hand: Mapping[str, int]) -> list[tuple[WorkerCard, Reach]]:
        """Who has room for some of what waits for certain workers, and what that puts within its reach."""
        found = []
        for card in sorted(self._cards, key=lambda card: (in_hand.get(card.worker, 0) - card.slots, card.worker)):
            pool = None if card.pool == DEFAULT_POOL else card.pool
            here = [where for where in chosen if where.pool == pool]
            everybody = self._reaches[card.pool].functions or ()
            own = {one.function for one in here if one.directed_to is None and one.function not in everybody}
            functions = tuple(sorted(own & set(card.functions) - {None}, key=str))
            if functions or any(one.directed_to == card.worker for one in here):
                found.append((card, Reach(pool, tuple(map(str, functions)), chosen=True)))
        return [(card, reach) for card, reach in found if card.slots > in_hand.get(card.worker, 0)]


def _reach(pool: str, cards: Sequence[WorkerCard], everybody: Sequence[WorkerCard]) -> Reach:
    """Without limits if all of the pool can run the same, wherever they are: then nothing waits for some of them."""
    alike = len({card.functions for card in everybody if card.pool == pool}) <= 1
    common = (frozenset(card.functions) for card in cards if card.pool == pool)
    functions = None if alike else tuple(sorted(frozenset.intersection(*common) if cards else ()))
    return Reach(None if pool == DEFAULT_POOL else pool, functions)
