"""The dry run behind `gnomon simulate`: the real ticker on a virtual clock, with a ledger in memory; years in seconds.

ScheduleDryRun advances the time, SimulatedLedger carries out the decisions, and LoadReport counts ticks, runs, overlaps
and collisions.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from heapq import heappop, heappush, heappushpop
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gnomon.adapters.host import gc_paused
from gnomon.config.sections import LeaderSettings, TickerSettings
from gnomon.core.cron import known_zone
from gnomon.core.ids import SHARDS
from gnomon.core.instants import DAY_SECONDS
from gnomon.core.jobs.job import Job
from gnomon.core.ledger.edits import new_schedule
from gnomon.core.ledger.plan import schedule_after, unchanged
from gnomon.core.model import DAY_MS, Decision, Reason, Schedule, ScheduleUid, TickKind, TickVerdict
from gnomon.core.responses.policy import JobPolicy
from gnomon.core.runs.workflow import Delivery
from gnomon.core.time_expressions import Outage
from gnomon.ports.ledger import ShardRenewal, Terms
from gnomon.services.observed_events import NullEvents
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker
from gnomon.testing.clock import VirtualClock

#: How many of the largest collisions are kept.
_WORST = 10
_HOUR_SECONDS = 3600


class JobLoad(Struct, kw_only=True):
    """The counts of one job."""

    name: str
    #: The assumed duration of each run.
    lasts_ms: int
    #: The number of ticks by decision and reason.
    ticks: Counter[tuple[TickKind, Reason]]
    runs: int = 0
    #: Runs that began while another run of the job was active.
    beside: int = 0
    #: Runs that a newer one replaced.
    replaced: int = 0
    #: The most runs that waited at once.
    most_waiting: int = 0

    def of(self, kind: TickKind) -> int:
        """The number of ticks with this decision."""
        return sum(count for (found, _), count in self.ticks.items() if found is kind)

    @property
    def planned(self) -> int:
        """The number of decided ticks."""
        return sum(self.ticks.values())


class Collision(NamedTuple):
    """Several jobs that start in the same second."""

    jobs: tuple[str, ...]
    at: int


class OutageImpact(Struct, frozen=True, kw_only=True):
    """An outage, and the decisions on the ticks that fell into it."""

    outage: Outage
    ticks: Counter[tuple[str, TickKind, Reason]]


class LoadReport:
    """Counts ticks, starts and collisions. Starts must be added in the order of their time."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        self._zone = known_zone(zone)
        self.jobs: dict[str, JobLoad] = {}
        #: The number of starts by day since 1970 and hour, in the zone.
        self.hours: Counter[tuple[int, int]] = Counter()
        #: The number of seconds, and of minutes, in which more than one job started.
        self.colliding_seconds = 0
        self.colliding_minutes = 0
        self.worst: list[tuple[int, int, tuple[str, ...]]] = []
        self._second, self._in_second = -1, dict[str, None]()
        self._minute, self._in_minute = -1, set[str]()
        self.outage_impacts: list[OutageImpact] = []

    def add_job(self, name: str, lasts_ms: int) -> None:
        """Add a job."""
        self.jobs[name] = JobLoad(name=name, lasts_ms=lasts_ms, ticks=Counter())

    def decided(self, name: str, decision: Decision) -> None:
        """Count a decision, which may cover several ticks."""
        self.jobs[name].ticks[decision.kind, decision.reason] += decision.count
        if self.outage_impacts:
            newest = self.outage_impacts[-1]
            if newest.outage.from_at <= decision.planned_at < newest.outage.until_at:
                newest.ticks[name, decision.kind, decision.reason] += decision.count

    def started(self, name: str, at: int, *, beside: bool) -> None:
        """Count the start of a run."""
        load = self.jobs[name]
        load.runs += 1
        load.beside += beside
        second = at // 1000
        local = second + self._zone.span_at(second).offset
        self.hours[local // DAY_SECONDS, local % DAY_SECONDS // _HOUR_SECONDS] += 1
        if second != self._second:
            self._close_second()
            self._second = second
        if second // 60 != self._minute:
            self._close_minute()
            self._minute = second // 60
        self._in_second[name] = None
        self._in_minute.add(name)

    def _close_second(self) -> None:
        if len(self._in_second) > 1:
            self.colliding_seconds += 1
            entry = len(self._in_second), -self._second, tuple(self._in_second)
            if len(self.worst) < _WORST:
                self.worst.append(entry)
                self.worst.sort()
            else:
                heappushpop(self.worst, entry)
        self._in_second = {}

    def _close_minute(self) -> None:
        self.colliding_minutes += len(self._in_minute) > 1
        self._in_minute = set()

    def close(self) -> None:
        """Finish the last second and minute."""
        self._close_second()
        self._close_minute()

    @property
    def collisions(self) -> list[Collision]:
        """The largest collisions, by size and then by time."""
        return [Collision(names, -second * 1000) for _, second, names in sorted(self.worst, reverse=True)]

    def days(self) -> Mapping[int, list[int]]:
        """The starts in each of the 24 hours, by day since 1970; only days with starts."""
        found: dict[int, list[int]] = {}
        for (day, hour), count in sorted(self.hours.items()):
            found.setdefault(day, [0] * 24)[hour] = count
        return found


class ClockChangeImpact(Struct, frozen=True, kw_only=True):
    """A clock change, and its effect on some jobs."""

    at: int
    zone: str
    what: str
    jobs: tuple[str, ...]


class SimulationReport(Struct, frozen=True, kw_only=True):
    """The result of a dry run."""

    from_at: int
    until_at: int
    loads: LoadReport
    #: Jobs that are not enabled.
    disabled_jobs: tuple[str, ...] = ()
    odd_days: tuple[ClockChangeImpact, ...] = ()
    #: Jobs whose assumed duration exceeds their timeout, with that timeout in milliseconds.
    ended_early: Mapping[str, int] = {}
    #: Jobs of which the policy would deny, put off or ask about a step, or may.
    held_jobs: tuple[JobPolicy, ...] = ()


#: Longer than any dry run: there is no other node, so polling and renewals are not needed.
_LONG_MS = 4_000 * DAY_MS
#: The dry run steps the ticker when the ledger has due ticks. No read-ahead, since runs may end in between.
_TICKING = TickerSettings(tick_ms=1, batch=10_000)
_LEADING = LeaderSettings(ttl_ms=2 * _LONG_MS, renew_interval_ms=_LONG_MS, claim_interval_ms=_LONG_MS)


class JobState:
    """The active and waiting runs of a job."""

    def __init__(self, schedule: Schedule, lasts_ms: int, *, once: bool) -> None:
        self.schedule = schedule
        self.lasts_ms = lasts_ms
        #: Whether a lost run is not started again.
        self.once = once
        #: The numbers of the active runs.
        self.running: set[int] = set()
        #: The earliest start of each waiting run.
        self.waiting: deque[int] = deque()


class SimulatedLedger:
    """The ledger and the shards of a dry run. No method suspends."""

    def __init__(self, clock: VirtualClock, loads: LoadReport) -> None:
        self._clock = clock
        self._loads = loads
        self._jobs_by_uid: dict[ScheduleUid, JobState] = {}
        self._due: list[tuple[int, ScheduleUid]] = []
        #: Starts and ends of runs: time, number, schedule, and whether it is a start.
        self._run_events: list[tuple[int, int, ScheduleUid, bool]] = []
        self._numbered = 0

    def add_job(self, job: Job, lasts_ms: int) -> None:
        """Add a job from now on."""
        uid, now = ScheduleUid(f"sch_{len(self._jobs_by_uid)}"), self._clock.now()
        schedule = new_schedule(uid, "default", job.name, job.spec, now=now)
        self._jobs_by_uid[uid] = JobState(schedule, lasts_ms, once=job.workflow.delivery is Delivery.AT_MOST_ONCE)
        self._loads.add_job(job.name, lasts_ms)
        self._put(schedule)

    def _put(self, schedule: Schedule) -> None:
        if schedule.next_fire_at is not None:
            heappush(self._due, (schedule.next_fire_at, schedule.uid))

    # ---- ledger ------------------------------------------------------------------------------

    async def due(self, now: int, *, shards: frozenset[int], limit: int) -> Sequence[Schedule]:
        """See Ledger.due."""
        del shards
        found: list[tuple[int, ScheduleUid]] = []
        while len(found) < limit and (first := self._first_due()) is not None and first <= now:
            found.append(heappop(self._due))
        for entry in found:
            heappush(self._due, entry)
        return [self._jobs_by_uid[uid].schedule for _, uid in found]

    async def next_due_at(self, *, shards: frozenset[int]) -> int | None:
        """See Ledger.next_due_at."""
        del shards
        return self._first_due()

    def _first_due(self) -> int | None:
        while self._due:
            at, uid = self._due[0]
            if self._jobs_by_uid[uid].schedule.next_fire_at == at:
                return at
            heappop(self._due)
        return None

    async def decide(self, verdicts: Sequence[TickVerdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """See Ledger.decide."""
        del terms
        return frozenset(verdict.schedule.uid for verdict in verdicts if self._carry_out(verdict, now))

    async def set_back_marks(self, *, terms: Terms, limit: int) -> Sequence[Schedule]:
        """See Ledger.set_back_marks. Here no clock is set."""
        del terms, limit
        return ()

    def _carry_out(self, verdict: TickVerdict, now: int) -> bool:
        state = self._jobs_by_uid[verdict.schedule.uid]
        if not unchanged(verdict.schedule, state.schedule):
            return False
        state.schedule = schedule_after(verdict)
        self._put(state.schedule)
        name = state.schedule.schedule_id
        if verdict.replaces:
            self._loads.jobs[name].replaced += len(state.running) + len(state.waiting)
            state.waiting.clear()
        for decision in verdict.decisions:
            self._loads.decided(name, decision)
            begins = max(now, decision.fire_at or now)
            if decision.kind is TickKind.FIRED:
                self._launch(state, begins)
            elif decision.kind is TickKind.QUEUED:
                state.waiting.append(begins)
        load = self._loads.jobs[name]
        load.most_waiting = max(load.most_waiting, len(state.waiting))
        if verdict.replaces:
            state.running.clear()
            self._start_waiting(state, now)
        return True

    # ---- runs --------------------------------------------------------------------------------

    def _launch(self, state: JobState, begins: int) -> None:
        self._numbered += 1
        beside = bool(state.running)
        state.running.add(self._numbered)
        uid = state.schedule.uid
        if begins > self._clock.now():
            heappush(self._run_events, (begins, self._numbered, uid, True))
        else:
            self._begin(state, self._numbered, beside=beside)

    def _begin(self, state: JobState, number: int, *, beside: bool) -> None:
        now = self._clock.now()
        self._loads.started(state.schedule.schedule_id, now, beside=beside)
        heappush(self._run_events, (now + state.lasts_ms, number, state.schedule.uid, False))

    @property
    def next_at(self) -> int | None:
        """When the next tick is due, or the next run begins or ends."""
        coming, due = self._run_events[0][0] if self._run_events else None, self._first_due()
        return min((at for at in (coming, due) if at is not None), default=None)

    def process_due(self) -> None:
        """Start and end all runs that are due by now."""
        now = self._clock.now()
        while self._run_events and self._run_events[0][0] <= now:
            _, number, uid, begins = heappop(self._run_events)
            state = self._jobs_by_uid[uid]
            if number not in state.running:
                continue
            if begins:
                self._begin(state, number, beside=len(state.running) > 1)
            else:
                state.running.remove(number)
                self._start_waiting(state, now)

    def _start_waiting(self, state: JobState, now: int) -> None:
        """Start the oldest waiting run once no run is active, as every store does."""
        if not state.running and state.waiting:
            self._launch(state, max(now, state.waiting.popleft()))
        state.schedule = replace(state.schedule, active_runs=len(state.running), queued_runs=len(state.waiting))

    def stop_until(self, at: int) -> None:
        """Lose all active runs: they start again at that time, except those that may start only once, which fail."""
        lost, self._run_events = self._run_events, []
        for coming, number, uid, begins in lost:
            state = self._jobs_by_uid[uid]
            if begins:
                again = max(coming, at), number, uid, True
            else:
                again = at if state.once else at + state.lasts_ms, number, uid, False
            heappush(self._run_events, again)

    # ---- terms -------------------------------------------------------------------------------

    async def renew(self, holder: str, *, ttl_ms: int) -> ShardRenewal:
        """See Shards.renew."""
        return ShardRenewal(await self.claim(holder, ttl_ms=ttl_ms, limit=SHARDS), 1, self._clock.now())

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """See Shards.claim. There is no other node."""
        del holder, ttl_ms, by_force
        return dict.fromkeys(range(limit), 1)

    async def leave(self, holder: str) -> None:
        """See Shards.leave."""

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """See Shards.release."""


class ScheduleDryRun:
    """Runs jobs from one instant inclusive to another exclusive."""

    def __init__(self, jobs: Sequence[Job], *, start_at: int, zone: str = "UTC") -> None:
        # One millisecond earlier, so that a tick planned for the very first instant fires.
        self._clock = VirtualClock(start_at - 1)
        self.loads = LoadReport(zone)
        self._ledger = SimulatedLedger(self._clock, self.loads)
        self._jobs = jobs
        elector = Elector(self._ledger, self._clock, NullEvents(), _LEADING, holder="dry_run", alone=True)
        self._ticker = Ticker(self._ledger, elector, self._clock, NullEvents(), _TICKING, on_runs_created=lambda: None)

    async def run(
        self,
        until: int,
        *,
        durations: Mapping[str, int],
        usual_ms: int = 0,
        outages: Sequence[Outage] = (),
        progress: Callable[[int], None] = lambda _: None,
    ) -> LoadReport:
        """Advance the time to `until`, without disabled jobs; call `progress` with the current time now and then."""
        for job in self._jobs:
            if job.enabled:
                self._ledger.add_job(job, durations.get(job.name, usual_ms))
        with gc_paused():
            for outage in outages:
                await self._run_until(outage.from_at - 1, progress)
                self.loads.outage_impacts.append(OutageImpact(outage=outage, ticks=Counter()))
                self._ledger.stop_until(outage.until_at)
                self._clock.advance(outage.until_at - self._clock.now())
            if self._clock.now() < until:
                await self._run_until(until - 1, progress)
        self.loads.close()
        return self.loads

    async def _run_until(self, until: int, progress: Callable[[int], None]) -> None:
        """Advance the time, and process everything due up to and including `until`."""
        clock, ledger, steps = self._clock, self._ledger, 0
        while True:
            # A run starts just after its tick, so it also ends just after the ticks planned for that time: tick first.
            while not await self._ticker.step():
                pass
            ledger.process_due()
            soonest = ledger.next_at
            if soonest is None or soonest > until:
                clock.advance(until - clock.now())
                return
            clock.advance(soonest - clock.now())
            steps += 1
            if not steps % 1000:
                progress(clock.now())
