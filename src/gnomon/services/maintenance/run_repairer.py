"""The run repairer: finds open runs that are stuck, and repairs them."""

from collections.abc import Callable, Mapping

from gnomon.config.sections import ReconcilerSettings
from gnomon.core import component_names
from gnomon.core.invariants import StuckReason
from gnomon.core.model import RunId
from gnomon.ports.maintenance import FIRST_OPEN_RUN, OpenRunPosition, StuckRuns
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import Singleton
from gnomon.services.loop import Backoff


class RunRepairer:
    """Walks through all open runs, a few batches in each step."""

    def __init__(
        self,
        runs: StuckRuns,
        clock: Clock,
        events: Events,
        settings: ReconcilerSettings,
        *,
        lease: Singleton,
        on_ready: Callable[[], None],
    ) -> None:
        """`on_ready` is called when tasks may have become ready."""
        self._runs = runs
        self._clock = clock
        self._events = events
        self._settings = settings
        self._lease, self._on_ready = lease, on_ready
        #: Where the last step ended.
        self._place: OpenRunPosition = FIRST_OPEN_RUN
        #: How many runs were repaired, by reason.
        self.repaired: dict[StuckReason, int] = dict.fromkeys(StuckReason, 0)
        self.backoff = Backoff(events, component_names.RUN_REPAIRER)

    async def step(self) -> float:
        """Look at some open runs. Returns how many seconds to wait before the next step."""
        await self.backoff.retry(self._look, self._clock, tries=self._settings.max_retries + 1)
        return self._settings.poll_ms / 1000

    async def _look(self) -> float:
        if await self._lease.ours():
            await self._repair_stuck()
        return 0.0

    async def _repair_stuck(self) -> None:
        before = self._clock.now() - self._settings.settled_ms
        for _ in range(self._settings.max_iterations):
            found = await self._runs.stuck_runs(before_at=before, after=self._place, limit=self._settings.batch)
            if found.runs:
                await self._repair(found.runs)
            self._place = found.after or FIRST_OPEN_RUN
            if found.after is None:
                return

    async def _repair(self, stuck_runs: Mapping[RunId, StuckReason]) -> None:
        repaired = await self._runs.repair_runs(list(stuck_runs), now=self._clock.now())
        for run_id in repaired:
            self.repaired[stuck_runs[run_id]] += 1
            self._events.emit("run_mended", run=run_id, ailment=stuck_runs[run_id])
        if repaired:
            self._on_ready()
