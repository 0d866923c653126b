"""Fair shares of slots between tenants: a backlog of one tenant delays another by one task, not by its length.

The tenant with the fewest tasks in hand is next; of equals, the one that got a task the longest time ago. So a tenant
alone has all slots, and several with a backlog have equally many, however long their tasks are. The priority of a task
counts among the tasks of its tenant only.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import Generic, TypeVar

T = TypeVar("T")

#: The number of tenants whose last task is remembered. A tenant that is forgotten counts as one without a task so far.
_MAX_TRACKED_TENANTS = 10_000


class TenantShares:
    """How many tasks of each tenant a taker has in hand, and when each tenant got its last one."""

    def __init__(self) -> None:
        self._in_hand: dict[str, int] = {}
        #: By tenant, the number of the task that it got last, counted over all tenants.
        self._last: OrderedDict[str, int] = OrderedDict()
        self._count = 0
        #: Whether several tenants had tasks waiting at the same time since the last recount.
        self.contended = False

    def in_hand(self, tenant: str) -> int:
        """The number of tasks of the tenant in hand."""
        return self._in_hand.get(tenant, 0)

    def started(self, tenant: str) -> None:
        """Count a task that the tenant got."""
        self._in_hand[tenant] = self.in_hand(tenant) + 1
        self._count += 1
        self._last[tenant] = self._count
        self._last.move_to_end(tenant)
        if len(self._last) > _MAX_TRACKED_TENANTS:
            self._last.popitem(last=False)

    def ended(self, tenant: str) -> None:
        """Count a task of the tenant that is not in hand any more."""
        left = self.in_hand(tenant) - 1
        if left > 0:
            self._in_hand[tenant] = left
        else:
            self._in_hand.pop(tenant, None)

    def recount(self, in_hand: Mapping[str, int]) -> None:
        """Use these numbers of tasks in hand from now on."""
        self._in_hand = {tenant: count for tenant, count in in_hand.items() if count > 0}
        self.contended = False

    def next(self, tenants: Iterable[str]) -> str:
        """The tenant whose turn it is."""
        return min(tenants, key=self._turn)

    def split(self, limit: int, tenants: Sequence[str]) -> dict[str, int]:
        """How many of the next tasks each of the tenants gets, if each has enough of them."""
        if len(tenants) == 1:
            return {tenants[0]: limit}
        self.contended = True
        turns = [(*self._turn(tenant), tenant) for tenant in tenants]
        heapify(turns)
        given = dict.fromkeys(tenants, 0)
        for number in range(limit):
            in_hand, _, tenant = turns[0]
            given[tenant] += 1
            heapreplace(turns, (in_hand + 1, self._count + number + 1, tenant))
        return {tenant: count for tenant, count in given.items() if count}

    def _turn(self, tenant: str) -> tuple[int, int]:
        return self.in_hand(tenant), self._last.get(tenant, 0)


def take_in_turns(
    shares: TenantShares,
    limit: int,
    tenants: Sequence[str],
    first_of_each: Callable[[Mapping[str, int]], Mapping[str, Sequence[T]]],
) -> list[T]:
    """Up to `limit` waiting tasks of these tenants, fairly shared; fewer only if there are no more.

    `first_of_each` returns the first so many tasks of each tenant. The others get the part of a share that is not used.
    """
    found: dict[str, Sequence[T]] = {}
    waiting, left = list(tenants), limit
    while waiting and left > 0:
        wanted = {
            tenant: count for tenant, count in shares.split(left, waiting).items() if count > len(found.get(tenant, ()))
        }
        if not wanted:
            break
        found.update(first_of_each(wanted))
        empty = {tenant for tenant, count in wanted.items() if len(found.get(tenant, ())) < count}
        if not empty:
            break
        waiting = [tenant for tenant in waiting if tenant not in empty]
        left -= sum(len(found.get(tenant, ())) for tenant in empty)
    return [task for tasks in found.values() for task in tasks]


class TenantQueue(Generic[T]):
    """Work that waits for a free slot: first in first out for each tenant, and fair between tenants."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}
        self._shares = TenantShares()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __iter__(self) -> Iterator[T]:
        return (work for queue in self._waiting.values() for work in queue)

    def add(self, tenant: str, work: T) -> None:
        """Add work of a tenant."""
        self._waiting.setdefault(tenant, deque()).append(work)

    def pop(self) -> tuple[str, T]:
        """Remove the next work; it has a slot until `ended`."""
        tenant = self._shares.next(self._waiting)
        queue = self._waiting[tenant]
        work = queue.popleft()
        if not queue:
            del self._waiting[tenant]
        self._shares.started(tenant)
        return tenant, work

    def started(self, tenant: str) -> None:
        """Count work that got a slot without waiting."""
        self._shares.started(tenant)

    def ended(self, tenant: str) -> None:
        """Count work that has given up its slot."""
        self._shares.ended(tenant)
