"""How much the workers of one NATS user may register: that of workers without enrolment can name any number of them.

Servers keep every registration in memory and read all of them again when one changes. So the registrations of a user
have limits together, and changes are announced at intervals that grow with what has to be read.
"""

from collections import Counter, OrderedDict

from msgspec import Struct

from gnomon.core.worker_ids import MOST_STARTS, enrolled_pool, identity_of
from gnomon.errors import FieldError
from gnomon.ports.tasks import WorkerInfo

#: The workers without enrolment together, and the pools that they name.
MOST_SHARED, MOST_POOLS = 2_000, 200
#: The characters of functions, labels and capabilities: of the workers without enrolment, and of one that is enrolled.
LARGEST_SHARED, LARGEST_ENROLLED = 16 << 20, 2 << 20
#: The shortest time between two announcements, and how many seconds the largest registry adds.
_SHORTEST_PAUSE, _LONGEST_ADDED = 0.1, 2.0


class WorkerRegistryLimits:
    """The registrations that a server has seen, by user. Times are seconds of a monotonic clock."""

    def __init__(self, forget_seconds: float) -> None:
        """A worker that was not seen for `forget_seconds` counts no longer."""
        self._forget_seconds = forget_seconds
        self._users: dict[str, _UserRegistrations] = {}
        self._announced_at = float("-inf")

    def admit(self, card: WorkerInfo, *, now: float) -> None:
        """Count a registration; FieldError if its user has registered too much."""
        user = _user_of(card.worker)
        known = self._users.setdefault(user, _UserRegistrations())
        known.forget_unseen(now - self._forget_seconds)
        before = known.remove(card.worker)
        try:
            (_check_enrolled if user else _check_shared)(known, card)
        except FieldError:
            if before is not None:
                known.add(card.worker, before)
            raise
        known.add(card.worker, _Registration(_size(card), card.pool, now))
        if user and len(known) > MOST_STARTS:
            # The store forgets the oldest starts, too.
            known.remove_oldest()

    def forget(self, worker: str) -> None:
        """The worker has left."""
        known = self._users.get(_user_of(worker))
        if known is not None:
            known.remove(worker)

    def may_announce(self, *, now: float) -> bool:
        """Whether servers may read all registrations again; if so, the next time is counted from now on."""
        size = sum(known.size for known in self._users.values())
        if now - self._announced_at < _SHORTEST_PAUSE + _LONGEST_ADDED * size / LARGEST_SHARED:
            return False
        self._announced_at = now
        return True


class _Registration(Struct, frozen=True):
    """The part of a registration that counts."""

    size: int
    pool: str
    seen_at: float


class _UserRegistrations:
    """The registrations of one user; the worker that was seen last is the last one."""

    def __init__(self) -> None:
        self._workers: OrderedDict[str, _Registration] = OrderedDict()
        self.size = 0
        self.pools = Counter[str]()

    def __len__(self) -> int:
        return len(self._workers)

    def add(self, worker: str, one: _Registration) -> None:
        """Add a worker that is not there."""
        self._workers[worker] = one
        self.size += one.size
        self.pools[one.pool] += 1

    def remove(self, worker: str) -> _Registration | None:
        """Remove a worker; None if it is not there."""
        one = self._workers.pop(worker, None)
        if one is not None:
            self.size -= one.size
            self.pools[one.pool] -= 1
            if not self.pools[one.pool]:
                del self.pools[one.pool]
        return one

    def remove_oldest(self) -> None:
        """Remove the worker that was not seen for the longest time."""
        self.remove(next(iter(self._workers)))

    def forget_unseen(self, before: float) -> None:
        """Remove the workers that were last seen before then."""
        while self._workers and next(iter(self._workers.values())).seen_at < before:
            self.remove_oldest()


def _check_shared(known: _UserRegistrations, card: WorkerInfo) -> None:
    if len(known) >= MOST_SHARED:
        raise FieldError("card.worker", card.worker, f"is one too many: {MOST_SHARED} without enrolment may register")
    if card.pool not in known.pools and len(known.pools) >= MOST_POOLS:
        raise FieldError("card.pool", card.pool, f"is one too many: workers without enrolment may name {MOST_POOLS}")
    _check_size(known, card, LARGEST_SHARED)


def _check_enrolled(known: _UserRegistrations, card: WorkerInfo) -> None:
    _check_size(known, card, LARGEST_ENROLLED)


def _check_size(known: _UserRegistrations, card: WorkerInfo, largest: int) -> None:
    if known.size + _size(card) > largest:
        reason = f"are too many: those of all workers of the user may have {largest} characters together"
        raise FieldError("card.functions", len(card.functions), reason)


def _user_of(worker: str) -> str:
    """The identity of an enrolled worker; empty for the user that all others share."""
    return "" if enrolled_pool(worker) is None else identity_of(worker)


def _size(card: WorkerInfo) -> int:
    texts = (*card.functions, *card.capabilities, *card.labels.keys(), *card.labels.values())
    return sum(map(len, texts)) + len(texts)
