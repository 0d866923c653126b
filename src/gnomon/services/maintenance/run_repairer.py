"""The mender, the reconciler of runs: finds those that wait in vain, and lets them go on."""

from collections.abc import Callable, Mapping

from gnomon.config.sections import ReconcilerSettings
from gnomon.core.invariants import StuckReason
from gnomon.core.model import RunId
from gnomon.errors import Unavailable
from gnomon.ports.maintenance import FIRST_OPEN_RUN, OpenRunPosition, SingletonLeases, StuckRuns
from gnomon.ports.runtime import Clock, Events
from gnomon.services.loop import Backoff

_LEASE_NAME = "mender"
#: A turn lasts for so many looks, so that one node does it while it lives.
_POLLS_PER_LEASE = 2


class RunRepairer:
    """Walks through the runs that are not over, some of them in each look."""

    def __init__(
        self,
        mending: StuckRuns,
        turns: SingletonLeases,
        clock: Clock,
        events: Events,
        settings: ReconcilerSettings,
        *,
        holder: str,
    ) -> None:
        self._mending = mending
        self._turns = turns
        self._clock = clock
        self._events = events
        self._settings = settings
        self._holder = holder
        #: Where the last look ended.
        self._place: OpenRunPosition = FIRST_OPEN_RUN
        #: How many runs were mended, by what they suffered from.
        self.repaired: dict[StuckReason, int] = dict.fromkeys(StuckReason, 0)
        #: Called when something may be ready that was not.
        self.on_ready: Callable[[], None] = lambda: None
        self.backoff = Backoff(events, "mender")

    async def step(self) -> float:
        """One look. Returns how many seconds to wait before the next."""
        poll_ms = self._settings.poll_ms
        for _ in range(self._settings.max_retries + 1):
            try:
                if await self._turns.acquire_singleton(_LEASE_NAME, self._holder, ttl_ms=_POLLS_PER_LEASE * poll_ms):
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
            found = await self._mending.stuck_runs(before_at=before, after=self._place, limit=self._settings.batch)
            if found.runs:
                await self._repair(found.runs)
            self._place = found.after or FIRST_OPEN_RUN
            if found.after is None:
                return

    async def _repair(self, stuck_runs: Mapping[RunId, StuckReason]) -> None:
        mended = await self._mending.repair_runs(list(stuck_runs), now=self._clock.now())
        for run_id in mended:
            self.repaired[stuck_runs[run_id]] += 1
            self._events.emit("run_mended", run=run_id, ailment=stuck_runs[run_id])
        if mended:
            self.on_ready()
