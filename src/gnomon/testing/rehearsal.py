"""What a rehearsal has seen: how often, when and beside whom jobs start, and what became of their ticks."""

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
from gnomon.core.model import DAY_MS, Decision, Reason, Schedule, ScheduleUid, TickKind, Verdict
from gnomon.core.runs.workflow import Delivery
from gnomon.core.time_expressions import Outage
from gnomon.ports.ledger import ShardRenewal, Terms
from gnomon.services.scheduling.elector import Elector
from gnomon.services.scheduling.ticker import Ticker
from gnomon.services.telemetry import NullEvents
from gnomon.testing.clock import VirtualClock

#: How many of the worst collisions are kept.
_WORST = 10
_HOUR_SECONDS = 3600


class JobLoad(Struct, kw_only=True):
    """One job."""

    name: str
    #: How long each of its runs is taken to last.
    lasts_ms: int
    #: What became of its ticks, and why.
    ticks: Counter[tuple[TickKind, Reason]]
    runs: int = 0
    #: Runs that began while another one of the job was under way.
    beside: int = 0
    #: Runs that a newer one replaced.
    replaced: int = 0
    #: The most runs that waited at once.
    most_waiting: int = 0

    def of(self, kind: TickKind) -> int:
        """How many ticks that became of."""
        return sum(count for (found, _), count in self.ticks.items() if found is kind)

    @property
    def planned(self) -> int:
        """All ticks that were decided."""
        return sum(self.ticks.values())


class Collision(NamedTuple):
    """Several jobs that start in the same second."""

    jobs: tuple[str, ...]
    at: int


class OutageImpact(Struct, frozen=True, kw_only=True):
    """An outage, and what became of the ticks that fell into it."""

    outage: Outage
    ticks: Counter[tuple[str, TickKind, Reason]]


class LoadReport:
    """Counts as time goes by. Starts must come in the order of their time."""

    def __init__(self, zone: str) -> None:
        self.zone = zone
        self._zone = known_zone(zone)
        self.jobs: dict[str, JobLoad] = {}
        #: Day since 1970 in the zone, and hour, to how many runs started then.
        self.hours: Counter[tuple[int, int]] = Counter()
        #: In how many seconds, and in how many minutes, more than one job started.
        self.colliding_seconds = 0
        self.colliding_minutes = 0
        self.worst: list[tuple[int, int, tuple[str, ...]]] = []
        self._second, self._in_second = -1, dict[str, None]()
        self._minute, self._in_minute = -1, set[str]()
        self.outage_impacts: list[OutageImpact] = []

    def add_job(self, name: str, lasts_ms: int) -> None:
        """A job takes part."""
        self.jobs[name] = JobLoad(name=name, lasts_ms=lasts_ms, ticks=Counter())

    def decided(self, name: str, decision: Decision) -> None:
        """A tick was decided, or a stretch of them."""
        self.jobs[name].ticks[decision.kind, decision.reason] += decision.count
        if self.outage_impacts:
            newest = self.outage_impacts[-1]
            if newest.outage.from_at <= decision.planned_at < newest.outage.until_at:
                newest.ticks[name, decision.kind, decision.reason] += decision.count

    def started(self, name: str, at: int, *, beside: bool) -> None:
        """A run began."""
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
        """Nothing more comes."""
        self._close_second()
        self._close_minute()

    @property
    def collisions(self) -> list[Collision]:
        """The worst of them, the largest first, then the earliest."""
        return [Collision(names, -second * 1000) for _, second, names in sorted(self.worst, reverse=True)]

    def days(self) -> Mapping[int, list[int]]:
        """Each day since 1970 on which something started, with the runs of its 24 hours."""
        found: dict[int, list[int]] = {}
        for (day, hour), count in sorted(self.hours.items()):
            found.setdefault(day, [0] * 24)[hour] = count
        return found


class ClockChangeImpact(Struct, frozen=True, kw_only=True):
    """A clock change, and what it does to some jobs."""

    at: int
    zone: str
    what: str
    jobs: tuple[str, ...]


class SimulationReport(Struct, frozen=True, kw_only=True):
    """What a rehearsal has shown."""

    from_at: int
    until_at: int
    loads: LoadReport
    #: Jobs that are not enabled.
    disabled_jobs: tuple[str, ...] = ()
    odd_days: tuple[ClockChangeImpact, ...] = ()
    #: Jobs whose runs are said to last longer than their timeout lets them, and how long that is.
    ended_early: Mapping[str, int] = {}


#: Longer than any rehearsal: nobody looks or renews in between, because nothing is ever unexpected.
_LONG_MS = 4_000 * DAY_MS
#: When to look again the stage knows; and nothing is read ahead, because runs may end in between.
_TICKING = TickerSettings(tick_ms=1, batch=10_000)
_LEADING = LeaderSettings(ttl_ms=2 * _LONG_MS, renew_interval_ms=_LONG_MS, claim_interval_ms=_LONG_MS)


class JobState:
    """What a job has under way, and what waits behind it."""

    def __init__(self, schedule: Schedule, lasts_ms: int, *, once: bool) -> None:
        self.schedule = schedule
        self.lasts_ms = lasts_ms
        #: A run that was lost is not begun again.
        self.once = once
        #: Runs under way, by number.
        self.running: set[int] = set()
        #: When each of the others may begin.
        self.waiting: deque[int] = deque()


class SimulatedLedger:
    """The ledger and the terms of a rehearsal. No method awaits half-way."""

    def __init__(self, clock: VirtualClock, loads: LoadReport) -> None:
        self._clock = clock
        self._loads = loads
        self._jobs_by_uid: dict[ScheduleUid, JobState] = {}
        self._due: list[tuple[int, ScheduleUid]] = []
        #: When runs begin or end: at, number, whose, and whether it begins.
        self._run_events: list[tuple[int, int, ScheduleUid, bool]] = []
        self._numbered = 0

    def add_job(self, job: Job, lasts_ms: int) -> None:
        """A job takes part from now on."""
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

    async def decide(self, verdicts: Sequence[Verdict], *, now: int, terms: Terms) -> frozenset[ScheduleUid]:
        """See Ledger.decide."""
        del terms
        return frozenset(verdict.schedule.uid for verdict in verdicts if self._carry_out(verdict, now))

    def _carry_out(self, verdict: Verdict, now: int) -> bool:
        actor = self._jobs_by_uid[verdict.schedule.uid]
        if not unchanged(verdict.schedule, actor.schedule):
            return False
        actor.schedule = schedule_after(verdict)
        self._put(actor.schedule)
        name = actor.schedule.schedule_id
        if verdict.replaces:
            self._loads.jobs[name].replaced += len(actor.running) + len(actor.waiting)
            actor.waiting.clear()
        for decision in verdict.decisions:
            self._loads.decided(name, decision)
            begins = max(now, decision.fire_at or now)
            if decision.kind is TickKind.FIRED:
                self._launch(actor, begins)
            elif decision.kind is TickKind.QUEUED:
                actor.waiting.append(begins)
        load = self._loads.jobs[name]
        load.most_waiting = max(load.most_waiting, len(actor.waiting))
        if verdict.replaces:
            actor.running.clear()
            self._start_waiting(actor, now)
        return True

    # ---- runs --------------------------------------------------------------------------------

    def _launch(self, actor: JobState, begins: int) -> None:
        self._numbered += 1
        beside = bool(actor.running)
        actor.running.add(self._numbered)
        uid = actor.schedule.uid
        if begins > self._clock.now():
            heappush(self._run_events, (begins, self._numbered, uid, True))
        else:
            self._begin(actor, self._numbered, beside=beside)

    def _begin(self, actor: JobState, number: int, *, beside: bool) -> None:
        now = self._clock.now()
        self._loads.started(actor.schedule.schedule_id, now, beside=beside)
        heappush(self._run_events, (now + actor.lasts_ms, number, actor.schedule.uid, False))

    @property
    def next_at(self) -> int | None:
        """When the next tick is due, or the next run begins or ends."""
        coming, due = self._run_events[0][0] if self._run_events else None, self._first_due()
        return min((at for at in (coming, due) if at is not None), default=None)

    def process_due(self) -> None:
        """Everything has begun or ended that is to by now."""
        now = self._clock.now()
        while self._run_events and self._run_events[0][0] <= now:
            _, number, uid, begins = heappop(self._run_events)
            actor = self._jobs_by_uid[uid]
            if number not in actor.running:
                continue
            if begins:
                self._begin(actor, number, beside=len(actor.running) > 1)
            else:
                actor.running.remove(number)
                self._start_waiting(actor, now)

    def _start_waiting(self, actor: JobState, now: int) -> None:
        """The oldest that waits goes on once nothing is under way, as in every store."""
        if not actor.running and actor.waiting:
            self._launch(actor, max(now, actor.waiting.popleft()))
        actor.schedule = replace(actor.schedule, active_runs=len(actor.running), queued_runs=len(actor.waiting))

    def stop_until(self, at: int) -> None:
        """Whatever was under way is lost, and begins again then; what may start only once has failed."""
        lost, self._run_events = self._run_events, []
        for coming, number, uid, begins in lost:
            actor = self._jobs_by_uid[uid]
            if begins:
                again = max(coming, at), number, uid, True
            else:
                again = at if actor.once else at + actor.lasts_ms, number, uid, False
            heappush(self._run_events, again)

    # ---- terms -------------------------------------------------------------------------------

    async def renew(self, holder: str, *, ttl_ms: int) -> ShardRenewal:
        """See Shards.renew."""
        return ShardRenewal(await self.claim(holder, ttl_ms=ttl_ms, limit=SHARDS), 1, self._clock.now())

    async def claim(self, holder: str, *, ttl_ms: int, limit: int, by_force: bool = False) -> Terms:
        """See Shards.claim: there is nobody else."""
        del holder, ttl_ms, by_force
        return dict.fromkeys(range(limit), 1)

    async def leave(self, holder: str) -> None:
        """See Shards.leave."""

    async def release(self, holder: str, shards: Collection[int]) -> None:
        """See Shards.release."""


class ScheduleDryRun:
    """Jobs on a stage, from one instant, which belongs to it, to another, which does not."""

    def __init__(self, jobs: Sequence[Job], *, start_at: int, zone: str = "UTC") -> None:
        # What is planned for the very first moment fires, too.
        self._clock = VirtualClock(start_at - 1)
        self.loads = LoadReport(zone)
        self._ledger = SimulatedLedger(self._clock, self.loads)
        self._jobs = jobs
        elector = Elector(self._ledger, self._clock, NullEvents(), _LEADING, holder="rehearsal", alone=True)
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
        """Let the time pass; `progress` is told now and then how far it is. Who is not enabled takes no part."""
        for job in self._jobs:
            if job.enabled:
                self._ledger.add_job(job, durations.get(job.name, usual_ms))
        with gc_paused():
            for outage in outages:
                await self._play(outage.from_at - 1, progress)
                self.loads.outage_impacts.append(OutageImpact(outage=outage, ticks=Counter()))
                self._ledger.stop_until(outage.until_at)
                self._clock.advance(outage.until_at - self._clock.now())
            if self._clock.now() < until:
                await self._play(until - 1, progress)
        self.loads.close()
        return self.loads

    async def _play(self, until: int, progress: Callable[[int], None]) -> None:
        """Everything up to and including `until` happens."""
        clock, stage, steps = self._clock, self._ledger, 0
        while True:
            # A run began a moment after its tick, so that it ends a moment after whatever is planned for that time.
            while not await self._ticker.step():
                pass
            stage.process_due()
            soonest = stage.next_at
            if soonest is None or soonest > until:
                clock.advance(until - clock.now())
                return
            clock.advance(soonest - clock.now())
            steps += 1
            if not steps % 1000:
                progress(clock.now())
