"""Handing parcels to the workers that they alone are for: one that does not answer holds up nobody else."""

import asyncio

from msgspec import Struct

from gnomon.errors import Unavailable
from gnomon.ports.messaging import Outgoing, Parcel
from gnomon.ports.runtime import Clock

#: How long everybody else waits for it, and how soon a worker is tried again.
_TOGETHER_SECONDS = 0.05
_AGAIN_SECONDS = 0.25


class _OnItsWay(Struct):
    """A parcel, until when it is of any use, when it may be tried next, and whether it is being tried."""

    parcel: Parcel
    until: float
    next_at: float = float("-inf")
    trying: bool = False


class Handing:
    """What is for one worker alone, until that worker has it or it is too late for it."""

    def __init__(self, queue: Outgoing, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._parcels: dict[str, _OnItsWay] = {}
        self._tries: set[asyncio.Task[None]] = set()

    def add(self, parcel: Parcel, until: float) -> None:
        """The parcel is to be handed over until then."""
        self._parcels[parcel.name] = _OnItsWay(parcel, until)

    @property
    def waiting(self) -> bool:
        """Whether something has not arrived yet."""
        return bool(self._parcels)

    async def go(self) -> None:
        """Every worker has what is for it, or is being tried, or will be tried again."""
        now = self._clock.elapsed()
        self._parcels = {name: one for name, one in self._parcels.items() if one.until > now}
        due = [one for one in self._parcels.values() if not one.trying and one.next_at <= now]
        if not due:
            return
        tries = [asyncio.create_task(self._try(one)) for one in due]
        self._tries.update(tries)
        for each in tries:
            each.add_done_callback(self._tries.discard)
        await asyncio.wait(tries, timeout=_TOGETHER_SECONDS)

    async def _try(self, one: _OnItsWay) -> None:
        one.trying = True
        try:
            arrived = await self._queue.publish([one.parcel])
        except Unavailable:
            arrived = frozenset()
        one.trying, one.next_at = False, self._clock.elapsed() + _AGAIN_SECONDS
        if arrived:
            self._parcels.pop(one.parcel.name, None)
