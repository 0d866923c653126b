"""The warden: looks all the time whether what must hold does, mends what can be, and says so."""

from collections.abc import Sequence

from gnomon.config.sections import WatchdogSettings
from gnomon.core.invariants import Invariant, RunCountCheck, is_overdue, missing_next_fire
from gnomon.core.model import Schedule
from gnomon.ports.maintenance import InvariantChecks
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import Singleton
from gnomon.services.loop import Backoff

_FEW = 10


class InvariantChecker:
    """One look at every vital, again and again; at those that there are many of, at some in each look."""

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
        #: How often each vital was found to fail, and how often that was mended.
        self.failures: dict[Invariant, int] = dict.fromkeys(Invariant, 0)
        self.repairs: dict[Invariant, int] = dict.fromkeys(Invariant, 0)
        #: Those that fail now, of those that cannot be mended here.
        self.failing: set[Invariant] = set()
        self.backoff = Backoff(events, "warden")

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

    # ---- what can be mended ------------------------------------------------------------------

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
        # If not, someone has just changed it, and with it its next fire.
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

    def _repaired(self, vital: Invariant, **facts: object) -> None:
        self.repairs[vital] += 1
        self._events.emit("vital_repaired", vital=vital, **facts)

    # ---- what others have to mend ------------------------------------------------------------

    async def _check_owners(self) -> None:
        """The reconciler ends what nobody has in hand any more; if it does not, it does not run."""
        found = await self._invariants.orphaned_attempts(grace_ms=self._settings.orphan_ms, limit=_FEW)
        tasks = [one.task_id for one in found]
        self._record_invariant(
            Invariant.OWNERS, failed=bool(found), tasks=tasks, workers=sorted({one.worker for one in found})
        )

    async def _check_marks(self) -> None:
        """Twice in a row, because after an outage much is due that is about to be decided."""
        overdue = await self._invariants.oldest_due()
        late = is_overdue(overdue, now=self._clock.now(), late_ms=self._settings.late_ms)
        facts: dict[str, object] = {}
        if late and overdue is not None:
            facts = {"schedule": overdue.schedule_id, "due_at": overdue.next_fire_at, "led": overdue.led}
        self._record_invariant(Invariant.MARKS, failed=late and self._late_before, **facts)
        self._late_before = late

    def _record_invariant(self, vital: Invariant, *, failed: bool, **facts: object) -> None:
        """Whoever listens hears when it begins to fail, and when it no longer does."""
        if failed:
            self.failures[vital] += 1
            if vital not in self.failing:
                self.failing.add(vital)
                self._events.emit("vital_failed", vital=vital, **facts)
        elif vital in self.failing:
            self.failing.discard(vital)
            self._events.emit("vital_recovered", vital=vital)


def _count_facts(counted: RunCountCheck) -> dict[str, object]:
    before: Sequence[int] = (counted.active_runs, counted.queued_runs)
    return {"schedule": counted.schedule_id, "counted": before, "found": (counted.active, counted.queued)}
