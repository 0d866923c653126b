"""What servers and workers write to each other: tasks on their way, and what workers report.

Readers take what they know and ignore the rest, so that versions can speak with their neighbours. A worker tells
outcomes and never what follows from them, and nothing here holds a secret: those are still names.
"""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gnomon.core.ids import idempotency_key
from gnomon.core.instants import instant_of
from gnomon.core.leases import checked_key
from gnomon.core.model import LogLine, Result, Run, RunId, RunStatus, Source, Task, TaskId
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import ONLY_STEP, Delivery, Isolation, Step, Workflow
from gnomon.errors import FieldError

SCHEMA = "hanzo.mq.v1"
#: The most bytes of a message: a server of NATS takes a megabyte, with all that is written around it.
MAX_MESSAGE_BYTES = 1000 * 1000
_EXECUTE, _REPORT = "scheduler.execute", "scheduler.report"
#: A name for the steps that a worker need not know.
_OTHERS = Step(name="others")
#: More than any server may be told about at once.
_LONGEST_SNOOZE_MS = 366 * 24 * 60 * 60_000
T = TypeVar("T")


class Envelope(Struct, Generic[T], frozen=True, kw_only=True):
    """What every message is wrapped in."""

    schema: str
    id: str
    type: str
    source: str
    #: When it was written, for people: nothing is decided by it.
    timestamp: str
    data: T


class TaskMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task on its way to a worker, under one attempt."""

    job_name: str
    execution_id: str
    function: str
    input: Mapping[str, Any] = {}
    #: Which try it is, counted from 1.
    attempt: int = 1
    #: In seconds; None for the worker's own default.
    timeout: float | None = None
    task_id: str
    step: str = ONLY_STEP
    fence: int
    tenant: str = "default"
    #: After this instant it must not be started: by then somebody else may have been asked to.
    deadline: int
    idempotency_key: str = ""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    isolation: Isolation = Isolation.NONE
    command: str = ""
    #: Whether its job has other steps, and the names of what its step is given beside the input of the run.
    one_of_many: bool = False
    own_input: tuple[str, ...] = ()
    workflow_id: str = ""
    workflow_version: int = 1
    user_id: str = ""
    source: Source = Source.API
    planned_at: int = 0
    #: Whether the job has a schedule; else its name is that of its workflow.
    scheduled: bool = False


class StartedReport(Struct, frozen=True, gc=False):
    """A worker is about to begin with an attempt."""

    task_id: TaskId
    fence: int


class EndedReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of an attempt, as its worker tells it."""

    task_id: TaskId
    fence: int
    result: Result
    error: str | None = None
    #: What the function returned, as it stands in JSON.
    output: Raw | UnsetType = UNSET
    snooze_ms: int = 0
    logs: tuple[LogLine, ...] = ()

    def outcome(self) -> AttemptOutcome:
        """The same as those know it who decide what follows."""
        return AttemptOutcome(
            result=self.result,
            error=self.error,
            output=None if self.output is UNSET else bytes(self.output),
            snooze_ms=min(max(0, self.snooze_ms), _LONGEST_SNOOZE_MS),
            logs=self.logs,
        )


class WorkerReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one worker has to say, in the order in which it is to be heard: beginnings first."""

    worker: str
    started: tuple[StartedReport, ...] = ()
    ended: tuple[EndedReport, ...] = ()


_ENCODER = msgspec.json.Encoder()
_TASK_MESSAGE_DECODER = msgspec.json.Decoder(Envelope[TaskMessage])
_WORKER_REPORT_DECODER = msgspec.json.Decoder(Envelope[WorkerReport])


# ---- from a server to a worker -------------------------------------------------------------------


def task_message_of(held: Assignment, *, deadline: int) -> TaskMessage:
    """What a worker must know to carry out an assignment."""
    run, task, step = held.run, held.task, held.step
    return TaskMessage(
        job_name=run.schedule_id or run.workflow_id,
        execution_id=run.run_id,
        function=step.function,
        input=held.input,
        attempt=held.attempt,
        timeout=None if step.timeout_ms is None else step.timeout_ms / 1000,
        task_id=task.task_id,
        step=step.name,
        fence=task.fence,
        tenant=task.tenant,
        deadline=deadline,
        idempotency_key=idempotency_key(run),
        delivery=held.workflow.delivery,
        isolation=step.isolation,
        command=step.command,
        one_of_many=len(held.workflow.steps) > 1,
        own_input=tuple(step.input),
        workflow_id=run.workflow_id,
        workflow_version=run.workflow_version,
        user_id=run.user_id,
        source=run.source,
        planned_at=run.planned_at,
        scheduled=run.schedule_id is not None,
    )


def assignment_of(order: TaskMessage) -> Assignment:
    """The assignment as far as a worker must know it: enough to run it, and to say what came of it."""
    run, step = _run_of(order), _step_of(order)
    workflow = Workflow(
        workflow_id=run.workflow_id,
        version=run.workflow_version,
        steps=(step, _OTHERS) if order.one_of_many else (step,),
        tenant=order.tenant,
        delivery=order.delivery,
    )
    return Assignment(task=_task_of(order), run=run, workflow=workflow, step=step, input=order.input)


def _run_of(order: TaskMessage) -> Run:
    return Run(
        run_id=RunId(order.execution_id),
        tenant=order.tenant,
        schedule_uid=None,
        schedule_id=order.job_name if order.scheduled else None,
        workflow_id=order.workflow_id or order.job_name,
        workflow_version=order.workflow_version,
        user_id=order.user_id,
        source=order.source,
        status=RunStatus.RUNNING,
        queued=False,
        planned_at=order.planned_at,
        fire_at=order.planned_at,
        created_at=order.planned_at,
        idempotency_key=order.idempotency_key or None,
    )


def _task_of(order: TaskMessage) -> Task:
    return Task(
        task_id=TaskId(order.task_id),
        tenant=order.tenant,
        run_id=RunId(order.execution_id),
        step=order.step,
        state=TaskState.RUNNING,
        wait_reason=WaitReason.READY,
        available_at=order.planned_at,
        created_at=order.planned_at,
        attempts=order.attempt - 1,
        fence=order.fence,
    )


def _step_of(order: TaskMessage) -> Step:
    return Step(
        name=order.step,
        function=order.function,
        command=order.command,
        input={name: order.input.get(name) for name in order.own_input},
        timeout_ms=None if order.timeout is None else round(order.timeout * 1000),
        isolation=order.isolation,
    )


def encode_task_message(order: TaskMessage, *, source: str, now: int) -> bytes:
    """An order as it travels."""
    return _message(_EXECUTE, order.task_id, source, now, order)


def decode_task_message(body: bytes) -> TaskMessage:
    """The order in a message; FieldError says what is wrong with it."""
    return _read(_TASK_MESSAGE_DECODER, body, _EXECUTE).data


# ---- from a worker to a server -------------------------------------------------------------------


def ended_report_of(held: Assignment, outcome: AttemptOutcome) -> EndedReport:
    """What came of an assignment, as it is told."""
    return EndedReport(
        task_id=held.task.task_id,
        fence=held.task.fence,
        result=outcome.result,
        error=outcome.error,
        output=UNSET if outcome.output is None else Raw(outcome.output),
        snooze_ms=outcome.snooze_ms,
        logs=outcome.logs,
    )


def encode_worker_report(reports: WorkerReport, *, message_id: str, now: int) -> bytes:
    """Reports as they travel.

    If they fit into no message, what tasks have said is left out, so that what came of them arrives; and if that does
    not fit either, that it is too much.
    """
    body = _message(_REPORT, message_id, reports.worker, now, reports)
    for shorter in (_without_logs, _without_too_much):
        if len(body) > MAX_MESSAGE_BYTES:
            reports = msgspec.structs.replace(reports, ended=tuple(map(shorter, reports.ended)))
            body = _message(_REPORT, message_id, reports.worker, now, reports)
    return body


def _without_logs(one: EndedReport) -> EndedReport:
    return msgspec.structs.replace(one, logs=())


def _without_too_much(one: EndedReport) -> EndedReport:
    size = len(_ENCODER.encode(one))
    if size < MAX_MESSAGE_BYTES // 2:
        return one
    error = f"what came of it fits into no message: {size} bytes"
    return EndedReport(task_id=one.task_id, fence=one.fence, result=Result.GAVE_UP, error=error)


def decode_worker_report(body: bytes) -> Envelope[WorkerReport]:
    """The reports in a message, wrapped as they came; FieldError says what is wrong with it."""
    found = _read(_WORKER_REPORT_DECODER, body, _REPORT)
    if found.source != found.data.worker:
        raise FieldError("source", found.source, f"speaks for {found.data.worker}")
    checked_key("id", found.id)
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
