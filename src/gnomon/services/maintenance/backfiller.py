"""The backfiller: carries backfills out, a few runs at a time, wherever its last one left off."""

from collections.abc import Callable

from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Schedule
from gnomon.core.runs.backfill import Backfill, BatchOutcome, OpenBackfill, next_backfill_batch, planned_times
from gnomon.errors import Unavailable
from gnomon.ports.runs import Backfills
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.schedules import ScheduleHistory
from gnomon.services.coordination import Singleton
from gnomon.services.loop import Backoff

#: How many backfills are carried out at a time; the others wait.
_MAX_OPEN = 100
#: How many planned times have entries in one transaction.
_BATCH = 100
#: How long to wait for a backfill of which nobody told us, and for the end of a run of which nobody did.
_POLL_SECONDS = 30.0
_BUSY_SECONDS = 1.0


class Backfiller:
    """Starts the next runs of every backfill as soon as it has room for them."""

    def __init__(
        self,
        backfills: Backfills,
        history: ScheduleHistory,
        clock: Clock,
        events: Events,
        *,
        lease: Singleton,
        on_ready: Callable[[], None],
    ) -> None:
        """`on_ready` is called when runs have been started."""
        self._backfills = backfills
        self._history = history
        self._clock = clock
        self._events = events
        #: The schedules of those that are open, as they were when these were asked for.
        self._schedules: dict[str, Schedule] = {}
        self.backoff = Backoff(events, "backfiller")
        #: Whether there is one that has not ended.
        self.busy = False
        self._lease, self._on_ready = lease, on_ready

    async def step(self) -> float:
        """Start the next runs of open backfills. Returns how many seconds to wait before the next step."""
        return await self.backoff.attempt(self._step)

    async def _step(self) -> float:
        if not await self._lease.ours():
            self.busy = False
            return self._lease.retry_seconds
        found = await self._backfills.list_open(limit=_MAX_OPEN)
        self._forget_all_but({one.backfill.backfill_id for one in found})
        went_on = [await self._tried(one) for one in found]
        self.busy = bool(found)
        return 0.0 if any(went_on) else _BUSY_SECONDS if found else _POLL_SECONDS

    async def _tried(self, one: OpenBackfill) -> bool:
        try:
            return await self._go_on(one)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - one that cannot be carried out here must not hold up the others
            name, job = one.backfill.backfill_id, one.backfill.schedule_id
            self._events.emit("backfill_broken", job=job, backfill=name, error=repr(error))
            return False

    async def _go_on(self, one: OpenBackfill) -> bool:
        """Whether there may be more to do at once."""
        backfill, now = one.backfill, self._clock.now()
        schedule = await self._as_asked_for(backfill)
        if schedule is None:
            return await self._give_up(backfill, now)
        ticks = Ticks(schedule.schedule_id, schedule.spec).unskipped
        planned = planned_times(ticks, after=backfill.mark_at, until=backfill.until_at, limit=_BATCH)
        had = {}
        if planned:
            uid = backfill.schedule_uid
            had = dict(await self._backfills.times_already_run(uid, first_at=planned[0], last_at=planned[-1]))
        lot = next_backfill_batch(one, schedule, planned, had, now=now)
        if lot is None:
            return False
        became = await self._backfills.apply_batch(lot, now=now)
        if became is BatchOutcome.GONE:
            return await self._give_up(backfill, now)
        if lot.launches:
            self._on_ready()
        if lot.ended and became is BatchOutcome.DONE:
            self._events.emit("backfill_ended", job=backfill.schedule_id, backfill=backfill.backfill_id)
        return not lot.ended

    async def _as_asked_for(self, backfill: Backfill) -> Schedule | None:
        if backfill.backfill_id not in self._schedules:
            for kept in await self._history.revisions(backfill.schedule_uid):
                if kept.revision == backfill.revision:
                    self._schedules[backfill.backfill_id] = kept.schedule
        return self._schedules.get(backfill.backfill_id)

    async def _give_up(self, backfill: Backfill, now: int) -> bool:
        """Its schedule is gone: nothing more can be started."""
        if await self._backfills.cancel(backfill.tenant, backfill.backfill_id, now=now):
            self._events.emit("backfill_given_up", job=backfill.schedule_id, backfill=backfill.backfill_id)
        return False

    def _forget_all_but(self, open_: set[str]) -> None:
        self._schedules = {name: schedule for name, schedule in self._schedules.items() if name in open_}
