"""The ticker: decides every due tick of the shards that this node holds. The shell around `plan`."""

import asyncio
from collections.abc import Callable, Sequence
from enum import StrEnum

from gnomon.config.sections import TickerSettings
from gnomon.core import component_names
from gnomon.core.instants import ClockReading, clock_step_ms
from gnomon.core.ledger.plan import DEFAULT_LIMIT, CatchupLimit, plan, run_record
from gnomon.core.model import Reason, Schedule, ScheduleUid, TickKind, TickVerdict
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.deadlines import first_spans
from gnomon.core.runs.launch import first_tasks
from gnomon.errors import ClockAhead, StaleTerm, Superseded, Unavailable
from gnomon.ports.ledger import Ledger, Terms
from gnomon.ports.runtime import Clock, ClockSync, Events
from gnomon.services.execution.local_dispatch import WriteAndAdmit
from gnomon.services.loop import Backoff
from gnomon.services.scheduling.elector import Elector

#: Up to so many decisions, their tasks are handed to the dispatcher in the same commit.
_MAX_DIRECT = 100
#: After how many planned schedules other coroutines run.
_YIELD_EVERY = 250
#: How many marks are set back in one transaction.
_MARKS_AT_ONCE = 100
#: In milliseconds: the longest wait after a decision that was early by the clock of the store.
_CLOCK_PAUSE_MS = 50
#: In seconds: a shorter wait leaves no time to read ahead.
_MIN_READ_AHEAD_SECONDS = 0.005


def startable_tasks(verdicts: Sequence[TickVerdict], now: int) -> list[ReadyTask]:
    """The tasks that can start once the verdicts are written; none in a storm, where the dispatcher reads in bulk."""
    if len(verdicts) > _MAX_DIRECT:
        return []
    made = []
    for verdict in verdicts:
        spec = verdict.schedule.spec
        for decision in verdict.decisions:
            if decision.kind is TickKind.FIRED and (decision.fire_at or now + 1) <= now:
                new = run_record(verdict.schedule, decision, now=now)
                made += [
                    ReadyTask(task=task, run=new)
                    for task in first_tasks(new, spec.first_steps, now=now, spans_ms=first_spans(spec.deadlines))
                ]
    return made


class TickerHealth(StrEnum):
    """Whether ticks are being decided."""

    OK = "ok"
    #: Standing by: another node decides.
    IDLE = "idle"
    ERROR = "error"


class Ticker:
    """Reads due schedules, decides their ticks, and writes the decisions."""

    def __init__(  # noqa: PLR0913 - the collaborators of every decision
        self,
        ledger: Ledger,
        elector: Elector,
        clock: Clock,
        events: Events,
        settings: TickerSettings,
        *,
        catchup_limit: CatchupLimit = DEFAULT_LIMIT,
        clock_sync: ClockSync | None = None,
        on_runs_created: Callable[[], None],
        write_and_admit: WriteAndAdmit | None = None,
    ) -> None:
        """`on_runs_created` is called when runs were not handed over.

        `clock_sync` compares the clock with the store's; None if they are one clock.
        `write_and_admit` writes decisions and hands the tasks that they make to the dispatcher of this process.
        """
        self._ledger = ledger
        self._elector = elector
        self._clock = clock
        self._clock_sync = clock_sync
        self._events = events
        self._settings = settings
        self._limit = catchup_limit
        self._last = ClockReading(clock.now(), clock.elapsed())
        #: Whether the clock has been compared with the store's since it was set.
        self._clock_known = True
        self._last_good = clock.elapsed()
        #: Schedules that were read before they are due.
        self._ahead: Sequence[Schedule] = ()
        #: The shards whose marks were compared with the clock since it was last set.
        self._marks_checked: frozenset[int] = frozenset()
        #: Schedules whose plan raised: set aside, so that they do not hold up others.
        self._broken: set[tuple[ScheduleUid, int]] = set()
        self.health = TickerHealth.IDLE
        #: Whether more is due than could be decided at once: ticks that wait for too long are missed.
        self.behind = False
        self._decided_at = float("-inf")
        self._on_runs_created = on_runs_created
        self._write_and_admit = write_and_admit
        self._backoff = Backoff(events, component_names.TICKER, longest=settings.tick_ms / 1000)

    async def step(self) -> float:
        """Decide a batch of due ticks. Returns how many seconds to wait before the next step."""
        try:
            await self._know_the_time()
            if not self._elector.renewal_due_in:
                await self._elector.step()
            wait = await self._decide_what_is_due()
        except StaleTerm as error:
            self._events.emit("term_ended", shards=error.shards)
            self._elector.lost(error.shards)
            return 0.0
        except ClockAhead as error:
            self._clock_known = False
            return min(error.ahead_ms, _CLOCK_PAUSE_MS) / 1000
        except Unavailable as error:
            self.health = TickerHealth.ERROR
            return self._backoff.failed(error)
        if self._elector.failing and not self._elector.terms:
            self.health = TickerHealth.ERROR
        else:
            self._backoff.worked()
            self._last_good = self._clock.elapsed()
            self.health = TickerHealth.OK if self._elector.terms else TickerHealth.IDLE
        return min(wait, self._elector.renewal_due_in)

    async def _decide_what_is_due(self) -> float:
        terms = self._elector.terms
        if not terms:
            return self._settings.tick_ms / 1000
        await self._set_back_marks(terms)
        shards, now = frozenset(terms), self._clock.now()
        found, self._ahead = self._seen_ahead(now, shards), ()
        if not found:
            limit = self._settings.batch + len(self._broken)
            found = await self._ledger.due(now, shards=shards, limit=limit)
        due = [schedule for schedule in found if (schedule.uid, schedule.revision) not in self._broken]
        self.behind = len(due) >= self._settings.batch
        if not due:
            return await self._look_ahead(shards)
        self._decided_at = self._clock.elapsed()
        await self._decide(due, now, terms)
        # There may be more, or new ones: step again at once.
        return 0.0

    async def _set_back_marks(self, terms: Terms) -> None:
        """Set back marks that are ahead of the clock, in shards that are new here or after the clock was set."""
        unchecked = {shard: term for shard, term in terms.items() if shard not in self._marks_checked}
        more = bool(unchecked)
        while more:
            corrected = await self._ledger.set_back_marks(terms=unchecked, limit=_MARKS_AT_ONCE)
            for schedule in corrected:
                self._announce_correction(schedule)
            more = len(corrected) == _MARKS_AT_ONCE
        self._marks_checked = frozenset(terms)

    def _announce_correction(self, schedule: Schedule) -> None:
        correction = schedule.mark_correction
        if correction is not None:
            self._events.emit(
                "mark_set_back",
                schedule=schedule.schedule_id,
                by_ms=correction.from_at - schedule.mark_at,
                withdrawn=correction.withdrawn,
                decided=len(correction.decided),
            )

    async def _look_ahead(self, shards: frozenset[int]) -> float:
        """Seconds until the next fire. If that is soon, its schedules are read now, while there is time."""
        coming = await self._ledger.next_due_at(shards=shards)
        wait = self._until(coming)
        if coming is not None and _MIN_READ_AHEAD_SECONDS < wait < self._settings.tick_ms / 1000:
            self._ahead = await self._ledger.due(coming, shards=shards, limit=_MAX_DIRECT)
        return max(0.0, min(wait, self._until(coming)))

    def _seen_ahead(self, now: int, shards: frozenset[int]) -> Sequence[Schedule]:
        """The schedules that were read ahead and are due now. If one has changed since, its verdict is void."""
        return [one for one in self._ahead if one.shard in shards and (one.next_fire_at or now + 1) <= now]

    async def _decide(self, due: list[Schedule], now: int, terms: Terms) -> None:
        verdicts = await self._verdicts(due, now)
        try:
            await self._write_down(verdicts, now, terms)
        except (Superseded, Unavailable):
            raise
        except Exception as error:  # noqa: BLE001 - see below
            # One that the store refuses must not hold up the others: each by itself, then.
            if len(due) == 1:
                self._quarantine(due[0], error)
            else:
                for schedule in due:
                    await self._decide([schedule], now, terms)

    async def _write_down(self, verdicts: list[TickVerdict], now: int, terms: Terms) -> None:
        done = await self._written(verdicts, now, terms)
        carried_out = [verdict for verdict in verdicts if verdict.schedule.uid in done]
        for verdict in carried_out:
            self._announce(verdict)

    async def _written(self, verdicts: list[TickVerdict], now: int, terms: Terms) -> frozenset[ScheduleUid]:
        async def write() -> frozenset[ScheduleUid]:
            return await self._ledger.decide(verdicts, now=now, terms=terms)

        made = startable_tasks(verdicts, now) if self._write_and_admit is not None else []
        done = await (write() if self._write_and_admit is None else self._write_and_admit(made, write))
        if len(made) < sum(decision.starts_run for verdict in verdicts for decision in verdict.decisions):
            # The dispatcher has to read the tasks that were not handed over.
            self._on_runs_created()
        return done

    async def _verdicts(self, due: Sequence[Schedule], now: int) -> list[TickVerdict]:
        """The verdicts on all schedules that can be planned. In a storm other coroutines run now and then."""
        verdicts = []
        for number, schedule in enumerate(due, 1):
            verdict = self._planned(schedule, now)
            if verdict is not None:
                verdicts.append(verdict)
            if not number % _YIELD_EVERY:
                await asyncio.sleep(0)
        return verdicts

    def _planned(self, schedule: Schedule, now: int) -> TickVerdict | None:
        try:
            return plan(schedule, now=now, limit=self._limit)
        except Exception as error:  # noqa: BLE001 - one broken schedule must not stop the others
            self._quarantine(schedule, error)
            return None

    def _quarantine(self, schedule: Schedule, error: Exception) -> None:
        """Leave the schedule alone until it is changed."""
        self._broken.add((schedule.uid, schedule.revision))
        self._events.emit("schedule_broken", schedule=schedule.schedule_id, error=repr(error))

    def _announce(self, verdict: TickVerdict) -> None:
        for decision in verdict.decisions:
            if decision.kind is not TickKind.FIRED:
                self._events.emit(
                    "tick_decided",
                    schedule=verdict.schedule.schedule_id,
                    kind=decision.kind,
                    reason=decision.reason,
                    planned_at=decision.planned_at,
                    count=decision.count,
                )
            if decision.reason in (Reason.OVERLAP, Reason.QUEUE_FULL):
                job, planned_at = verdict.schedule.schedule_id, decision.planned_at
                self._events.emit("job.skipped", job=job, reason=decision.reason, planned_at=planned_at)

    def _until(self, next_due_at: int | None) -> float:
        """Seconds until the next fire, at most a tick interval."""
        longest = self._settings.tick_ms / 1000
        if next_due_at is None:
            return longest
        left = self._clock.until(next_due_at)
        if left <= 0 and self._broken:
            # A schedule that is set aside stays due for ever: it must not keep the loop busy.
            return longest
        return min(longest, max(0.0, left))

    async def _know_the_time(self) -> None:
        """Compare the clock with the store's if it was set: nothing is decided by a clock that may be wrong."""
        step = clock_step_ms(self._last, self._clock_reading())
        if step:
            self._events.emit("clock_stepped", by_ms=step)
            self._clock_known = False
        if not self._clock_known:
            self._ahead, self._marks_checked = (), frozenset()
            if self._clock_sync is not None:
                await self._clock_sync.compare()
            self._clock_known = True
        self._last = self._clock_reading()

    def _clock_reading(self) -> ClockReading:
        return ClockReading(self._clock.now(), self._clock.elapsed())

    @property
    def seconds_since_decision(self) -> float:
        """Seconds since the last decision began."""
        return self._clock.elapsed() - self._decided_at

    @property
    def set_aside(self) -> int:
        """How many schedules are set aside because they could not be planned."""
        return len(self._broken)

    @property
    def seconds_since_success(self) -> float:
        """Seconds since the last step that succeeded: the value to monitor."""
        return self._clock.elapsed() - self._last_good
