"""From commits to metrics: which counters grow, and which durations are observed, when a store commits a change.

Two classes follow these rules. The recorder of a server adds the values to its own metrics at once. A process that
serves no counters, such as `gnomon worker` or a command on the database, records them for the outbox: its commits
write them in the same transaction, and one server adds them later (`metrics_outbox.py`).
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from gnomon.core.agents.rules import AgentSpending
from gnomon.core.approvals.model import Approval, ApprovalStatus, outcome_of
from gnomon.core.commands.actions import WORKER_RULE
from gnomon.core.metrics import CountedStep, MetricChanges
from gnomon.core.model import Reason, Result, Run, RunId, RunSource, RunStatus, TickKind, TickVerdict
from gnomon.core.named_breakers import BreakerChange
from gnomon.core.output_policy.late import LateResult
from gnomon.core.output_policy.ruling import UNCHECKED_RULE, OutputDecision, OutputPhase, OutputRuling
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.rollback import is_compensation
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.ports.commit_observer import DeniedTask, FinishedRun, TaskRuling

_ENCODER = msgspec.json.Encoder()
_NO_CHANGES = MetricChanges()
_OVERLAPS = frozenset({Reason.OVERLAP, Reason.QUEUE_FULL})
_NOTHING_TO_LAUNCH = "launch_failed"


class CommitMetrics(ABC):
    """Implements RunObserver and ActivityObserver: translates committed changes into values of metrics."""

    @abstractmethod
    def add(self, name: str, *labels: str, count: int = 1) -> None:
        """Add to a counter."""

    @abstractmethod
    def observe(self, name: str, ms: int, *labels: str) -> None:
        """Add a duration to a histogram."""

    @abstractmethod
    def add_by_step(self, name: str, labels: tuple[str, ...], step: CountedStep, *, count: int = 1) -> None:
        """Add to a counter whose last label is the topic of the step."""

    @abstractmethod
    def observe_by_step(self, name: str, ms: int, labels: tuple[str, ...], step: CountedStep) -> None:
        """Add a duration to a histogram whose last label is the topic of the step."""

    @abstractmethod
    def succeeded(self, job: str, at: int) -> None:
        """Remember the time at which an execution of the job succeeded."""

    @abstractmethod
    def graph_ended(self, run: RunId, job: str) -> None:
        """Count the steps of the run later."""

    def job_label(self, job: str) -> str:
        """The label of a job."""
        return job

    def model_label(self, model: str) -> str:
        """The label of a model."""
        return model

    def topic_label(self, topic: str) -> str:
        """The label of a topic."""
        return topic

    def decided(self, verdicts: Sequence[TickVerdict], now: int) -> None:
        """See ActivityObserver.decided."""
        for verdict in verdicts:
            schedule = verdict.schedule
            job, spec = self.job_label(schedule.schedule_id), schedule.spec
            for decision in verdict.decisions:
                self.add("ticks_decided", job, decision.kind.value, decision.reason.value, count=decision.count)
                if decision.fire_at is not None:
                    self.add("runs_emitted")
                    step = CountedStep(schedule.tenant, spec.workflow_id, spec.workflow_version)
                    self.add_by_step("jobs_received", (job,), step)
                if decision.kind is TickKind.FIRED and decision.fire_at is not None:
                    self.observe("schedule_drift_seconds", abs(max(now, decision.fire_at) - decision.planned_at))
                elif decision.reason in _OVERLAPS:
                    self.add("runs_skipped_overlap", count=decision.count)

    def launched(self, runs: Sequence[Run]) -> None:
        """See RunObserver.launched."""
        for run in runs:
            self.add_by_step("jobs_received", (self._job(run),), _step_of(run))

    def taken(self, tasks: Sequence[ReadyTask], now: int) -> None:
        """See ActivityObserver.taken."""
        for one in tasks:
            step = _step_of(one.run, one.task.step)
            self.add_by_step("jobs_dispatched", (self._job(one.run),), step)
            self.observe_by_step("dispatch_latency_seconds", now - one.task.available_at, (), step)
            if is_compensation(one.task.step):
                self.add("saga_compensation_dispatched")

    def started(self, runs: Sequence[Run], now: int) -> None:
        """See RunObserver.started."""
        for run in runs:
            if run.source is RunSource.CRON:
                self.observe("start_delay_seconds", now - run.planned_at)

    def tried(self, endings: Sequence[TaskCompletion]) -> None:
        """See ActivityObserver.tried."""
        for one in endings:
            self.add("attempts_ended", one.result._value_)
            if one.result is Result.DENIED:
                self.add("commands_denied", WORKER_RULE)
            if one.wait_reason is WaitReason.RETRY:
                self.add("retries", self._job(one.run))
            if one.compensation is not None:
                self.add("saga_recorded")
            if one.check is not None:
                check = one.check
                held = check.held is not None
                self._output_ruled(check.topic, check.ruling, check.ms, OutputPhase.INLINE, held=held)
            if one.over and one.state is not TaskState.SUCCEEDED and is_compensation(one.step):
                self.add("saga_compensation_failed")
            if one.usage is not None and one.usage.model:
                self._spent(self._job(one.run), self.model_label(one.usage.model), one.usage)

    def checked_late(self, results: Sequence[LateResult]) -> None:
        """See RunObserver.checked_late."""
        for one in results:
            self._output_ruled(one.topic, one.ruling, one.ms, OutputPhase.LATE, held=one.held is not None)

    def attempts_cancelled(self, count: int) -> None:
        """See ActivityObserver.attempts_cancelled."""
        self.add("attempts_ended", Result.CANCELLED.value, count=count)

    def denied(self, denials: Sequence[DeniedTask]) -> None:
        """See ActivityObserver.denied."""
        for rule, topic in denials:
            if rule is not None:
                self.add("commands_denied", rule)
            if topic is not None:
                self.add("safety_denied", self.topic_label(topic))

    def approvals_changed(self, approvals: Sequence[Approval]) -> None:
        """See RunObserver.approvals_changed."""
        for one in approvals:
            if one.status is not ApprovalStatus.WAITING or not one.votes:
                self.add("approvals", outcome_of(one))

    def ruled(self, rulings: Sequence[TaskRuling]) -> None:
        """See RunObserver.ruled."""
        del rulings  # refusals are counted in `denied`, questions in `approvals_changed`

    def breakers_changed(self, changes: Sequence[BreakerChange], now: int) -> None:
        """See ActivityObserver.breakers_changed."""
        del now
        for one in changes:
            self.add("breaker_changes", one.state.value)

    def dead_lettered(self, jobs: Sequence[str]) -> None:
        """See ActivityObserver.dead_lettered."""
        for job in jobs:
            self.add("dead_letters", self.job_label(job))

    def ended(self, finishes: Sequence[FinishedRun]) -> None:
        """See RunObserver.ended."""
        for run, status, error, at in finishes:
            job = self._job(run)
            self.add("executions", job, status._value_, run.source._value_)
            self.add_by_step("jobs_completed", (job, status._value_), _step_of(run))
            if run.started_at is not None:
                self.observe("execution_duration_seconds", at - run.started_at, job)
            if status is RunStatus.COMPLETED:
                self.succeeded(job, at)
            if status is RunStatus.FAILED and (error or "").startswith(_NOTHING_TO_LAUNCH):
                self.add("runs_failed_launch")

    def rolled_back(self, runs: int, unreadable: int, ended_ms: Sequence[int]) -> None:
        """See RunObserver.rolled_back."""
        if runs:
            self.add("saga_rollback_triggered", count=runs)
        if unreadable:
            self.add("saga_unmarshal_error", count=unreadable)
        for ms in ended_ms:
            self.observe("saga_rollback_duration_seconds", ms)

    def graph_runs_ended(self, runs: Sequence[Run]) -> None:
        """See ActivityObserver.graph_runs_ended."""
        for run in runs:
            self.graph_ended(run.run_id, run.schedule_id or run.workflow_id)

    def _output_ruled(self, of: str, ruling: OutputRuling | None, ms: int, phase: OutputPhase, *, held: bool) -> None:
        topic = self.topic_label(of)
        if ruling is None or ruling.rule == UNCHECKED_RULE:
            self.add("output_policy_skipped", topic)
        else:
            self.add("output_policy_checked", topic)
            self.observe("output_check_latency_seconds", ms, topic, phase.value)
        if held:
            self.add("output_policy_quarantined", topic)
        elif ruling is not None and ruling.decision is OutputDecision.REDACT:
            self.add("output_policy_redacted", topic)

    def _spent(self, job: str, model: str, spent: AgentSpending) -> None:
        """Count what an agent has used; before the first answer of a model that is nothing."""
        self.add("agent_tokens", job, model, "input", count=spent.input_tokens)
        self.add("agent_tokens", job, model, "output", count=spent.output_tokens)
        self.add("agent_cost_micros", job, model, count=spent.cost_micros)

    def _job(self, run: Run) -> str:
        return self.job_label(run.schedule_id or run.workflow_id)


def _step_of(run: Run, step: str = "") -> CountedStep:
    return CountedStep(run.tenant, run.workflow_id, run.workflow_version, step)


class OutboxEntry(CommitMetrics):
    """Implements CommitJournal: the values that follow from one transaction."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, tuple[str, ...]]]()
        self._durations: defaultdict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
        self._counts_by_step = Counter[tuple[str, tuple[str, ...], CountedStep]]()
        self._durations_by_step: defaultdict[tuple[str, tuple[str, ...], CountedStep], list[int]] = defaultdict(list)
        self._graphs: dict[RunId, str] = {}
        self._successes: dict[str, int] = {}

    def add(self, name: str, *labels: str, count: int = 1) -> None:
        """See CommitMetrics.add."""
        self._counts[name, labels] += count

    def observe(self, name: str, ms: int, *labels: str) -> None:
        """See CommitMetrics.observe."""
        self._durations[name, labels].append(ms)

    def add_by_step(self, name: str, labels: tuple[str, ...], step: CountedStep, *, count: int = 1) -> None:
        """See CommitMetrics.add_by_step."""
        self._counts_by_step[name, labels, step] += count

    def observe_by_step(self, name: str, ms: int, labels: tuple[str, ...], step: CountedStep) -> None:
        """See CommitMetrics.observe_by_step."""
        self._durations_by_step[name, labels, step].append(ms)

    def succeeded(self, job: str, at: int) -> None:
        """See CommitMetrics.succeeded."""
        self._successes[job] = max(at, self._successes.get(job, at))

    def graph_ended(self, run: RunId, job: str) -> None:
        """See CommitMetrics.graph_ended."""
        self._graphs[run] = job

    def encoded(self) -> bytes | None:
        """See CommitJournal.encoded."""
        changes = MetricChanges(
            counts=tuple((*key, count) for key, count in self._counts.items() if count),
            durations=tuple((*key, tuple(found)) for key, found in self._durations.items()),
            counts_by_step=tuple((*key, count) for key, count in self._counts_by_step.items()),
            durations_by_step=tuple((*key, tuple(found)) for key, found in self._durations_by_step.items()),
            graphs=self._graphs,
            successes=self._successes,
        )
        return None if changes == _NO_CHANGES else _ENCODER.encode(changes)
