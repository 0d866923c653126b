"""Metrics: a recorder that counts commits and events in plain numbers, and the snapshot that exposes them."""

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from gnomon.core.health import HealthCondition, NodeHealth
from gnomon.core.metrics import METRICS, OTHER_LABEL, HistogramSample, MetricFamily, MetricKind
from gnomon.core.model import Reason, Result, Run, RunId, RunStatus, Source, TickKind, Verdict
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.states import TERMINAL, WaitReason
from gnomon.errors import Unavailable
from gnomon.ports.commit_observer import FinishedRun
from gnomon.ports.maintenance import StoreStats, StoreStatsReader
from gnomon.ports.runtime import Clock
from gnomon.services.observability.health import HealthMonitor

#: How many names of events, and of steps of a job, have labels of their own.
_MOST_NAMES = 100
#: How many runs may wait until their steps are counted.
_MOST_GRAPHS = 10_000
_OVERLAPS = frozenset({Reason.OVERLAP, Reason.QUEUE_FULL})
_NOTHING_TO_LAUNCH = "launch_failed"
_NOT_FIRED = (
    (TickKind.SKIPPED, Reason.OVERLAP),
    (TickKind.MISSED, Reason.CATCHUP_NONE),
    (TickKind.MISSED, Reason.WINDOW),
)
#: The labels of every family before anything has happened, so that alerts can be written about them.
_INITIAL_LABELS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "executions": [(OTHER_LABEL, status, Source.CRON) for status in ("completed", "failed", "cancelled")],
    "jobs_completed": [(OTHER_LABEL, status) for status in ("completed", "failed", "cancelled")],
    "dag_steps": [(OTHER_LABEL, OTHER_LABEL, state.lower()) for state in sorted(TERMINAL)],
    "ticks_decided": [(OTHER_LABEL, *one) for one in _NOT_FIRED],
    "attempts_ended": [(result,) for result in Result],
    "events": [("store_unavailable",), ("clock_stepped",), ("step_failed",), ("schedule_broken",)],
}
#: The labels of each known job before it has run.
_INITIAL_JOB_LABELS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "executions": [("completed", Source.CRON), ("failed", Source.CRON)],
    "ticks_decided": _NOT_FIRED,
    "retries": [()],
    "dead_letters": [()],
    "execution_duration_seconds": [()],
}


class Histogram:
    """Counts of values by bucket, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Add a value."""
        self.counts[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds


class BoundedLabels:
    """Labels for the first names that occur; all further names share one label."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._known

    def shown(self, name: str) -> str:
        """The label of a name: itself, or the shared one."""
        known = self._known.get(name)
        if known is not None:
            return known
        if len(self._known) >= self._most:
            return OTHER_LABEL
        return self._known.setdefault(name, name)


class MetricsRecorder:
    """Counts since the process began, of what the store commits and of what services announce."""

    def __init__(self, *, max_jobs: int) -> None:
        self.jobs = BoundedLabels(max_jobs)
        self._introduced: set[str] = set()
        self._events, self._steps = BoundedLabels(_MOST_NAMES), dict[str, BoundedLabels]()
        self.counters: dict[str, dict[tuple[str, ...], int]] = {}
        self.histograms: dict[str, dict[tuple[str, ...], Histogram]] = {}
        #: The jobs of runs whose steps are not counted yet.
        self.graphs: dict[RunId, str] = {}
        for name, measure in METRICS.items():
            first = _INITIAL_LABELS.get(name, [(OTHER_LABEL,) * len(measure.labels)])
            if measure.kind is MetricKind.COUNTER:
                self.counters[name] = dict.fromkeys(map(_as_strings, first), 0)
            elif measure.kind is MetricKind.HISTOGRAM:
                self.histograms[name] = {labels: Histogram(measure.buckets) for labels in map(_as_strings, first)}

    def register_jobs(self, jobs: Iterable[str]) -> None:
        """Show the labels of these jobs, as far as jobs may have labels of their own."""
        for job in jobs:
            if job not in self._introduced and self.jobs.shown(job) != OTHER_LABEL:
                self._introduced.add(job)
                for name, rest in _INITIAL_JOB_LABELS.items():
                    for labels in rest:
                        self._show(name, _as_strings((job, *labels)))

    def _show(self, name: str, labels: tuple[str, ...]) -> None:
        if name in self.counters:
            self.counters[name].setdefault(labels, 0)
        else:
            self.histograms[name].setdefault(labels, Histogram(METRICS[name].buckets))

    def add(self, name: str, *labels: str, count: int = 1) -> None:
        """Add to a counter."""
        counted = self.counters[name]
        counted[labels] = counted.get(labels, 0) + count

    def _observe(self, name: str, ms: int, *labels: str) -> None:
        spreads = self.histograms[name]
        spread = spreads.get(labels)
        if spread is None:
            spread = spreads[labels] = Histogram(METRICS[name].buckets)
        spread.add(max(0, ms) / 1000)

    # ---- commits: RunObserver, ActivityObserver ------------------------------------------------

    def decided(self, verdicts: Sequence[Verdict], now: int) -> None:
        """See ActivityObserver.decided."""
        for verdict in verdicts:
            job = self.jobs.shown(verdict.schedule.schedule_id)
            for decision in verdict.decisions:
                self.add("ticks_decided", job, decision.kind.value, decision.reason.value, count=decision.count)
                if decision.fire_at is not None:
                    self.add("runs_emitted")
                    self.add("jobs_received", job)
                if decision.kind is TickKind.FIRED and decision.fire_at is not None:
                    self._observe("schedule_drift_seconds", abs(max(now, decision.fire_at) - decision.planned_at))
                elif decision.reason in _OVERLAPS:
                    self.add("runs_skipped_overlap", count=decision.count)

    def launched(self, runs: Sequence[Run]) -> None:
        """See RunObserver.launched."""
        for run in runs:
            self.add("jobs_received", self.jobs.shown(_job(run)))

    def taken(self, tasks: Sequence[ReadyTask], now: int) -> None:
        """See ActivityObserver.taken."""
        for one in tasks:
            self.add("jobs_dispatched", self.jobs.shown(_job(one.run)))
            self._observe("dispatch_latency_seconds", now - one.task.available_at)

    def started(self, runs: Sequence[Run], now: int) -> None:
        """See RunObserver.started."""
        for run in runs:
            if run.source is Source.CRON:
                self._observe("start_delay_seconds", now - run.planned_at)

    def tried(self, endings: Sequence[TaskCompletion]) -> None:
        """See ActivityObserver.tried."""
        for one in endings:
            self.add("attempts_ended", one.result.value)
            if one.wait_reason is WaitReason.RETRY:
                self.add("retries", self.jobs.shown(_job(one.run)))

    def attempts_cancelled(self, count: int) -> None:
        """See ActivityObserver.attempts_cancelled."""
        self.add("attempts_ended", Result.CANCELLED.value, count=count)

    def dead_lettered(self, jobs: Sequence[str]) -> None:
        """See ActivityObserver.dead_lettered."""
        for job in jobs:
            self.add("dead_letters", self.jobs.shown(job))

    def ended(self, finishes: Sequence[FinishedRun]) -> None:
        """See RunObserver.ended."""
        for run, status, error, at in finishes:
            job = self.jobs.shown(_job(run))
            self.add("executions", job, status.value, run.source.value)
            self.add("jobs_completed", job, status.value)
            if run.started_at is not None:
                self._observe("execution_duration_seconds", at - run.started_at, job)
            if status is RunStatus.FAILED and (error or "").startswith(_NOTHING_TO_LAUNCH):
                self.add("runs_failed_launch")

    def graph_runs_ended(self, runs: Sequence[Run]) -> None:
        """See ActivityObserver.graph_runs_ended."""
        self.graphs |= {run.run_id: _job(run) for run in runs}
        while len(self.graphs) > _MOST_GRAPHS:
            self.graphs.pop(next(iter(self.graphs)))

    def count_steps(self, job: str, steps: Sequence[tuple[str, str]]) -> None:
        """Count the steps of an ended run, each with its state."""
        shown = self.jobs.shown(job)
        names = self._steps.setdefault(shown, BoundedLabels(0 if shown == OTHER_LABEL else _MOST_NAMES))
        for step, state in steps:
            self.add("dag_steps", shown, names.shown(step), state.lower())

    # ---- events ------------------------------------------------------------------------------

    def on_event(self, name: str, facts: Mapping[str, object]) -> None:
        """Count an event."""
        self.add("events", self._events.shown(name))
        if name == "tasks_replayed" and isinstance(count := facts.get("count"), int):
            self.add("orphan_replayed", count=count)


def _job(run: Run) -> str:
    return run.schedule_id or run.workflow_id


def _as_strings(labels: Iterable[str]) -> tuple[str, ...]:
    """The labels as plain strings: an enumeration member prints as its text, but is another key for some readers."""
    return tuple(map(str, labels))


#: How often the steps of ended runs are counted, and of how many runs at once.
_STEPS_SECONDS, _STEPS_AT_ONCE = 1.0, 5_000
_Gauges = dict[str, Mapping[tuple[str, ...], float]]


class MetricsSnapshot:
    """The metric families of a process at one moment."""

    def __init__(
        self, recorder: MetricsRecorder, health: HealthMonitor, stats_reader: StoreStatsReader, clock: Clock
    ) -> None:
        self._recorder = recorder
        self._health = health
        self._stats_reader = stats_reader
        self._clock = clock

    async def step(self) -> float:
        """Count the steps of ended runs. Returns how many seconds to wait before the next step."""
        try:
            await self._count_steps()
        except Unavailable:
            # They wait until the store is available again; other services announce that.
            return _STEPS_SECONDS
        return 0.0 if self._recorder.graphs else _STEPS_SECONDS

    async def _count_steps(self) -> None:
        graphs = self._recorder.graphs
        runs = list(graphs)[:_STEPS_AT_ONCE]
        if not runs:
            return
        found = await self._stats_reader.steps(runs)
        for run in runs:
            # Another call may have counted them during the read.
            job = graphs.pop(run, None)
            if job is not None and run in found:
                self._recorder.count_steps(job, found[run])

    async def families(self) -> list[MetricFamily]:
        """Every metric with its samples."""
        report, stats = await self._health.report(), self._health.stats
        if stats is not None:
            self._recorder.register_jobs(card.job for card in stats.cards)
            await self.step()
        gauges = self._of_node(report) | ({} if stats is None else self._of_store(stats))
        return [MetricFamily(measure, self._samples(name, gauges)) for name, measure in METRICS.items()]

    def _samples(self, name: str, gauges: _Gauges) -> Mapping[tuple[str, ...], float | HistogramSample]:
        match METRICS[name].kind:
            case MetricKind.COUNTER:
                return dict(self._recorder.counters[name])
            case MetricKind.HISTOGRAM:
                spreads = self._recorder.histograms[name]
                return {labels: HistogramSample(tuple(one.counts), one.sum) for labels, one in spreads.items()}
            case MetricKind.GAUGE:
                return gauges.get(name, {})

    def _of_node(self, report: NodeHealth) -> _Gauges:
        shards = self._health.shards_held
        well: dict[tuple[str, ...], float] = {
            (one.name,): float(one.condition is not HealthCondition.ERROR) for one in report.components
        }
        gauges: _Gauges = {
            "shards_held": {(): shards},
            "active_coroutines": {(): len(asyncio.all_tasks())},
            "store_up": {(): float(self._health.stats is not None)},
            "component_healthy": well,
        }
        return gauges | ({"leader_active": {(): 1}} if shards else {})

    def _of_store(self, stats: StoreStats) -> _Gauges:
        now = self._clock.now()
        cards = [card for card in stats.cards if card.job in self._recorder.jobs and card.job != OTHER_LABEL]
        return {
            "jobs_registered": {(): stats.jobs},
            "next_fire_seconds": {
                (card.job,): (card.next_fire_at - now) / 1000 for card in cards if card.next_fire_at is not None
            },
            "lock_held": {(card.job,): float(card.locked) for card in cards},
            "schedules_due": {(): stats.due},
            "oldest_due_seconds": {(): _seconds_since(stats.oldest_due_at, now)},
            "tasks_ready_seconds": {(): _seconds_since(stats.ready_since_at, now)},
            "workers_alive": {(): stats.workers},
            "dead_letters_unresolved": {(): stats.unresolved},
        }


def _seconds_since(at: int | None, now: int) -> float:
    return 0.0 if at is None else max(0, now - at) / 1000
