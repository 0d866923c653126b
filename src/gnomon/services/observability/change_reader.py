"""Publishes commits of other processes to the followers of this server: it reads the log of changes while any follow.

Numbers of the log are given before the commit, so that an entry may appear after those with higher numbers. The reader
remembers the numbers that it misses, and asks for them until a transaction can no longer be under way.
"""

from gnomon.core.model import MINUTE_MS, SECOND_MS
from gnomon.errors import Unavailable
from gnomon.ports.change_log import NOTICED_WITHIN_SECONDS, ChangeLog
from gnomon.ports.runtime import Clock
from gnomon.services.observability.change_stream import ChangeStream

#: How long other processes log their changes for this server unless it asks again, and how often it asks.
_FOLLOWED_MS, _RENEW_SECONDS = 20 * SECOND_MS, 5.0
#: How often the log is read, and how many entries at a time.
_READ_SECONDS, _PAGE = 0.3, 500
#: How long a missing number may belong to a transaction that is under way.
_LATE_SECONDS = 30.0
_IDLE_SECONDS, _AWAY_SECONDS = 60.0, 1.0


class ChangeReader:
    """Implements the step of a loop; `wake` of the stream wakes it when the first caller follows."""

    def __init__(self, log: ChangeLog, stream: ChangeStream, clock: Clock, *, server: str) -> None:
        """`server` names this process, whose own changes are published at once."""
        self._log = log
        self._stream = stream
        self._clock = clock
        self._server = server
        #: The number up to which entries were read; None while nobody follows.
        self._position: int | None = None
        self._renew_at = self._complete_at = 0.0
        #: Numbers below the position that were not there, and until when they are asked for.
        self._missing: dict[int, float] = {}

    async def step(self) -> float:
        """Read what is new, if anybody follows; return how many seconds to wait."""
        try:
            return await self._step()
        except Unavailable:
            # Publishing continues once the store answers; followers find entries removed by then in the lists.
            return _AWAY_SECONDS

    async def _step(self) -> float:
        if not self._stream.followed:
            await self._rest()
            return _IDLE_SECONDS
        now = self._clock.elapsed()
        if self._position is None or now >= self._renew_at:
            await self._follow(now)
        if now >= self._complete_at:
            # Every process has noticed by now that its changes are read.
            self._stream.set_complete()
        while await self._read(now):
            pass
        return _READ_SECONDS

    async def _follow(self, now: float) -> None:
        last = await self._log.follow(self._server, ttl_ms=_FOLLOWED_MS)
        if self._position is None:
            self._position, self._missing = last, {}
            # A little more than that, because the other clock may be a tick behind.
            self._complete_at = self._clock.elapsed() + 1.2 * NOTICED_WITHIN_SECONDS
        self._renew_at = now + _RENEW_SECONDS
        await self._log.forget(older_than_ms=MINUTE_MS)

    async def _rest(self) -> None:
        if self._position is not None:
            self._position = None
            await self._log.unfollow(self._server)

    async def _read(self, now: float) -> bool:
        """Publish the next entries; return whether there may be more."""
        assert self._position is not None  # noqa: S101 - tells the type checker
        self._missing = {number: until for number, until in self._missing.items() if until > now}
        found = await self._log.read(self._position, late=self._missing, limit=_PAGE)
        for entry in found:
            if entry.number > self._position:
                gap = range(self._position + 1, entry.number)
                self._missing |= dict.fromkeys(gap[-_PAGE:], now + _LATE_SECONDS)
                self._position = entry.number
            self._missing.pop(entry.number, None)
            if entry.origin != self._server:
                self._stream.publish(entry.changes)
        return len(found) == _PAGE
