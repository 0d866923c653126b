"""The table of metrics: name, kind and labels of each. The page docs/metrics.md shows this table.

Label values come from small or bounded sets. No run, task, worker or tenant is a label.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from gnomon.core.model import RunId

#: The label of all jobs that are not shown by name, and of every family before anything has happened.
OTHER_LABEL = "other"


class MetricKind(StrEnum):
    """The type of a metric."""

    #: Grows as long as the process lives. Its name ends in `_total`.
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricScope(StrEnum):
    """Which processes export a metric."""

    #: Scheduling, execution and the store. Servers export it, also for the commits of workers.
    SERVERS = "servers"
    #: The process itself. Every process exports its own, also a worker.
    ALL = "all"


class Metric(Struct, frozen=True, kw_only=True):
    """A metric family."""

    #: Without the prefix, and without the `_total` of a counter.
    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    scope: MetricScope = MetricScope.SERVERS
    #: Upper bounds in seconds; values above the last one are counted as well.
    buckets: tuple[float, ...] = ()
    #: The metric is absent while it has no value.
    may_be_absent: bool = False


_FINE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)
_COARSE = (0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 14400)


_SERVERS, _ALL = MetricScope.SERVERS, MetricScope.ALL


def _counter(name: str, help_text: str, *labels: str, scope: MetricScope = _SERVERS) -> Metric:
    return Metric(name=name, kind=MetricKind.COUNTER, help=help_text, labels=labels, scope=scope)


def _gauge(name: str, help_text: str, *labels: str, absent: bool = False, scope: MetricScope = _SERVERS) -> Metric:
    return Metric(name=name, kind=MetricKind.GAUGE, help=help_text, labels=labels, may_be_absent=absent, scope=scope)


def _histogram(name: str, help_text: str, *labels: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(name=name, kind=MetricKind.HISTOGRAM, help=help_text, labels=labels, buckets=buckets)


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        _counter("executions", "Executions that have ended.", "job", "status", "trigger"),
        _counter("retries", "Attempts that are followed by a retry.", "job"),
        _counter("dead_letters", "Dead letters created.", "job"),
        _counter("saga_recorded", "Successes that recorded a compensation."),
        _counter("saga_rollback_triggered", "Executions that were rolled back."),
        _counter("saga_compensation_dispatched", "Compensations that were given to a worker."),
        _counter("saga_compensation_failed", "Compensations that failed for good."),
        _counter("saga_unmarshal_error", "Compensations that are not the recorded ones."),
        _histogram("saga_rollback_duration_seconds", "From the first compensation to the last end.", buckets=_COARSE),
        _gauge("saga_active", "Executions that are being rolled back.", absent=True),
        _histogram("execution_duration_seconds", "From the start of an execution to its end.", "job", buckets=_COARSE),
        _gauge("jobs_registered", "Registered jobs.", absent=True),
        _gauge("next_fire_seconds", "Seconds until the next fire; negative if it is overdue.", "job", absent=True),
        _gauge("last_success_timestamp_seconds", "Unix time of the last completed execution.", "job", absent=True),
        _gauge("lock_held", "1 while an execution excludes other executions of its job.", "job", absent=True),
        _counter("dag_steps", "Ended steps of executions that have several steps.", "job", "step", "status"),
        _gauge("leader_active", "1 while this node decides ticks; absent while it does not.", absent=True),
        _gauge("shards_held", "Shards whose ticks this node decides."),
        _gauge("schedules_due", "Schedules with a due fire that is not decided.", absent=True),
        _gauge("oldest_due_seconds", "Age of the oldest undecided due fire.", absent=True),
        _counter("runs_emitted", "Executions created by ticks."),
        _counter(
            "runs_skipped_overlap", "Ticks without an execution, because another was running or the queue was full."
        ),
        _counter("runs_failed_launch", "Executions that failed because their workflow is missing."),
        _histogram("schedule_drift_seconds", "Absolute difference between planned time and fire.", buckets=_FINE),
        _histogram("start_delay_seconds", "From the planned time to the start of the first attempt.", buckets=_FINE),
        _counter("ticks_decided", "Decided ticks, by decision and reason.", "job", "kind", "reason"),
        _counter("jobs_received", "Executions created, by any trigger.", "job", "topic"),
        _counter("jobs_completed", "Executions that have ended, of any trigger.", "job", "status", "topic"),
        _counter("jobs_dispatched", "Attempts dispatched to a worker.", "job", "topic"),
        _counter("attempts_ended", "Ended attempts, by result.", "result"),
        _counter("agent_tokens", "Tokens that agents have read and written.", "job", "model", "direction"),
        _counter("agent_cost_micros", "Cost of agents by `agents.prices`, in millionths.", "job", "model"),
        _counter("approvals", "Approvals of tasks that were asked for or have ended, by outcome.", "outcome"),
        _counter("breaker_changes", "Circuit breakers that have opened, become half open or closed.", "state"),
        _counter("safety_denied", "Tasks that the policy of tasks has denied, by topic.", "topic"),
        _counter("safety_unavailable", "Questions to the policy kernel without an answer, by topic.", "topic"),
        _counter("input_fail_open", "Tasks that ran because the policy kernel could not be asked, by topic.", "topic"),
        _counter("output_policy_checked", "Outputs that were checked, by topic.", "topic"),
        _counter("output_policy_quarantined", "Outputs that are held back, by topic.", "topic"),
        _counter("output_policy_redacted", "Outputs that were redacted, by topic.", "topic"),
        _counter("output_policy_skipped", "Outputs that nothing could check in time, by topic.", "topic"),
        _histogram("output_check_latency_seconds", "Duration of checks of outputs.", "topic", "phase", buckets=_FINE),
        _counter("commands_denied", "Tasks that the policy of commands has denied, by the rule.", "rule"),
        _counter("policy_shadow_rulings", "Rulings of the shadow of the policy, by result.", "result"),
        _histogram(
            "dispatch_latency_seconds", "From when a task became ready to its dispatch.", "topic", buckets=_FINE
        ),
        _histogram(
            "job_lock_wait_seconds", "From a write about tasks to the transaction that carries it out.", buckets=_FINE
        ),
        _gauge("stale_jobs", "Tasks that the reconciler or the dispatcher should have handled.", "state", absent=True),
        _counter("orphan_replayed", "Tasks offered again because they were ready for too long, by topic.", "topic"),
        _gauge("tasks_ready_seconds", "Longest time that a due task has waited for a route or a worker.", absent=True),
        _gauge(
            "tasks_waiting", "Tasks that wait for a worker to take them, or for one that can.", "reason", absent=True
        ),
        _gauge("active_coroutines", "Coroutines running in this process.", scope=_ALL),
        _gauge("workers_alive", "Workers with a current heartbeat.", absent=True),
        _gauge("dead_letters_unresolved", "Unresolved dead letters.", absent=True),
        _gauge("store_up", "1 if the store answers.", scope=_ALL),
        _gauge("component_healthy", "1 if the component is ok or idle.", "component", scope=_ALL),
        _counter("events", "Events of the services, by name.", "event", scope=_ALL),
        _counter("announcements", "Results of announcements, by channel.", "channel", "result"),
        _gauge("announcements_pending", "Announcements that are to be sent.", absent=True),
        _gauge("approvals_waiting", "Approvals that wait for votes; at most 1,000 are counted.", absent=True),
        _counter("auth_failures", "Requests whose caller could not be identified, by reason.", "reason"),
    )
}


class HistogramSample(Struct, frozen=True):
    """The number of values between each bound of a histogram and the one before, and the sum of the values."""

    counts: tuple[int, ...]
    sum: float


class CountedStep(NamedTuple):
    """A step of a version of a workflow. Commits are counted by it, because they do not know its topic."""

    tenant: str
    workflow_id: str
    version: int
    #: Empty for the first step, whose topic is that of the execution.
    step: str = ""


class MetricFamily(Struct, frozen=True):
    """A metric with its samples by label values."""

    metric: Metric
    samples: Mapping[tuple[str, ...], float | HistogramSample]


class MetricChanges(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The changes of metrics that follow from one transaction, as a process leaves them for a server to count."""

    #: Metric, label values, and how much the counter grows. Jobs have their full names.
    counts: tuple[tuple[str, tuple[str, ...], int], ...] = ()
    #: Metric, label values, and durations in milliseconds.
    durations: tuple[tuple[str, tuple[str, ...], tuple[int, ...]], ...] = ()
    #: The same for metrics whose last label is the topic of a step: with the labels before that, and the step.
    counts_by_step: tuple[tuple[str, tuple[str, ...], CountedStep, int], ...] = ()
    durations_by_step: tuple[tuple[str, tuple[str, ...], CountedStep, tuple[int, ...]], ...] = ()
    #: Ended runs whose steps are to be counted, with their jobs.
    graphs: Mapping[RunId, str] = {}
    #: The time of the last success of each job that succeeded.
    successes: Mapping[str, int] = {}
