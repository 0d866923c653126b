"""The mender, the reconciler of runs: finds those that wait in vain, and lets them go on."""

from collections.abc import Callable, Mapping

from gnomon.config.sections import Reconciling
from gnomon.core.invariants import Ailment
from gnomon.core.model import RunId
from gnomon.errors import Unavailable
from gnomon.ports.maintenance import FIRST_OPEN, Mending, OpenPlace, Turns
from gnomon.ports.runtime import Clock, Events
from gnomon.services.loop import Backoff

_TURN = "mender"
#: A turn lasts for so many looks, so that one node does it while it lives.
_LOOKS_A_TURN = 2


class Mender:
    """Walks through the runs that are not over, some of them in each look."""

    def __init__(
        self, mending: Mending, turns: Turns, clock: Clock, events: Events, settings: Reconciling, *, holder: str
    ) -> None:
        self._mending = mending
        self._turns = turns
        self._clock = clock
        self._events = events
        self._settings = settings
        self._holder = holder
        #: Where the last look ended.
        self._place: OpenPlace = FIRST_OPEN
        #: How many runs were mended, by what they suffered from.
        self.mended: dict[Ailment, int] = dict.fromkeys(Ailment, 0)
        #: Called when something may be ready that was not.
        self.on_ready: Callable[[], None] = lambda: None
        self.backoff = Backoff(events, "mender")

    async def step(self) -> float:
        """One look. Returns how many seconds to wait before the next."""
        poll_ms = self._settings.poll_ms
        for _ in range(self._settings.max_retries + 1):
            try:
                if await self._turns.take_turn(_TURN, self._holder, ttl_ms=_LOOKS_A_TURN * poll_ms):
                    await self._look()
            except Unavailable as error:
                await self._clock.sleep(self.backoff.failed(error))
            else:
                self.backoff.worked()
                break
        return poll_ms / 1000

    async def _look(self) -> None:
        before = self._clock.now() - self._settings.settled_ms
        for _ in range(self._settings.max_iterations):
            found = await self._mending.ailing(before_at=before, after=self._place, limit=self._settings.batch)
            if found.runs:
                await self._mend(found.runs)
            self._place = found.after or FIRST_OPEN
            if found.after is None:
                return

    async def _mend(self, ailing: Mapping[RunId, Ailment]) -> None:
        mended = await self._mending.mend(list(ailing), now=self._clock.now())
        for run_id in mended:
            self.mended[ailing[run_id]] += 1
            self._events.emit("run_mended", run=run_id, ailment=ailing[run_id])
        if mended:
            self.on_ready()
