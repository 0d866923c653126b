"""The meter: counts what was committed and what was announced, in plain numbers that are cheap to add to."""

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from gnomon.core.health import Condition, Report
from gnomon.core.metrics import MEASURES, OTHER, Distribution, Family, Kind
from gnomon.core.model import Reason, Result, Run, RunId, RunStatus, Source, TickKind, Verdict
from gnomon.core.runs.admission import Waiting
from gnomon.core.runs.outcomes import Ending
from gnomon.core.runs.states import TERMINAL, WaitReason
from gnomon.errors import Unavailable
from gnomon.ports.commit_observer import Finish
from gnomon.ports.maintenance import Survey, Surveyor
from gnomon.ports.runtime import Clock
from gnomon.services.observability.health import Vitals

#: How many names of events, and of steps of a job, are told apart.
_MOST_NAMES = 100
#: Of how many runs the steps may wait to be counted.
_MOST_GRAPHS = 10_000
_OVERLAPS = frozenset({Reason.OVERLAP, Reason.QUEUE_FULL})
_NOTHING_TO_LAUNCH = "launch_failed"
_NOT_FIRED = (
    (TickKind.SKIPPED, Reason.OVERLAP),
    (TickKind.MISSED, Reason.CATCHUP_NONE),
    (TickKind.MISSED, Reason.WINDOW),
)
#: What every family shows before anything has happened, so that alerts can be written about it.
_FIRST: Mapping[str, Sequence[tuple[str, ...]]] = {
    "executions": [(OTHER, status, Source.CRON) for status in ("completed", "failed", "cancelled")],
    "jobs_completed": [(OTHER, status) for status in ("completed", "failed", "cancelled")],
    "dag_steps": [(OTHER, OTHER, state.lower()) for state in sorted(TERMINAL)],
    "ticks_decided": [(OTHER, *one) for one in _NOT_FIRED],
    "attempts_ended": [(result,) for result in Result],
    "events": [("store_unavailable",), ("clock_stepped",), ("step_failed",), ("schedule_broken",)],
}
#: What each job that is known shows before it has run.
_FIRST_OF_JOB: Mapping[str, Sequence[tuple[str, ...]]] = {
    "executions": [("completed", Source.CRON), ("failed", Source.CRON)],
    "ticks_decided": _NOT_FIRED,
    "retries": [()],
    "dead_letters": [()],
    "execution_duration_seconds": [()],
}


class Spread:
    """How many numbers fell under each bound, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """One more number."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds


class Names:
    """The first so many names that came up; all others are one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def shown(self, name: str) -> str:
        """The name, or what stands for all that came too late to have one of their own."""
        known = self._known.get(name)
        if known is not None:
            return known
        if len(self._known) >= self._most:
            return OTHER
        return self._known.setdefault(name, name)


class Meter:
    """Numbers since the process began. It is told by a store what was committed, and by services what happened."""

    def __init__(self, *, max_jobs: int) -> None:
        self.jobs = Names(max_jobs)
        self._introduced: set[str] = set()
        self._events, self._steps = Names(_MOST_NAMES), dict[str, Names]()
        self.counters: dict[str, dict[tuple[str, ...], int]] = {}
        self.spreads: dict[str, dict[tuple[str, ...], Spread]] = {}
        #: Runs with steps that are not counted yet, and their jobs.
        self.graphs: dict[RunId, str] = {}
        for name, measure in MEASURES.items():
            first = _FIRST.get(name, [(OTHER,) * len(measure.labels)])
            if measure.kind is Kind.COUNTER:
                self.counters[name] = dict.fromkeys(map(_plain, first), 0)
            elif measure.kind is Kind.HISTOGRAM:
                self.spreads[name] = {labels: Spread(measure.buckets) for labels in map(_plain, first)}

    def introduce(self, jobs: Iterable[str]) -> None:
        """Jobs that there are: each shows what it will be counted by, as far as there is room for its name."""
        for job in jobs:
            if job not in self._introduced and self.jobs.shown(job) != OTHER:
                self._introduced.add(job)
                for name, rest in _FIRST_OF_JOB.items():
                    for labels in rest:
                        self._show(name, _plain((job, *labels)))

    def _show(self, name: str, labels: tuple[str, ...]) -> None:
        if name in self.counters:
            self.counters[name].setdefault(labels, 0)
        else:
            self.spreads[name].setdefault(labels, Spread(MEASURES[name].buckets))

    def add(self, name: str, *labels: str, count: int = 1) -> None:
        """So many more."""
        counted = self.counters[name]
        counted[labels] = counted.get(labels, 0) + count

    def _took(self, name: str, ms: int, *labels: str) -> None:
        spreads = self.spreads[name]
        spread = spreads.get(labels)
        if spread is None:
            spread = spreads[labels] = Spread(MEASURES[name].buckets)
        spread.add(max(0, ms) / 1000)

    # ---- what was committed: see Tally -------------------------------------------------------

    def decided(self, verdicts: Sequence[Verdict], now: int) -> None:
        """See Tally.decided."""
        for verdict in verdicts:
            job = self.jobs.shown(verdict.schedule.schedule_id)
            for decision in verdict.decisions:
                self.add("ticks_decided", job, decision.kind.value, decision.reason.value, count=decision.count)
                if decision.fire_at is not None:
                    self.add("runs_emitted")
                    self.add("jobs_received", job)
                if decision.kind is TickKind.FIRED and decision.fire_at is not None:
                    self._took("schedule_drift_seconds", abs(max(now, decision.fire_at) - decision.planned_at))
                elif decision.reason in _OVERLAPS:
                    self.add("runs_skipped_overlap", count=decision.count)

    def launched(self, runs: Sequence[Run]) -> None:
        """See Tally.launched."""
        for run in runs:
            self.add("jobs_received", self.jobs.shown(_job(run)))

    def taken(self, tasks: Sequence[Waiting], now: int) -> None:
        """See Tally.taken."""
        for one in tasks:
            self.add("jobs_dispatched", self.jobs.shown(_job(one.run)))
            self._took("dispatch_latency_seconds", now - one.task.available_at)

    def started(self, runs: Sequence[Run], now: int) -> None:
        """See Tally.started."""
        for run in runs:
            if run.source is Source.CRON:
                self._took("start_delay_seconds", now - run.planned_at)

    def tried(self, endings: Sequence[Ending]) -> None:
        """See Tally.tried."""
        for one in endings:
            self.add("attempts_ended", one.result.value)
            if one.wait_reason is WaitReason.RETRY:
                self.add("retries", self.jobs.shown(_job(one.run)))

    def called_off(self, count: int) -> None:
        """See Tally.called_off."""
        self.add("attempts_ended", Result.CANCELLED.value, count=count)

    def buried(self, jobs: Sequence[str]) -> None:
        """See Tally.buried."""
        for job in jobs:
            self.add("dead_letters", self.jobs.shown(job))

    def ended(self, finishes: Sequence[Finish]) -> None:
        """See Tally.ended."""
        for run, status, error, at in finishes:
            job = self.jobs.shown(_job(run))
            self.add("executions", job, status.value, run.source.value)
            self.add("jobs_completed", job, status.value)
            if run.started_at is not None:
                self._took("execution_duration_seconds", at - run.started_at, job)
            if status is RunStatus.FAILED and (error or "").startswith(_NOTHING_TO_LAUNCH):
                self.add("runs_failed_launch")

    def graphs_ended(self, runs: Sequence[Run]) -> None:
        """See Tally.graphs_ended."""
        self.graphs |= {run.run_id: _job(run) for run in runs}
        while len(self.graphs) > _MOST_GRAPHS:
            self.graphs.pop(next(iter(self.graphs)))

    def count_steps(self, job: str, steps: Sequence[tuple[str, str]]) -> None:
        """The steps of a run that is over, each with its state."""
        shown = self.jobs.shown(job)
        names = self._steps.setdefault(shown, Names(0 if shown == OTHER else _MOST_NAMES))
        for step, state in steps:
            self.add("dag_steps", shown, names.shown(step), state.lower())

    # ---- what was announced ------------------------------------------------------------------

    def happened(self, name: str, facts: Mapping[str, object]) -> None:
        """An event was emitted."""
        self.add("events", self._events.shown(name))
        if name == "tasks_replayed" and isinstance(count := facts.get("count"), int):
            self.add("orphan_replayed", count=count)


def _job(run: Run) -> str:
    return run.schedule_id or run.workflow_id


def _plain(labels: Iterable[str]) -> tuple[str, ...]:
    """Without their kinds: a member of an enumeration shows as its text, but counts as another key for some readers."""
    return tuple(map(str, labels))


#: How soon the steps of runs that are over are counted, and of how many at once.
_STEPS_SECONDS, _STEPS_AT_ONCE = 1.0, 5_000
_Gauges = dict[str, Mapping[tuple[str, ...], float]]


class Exhibit:
    """Shows the numbers to whoever collects them."""

    def __init__(self, meter: Meter, vitals: Vitals, surveyor: Surveyor, clock: Clock) -> None:
        self._meter = meter
        self._vitals = vitals
        self._surveyor = surveyor
        self._clock = clock

    async def step(self) -> float:
        """Count the steps of runs that are over. Returns how many seconds to wait before the next time."""
        try:
            await self._count_steps()
        except Unavailable:
            # They wait until the store answers again, which others say.
            return _STEPS_SECONDS
        return 0.0 if self._meter.graphs else _STEPS_SECONDS

    async def _count_steps(self) -> None:
        graphs = self._meter.graphs
        runs = list(graphs)[:_STEPS_AT_ONCE]
        if not runs:
            return
        found = await self._surveyor.steps(runs)
        for run in runs:
            # Another may have counted them while we read.
            job = graphs.pop(run, None)
            if job is not None and run in found:
                self._meter.count_steps(job, found[run])

    async def families(self) -> list[Family]:
        """Every measure there is, with its numbers."""
        report, survey = await self._vitals.report(), self._vitals.survey
        if survey is not None:
            self._meter.introduce(card.job for card in survey.cards)
            await self.step()
        gauges = self._of_node(report) | ({} if survey is None else self._of_store(survey))
        return [Family(measure, self._samples(name, gauges)) for name, measure in MEASURES.items()]

    def _samples(self, name: str, gauges: _Gauges) -> Mapping[tuple[str, ...], float | Distribution]:
        match MEASURES[name].kind:
            case Kind.COUNTER:
                return dict(self._meter.counters[name])
            case Kind.HISTOGRAM:
                spreads = self._meter.spreads[name]
                return {labels: Distribution(tuple(one.counts), one.sum) for labels, one in spreads.items()}
            case Kind.GAUGE:
                return gauges.get(name, {})

    def _of_node(self, report: Report) -> _Gauges:
        shards = self._vitals.leads
        well: dict[tuple[str, ...], float] = {
            (one.name,): float(one.condition is not Condition.ERROR) for one in report.components
        }
        gauges: _Gauges = {
            "shards_held": {(): shards},
            "active_coroutines": {(): len(asyncio.all_tasks())},
            "store_up": {(): float(self._vitals.survey is not None)},
            "component_healthy": well,
        }
        return gauges | ({"leader_active": {(): 1}} if shards else {})

    def _of_store(self, survey: Survey) -> _Gauges:
        now = self._clock.now()
        cards = [card for card in survey.cards if card.job in self._meter.jobs and card.job != OTHER]
        return {
            "jobs_registered": {(): survey.jobs},
            "next_fire_seconds": {
                (card.job,): (card.next_fire_at - now) / 1000 for card in cards if card.next_fire_at is not None
            },
            "lock_held": {(card.job,): float(card.locked) for card in cards},
            "schedules_due": {(): survey.due},
            "oldest_due_seconds": {(): _ago(survey.oldest_due_at, now)},
            "tasks_ready_seconds": {(): _ago(survey.ready_since_at, now)},
            "workers_alive": {(): survey.workers},
            "dead_letters_unresolved": {(): survey.unresolved},
        }


def _ago(at: int | None, now: int) -> float:
    return 0.0 if at is None else max(0, now - at) / 1000
