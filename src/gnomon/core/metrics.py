"""What is measured: every metric by its name, its kind and its labels. The page docs/metrics.md is this table.

Labels come from sets that are small or bounded. No run, task, worker or tenant is ever one.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

#: The label of all jobs that are not shown by name, and of every family before anything has happened.
OTHER_LABEL = "other"


class MetricKind(StrEnum):
    """How a metric is read."""

    #: Grows as long as the process lives. Its name ends in `_total`.
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(Struct, frozen=True, kw_only=True):
    """One family of numbers."""

    #: Without the prefix, and without the `_total` of a counter.
    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    #: Upper bounds in seconds; all above the last is counted, too.
    buckets: tuple[float, ...] = ()
    #: It has no number as long as there is nothing to say.
    may_be_absent: bool = False


_FINE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
_COARSE = (0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)


def _counter(name: str, says: str, *labels: str) -> Metric:
    return Metric(name=name, kind=MetricKind.COUNTER, help=says, labels=labels)


def _gauge(name: str, says: str, *labels: str, absent: bool = False) -> Metric:
    return Metric(name=name, kind=MetricKind.GAUGE, help=says, labels=labels, may_be_absent=absent)


def _histogram(name: str, says: str, *labels: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(name=name, kind=MetricKind.HISTOGRAM, help=says, labels=labels, buckets=buckets)


METRICS: Mapping[str, Metric] = {
    one.name: one
    for one in (
        _counter("executions", "Executions that are over.", "job", "status", "trigger"),
        _counter("retries", "Attempts after which the task waits for another.", "job"),
        _counter("dead_letters", "Dead letters that were left.", "job"),
        _histogram("execution_duration_seconds", "From the start of an execution to its end.", "job", buckets=_COARSE),
        _gauge("jobs_registered", "Jobs that there are.", absent=True),
        _gauge("next_fire_seconds", "Seconds until the next fire; below zero if it is overdue.", "job", absent=True),
        _gauge("lock_held", "1 while an execution excludes others of its job.", "job", absent=True),
        _counter("dag_steps", "Steps of executions with several that are over.", "job", "step", "status"),
        _gauge("leader_active", "1 while this node decides ticks; absent while it does not.", absent=True),
        _gauge("shards_held", "Shards whose ticks this node decides."),
        _gauge("schedules_due", "Schedules whose fire is due and not decided.", absent=True),
        _gauge("oldest_due_seconds", "For how long the oldest of them has been due.", absent=True),
        _counter("runs_emitted", "Executions made by ticks."),
        _counter("runs_skipped_overlap", "Ticks without one, because another was under way or the queue was full."),
        _counter("runs_failed_launch", "Executions that failed because there was nothing to launch."),
        _histogram("schedule_drift_seconds", "Between planned time and fire, either way.", buckets=_FINE),
        _histogram("start_delay_seconds", "From the planned time to the start of the first body.", buckets=_FINE),
        _counter("ticks_decided", "Ticks by what became of them, and why.", "job", "kind", "reason"),
        _counter("jobs_received", "Executions that were made, by whatever.", "job"),
        _counter("jobs_completed", "Executions that are over, whatever had started them.", "job", "status"),
        _counter("jobs_dispatched", "Attempts that were given to a worker.", "job"),
        _counter("attempts_ended", "Attempts by how they ended.", "result"),
        _histogram("dispatch_latency_seconds", "From when a task could start to its dispatch.", buckets=_FINE),
        _counter("orphan_replayed", "Tasks that had been ready for long and were offered again."),
        _gauge("tasks_ready_seconds", "For how long the oldest task has waited for a worker.", absent=True),
        _gauge("active_coroutines", "Coroutines under way in this process."),
        _gauge("workers_alive", "Workers that have been heard of.", absent=True),
        _gauge("dead_letters_unresolved", "Dead letters that nobody has dealt with.", absent=True),
        _gauge("store_up", "1 if the store has answered."),
        _gauge("component_healthy", "1 if the component is well or has nothing to do.", "component"),
        _counter("events", "What the services announced, by name.", "event"),
    )
}


def exposed_name(measure: Metric, prefix: str) -> str:
    """The name under which a query finds it."""
    return f"{prefix}{measure.name}{'_total' if measure.kind is MetricKind.COUNTER else ''}"


class HistogramSample(Struct, frozen=True):
    """How many numbers fell under each bound of a histogram and not under the one before, and their sum."""

    counts: tuple[int, ...]
    sum: float


class MetricFamily(Struct, frozen=True):
    """A measure with its numbers by their labels."""

    measure: Metric
    samples: Mapping[tuple[str, ...], float | HistogramSample]
