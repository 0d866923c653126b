"""The invariant checker: checks the invariants of the store, repairs what it safely can, and announces both."""

from collections.abc import Sequence

from gnomon.config.sections import WatchdogSettings
from gnomon.core import component_names
from gnomon.core.invariants import Invariant, RunCountCheck, is_overdue, missing_next_fire
from gnomon.core.model import Schedule
from gnomon.ports.maintenance import InvariantChecks
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import Singleton
from gnomon.services.loop import Backoff

_FEW = 10


class InvariantChecker:
    """Checks every invariant in each step; of schedules, a batch in each step."""

    def __init__(
        self,
        invariants: InvariantChecks,
        clock: Clock,
        events: Events,
        settings: WatchdogSettings,
        *,
        lease: Singleton,
    ) -> None:
        self._invariants = invariants
        self._clock = clock
        self._events = events
        self._settings = settings
        self._lease = lease
        self._idle_after = self._counted_after = ""
        self._late_before = False
        #: How often each invariant was violated, and how often that was repaired.
        self.failures: dict[Invariant, int] = dict.fromkeys(Invariant, 0)
        self.repairs: dict[Invariant, int] = dict.fromkeys(Invariant, 0)
        #: The invariants that are violated now, of those that cannot be repaired here.
        self.failing: set[Invariant] = set()
        self.backoff = Backoff(events, component_names.INVARIANT_CHECKER)

    async def step(self) -> float:
        """Check every invariant once. Returns how many seconds to wait before the next step."""
        return await self.backoff.attempt(self._step)

    async def _step(self) -> float:
        if await self._lease.ours():
            await self._check_fires()
            await self._check_counts()
            await self._check_owners()
            await self._check_marks()
        return self._settings.poll_ms / 1000

    # ---- repairable --------------------------------------------------------------------------

    async def _check_fires(self) -> None:
        limit = self._settings.batch
        page = await self._invariants.schedules_without_next_fire(after=self._idle_after, limit=limit)
        self._idle_after = page[-1].uid if len(page) == limit else ""
        for schedule in page:
            await self._repair_next_fire(schedule)

    async def _repair_next_fire(self, schedule: Schedule) -> None:
        try:
            next_fire_at = missing_next_fire(schedule)
        except Exception as error:  # noqa: BLE001 - one broken schedule must not hide the others
            self._events.emit("schedule_broken", schedule=schedule.schedule_id, error=repr(error))
            return
        if next_fire_at is None:
            return
        self.failures[Invariant.NEXT_FIRE] += 1
        # Otherwise the schedule has just been changed, and with it its next fire.
        if await self._invariants.set_next_fire(schedule, next_fire_at):
            self._repaired(Invariant.NEXT_FIRE, schedule=schedule.schedule_id, next_fire_at=next_fire_at)

    async def _check_counts(self) -> None:
        limit = self._settings.batch
        page = await self._invariants.counted(after=self._counted_after, limit=limit)
        self._counted_after = page[-1].uid if len(page) == limit else ""
        wrong = {one.uid: one for one in page if one.mismatched}
        if not wrong:
            return
        self.failures[Invariant.COUNTS] += len(wrong)
        for uid in await self._invariants.recount_runs(list(wrong), now=self._clock.now()):
            self._repaired(Invariant.COUNTS, **_count_facts(wrong[uid]))

    def _repaired(self, invariant: Invariant, **facts: object) -> None:
        self.repairs[invariant] += 1
        self._events.emit("vital_repaired", vital=invariant, **facts)

    # ---- only reported -----------------------------------------------------------------------

    async def _check_owners(self) -> None:
        """Check for attempts without an owner. The reconciler ends them; if there are any, it does not run."""
        found = await self._invariants.orphaned_attempts(grace_ms=self._settings.orphan_ms, limit=_FEW)
        tasks = [one.task_id for one in found]
        self._record_invariant(
            Invariant.OWNERS, failed=bool(found), tasks=tasks, workers=sorted({one.worker for one in found})
        )

    async def _check_marks(self) -> None:
        """Check for overdue schedules, twice in a row: after an outage many are due and about to be decided."""
        overdue = await self._invariants.oldest_due()
        late = is_overdue(overdue, now=self._clock.now(), late_ms=self._settings.late_ms)
        facts: dict[str, object] = {}
        if late and overdue is not None:
            facts = {"schedule": overdue.schedule_id, "due_at": overdue.next_fire_at, "led": overdue.led}
        self._record_invariant(Invariant.MARKS, failed=late and self._late_before, **facts)
        self._late_before = late

    def _record_invariant(self, invariant: Invariant, *, failed: bool, **facts: object) -> None:
        """Announce when an invariant begins to be violated, and when it no longer is."""
        if failed:
            self.failures[invariant] += 1
            if invariant not in self.failing:
                self.failing.add(invariant)
                self._events.emit("vital_failed", vital=invariant, **facts)
        elif invariant in self.failing:
            self.failing.discard(invariant)
            self._events.emit("vital_recovered", vital=invariant)


def _count_facts(counted: RunCountCheck) -> dict[str, object]:
    before: Sequence[int] = (counted.active_runs, counted.queued_runs)
    return {"schedule": counted.schedule_id, "counted": before, "found": (counted.active, counted.queued)}
