"""The consequences of the end of an attempt: the task is over, or is retried, and when.

The decision rests on the assignment alone, which the worker holds. The store decides whether the attempt still counts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.agents.rules import AgentSpending, spent_of_meters
from gnomon.core.agents.sessions import SessionTurn, session_turn
from gnomon.core.announcements.model import AnnounceRule
from gnomon.core.model import (
    Attempt,
    DeadLetter,
    LogLine,
    Result,
    Run,
    RunId,
    RunStatus,
    ScheduleUid,
    Task,
    TaskId,
    TickStatus,
)
from gnomon.core.named_breakers import BreakerUse
from gnomon.core.output_policy.ruling import OUTPUT_QUARANTINED, OutputCheck
from gnomon.core.runs.deadlines import DEADLINE_EXCEEDED, deadline_text, has_passed
from gnomon.core.runs.failure_kinds import FailureReason, letter_of
from gnomon.core.runs.retry import (
    LONGEST_ROUTING_BACKOFF_MS,
    ROUTING_BACKOFF_MS,
    delay_ms,
    routing_delay_ms,
    share_of,
)
from gnomon.core.runs.rollback import COMPENSATION_FAILED, compensation_record, is_compensation
from gnomon.core.runs.states import TERMINAL, TaskState, WaitReason
from gnomon.core.runs.task_breakers import breaker_use
from gnomon.core.runs.workflow import Delivery, RetryPolicy, Step, Workflow

#: The delay between a lost attempt and the next one, if the job has no retry policy.
_AFTER_LOSS = RetryPolicy(initial_delay_ms=500, max_delay_ms=30_000)


#: The results that count as attempts.
FAILURES = frozenset((Result.FAILED, Result.GAVE_UP, Result.TIMED_OUT, Result.LOST))
#: Errors for outcomes that the function itself did not report as an error.
_NO_SNOOZE = {(Result.SNOOZED, TaskState.FAILED): "it asked to be called again, which at_most_once does not allow"}


class GiveUpLimits(Struct, frozen=True, kw_only=True):
    """The limits of retries after failures that are not the job's own."""

    #: The number of workers that may be lost while they execute a task.
    losses: int = 3
    #: The number of times that no worker could take a task.
    routings: int = 50
    #: The number of times that the definition of a run was not found.
    launches: int = 3
    #: The delay before a task is routed again after the first time, which doubles up to the longest one.
    routing_backoff_ms: int = ROUTING_BACKOFF_MS
    max_routing_backoff_ms: int = LONGEST_ROUTING_BACKOFF_MS

    def routing_delay_ms(self, tries: int, share: float) -> int:
        """The delay after so many tries to route a task; see retry.routing_delay_ms."""
        first, longest = self.routing_backoff_ms, self.max_routing_backoff_ms
        return routing_delay_ms(tries, share, first_ms=first, longest_ms=longest)


class Assignment(Struct, frozen=True, kw_only=True, gc=False):
    """A task that is assigned to a worker, with everything that its execution needs."""

    #: The task as it is now: its fence is that of the attempt.
    task: Task
    run: Run
    workflow: Workflow
    step: Step
    input: Mapping[str, Any]
    #: The input of the run as JSON; None for the input of the workflow.
    given: bytes | None = None
    #: Whether an approval of the commands of its definition counts.
    approved: bool = False
    #: The messages of the session of an agent, as a list in JSON; None without a session.
    history: bytes | None = None
    #: How much of `agents.max_cost_per_day` an agent may spend, in millionths; None for any cost.
    day_cost_left: int | None = None
    #: The idempotency key of a compensation, which its message says; None: it follows from what is held here.
    key: str | None = None

    @property
    def attempt(self) -> int:
        """The number of this attempt among those that count, from 1."""
        return self.task.attempts + 1


class AttemptOutcome(Struct, frozen=True, kw_only=True, gc=False):
    """The end of an attempt as its worker reports it."""

    result: Result
    error: str | None = None
    #: The return value of the function as JSON.
    output: bytes | None = None
    snooze_ms: int = 0
    #: How long the other side asks to wait before the next attempt; the retry policy may wait longer.
    retry_after_ms: int = 0
    #: It was not started only because its worker had no free thread or process. That is no failed dispatch.
    waited_for_slot: bool = False
    #: It was cancelled or given up before its function or program began.
    never_began: bool = False
    #: It was ended because its task has passed its deadline.
    past_deadline: bool = False
    #: The reason for which the output is held back.
    quarantine: str | None = None
    #: The findings of the policy of outputs; None: it was not asked.
    check: OutputCheck | None = None
    #: The end of the lease that was found expired. If the lease was renewed since, the attempt is not lost.
    lease_until: int | None = None
    #: The remote worker that reports: the report is void if the attempt is another's. None: our own processes.
    reported_by: str | None = None
    logs: tuple[LogLine, ...] = ()
    #: Whether lines of its log were kept while it went on: these lines replace them.
    log_kept: bool = False
    #: Whether its log was too large for a message: the lines that were kept come before these.
    log_left_out: bool = False
    #: The usage of an agent; None for other functions.
    usage: AgentSpending | None = None
    #: The messages of an agent for the session of its step, as a list in JSON; None without one.
    turn: bytes | None = None
    #: How much of each meter it has spent; None: nobody knows.
    spent: Mapping[str, int] | None = None


class TaskCompletion(Struct, frozen=True, kw_only=True, gc=False):
    """The next state of a task after an attempt, to be written if the attempt still counts."""

    task_id: TaskId
    step: str
    #: The run as it was when the task was taken.
    run: Run
    fence: int
    result: Result
    state: TaskState
    wait_reason: WaitReason = WaitReason.READY
    available_at: int
    attempts: int
    losses: int
    routings: int
    ended_at: int
    error: str | None = None
    #: The record of the compensation of its step, if the attempt succeeded.
    compensation: bytes | None = None
    output: bytes | None = None
    logs: tuple[LogLine, ...] = ()
    #: See AttemptOutcome.log_kept and AttemptOutcome.log_left_out.
    log_kept: bool = False
    log_left_out: bool = False
    #: See AttemptOutcome.usage.
    usage: AgentSpending | None = None
    #: The messages of an agent, for its session.
    turn: SessionTurn | None = None
    #: See AttemptOutcome.check.
    check: OutputCheck | None = None
    #: The reason of the dead letter; None if there is none.
    dead_letter: str | None = None
    #: Void unless the lease of the attempt still ends then; None: not checked.
    lease_until: int | None = None
    #: Void if the attempt belongs to another worker than this one; None: not checked.
    reported_by: str | None = None
    #: See AttemptOutcome.never_began.
    never_began: bool = False
    #: The breaker that learns how it ended; None: its step names none.
    breaker: BreakerUse | None = None
    #: Whether the attempt has reserved a part of a budget, and how much of each meter it has spent; None: unknown.
    budgeted: bool = False
    spent: Mapping[str, int] | None = None
    #: The workflow by which the run goes on; None if the run has no other task.
    graph: Workflow | None = None
    #: The rules by which the end of the run is announced, if it has no other task.
    announce: tuple[AnnounceRule, ...] = ()

    @property
    def run_id(self) -> RunId:
        """The run of the task."""
        return self.run.run_id

    @property
    def schedule_uid(self) -> ScheduleUid | None:
        """The schedule of the run."""
        return self.run.schedule_uid

    @property
    def over(self) -> bool:
        """Whether the task ends."""
        return self.state in TERMINAL


class _NextState(Struct, frozen=True):
    """The next state of a task, and when it may be tried again."""

    state: TaskState
    wait_reason: WaitReason = WaitReason.READY
    after_ms: int = 0
    dead_letter: str | None = None


_SUCCEEDED = _NextState(TaskState.SUCCEEDED)
_HELD_BACK = _NextState(TaskState.OUTPUT_QUARANTINED, dead_letter=OUTPUT_QUARANTINED)


def complete_attempt(held: Assignment, outcome: AttemptOutcome, *, now: int, limits: GiveUpLimits) -> TaskCompletion:
    """The consequences of the outcome of an attempt."""
    task, result = held.task, outcome.result
    lost, undispatched = result is Result.LOST, result is Result.NEVER_STARTED and not outcome.waited_for_slot
    after = _after(held, outcome, limits)
    error = outcome.quarantine or outcome.error or _NO_SNOOZE.get((result, after.state))
    if task.deadline_at is not None and _ends_by_deadline(task.deadline_at, outcome, after, now):
        after = _NextState(TaskState.TIMEOUT, dead_letter=DEADLINE_EXCEEDED)
        error = deadline_error(task.deadline_at, error)
    allowed = None if task.constraints is None else task.constraints.max_output_bytes
    output = outcome.output
    return TaskCompletion(
        task_id=task.task_id,
        step=task.step,
        run=held.run,
        fence=task.fence,
        result=result,
        state=after.state,
        wait_reason=after.wait_reason,
        available_at=now + after.after_ms,
        attempts=task.attempts + (result in FAILURES),
        losses=task.losses + lost,
        routings=task.routings + undispatched,
        ended_at=now,
        error=error,
        output=output if output is None or allowed is None else bounded_output(output, allowed),
        check=outcome.check,
        logs=outcome.logs,
        log_kept=outcome.log_kept,
        log_left_out=outcome.log_left_out,
        usage=outcome.usage,
        turn=None if outcome.turn is None else session_turn(held.step.agent, outcome.turn),
        dead_letter=after.dead_letter,
        lease_until=outcome.lease_until,
        reported_by=outcome.reported_by,
        never_began=outcome.never_began,
        breaker=breaker_use(held.step, held.run, task.task_id, task.fence),
        budgeted=task.constraints is not None and bool(task.constraints.spend),
        spent=_spent(outcome),
        compensation=compensation_record(held.step)
        if held.step.compensate is not None and result is Result.SUCCEEDED
        else None,
        graph=None if held.workflow.is_single_step else held.workflow,
        announce=held.workflow.announce,
    )


def _ends_by_deadline(deadline_at: int, outcome: AttemptOutcome, after: _NextState, now: int) -> bool:
    """Whether the deadline ended the attempt, or leaves no time for the next one."""
    if outcome.past_deadline and outcome.result is Result.TIMED_OUT:
        return True
    return after.state is TaskState.PENDING and now + after.after_ms >= deadline_at


def deadline_error(deadline_at: int, error: str | None) -> str:
    """The error of a task that its deadline ended, with the error of its last attempt."""
    text = deadline_text(deadline_at)
    if error is None:
        return text
    return error if error.startswith(text) else f"{text}; the last attempt: {error}"


def outcome_by_deadline(task: Task, outcome: AttemptOutcome, *, now: int) -> AttemptOutcome:
    """The outcome of a task of the engine: what it waits for has the same deadline, and fails by it."""
    failed = outcome.result in (Result.FAILED, Result.GAVE_UP)
    if not failed or not has_passed(task.deadline_at, now):
        return outcome
    return replace(outcome, result=Result.TIMED_OUT, past_deadline=True)


def _spent(outcome: AttemptOutcome) -> Mapping[str, int] | None:
    """How much of each meter the attempt has spent. An agent counts its own actions, tokens and cost."""
    return outcome.spent if outcome.usage is None else {**(outcome.spent or {}), **spent_of_meters(outcome.usage)}


def bounded_output(written: bytes, limit: int) -> bytes:
    """The output, which is JSON; above the limit in bytes, an object with its size and its beginning."""
    if len(written) <= limit:
        return written
    head = written[:limit].decode(errors="ignore")
    while len(cut := _cut_output(head, len(written))) > limit:
        # A character is at most six bytes once it is escaped.
        head = head[: len(head) - max(1, (len(cut) - limit) // 6)]
    return cut


def _cut_output(head: str, size: int) -> bytes:
    facts: dict[str, Any] = {"truncated": True, "bytes": size, "head": head}
    return msgspec.json.encode(facts)


def costs_nothing(ended: TaskCompletion, *, started: bool) -> bool:
    """Whether an attempt is no action: its program never began. `started` says whether its worker has started it."""
    if ended.result in (Result.CANCELLED, Result.GAVE_UP):
        return ended.never_began or not started
    return ended.result in (Result.NEVER_STARTED, Result.DENIED)


def _after(held: Assignment, outcome: AttemptOutcome, limits: GiveUpLimits) -> _NextState:
    match outcome.result:
        case Result.SUCCEEDED:
            after = _SUCCEEDED if outcome.quarantine is None else _HELD_BACK
        case Result.SNOOZED if _may_start_again(held):
            after = _NextState(TaskState.PENDING, WaitReason.DELAY, outcome.snooze_ms)
        case Result.CANCELLED:
            after = _NextState(TaskState.CANCELLED)
        case Result.GAVE_UP | Result.SNOOZED:
            # A snoozed function would start a second time, which an at_most_once job must not.
            after = _NextState(TaskState.FAILED, dead_letter=_dead_letter_reason(held, FailureReason.GAVE_UP))
        case Result.DENIED:
            after = _NextState(TaskState.DENIED, dead_letter=FailureReason.SAFETY_DENIED.value)
        case Result.NEVER_STARTED:
            after = _never_started(held, outcome, limits)
        case Result.LOST:
            after = _lost(held, limits)
        case Result.INTERRUPTED:
            after = _interrupted(held)
        case Result.FAILED | Result.TIMED_OUT:
            after = _failed(held, outcome)
    return after


def _failed(held: Assignment, outcome: AttemptOutcome) -> _NextState:
    retry = held.step.retry
    if retry is not None and held.attempt < retry.max_attempts and _may_start_again(held):
        return _NextState(TaskState.PENDING, WaitReason.RETRY, max(_delay(held, retry), outcome.retry_after_ms))
    state = TaskState.TIMEOUT if outcome.result is Result.TIMED_OUT else TaskState.FAILED
    return _NextState(state, dead_letter=_dead_letter_reason(held, FailureReason.ATTEMPTS_EXHAUSTED))


def _lost(held: Assignment, limits: GiveUpLimits) -> _NextState:
    if not _may_repeat(held):
        return _NextState(TaskState.FAILED, dead_letter=_dead_letter_reason(held, FailureReason.WORKER_LOST))
    if held.task.losses + 1 >= limits.losses:
        # The task probably kills its workers: a person has to look at it, whatever the job's dead_letter option.
        return _NextState(TaskState.FAILED, dead_letter=FailureReason.WORKER_LOST.value)
    retry = held.step.retry
    if retry is not None and held.attempt >= retry.max_attempts:
        return _NextState(TaskState.FAILED, dead_letter=_dead_letter_reason(held, FailureReason.WORKER_LOST))
    return _NextState(TaskState.PENDING, WaitReason.RETRY, _delay(held, retry or _AFTER_LOSS))


def _interrupted(held: Assignment) -> _NextState:
    """The next state after a stop that was requested: it counts neither as an attempt nor as a loss."""
    if _may_repeat(held):
        return _NextState(TaskState.PENDING)
    return _NextState(TaskState.FAILED, dead_letter=_dead_letter_reason(held, FailureReason.INTERRUPTED))


def _never_started(held: Assignment, outcome: AttemptOutcome, limits: GiveUpLimits) -> _NextState:
    if outcome.waited_for_slot:
        return _NextState(TaskState.PENDING, WaitReason.RETRY, limits.routing_delay_ms(0, _share(held)))
    tries = held.task.routings + 1
    if tries >= limits.routings:
        return _NextState(TaskState.FAILED, dead_letter=FailureReason.DISPATCH_FAILED.value)
    return _NextState(TaskState.PENDING, WaitReason.ROUTE, limits.routing_delay_ms(tries - 1, _share(held)))


def _share(held: Assignment) -> float:
    return share_of(held.task.task_id, held.task.fence)


def _may_start_again(held: Assignment) -> bool:
    return held.workflow.delivery is Delivery.AT_LEAST_ONCE


def _may_repeat(held: Assignment) -> bool:
    """Whether an attempt may be repeated that may have got to any point: nobody knows which tools an agent has called.

    A job with a retry policy says that its repetition does no harm.
    """
    agent = held.step.agent
    return _may_start_again(held) and (agent is None or held.step.retry is not None or not agent.changes_something)


def _delay(held: Assignment, retry: RetryPolicy) -> int:
    return delay_ms(retry, held.attempt, share_of(held.task.task_id, held.attempt))


def _dead_letter_reason(held: Assignment, reason: FailureReason) -> str | None:
    if is_compensation(held.step.name):
        # A compensation that waits for others leaves no letter besides theirs.
        waits = held.step.workflow is not None or (held.task.parent is None and held.step.foreach is not None)
        return None if waits else COMPENSATION_FAILED
    return letter_of(reason, asked=held.workflow.dead_letter)


def cancel_instead_of_retry(ended: TaskCompletion) -> TaskCompletion:
    """The completion for a run that is being cancelled: the task ends instead of being retried."""
    if ended.over:
        return ended
    return replace(ended, state=TaskState.CANCELLED, available_at=ended.ended_at, wait_reason=WaitReason.READY)


_RUN_STATUS = {
    TaskState.SUCCEEDED: RunStatus.COMPLETED,
    TaskState.CANCELLED: RunStatus.CANCELLED,
}
_TICK_STATUS = {RunStatus.COMPLETED: TickStatus.SUCCESS, RunStatus.FAILED: TickStatus.FAILED}


def run_status(state: TaskState) -> RunStatus:
    """The status of a run whose only task ended in this state."""
    return _RUN_STATUS.get(state, RunStatus.FAILED)


def tick_status(status: RunStatus, *, started: bool) -> TickStatus:
    """The status of the tick of a run that has ended."""
    return _TICK_STATUS.get(status, TickStatus.FAILED if started else TickStatus.SKIPPED)


def run_error(run: Run, status: RunStatus, error: str | None) -> str | None:
    """The error that a run shows after its end."""
    if status is RunStatus.COMPLETED:
        return None
    # Failed runs are counted by an index of those with an error.
    return run.error or error or ("no reason was given" if status is RunStatus.FAILED else None)


def dead_letter_id(task_id: TaskId) -> str:
    """The id of the only dead letter that a task can leave."""
    return f"dl_{task_id.removeprefix('task_')}"


def dead_letter(
    task: Task, run: Run, attempts: Sequence[Attempt], reason: str, error: str | None, given: bytes | None, *, now: int
) -> DeadLetter:
    """The dead letter of a task, written at its end."""
    started = [attempt.started_at for attempt in attempts if attempt.started_at is not None]
    return DeadLetter(
        dead_letter_id=dead_letter_id(task.task_id),
        tenant=run.tenant,
        job=run.schedule_id or run.workflow_id,
        run_id=run.run_id,
        task_id=task.task_id,
        step=task.step,
        reason=reason,
        attempts=task.attempts,
        last_error=error,
        input=given,
        first_attempt_at=min(started, default=now),
        last_attempt_at=max(started, default=now),
        created_at=now,
    )
