"""The backfiller: starts the runs of backfills, a few at a time, from where the last step ended."""

from collections.abc import Callable

from gnomon.core import component_names
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import Schedule
from gnomon.core.runs.backfill import Backfill, BatchOutcome, OpenBackfill, next_backfill_batch, planned_times
from gnomon.errors import Unavailable
from gnomon.ports.runs import Backfills
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.schedules import ScheduleHistory
from gnomon.services.coordination import Singleton
from gnomon.services.loop import Backoff

#: How many backfills are processed at a time; the others wait.
_MAX_OPEN = 100
#: How many planned times are decided in one transaction.
_BATCH = 100
#: How often to look for new backfills, and for ended runs, if no event wakes the loop before.
_POLL_SECONDS = 30.0
_BUSY_SECONDS = 1.0


class Backfiller:
    """Starts the next runs of every backfill as soon as its limit of parallel runs allows."""

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
        #: The schedules of open backfills, at the revision for which these were requested.
        self._schedules: dict[str, Schedule] = {}
        self.backoff = Backoff(events, component_names.BACKFILLER)
        #: Whether any backfill is open.
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
        advanced = [await self._try_advance(one) for one in found]
        self.busy = bool(found)
        return 0.0 if any(advanced) else _BUSY_SECONDS if found else _POLL_SECONDS

    async def _try_advance(self, one: OpenBackfill) -> bool:
        try:
            return await self._advance(one)
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - a broken backfill must not hold up the others
            name, job = one.backfill.backfill_id, one.backfill.schedule_id
            self._events.emit("backfill_broken", job=job, backfill=name, error=repr(error))
            return False

    async def _advance(self, one: OpenBackfill) -> bool:
        """Start the next runs of the backfill; return whether there may be more to do at once."""
        backfill, now = one.backfill, self._clock.now()
        schedule = await self._requested_schedule(backfill)
        if schedule is None:
            return await self._give_up(backfill, now)
        ticks = Ticks(schedule.schedule_id, schedule.spec).unskipped
        planned = planned_times(ticks, after=backfill.mark_at, until=backfill.until_at, limit=_BATCH)
        had = {}
        if planned:
            uid = backfill.schedule_uid
            had = dict(await self._backfills.times_already_run(uid, first_at=planned[0], last_at=planned[-1]))
        batch = next_backfill_batch(one, schedule, planned, had, now=now)
        if batch is None:
            return False
        became = await self._backfills.apply_batch(batch, now=now)
        if became is BatchOutcome.GONE:
            return await self._give_up(backfill, now)
        if batch.launches:
            self._on_ready()
        if batch.ended and became is BatchOutcome.DONE:
            self._events.emit("backfill_ended", job=backfill.schedule_id, backfill=backfill.backfill_id)
        return not batch.ended

    async def _requested_schedule(self, backfill: Backfill) -> Schedule | None:
        if backfill.backfill_id not in self._schedules:
            for kept in await self._history.revisions(backfill.schedule_uid):
                if kept.revision == backfill.revision:
                    self._schedules[backfill.backfill_id] = kept.schedule
        return self._schedules.get(backfill.backfill_id)

    async def _give_up(self, backfill: Backfill, now: int) -> bool:
        """Cancel the backfill, whose schedule is gone."""
        if await self._backfills.cancel(backfill.tenant, backfill.backfill_id, now=now):
            self._events.emit("backfill_given_up", job=backfill.schedule_id, backfill=backfill.backfill_id)
        return False

    def _forget_all_but(self, open_: set[str]) -> None:
        self._schedules = {name: schedule for name, schedule in self._schedules.items() if name in open_}
