"""Fairness between requests and the scheduler, which share one event loop.

`RequestPacer` admits a few requests per cycle of the loop. `RequestCoalescer` lets concurrent requests for the same
page share one read of the store. Without them a burst of requests would delay ticks. `FairSlots` shares the time of
the loop between tenants and callers.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TypeVar

import msgspec

from gnomon.api.route import ApiRoute, Permission, Reply
from gnomon.ports.auth import Caller

#: The requests admitted per cycle of the event loop, and the delay of the next batch while the scheduler is busy.
_REQUESTS_PER_CYCLE, _YIELD_SECONDS = 4, 0.003
#: The shared responses sent per cycle: sending is cheaper than reading.
_REPLIES_PER_CYCLE = 8
#: While the scheduler is busy, the next page waits this many times as long as the last one took to read.
_YIELD_FACTOR = 3
#: The pages read at once, since every read takes time from the scheduler.
_MAX_CONCURRENT_READS = 1
#: The other requests that are handled at once. Changes mostly wait for the commit that they share.
_MAX_CONCURRENT_LOOKUPS, _MAX_CONCURRENT_CHANGES = 4, 64
#: The requests with many jobs that are handled at once: those with a small body, and those with a larger one.
_MAX_CONCURRENT_BULK, _MAX_CONCURRENT_LARGE = 4, 2
_SMALL_BULK = 1 << 20
#: When no slot has become free for so long, one more request is admitted.
_MAX_WAIT_SECONDS = 0.1
#: The number of tenants, and of callers of a tenant, whose used time is remembered.
_MAX_TRACKED_KEYS = 1000


class RequestPacer:
    """Admits a few requests per cycle of the event loop, first in first out; the scheduler runs in between."""

    def __init__(self, busy: Callable[[], bool], at_once: int = _REQUESTS_PER_CYCLE) -> None:
        self._busy = busy
        self._batch_size = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: The number of requests that may still pass in this cycle.
        self._remaining = at_once

    async def __call__(self) -> None:
        """Wait for admission behind earlier requests; a single request does not wait."""
        loop = asyncio.get_running_loop()
        if self._remaining == self._batch_size:
            self._schedule_release(loop)
        if self._remaining:
            self._remaining -= 1
            return
        admitted = loop.create_future()
        self._waiting.append(admitted)
        await admitted

    def _release_batch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._remaining = self._batch_size
        while self._waiting and self._remaining:
            self._remaining -= _wake(self._waiting.popleft())
        if self._remaining < self._batch_size:
            self._schedule_release(loop)

    def _schedule_release(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._busy():
            loop.call_later(_YIELD_SECONDS, self._release_batch, loop)
        else:
            loop.call_soon(self._release_batch, loop)


class FairSlots:
    """Slots for the work of requests, shared fairly between tenants, and between the callers of a tenant.

    Work is counted by the time that it has a slot, not by requests: a caller of expensive requests gets its next slot
    after others have had as much time. With `max_wait`, one more request is admitted whenever no slot has become free
    for that long, since the work of others may hang on a store that does not respond. With `of_caller` and `of_tenant`,
    a caller and a tenant have at most so many of the slots: the others are left for requests that cost less.
    """

    def __init__(
        self, slots: int, *, max_wait: float | None = None, of_caller: int | None = None, of_tenant: int | None = None
    ) -> None:
        self._slots = slots
        self._max_wait = max_wait
        self._of_caller, self._of_tenant = of_caller, of_tenant
        self._active = 0
        self._active_of_tenants = Counter[str]()
        self._active_of_callers = Counter[tuple[str, str]]()
        self._tenants = _WaitingKeys[_WaitingKeys[deque[asyncio.Future[None]]]]()
        self._timer: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def slot(self, caller: Caller) -> AsyncIterator[None]:
        """Wait for the caller's turn, and count the time until the end."""
        if self._active < self._slots and self._has_share(caller.tenant, caller.subject):
            self._count(caller.tenant, caller.subject, 1)
        else:
            await self._wait_for_turn(caller)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            yield
        finally:
            self._charge(caller, loop.time() - began)
            self._release(caller)

    async def _wait_for_turn(self, caller: Caller) -> None:
        """Wait until a slot is handed over."""
        turn = asyncio.get_running_loop().create_future()
        callers = self._tenants.queue_of(caller.tenant, _WaitingKeys[deque[asyncio.Future[None]]])
        callers.queue_of(caller.subject, deque[asyncio.Future[None]]).append(turn)
        if self._timer is None:
            self._start_timer()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._release(caller)
            raise

    def _charge(self, caller: Caller, seconds: float) -> None:
        self._tenants.charge(caller.tenant, seconds)
        if caller.tenant in self._tenants:
            self._tenants[caller.tenant].charge(caller.subject, seconds)

    def _release(self, caller: Caller) -> None:
        self._count(caller.tenant, caller.subject, -1)
        while self._active < self._slots and self._admit_next():
            pass
        self._start_timer()

    def _count(self, tenant: str, subject: str, change: int) -> None:
        self._active += change
        self._active_of_tenants[tenant] += change
        self._active_of_callers[tenant, subject] += change
        if not self._active_of_callers[tenant, subject]:
            del self._active_of_callers[tenant, subject]
        if not self._active_of_tenants[tenant]:
            del self._active_of_tenants[tenant]

    def _has_share(self, tenant: str, subject: str) -> bool:
        return self._tenant_has_share(tenant) and self._caller_has_share(tenant, subject)

    def _tenant_has_share(self, tenant: str) -> bool:
        return self._of_tenant is None or self._active_of_tenants[tenant] < self._of_tenant

    def _caller_has_share(self, tenant: str, subject: str) -> bool:
        return self._of_caller is None or self._active_of_callers[tenant, subject] < self._of_caller

    def _admit_next(self) -> bool:
        """Hand a slot to the caller whose turn it is; return False if no request waits that may have one."""
        while found := self._next_waiting():
            tenant, subject = found
            callers = self._tenants[tenant]
            turns = callers[subject]
            admitted = _wake(turns.popleft())
            if not turns:
                del callers[subject]
            if not callers:
                del self._tenants[tenant]
            if admitted:
                self._count(tenant, subject, 1)
                return True
        return False

    def _next_waiting(self) -> tuple[str, str] | None:
        """The tenant and the caller whose turn it is, of those that have not all of their share."""
        tenants = [
            tenant
            for tenant, callers in self._tenants.items()
            if self._tenant_has_share(tenant) and any(self._caller_has_share(tenant, subject) for subject in callers)
        ]
        if not tenants:
            return None
        tenant = self._tenants.next(tenants)
        callers = self._tenants[tenant]
        return tenant, callers.next([subject for subject in callers if self._caller_has_share(tenant, subject)])

    def _start_timer(self) -> None:
        """Measure anew for how long no slot becomes free."""
        if self._timer is not None:
            self._timer.cancel()
        waiting = self._max_wait is not None and bool(self._tenants)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._max_wait or 0.0, self._admit_overdue) if waiting else None

    def _admit_overdue(self) -> None:
        self._admit_next()
        self._start_timer()


class RequestSlots:
    """The slots of the requests that share no response."""

    def __init__(self) -> None:
        self._lookups = FairSlots(_MAX_CONCURRENT_LOOKUPS, max_wait=_MAX_WAIT_SECONDS)
        self._changes = FairSlots(_MAX_CONCURRENT_CHANGES, max_wait=_MAX_WAIT_SECONDS)
        #: One request with many jobs may take a minute. A parsed jobs file is much larger than its bytes, so that few
        #: large ones are handled at once, and no two of one tenant.
        self._bulk = FairSlots(_MAX_CONCURRENT_BULK, of_caller=1, of_tenant=_MAX_CONCURRENT_BULK // 2)
        self._large_bulk = FairSlots(_MAX_CONCURRENT_LARGE, of_tenant=1)
        self._alone = FairSlots(1)
        self._files = FairSlots(1)

    def file_slot(self, caller: Caller) -> AbstractAsyncContextManager[None]:
        """The slot in which a file of jobs is read that a page was sent."""
        return self._files.slot(caller)

    def slot(self, route: ApiRoute, caller: Caller, *, size: int) -> AbstractAsyncContextManager[None]:
        """The slot in which a request with a body of this size is handled.

        Probes need none: they answer however busy the API is.
        """
        if route.permission is Permission.EVERYBODY:
            return nullcontext()
        if route.body is not None and route.body.alone:
            return self._alone.slot(caller)
        if route.body is not None and route.body.many:
            return (self._bulk if size <= _SMALL_BULK else self._large_bulk).slot(caller)
        return (self._lookups if route.method == "GET" else self._changes).slot(caller)


_QueueT = TypeVar("_QueueT")


class _WaitingKeys(dict[str, _QueueT]):
    """Tenants, or callers of one, with the requests of each that wait; and the time that each has used.

    The key that has used the least is next. A key that begins to wait has used at least as much as the one that was
    next last: it may be next itself, but it has saved up nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._used: OrderedDict[str, float] = OrderedDict()
        self._floor = 0.0

    def queue_of(self, key: str, make: Callable[[], _QueueT]) -> _QueueT:
        """The queue of the key, which waits from now on."""
        if key not in self:
            self[key] = make()
            self._used[key] = self._time_of(key)
        return self[key]

    def next(self, keys: Iterable[str]) -> str:
        """The one of these waiting keys that has used the least time; of equals, the one that began to wait first."""
        found = min(keys, key=self._time_of)
        self._floor = self._time_of(found)
        return found

    def charge(self, key: str, seconds: float) -> None:
        """Count time that the key has used."""
        self._used[key] = self._time_of(key) + seconds
        self._used.move_to_end(key)
        if len(self._used) > _MAX_TRACKED_KEYS:
            self._used.popitem(last=False)

    def _time_of(self, key: str) -> float:
        return max(self._floor, self._used.get(key, 0.0))


def _wake(waiter: "asyncio.Future[None]") -> bool:
    """Wake a waiter; return False if it was awake already or is cancelled."""
    if waiter.done():
        return False
    waiter.set_result(None)
    return True


class RequestCoalescer:
    """Lets concurrent requests for the same page share one read of the store.

    A shared response is never older than the request: a request that arrives during a read waits for the next read,
    together with all others that have arrived since.
    """

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy, self._pacer = busy, RequestPacer(busy, _REPLIES_PER_CYCLE)
        self._read_slots = FairSlots(_MAX_CONCURRENT_READS, max_wait=_MAX_WAIT_SECONDS)
        #: The scheduler has precedence until this time of the loop's clock.
        self._yield_until = 0.0
        self._queued_reads: dict[Hashable, asyncio.Task[Reply]] = {}
        self._active_reads: dict[Hashable, asyncio.Task[Reply]] = {}

    async def coalesced(self, key: Hashable, read: Callable[[], Awaitable[Reply]], caller: Caller) -> Reply:
        """The response of a read that starts after this call, encoded as JSON.

        The read takes its turn among those of other callers; the first caller that needs it pays for it.
        """
        coming = self._queued_reads.get(key)
        if coming is None:
            coming = self._queued_reads[key] = asyncio.ensure_future(self._read_next(key, read, caller))
        # A request that is cancelled must not cancel the read that others wait for.
        reply = await asyncio.shield(coming)
        await self._pacer()
        return reply

    async def _read_next(self, key: Hashable, read: Callable[[], Awaitable[Reply]], caller: Caller) -> Reply:
        before = self._active_reads.get(key)
        if before is not None:
            await asyncio.wait([before])
        async with self._read_slots.slot(caller):
            await self._pacer()
            await self._yield_to_scheduler()
            # A request that arrives from now on needs the next read.
            own = self._active_reads[key] = self._queued_reads.pop(key)
            began = asyncio.get_running_loop().time()
            try:
                reply = await read()
                return msgspec.structs.replace(reply, body=msgspec.Raw(msgspec.json.encode(reply.body)))
            finally:
                self._set_yield_after(began)
                if self._active_reads.get(key) is own:
                    del self._active_reads[key]

    def _set_yield_after(self, began: float) -> None:
        now = asyncio.get_running_loop().time()
        self._yield_until = now + min(_MAX_WAIT_SECONDS, _YIELD_FACTOR * (now - began))

    async def _yield_to_scheduler(self) -> None:
        """Wait until the scheduler has had its share of the loop, if it is busy."""
        left = self._yield_until - asyncio.get_running_loop().time()
        if left > 0 and self._busy():
            await asyncio.sleep(left)
