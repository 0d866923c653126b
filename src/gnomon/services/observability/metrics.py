"""Metrics: a recorder that counts commits and events in plain numbers, and the snapshot that exposes them."""

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from gnomon.core.approvals.model import OUTCOMES
from gnomon.core.breakers import BreakerState
from gnomon.core.commands.actions import BUDGET_RULE, RATE_RULE, WORKER_RULE
from gnomon.core.commands.policy import PolicyRule
from gnomon.core.health import HealthCondition, NodeHealth
from gnomon.core.metrics import (
    METRICS,
    OTHER_LABEL,
    CountedStep,
    HistogramSample,
    MetricChanges,
    MetricFamily,
    MetricKind,
    MetricScope,
)
from gnomon.core.model import Reason, Result, RunId, RunSource, ScheduleUid, TickKind
from gnomon.core.runs.states import TERMINAL
from gnomon.errors import RefusalReason, Unavailable
from gnomon.ports.maintenance import JobStats, StoreStats, StoreStatsReader
from gnomon.ports.runtime import Clock
from gnomon.services.observability.commit_metrics import CommitMetrics
from gnomon.services.observability.health import HealthMonitor
from gnomon.services.observability.outbox_reader import OutboxReader
from gnomon.services.observability.step_topics import StepTopics

#: How many names of events, and of steps of a job, have labels of their own.
_MOST_NAMES = 100
#: How many models have labels of their own.
_MOST_MODELS = 20
#: How many topics have labels of their own.
_MOST_TOPICS = 100
#: The label that some metrics have last.
_TOPIC = "topic"
#: A metric, the values of its labels before the topic, and the step that has the topic.
_StepLabels = tuple[str, tuple[str, ...], CountedStep]
#: How the ruling of a shadow of the policy compares with that in force.
_SHADOW_RESULTS = ("same", "different", "not_judged")
#: How many runs may wait until their steps are counted, and how many counts until the topic of their step is known.
_MOST_GRAPHS, _MOST_BY_STEP = 10_000, 10_000
_NOT_FIRED = (
    (TickKind.SKIPPED, Reason.OVERLAP),
    (TickKind.MISSED, Reason.CATCHUP_NONE),
    (TickKind.MISSED, Reason.WINDOW),
)
#: The labels of every family before anything has happened, so that alerts can be written about them.
_INITIAL_LABELS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "executions": [
        *((OTHER_LABEL, status, RunSource.CRON) for status in ("completed", "cancelled")),
        *((OTHER_LABEL, "failed", source) for source in RunSource),
    ],
    "jobs_completed": [(OTHER_LABEL, status, OTHER_LABEL) for status in ("completed", "failed", "cancelled")],
    "dag_steps": [(OTHER_LABEL, OTHER_LABEL, state.lower()) for state in sorted(TERMINAL)],
    "ticks_decided": [(OTHER_LABEL, *one) for one in _NOT_FIRED],
    "announcements": [(OTHER_LABEL, result) for result in ("sent", "silent", "delayed", "given_up")],
    "agent_tokens": [(OTHER_LABEL, OTHER_LABEL, direction) for direction in ("input", "output")],
    "attempts_ended": [(result,) for result in Result],
    "approvals": [(outcome,) for outcome in OUTCOMES],
    "breaker_changes": [(state,) for state in BreakerState],
    "commands_denied": [(rule,) for rule in (*PolicyRule, RATE_RULE, BUDGET_RULE, WORKER_RULE)],
    "policy_shadow_rulings": [(result,) for result in _SHADOW_RESULTS],
    "auth_failures": [(reason,) for reason in RefusalReason],
    "events": [
        (name,)
        for name in (
            *("store_unavailable", "clock_stepped", "step_failed", "schedule_broken"),
            *("foreign_result", "request_refused", "dedup_contradicted", "audit_broken"),
        )
    ],
}
#: The events that are also counted by topic, and their metrics.
_EVENTS_BY_TOPIC = {"kernel_unavailable": "safety_unavailable", "policy_fail_open": "input_fail_open"}
#: The labels of each known job before it has run.
_INITIAL_JOB_LABELS: Mapping[str, Sequence[tuple[str, ...]]] = {
    "executions": [("completed", RunSource.CRON), *(("failed", source) for source in RunSource)],
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

    def merge(self, other: "Histogram") -> None:
        """Add the values of another histogram with the same bounds."""
        self.counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum


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


class MetricsRecorder(CommitMetrics):
    """Counts since the process began, of what the store commits and of what services announce."""

    def __init__(self, *, max_jobs: int) -> None:
        self.jobs = BoundedLabels(max_jobs)
        self._models, self._topics = BoundedLabels(_MOST_MODELS), BoundedLabels(_MOST_TOPICS)
        self._introduced: set[str] = set()
        self._events, self._steps = BoundedLabels(_MOST_NAMES), dict[str, BoundedLabels]()
        self.counters: dict[str, dict[tuple[str, ...], int]] = {}
        self.histograms: dict[str, dict[tuple[str, ...], Histogram]] = {}
        #: The values of metrics whose last label is a topic, until somebody knows the topics of their steps.
        self.counts_by_step: dict[_StepLabels, int] = {}
        self.durations_by_step: dict[_StepLabels, Histogram] = {}
        #: The last success of each job since the process began.
        self.successes: dict[str, int] = {}
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
        """See CommitMetrics.add."""
        counted = self.counters[name]
        counted[labels] = counted.get(labels, 0) + count

    def observe(self, name: str, ms: int, *labels: str) -> None:
        """See CommitMetrics.observe."""
        spreads = self.histograms[name]
        spread = spreads.get(labels)
        if spread is None:
            spread = spreads[labels] = Histogram(METRICS[name].buckets)
        spread.add(max(0, ms) / 1000)

    def add_by_step(self, name: str, labels: tuple[str, ...], step: CountedStep, *, count: int = 1) -> None:
        """See CommitMetrics.add_by_step."""
        key = name, labels, step
        counted = self.counts_by_step.get(key)
        if counted is None and len(self.counts_by_step) >= _MOST_BY_STEP:
            self.add(name, *labels, OTHER_LABEL, count=count)
        else:
            self.counts_by_step[key] = (counted or 0) + count

    def observe_by_step(self, name: str, ms: int, labels: tuple[str, ...], step: CountedStep) -> None:
        """See CommitMetrics.observe_by_step."""
        key = name, labels, step
        spread = self.durations_by_step.get(key)
        if spread is None:
            if len(self.durations_by_step) >= _MOST_BY_STEP:
                self.observe(name, ms, *labels, OTHER_LABEL)
                return
            spread = self.durations_by_step[key] = Histogram(METRICS[name].buckets)
        spread.add(max(0, ms) / 1000)

    @property
    def counted_steps(self) -> set[CountedStep]:
        """The steps whose topics are to be found."""
        return {step for _, _, step in (*self.counts_by_step, *self.durations_by_step)}

    def count_by_topic(self, topics: Mapping[CountedStep, str]) -> None:
        """Give what was counted by these steps the labels of their topics."""
        for key in [key for key in self.counts_by_step if key[2] in topics]:
            name, labels, step = key
            self.add(name, *labels, self.topic_label(topics[step]), count=self.counts_by_step.pop(key))
        for key in [key for key in self.durations_by_step if key[2] in topics]:
            name, labels, step = key
            shown = (*labels, self.topic_label(topics[step]))
            spread = self.histograms[name].setdefault(shown, Histogram(METRICS[name].buckets))
            spread.merge(self.durations_by_step.pop(key))

    def write_waited(self, ms: int) -> None:
        """See WriteObserver.write_waited."""
        self.observe("job_lock_wait_seconds", ms)

    def succeeded(self, job: str, at: int) -> None:
        """See CommitMetrics.succeeded."""
        self.successes[job] = max(at, self.successes.get(job, at))

    def graph_ended(self, run: RunId, job: str) -> None:
        """See CommitMetrics.graph_ended."""
        self.graphs[run] = job
        while len(self.graphs) > _MOST_GRAPHS:
            self.graphs.pop(next(iter(self.graphs)))

    def job_label(self, job: str) -> str:
        """See CommitMetrics.job_label."""
        return self.jobs.shown(job)

    def model_label(self, model: str) -> str:
        """See CommitMetrics.model_label."""
        return self._models.shown(model)

    def topic_label(self, topic: str) -> str:
        """See CommitMetrics.topic_label."""
        return self._topics.shown(topic) if topic else OTHER_LABEL

    def count_changes(self, changes: MetricChanges) -> None:
        """Count what another process has committed. Metrics that a newer program added are left out."""
        for name, labels, count in changes.counts:
            if name in self.counters and (shown := self._labels(name, labels)) is not None:
                self.add(name, *shown, count=count)
        for name, labels, durations in changes.durations:
            if name in self.histograms and (shown := self._labels(name, labels)) is not None:
                for ms in durations:
                    self.observe(name, ms, *shown)
        self._count_changes_by_step(changes)
        for job, at in changes.successes.items():
            self.succeeded(self.jobs.shown(job), at)
        for run, job in changes.graphs.items():
            self.graph_ended(run, job)

    def _count_changes_by_step(self, changes: MetricChanges) -> None:
        for name, labels, step, count in changes.counts_by_step:
            if name in self.counters and len(labels) + 1 == len(METRICS[name].labels):
                self.add_by_step(name, tuple(self._bounded(name, labels)), step, count=count)
        for name, labels, step, durations in changes.durations_by_step:
            if name in self.histograms and len(labels) + 1 == len(METRICS[name].labels):
                for ms in durations:
                    self.observe_by_step(name, ms, tuple(self._bounded(name, labels)), step)

    def _labels(self, name: str, labels: tuple[str, ...]) -> tuple[str, ...] | None:
        """The labels to show; None if the metric has others."""
        wanted = METRICS[name].labels
        if wanted[-1:] == (_TOPIC,) and len(labels) + 1 == len(wanted):
            # A worker of an older version, during an upgrade.
            labels = (*labels, OTHER_LABEL)
        return tuple(self._bounded(name, labels)) if len(labels) == len(wanted) else None

    def _bounded(self, name: str, labels: Sequence[str]) -> Iterable[str]:
        bounded = {"job": self.jobs, "model": self._models, _TOPIC: self._topics}
        for kind, label in zip(METRICS[name].labels, labels, strict=False):
            yield bounded[kind].shown(label) if kind in bounded else label

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
            self.add("orphan_replayed", self.topic_label(str(facts.get("topic", ""))), count=count)
        counter = _EVENTS_BY_TOPIC.get(name)
        if counter is not None:
            self.add(counter, self.topic_label(str(facts.get("topic"))))
        if name == "policy_shadow_judged":
            for result in _SHADOW_RESULTS:
                if isinstance(count := facts.get(result), int):
                    self.add("policy_shadow_rulings", result, count=count)


def _as_strings(labels: Iterable[str]) -> tuple[str, ...]:
    """The labels as plain strings: an enumeration member prints as its text, but is another key for some readers."""
    return tuple(map(str, labels))


#: How often the steps of ended runs are counted, and of how many runs at once.
_STEPS_SECONDS, _STEPS_AT_ONCE = 1.0, 5_000
_Gauges = dict[str, Mapping[tuple[str, ...], float]]


class MetricsSnapshot:
    """The metric families of a process at one moment. Without a store it has only those of the process itself."""

    def __init__(
        self,
        recorder: MetricsRecorder,
        health: HealthMonitor,
        clock: Clock,
        *,
        stats_reader: StoreStatsReader | None,
        outbox: OutboxReader | None = None,
        topics: StepTopics | None = None,
        scope: MetricScope = MetricScope.SERVERS,
    ) -> None:
        """`outbox` finds the commits of processes that serve no counters, and `topics` the topics of steps.

        `scope` is SERVERS for a server, and ALL for a worker.
        """
        self._recorder = recorder
        self._health = health
        self._clock = clock
        self._stats_reader = stats_reader
        self._outbox = outbox
        self._topics = topics
        #: The schedules whose last success was read, so that it is known after a restart of this process.
        self._known: set[ScheduleUid] = set()
        self._metrics = [one for one in METRICS.values() if one.scope in (scope, MetricScope.ALL)]

    async def step(self) -> float:
        """Count commits of other processes, steps of ended runs, and topics. Returns how many seconds to wait."""
        wait = _STEPS_SECONDS if self._outbox is None else await self._outbox.step()
        try:
            await self._count_steps()
            await self._count_topics()
        except Unavailable:
            # They wait until the store is available again; other services announce that.
            return _STEPS_SECONDS
        return 0.0 if self._recorder.graphs else min(wait, _STEPS_SECONDS)

    async def _count_steps(self) -> None:
        graphs = self._recorder.graphs
        runs = list(graphs)[:_STEPS_AT_ONCE]
        if not runs or self._stats_reader is None:
            return
        found = await self._stats_reader.steps(runs)
        for run in runs:
            # Another call may have counted them during the read.
            job = graphs.pop(run, None)
            if job is not None and run in found:
                self._recorder.count_steps(job, found[run])

    async def _count_topics(self) -> None:
        steps = self._recorder.counted_steps
        if steps and self._topics is not None:
            self._recorder.count_by_topic(await self._topics.find(steps))

    async def families(self) -> list[MetricFamily]:
        """Every metric with its samples."""
        report, stats = await self._health.report(), self._health.stats
        if stats is not None:
            self._recorder.register_jobs(one.job for one in stats.job_stats)
            with suppress(Unavailable):
                await self._read_last_successes(stats.job_stats)
            await self.step()
        elif self._topics is not None:
            self._recorder.count_by_topic(self._topics.known(self._recorder.counted_steps))
        gauges = self._of_node(report) | ({} if stats is None else self._of_store(stats))
        return [MetricFamily(one, self._samples(one.name, gauges)) for one in self._metrics]

    async def _read_last_successes(self, job_stats: Sequence[JobStats]) -> None:
        new = {one.uid: one.job for one in job_stats if one.uid not in self._known}
        if not new or self._stats_reader is None:
            return
        found = await self._stats_reader.last_successes(list(new))
        self._known |= new.keys()
        for uid, at in found.items():
            self._recorder.succeeded(self._recorder.jobs.shown(new[uid]), at)

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
            "component_healthy": well,
            "last_success_timestamp_seconds": {
                (job,): at / 1000 for job, at in self._recorder.successes.items() if job != OTHER_LABEL
            },
        }
        if self._stats_reader is not None:
            gauges["store_up"] = {(): float(self._health.stats is not None)}
        return gauges | ({"leader_active": {(): 1}} if shards else {})

    def _of_store(self, stats: StoreStats) -> _Gauges:
        now = self._clock.now()
        job_stats = [one for one in stats.job_stats if one.job in self._recorder.jobs and one.job != OTHER_LABEL]
        return {
            "jobs_registered": {(): stats.jobs},
            "next_fire_seconds": {
                (one.job,): (one.next_fire_at - now) / 1000 for one in job_stats if one.next_fire_at is not None
            },
            "lock_held": {(one.job,): float(one.locked) for one in job_stats},
            "schedules_due": {(): stats.due},
            "oldest_due_seconds": {(): _seconds_since(stats.oldest_due_at, now)},
            "tasks_ready_seconds": {(): _seconds_since(stats.ready_since_at, now)},
            "stale_jobs": {(state.value,): count for state, count in stats.stale.items()},
            "tasks_waiting": {("worker",): stats.scheduled, ("route",): stats.unroutable},
            "workers_alive": {(): stats.workers},
            "dead_letters_unresolved": {(): stats.unresolved},
            "announcements_pending": {(): stats.unannounced},
            "saga_active": {(): stats.rolling_back},
            "approvals_waiting": {(): stats.approvals_waiting},
        }


def _seconds_since(at: int | None, now: int) -> float:
    return 0.0 if at is None else max(0, now - at) / 1000
