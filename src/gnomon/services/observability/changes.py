"""The changes of a commit, as the stream publishes them."""

from collections.abc import Sequence
from typing import Any

from gnomon.core.approvals.model import Approval
from gnomon.core.breakers import BreakerState
from gnomon.core.ids import run_id
from gnomon.core.instants import instant_of
from gnomon.core.model import DeadLetter, Run, RunStatus, TickVerdict
from gnomon.core.named_breakers import BreakerChange
from gnomon.core.output_policy.late import LateResult
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.states import TaskState
from gnomon.ports.change_log import LOG_CHANGE, Change
from gnomon.ports.commit_observer import DeniedTask, FinishedRun, LoggedLines, TaskRuling


class CommitChanges:
    """Implements ChangeCollector: of ticks, executions, tasks, logs, dead letters, approvals, rulings and breakers."""

    def __init__(self, now: int) -> None:
        """`now` is the time of the changes."""
        self._at = instant_of(now)
        self._changes: list[Change] = []

    def collected(self) -> Sequence[Change]:
        """See ChangeCollector.collected."""
        return self._changes

    def _add(self, kind: str, tenant: str, facts: dict[str, Any]) -> None:
        self._changes.append(Change(kind, tenant, self._at, facts))

    # ---- ticks -------------------------------------------------------------------------------

    def decided(self, verdicts: Sequence[TickVerdict], now: int) -> None:
        """See ActivityObserver.decided."""
        del now
        for verdict in verdicts:
            for one in verdict.decisions:
                facts = {
                    "job": verdict.schedule.schedule_id,
                    "kind": one.kind.value,
                    "reason": one.reason.value,
                    "planned_at": instant_of(one.planned_at),
                    "count": one.count,
                    "execution_id": run_id(verdict.schedule.uid, one.planned_at) if one.starts_run else None,
                }
                self._add("tick", verdict.schedule.tenant, facts)

    # ---- executions --------------------------------------------------------------------------

    def launched(self, runs: Sequence[Run]) -> None:
        """See RunObserver.launched."""
        for run in runs:
            self._run_changed(run, RunStatus.PENDING)

    def started(self, runs: Sequence[Run], now: int) -> None:
        """See RunObserver.started."""
        del now
        for run in runs:
            self._run_changed(run, RunStatus.RUNNING)

    def ended(self, finishes: Sequence[FinishedRun]) -> None:
        """See RunObserver.ended."""
        for run, status, error, _ in finishes:
            self._run_changed(run, status, None if status is RunStatus.COMPLETED else run.error or error)

    def _run_changed(self, run: Run, status: RunStatus, error: str | None = None) -> None:
        facts = {
            "job": run.schedule_id or run.workflow_id,
            "execution_id": run.run_id,
            "status": status.value,
            "trigger": run.source.value,
            "error": error,
        }
        self._add("execution", run.tenant, facts)

    # ---- tasks and dead letters --------------------------------------------------------------

    def tried(self, endings: Sequence[TaskCompletion]) -> None:
        """See ActivityObserver.tried."""
        for one in endings:
            succeeded = one.state is TaskState.SUCCEEDED
            facts = {
                "job": one.run.schedule_id or one.run.workflow_id,
                "step": one.step,
                "attempt": one.fence,
                "error": None if succeeded else one.error,
                "execution_id": one.run_id,
                "became": "succeeded" if succeeded else "failed" if one.over else "waits",
            }
            self._add("task", one.run.tenant, facts)

    def logged(self, lines: Sequence[LoggedLines]) -> None:
        """See LogObserver.logged."""
        for one in lines:
            facts = {
                "job": one.job,
                "step": one.step,
                "attempt": one.attempt,
                "execution_id": one.run_id,
                "lines": one.lines,
            }
            self._add(LOG_CHANGE, one.tenant, facts)

    def letters_written(self, letters: Sequence[DeadLetter]) -> None:
        """See LetterObserver.letters_written."""
        for one in letters:
            self._add("dead_letter", one.tenant, {"job": one.job, "execution_id": one.run_id, "reason": one.reason})

    # ---- approvals ---------------------------------------------------------------------------

    def approvals_changed(self, approvals: Sequence[Approval]) -> None:
        """See RunObserver.approvals_changed."""
        for one in approvals:
            facts = {
                "approval_id": one.approval_id,
                "job": one.subject,
                "execution_id": None if one.request is None else one.request.run_id,
                "status": one.status.value,
                "votes": len(one.votes),
                "overridden": one.overridden,
            }
            self._add("approval", one.tenant, facts)

    # ---- rulings -----------------------------------------------------------------------------

    def ruled(self, rulings: Sequence[TaskRuling]) -> None:
        """See RunObserver.ruled."""
        for tenant, job, one in rulings:
            facts = {
                "job": job,
                "execution_id": one.run_id,
                "task_id": one.task_id,
                "decision": one.decision.value,
                "rule": one.rule,
                "version": one.version,
                "ruled_by": one.ruled_by,
                "reason": one.reason,
                "code": one.code or None,
            }
            self._add("ruling", tenant, facts)

    # ---- breakers ----------------------------------------------------------------------------

    def breakers_changed(self, changes: Sequence[BreakerChange], now: int) -> None:
        """See ActivityObserver.breakers_changed."""
        del now
        for one in changes:
            until = one.named.breaker.open_until if one.state is BreakerState.OPEN else None
            facts = {
                "breaker": one.named.name,
                "state": one.state.value,
                "open_until": None if until is None else instant_of(until),
            }
            self._add("breaker", one.named.tenant, facts)

    # ---- changes that are not published --------------------------------------------------------------

    def taken(self, tasks: Sequence[ReadyTask], now: int) -> None:
        """See ActivityObserver.taken."""

    def checked_late(self, results: Sequence[LateResult]) -> None:
        """See RunObserver.checked_late."""

    def attempts_cancelled(self, count: int) -> None:
        """See ActivityObserver.attempts_cancelled."""

    def denied(self, denials: Sequence[DeniedTask]) -> None:
        """See ActivityObserver.denied."""

    def dead_lettered(self, jobs: Sequence[str]) -> None:
        """See ActivityObserver.dead_lettered."""

    def rolled_back(self, runs: int, unreadable: int, ended_ms: Sequence[int]) -> None:
        """See RunObserver.rolled_back."""

    def graph_runs_ended(self, runs: Sequence[Run]) -> None:
        """See ActivityObserver.graph_runs_ended."""
