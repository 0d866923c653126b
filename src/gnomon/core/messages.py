"""The messages between servers and remote workers: tasks in one direction, reports in the other.

Readers ignore unknown fields, so that adjacent versions can talk to each other. A worker reports outcomes; the server
decides what follows from them. No message holds a secret: secrets are still references.
"""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gnomon.core.agents.rules import AgentSpending, checked_spending
from gnomon.core.agents.spec import AgentSpec
from gnomon.core.commands.sandbox import SandboxMode
from gnomon.core.ids import attempt_key
from gnomon.core.instants import instant_of
from gnomon.core.leases import checked_key
from gnomon.core.model import LogLine, Result, Run, RunId, RunSource, RunStatus, ScheduleUid, Task, TaskId
from gnomon.core.policy.constraints import Constraints
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.progress import AttemptProgress
from gnomon.core.runs.rollback import is_compensation
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import ONLY_STEP, Delivery, Isolation, RetryPolicy, Step, Workflow
from gnomon.core.subjects import check_sender
from gnomon.errors import FieldError

SCHEMA = "hanzo.mq.v1"
#: The largest message in bytes: NATS accepts a megabyte, including headers.
MAX_MESSAGE_BYTES = 1000 * 1000
_EXECUTE, _REPORT = "scheduler.execute", "scheduler.report"
#: The source of every task message: the name of the service, whichever of its servers sends it.
_TASK_SOURCE = "scheduler"
#: The placeholder for all other steps of a workflow, which a worker need not know.
_OTHERS = Step(name="others")
#: The longest error that a server stores; a worker of ours sends at most 4,000 characters.
_LONGEST_ERROR = 10_000
#: The longest snooze that a server accepts.
_LONGEST_SNOOZE_MS = 366 * 24 * 60 * 60_000
#: The name of the history of an agent in the input of its message: no input of a step has it.
_HISTORY = "gnomon.history"
T = TypeVar("T")


class Envelope(Struct, Generic[T], frozen=True, kw_only=True):
    """The envelope of every message."""

    schema: str
    id: str
    type: str
    source: str
    #: When it was written, for people only: no decision depends on it.
    timestamp: str
    data: T


class TaskMessage(Struct, frozen=True, kw_only=True):
    """A task for a worker, with the number of its attempt. A message has every field, also where it has its default.

    The defaults are for messages of older servers, which leave out what has its default.
    """

    job_name: str
    execution_id: str
    function: str
    input: Mapping[str, Any] = {}
    #: The number of the attempt, from 1.
    attempt: int = 1
    #: In seconds; None for the worker's own default, which only commands have.
    timeout: float | None = None
    task_id: str
    step: str = ONLY_STEP
    fence: int
    tenant: str = "default"
    #: The worker must not start it after this instant: the server may have dispatched it again by then.
    deadline: int
    idempotency_key: str = ""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    isolation: Isolation = Isolation.NONE
    command: str = ""
    sandbox: SandboxMode = SandboxMode.AUTO
    network: bool = True
    #: An older worker has not the function of agents, and ignores this.
    agent: AgentSpec | None = None
    #: The retry policy of its agent, which says whether what its tools have changed may be changed again.
    agent_retry: RetryPolicy | None = None
    #: See Assignment.day_cost_left. An older worker ignores it.
    day_cost_left: int | None = None
    #: Whether its job has other steps, and the names of the inputs that its step adds to the input of the run.
    one_of_many: bool = False
    own_input: tuple[str, ...] = ()
    workflow_id: str = ""
    workflow_version: int = 1
    #: Where the definition of the job comes from, see core/jobs/origins.py; an older server does not say it.
    origin: str = ""
    #: See Assignment.approved.
    approved: bool = False
    #: The limits under which the policy lets it run; an older worker ignores them.
    constraints: Constraints | None = None
    #: When the task ends, whatever its worker does; None without a deadline. An older worker ignores it.
    task_deadline: int | None = None
    user_id: str = ""
    source: RunSource = RunSource.API
    planned_at: int = 0
    #: Whether the job has a schedule; otherwise its name is that of its workflow.
    scheduled: bool = False
    #: The id of its schedule, for the prompts of agents; empty without one, or from an older server.
    schedule_uid: str = ""
    #: The only worker that may have it; empty for any worker of the pool, None from an older server.
    to: str | None = None

    @property
    def name(self) -> str:
        """The id of its message: the bus keeps one message of an attempt."""
        return f"{self.task_id}:{self.fence}"


class StartedReport(Struct, frozen=True, gc=False):
    """A worker is about to start an attempt."""

    task_id: TaskId
    fence: int


class EndedReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of an attempt, as its worker reports it."""

    task_id: TaskId
    fence: int
    result: Result
    error: str | None = None
    #: The return value of the function, as raw JSON.
    output: Raw | UnsetType = UNSET
    snooze_ms: int = 0
    #: See AttemptOutcome.retry_after_ms. An older worker does not send it.
    retry_after_ms: int = 0
    #: See AttemptOutcome.waited_for_slot. An older worker does not send it.
    waited_for_slot: bool = False
    #: See AttemptOutcome.never_began. An older worker does not send it.
    never_began: bool = False
    #: See AttemptOutcome.past_deadline. An older worker does not send it.
    past_deadline: bool = False
    logs: tuple[LogLine, ...] = ()
    #: See AttemptOutcome.log_kept and AttemptOutcome.log_left_out. An older worker does not send them.
    log_kept: bool = False
    log_left_out: bool = False
    #: See AttemptOutcome.usage.
    usage: AgentSpending | None = None
    #: The messages of an agent for the session of its step.
    turn: Raw | UnsetType = UNSET
    #: See AttemptOutcome.spent. An older worker does not send it.
    spent: dict[str, int] | None = None

    def outcome(self) -> AttemptOutcome:
        """The outcome in the form that the server decides on."""
        return AttemptOutcome(
            result=self.result,
            error=None if self.error is None else self.error[:_LONGEST_ERROR],
            output=None if self.output is UNSET else bytes(self.output),
            snooze_ms=min(max(0, self.snooze_ms), _LONGEST_SNOOZE_MS),
            retry_after_ms=min(max(0, self.retry_after_ms), _LONGEST_SNOOZE_MS),
            waited_for_slot=self.waited_for_slot,
            never_began=self.never_began,
            past_deadline=self.past_deadline,
            logs=self.logs,
            log_kept=self.log_kept,
            log_left_out=self.log_left_out,
            turn=None if self.turn is UNSET else bytes(self.turn),
            usage=None if self.usage is None else checked_spending(self.usage),
            spent=None if self.spent is None else {meter: max(0, amount) for meter, amount in self.spent.items()},
        )


class WorkerReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reports of one worker; started attempts are processed before ended ones."""

    worker: str
    started: tuple[StartedReport, ...] = ()
    ended: tuple[EndedReport, ...] = ()
    #: The progress of agents that run: each names what was spent. An older server ignores it.
    progress: tuple[AttemptProgress, ...] = ()
    #: The logs of other attempts that go on. An older server ignores it, and could not read it as `progress`.
    log_progress: tuple[AttemptProgress, ...] = ()


#: The most ends in one report: a server looks up all of them at once.
MOST_ENDED = 2_500
#: The most attempts whose progress is in one report.
MOST_PROGRESS = 500
_ENCODER = msgspec.json.Encoder()
_TASK_MESSAGE_DECODER = msgspec.json.Decoder(Envelope[TaskMessage])
_WORKER_REPORT_DECODER = msgspec.json.Decoder(Envelope[WorkerReport])


# ---- from a server to a worker -------------------------------------------------------------------


def task_message_of(
    held: Assignment, *, deadline: int, to: str = "", default_timeout_ms: int | None = None
) -> TaskMessage:
    """The message with everything that a worker needs to run an assignment, for one worker or for its pool.

    `default_timeout_ms` holds for a step without a timeout, unless it is a command: the time of these is a limit of the
    worker.
    """
    run, task, step = held.run, held.task, held.step
    timeout_ms = step.timeout_ms or (None if step.is_command else default_timeout_ms)
    return TaskMessage(
        job_name=run.schedule_id or run.workflow_id,
        execution_id=run.run_id,
        function=step.function,
        # In the input, which is encrypted on the bus.
        input=held.input if held.history is None else {**held.input, _HISTORY: Raw(held.history)},
        attempt=held.attempt,
        timeout=None if timeout_ms is None else timeout_ms / 1000,
        task_id=task.task_id,
        step=step.name,
        fence=task.fence,
        tenant=task.tenant,
        deadline=deadline,
        idempotency_key=attempt_key(run, task, step),
        delivery=held.workflow.delivery,
        isolation=step.isolation,
        command=step.command,
        sandbox=step.sandbox,
        network=step.network,
        agent=step.agent,
        agent_retry=None if step.agent is None else step.retry,
        day_cost_left=held.day_cost_left,
        one_of_many=len(held.workflow.steps) > 1,
        own_input=tuple(step.input),
        workflow_id=run.workflow_id,
        workflow_version=run.workflow_version,
        origin=held.workflow.origin,
        approved=held.approved,
        constraints=task.constraints,
        task_deadline=task.deadline_at,
        user_id=run.user_id,
        source=run.source,
        planned_at=run.planned_at,
        scheduled=run.schedule_id is not None,
        schedule_uid=run.schedule_uid or "",
        to=to,
    )


def assignment_of(message: TaskMessage) -> Assignment:
    """The assignment with as much as a worker needs to run it and to report its outcome."""
    run, step = _run_of(message), _step_of(message)
    workflow = Workflow(
        workflow_id=run.workflow_id,
        version=run.workflow_version,
        steps=(step, _OTHERS) if message.one_of_many else (step,),
        tenant=message.tenant,
        delivery=message.delivery,
        origin=message.origin,
    )
    return Assignment(
        task=_task_of(message),
        run=run,
        workflow=workflow,
        step=step,
        input={name: value for name, value in message.input.items() if name != _HISTORY},
        approved=message.approved,
        history=_history_of(message),
        day_cost_left=message.day_cost_left,
        key=message.idempotency_key if is_compensation(message.step) else None,
    )


def _history_of(message: TaskMessage) -> bytes | None:
    return msgspec.json.encode(message.input[_HISTORY]) if _HISTORY in message.input else None


def _run_of(message: TaskMessage) -> Run:
    return Run(
        run_id=RunId(message.execution_id),
        tenant=message.tenant,
        schedule_uid=ScheduleUid(message.schedule_uid) if message.schedule_uid else None,
        schedule_id=message.job_name if message.scheduled else None,
        workflow_id=message.workflow_id or message.job_name,
        workflow_version=message.workflow_version,
        user_id=message.user_id,
        source=message.source,
        status=RunStatus.RUNNING,
        queued=False,
        planned_at=message.planned_at,
        fire_at=message.planned_at,
        created_at=message.planned_at,
        idempotency_key=message.idempotency_key or None,
    )


def _task_of(message: TaskMessage) -> Task:
    return Task(
        task_id=TaskId(message.task_id),
        tenant=message.tenant,
        run_id=RunId(message.execution_id),
        step=message.step,
        state=TaskState.RUNNING,
        wait_reason=WaitReason.READY,
        available_at=message.planned_at,
        created_at=message.planned_at,
        attempts=message.attempt - 1,
        fence=message.fence,
        constraints=message.constraints,
        deadline_at=message.task_deadline,
    )


def _step_of(message: TaskMessage) -> Step:
    return Step(
        name=message.step,
        function=message.function,
        command=message.command,
        sandbox=message.sandbox,
        network=message.network,
        agent=message.agent,
        retry=message.agent_retry,
        input={name: message.input.get(name) for name in message.own_input},
        timeout_ms=None if message.timeout is None else round(message.timeout * 1000),
        isolation=message.isolation,
    )


def encode_task_message(message: TaskMessage, *, now: int) -> bytes:
    """The task message in its envelope, as JSON."""
    return _message(_EXECUTE, message.task_id, _TASK_SOURCE, now, message)


def decode_task_message(body: bytes) -> TaskMessage:
    """The task message in an envelope; raise FieldError if it cannot be read."""
    return _read(_TASK_MESSAGE_DECODER, body, _EXECUTE).data


# ---- from a worker to a server -------------------------------------------------------------------


def ended_report_of(held: Assignment, outcome: AttemptOutcome) -> EndedReport:
    """The report about the outcome of an assignment."""
    return EndedReport(
        task_id=held.task.task_id,
        fence=held.task.fence,
        result=outcome.result,
        error=outcome.error,
        output=UNSET if outcome.output is None else Raw(outcome.output),
        snooze_ms=outcome.snooze_ms,
        retry_after_ms=outcome.retry_after_ms,
        waited_for_slot=outcome.waited_for_slot,
        never_began=outcome.never_began,
        past_deadline=outcome.past_deadline,
        logs=outcome.logs,
        log_kept=outcome.log_kept,
        log_left_out=outcome.log_left_out,
        usage=outcome.usage,
        turn=UNSET if outcome.turn is None else Raw(outcome.turn),
        spent=None if outcome.spent is None else dict(outcome.spent),
    )


def encode_worker_report(reports: WorkerReport, *, message_id: str, now: int) -> bytes:
    """The reports in their envelope, as JSON.

    If they are too large for a message, progress and logs are left out, so that the outcomes arrive. If that is not
    enough, a large outcome is replaced by an error that says so.
    """
    body = _message(_REPORT, message_id, reports.worker, now, reports)
    if len(body) > MAX_MESSAGE_BYTES and (reports.progress or reports.log_progress):
        progress = tuple(map(_without_lines, reports.progress))
        reports = msgspec.structs.replace(reports, progress=progress, log_progress=())
        body = _message(_REPORT, message_id, reports.worker, now, reports)
    for shorter in (_without_logs, _without_output):
        if len(body) > MAX_MESSAGE_BYTES:
            reports = msgspec.structs.replace(reports, ended=tuple(map(shorter, reports.ended)))
            body = _message(_REPORT, message_id, reports.worker, now, reports)
    return body


def _without_lines(progress: AttemptProgress) -> AttemptProgress:
    return msgspec.structs.replace(progress, known=0, lines=())


def _without_logs(report: EndedReport) -> EndedReport:
    """The report with a remark instead of its log: the lines that were kept while the attempt went on stay."""
    if not report.logs:
        return report
    remark = LogLine(report.logs[-1].at, "warning", f"[the log of {len(report.logs)} lines is too large for a message]")
    return msgspec.structs.replace(report, logs=(remark,), log_left_out=True)


def _without_output(report: EndedReport) -> EndedReport:
    size = len(_ENCODER.encode(report))
    if size < MAX_MESSAGE_BYTES // 2:
        return report
    error = f"its outcome is too large for a message: {size} bytes"
    return EndedReport(task_id=report.task_id, fence=report.fence, result=Result.GAVE_UP, error=error)


def decode_worker_report(body: bytes, *, sender: str) -> Envelope[WorkerReport]:
    """The reports with their envelope; raise FieldError if they cannot be read or name another worker than the sender.

    `sender` is the token of the worker in the subject of the message. The id of the message begins with the id of the
    worker: a message of another worker cannot have the same.
    """
    found = _read(_WORKER_REPORT_DECODER, body, _REPORT)
    worker = found.data.worker
    check_sender("worker", worker, sender)
    if len(found.data.ended) > MOST_ENDED:
        raise FieldError("ended", len(found.data.ended), f"are too many: a report has at most {MOST_ENDED}")
    for field, progress in (("progress", found.data.progress), ("log_progress", found.data.log_progress)):
        if len(progress) > MOST_PROGRESS:
            raise FieldError(field, len(progress), f"is too much: a report has at most {MOST_PROGRESS}")
    if found.source != worker:
        raise FieldError("source", found.source, f"is not the worker of the report, {worker}")
    if not checked_key("id", found.id).startswith(f"{worker}:"):
        raise FieldError("id", found.id, f"does not begin with the worker of the report, {worker}")
    return found


def _message(kind: str, message_id: str, source: str, now: int, data: object) -> bytes:
    written = instant_of(now).strftime("%Y-%m-%dT%H:%M:%S.") + f"{now % 1000:03d}Z"
    return _ENCODER.encode(
        Envelope(schema=SCHEMA, id=message_id, type=kind, source=source, timestamp=written, data=data)
    )


def _read(decoder: "msgspec.json.Decoder[Envelope[T]]", body: bytes, kind: str) -> Envelope[T]:
    try:
        found = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FieldError("message", f"of {len(body)} bytes", f"cannot be read: {error}") from None
    if found.schema != SCHEMA:
        raise FieldError("schema", found.schema, f"is not {SCHEMA}")
    if found.type != kind:
        raise FieldError("type", found.type, f"is not {kind}")
    return found
