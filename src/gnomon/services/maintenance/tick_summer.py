"""The tick summer: sums up decided ticks by quarter of an hour, so that calendars need not count them one by one.

A calendar is right without it: it counts what is not summed up yet. One node does this at a time, in small
transactions, and makes longer pauses between them while urgent writes wait.
"""

from collections.abc import Callable

from gnomon.core import component_names
from gnomon.ports.calendar import DayPosition, TickCalendar
from gnomon.ports.runtime import Events
from gnomon.services.coordination import Singleton
from gnomon.services.loop import Backoff

#: Between two passes: so much later at most ticks are summed up than they could be.
_POLL_SECONDS = 60.0
#: Between two transactions, and while other services have urgent writes.
_PAUSE_SECONDS, _BUSY_SECONDS = 0.05, 0.5
_FIRST_DAY: DayPosition = ("", -(1 << 30))


class TickSummer:
    """Walks through all schedules, a few in each step."""

    def __init__(self, calendar: TickCalendar, events: Events, *, lease: Singleton, busy: Callable[[], bool]) -> None:
        """`busy` says whether other services have urgent writes."""
        self._calendar, self._lease, self._busy = calendar, lease, busy
        self._after = ""
        self._counted = 0
        #: Whether the last step did nothing because urgent writes waited.
        self._waited = False
        #: Days before this one have been looked at again in this pass; None if all have.
        self._ended: DayPosition | None = _FIRST_DAY
        self.backoff = Backoff(events, component_names.TICK_SUMMER)

    async def step(self) -> float:
        """Sum up some ticks. Returns how many seconds to wait before the next step."""
        return await self.backoff.attempt(self._step)

    async def _step(self) -> float:
        if not await self._lease.ours():
            return self._lease.retry_seconds
        # Once only: where urgent writes always wait, ticks have to be summed up as well.
        self._waited = self._busy() and not self._waited
        if self._waited:
            return _BUSY_SECONDS
        if self._ended is not None:
            self._ended = await self._calendar.sum_ended(after=self._ended)
            return _PAUSE_SECONDS
        done = await self._calendar.sum_up(after=self._after)
        self._counted += done.counted
        self._after = done.after or ""
        if done.after is not None:
            return _PAUSE_SECONDS
        # A schedule takes no more than a day in a step: there may be more to do.
        more, self._counted = self._counted > 0, 0
        if more:
            return _PAUSE_SECONDS
        self._ended = _FIRST_DAY
        return _POLL_SECONDS
