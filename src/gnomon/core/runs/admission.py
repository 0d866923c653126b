"""From PENDING to SCHEDULED: whether a task may run, and whether there is anybody who can run it."""

from collections.abc import Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.model import Run, RunId, ScheduleUid, Task, TaskId
from gnomon.core.runs.launch import LaunchRequest
from gnomon.core.runs.outcomes import GiveUpLimits
from gnomon.core.runs.retry import routing_delay_ms, share_of
from gnomon.core.runs.routing import Placement, Unroutable
from gnomon.core.runs.states import TERMINAL, TaskState, WaitReason
from gnomon.core.runs.workflow import Step, Workflow

_CANONICAL = msgspec.json.Encoder(order="deterministic")


class ReadyTask(Struct, frozen=True, kw_only=True, gc=False):
    """A task whose time has come."""

    task: Task
    run: Run
    #: What the run was given, as JSON; None if that is the workflow's own input.
    input: bytes | None = None
    #: What the task itself is given, every reference resolved, if that was worked out before.
    own_input: bytes | None = None
    #: The attempt whose success makes the task, while that is being written: what was worked out rests on it.
    behind: tuple[TaskId, int] | None = None


class AdmissionRequest(Struct, frozen=True, kw_only=True, gc=False):
    """What a gate is asked about: all that will be done, before it is done. Secrets in it are still names."""

    waiting: ReadyTask
    workflow: Workflow
    step: Step
    input: Mapping[str, Any]
    #: The same as JSON, if references had to be resolved for it.
    own_input: bytes | None = None

    @property
    def digest(self) -> str:
        """A hash of what is asked for: an approval of it is an approval of nothing else."""
        run = self.waiting.run
        asked = (run.tenant, run.workflow_id, run.workflow_version, self.step.name, self.step.function, self.input)
        return sha256(_CANONICAL.encode(asked)).hexdigest()


class GateVerdict(StrEnum):
    """What a gate says."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    #: Not now: ask again later.
    LATER = "later"


class GateDecision(Struct, frozen=True):
    """A gate's answer to one request."""

    ruling: GateVerdict
    reason: str = ""
    after_ms: int = 0


class OutputRelease(Struct, frozen=True, kw_only=True):
    """What a gate lets out of a task's output."""

    output: bytes | None
    #: Why it is held back instead.
    quarantine: str | None = None


class Admission(Struct, frozen=True, kw_only=True, gc=False):
    """What is to become of a task that waits, if it still does."""

    task_id: TaskId
    run_id: RunId
    schedule_uid: ScheduleUid | None
    state: TaskState
    wait_reason: WaitReason = WaitReason.READY
    available_at: int
    routings: int
    #: Of its last attempt when it was looked at: what has been tried since waits for something else. None: no matter.
    fence: int | None = None
    #: Only if this attempt is the one that succeeded: the task may be given what it returned. None: no matter.
    behind: tuple[TaskId, int] | None = None
    note: str | None = None
    dead_letter: str | None = None
    #: What its run goes on with; None if the run has no other task.
    graph: Workflow | None = None
    #: What the task itself is given, to be kept.
    own_input: bytes | None = None
    #: It is not to run.
    skipped: bool = False
    #: Where it waits to be taken, if it is SCHEDULED; None: where it would in any case.
    placement: Placement | None = None
    #: Its tenant, and how many of its tasks may be on their way at once; None: any number.
    tenant_limit: tuple[str, int] | None = None

    @property
    def over(self) -> bool:
        """Whether the task is over with it."""
        return self.state in TERMINAL


class FanOut(Struct, frozen=True, kw_only=True):
    """A task that no worker carries out: it waits for its items, or for another run, or is done at once."""

    task_id: TaskId
    run_id: RunId
    schedule_uid: ScheduleUid | None
    fence: int
    graph: Workflow
    #: What each item is given, as JSON.
    items: tuple[bytes, ...] = ()
    #: How many of them may be under way at once.
    limit: int | None = None
    launch: LaunchRequest | None = None
    #: What it returns, if it is done at once.
    output: bytes | None = None


def merged_input(workflow: Workflow, step: Step, waiting: ReadyTask) -> dict[str, Any]:
    """What a step is given: the workflow's input, or the one its run was given, and what the step adds.

    References in it are as they were written, unless they have been resolved for this task before.
    """
    if waiting.own_input is not None:
        own: dict[str, Any] = msgspec.json.decode(waiting.own_input)
        return own
    base = run_input(workflow, waiting)
    return base | step.input if step.input else base


def run_input(workflow: Workflow, waiting: ReadyTask) -> dict[str, Any]:
    """What the run was given."""
    given: dict[str, Any] = workflow.input if waiting.input is None else msgspec.json.decode(waiting.input)
    return given


def admission_for(
    request: AdmissionRequest,
    ruled: GateDecision,
    where: Placement | Unroutable | None,
    *,
    now: int,
    limits: GiveUpLimits,
) -> Admission:
    """What becomes of a task after the gate has spoken. None is where it would go in any case."""
    made = _admission_by_verdict(request, ruled, where, now, limits)
    if request.workflow.is_single_step and request.own_input is None:
        return made
    return replace(made, graph=_graph(request.workflow), own_input=request.own_input)


def _admission_by_verdict(
    request: AdmissionRequest, ruled: GateDecision, where: Placement | Unroutable | None, now: int, limits: GiveUpLimits
) -> Admission:
    waiting = request.waiting
    match ruled.ruling:
        case GateVerdict.ALLOW:
            if isinstance(where, Unroutable):
                return _unroutable_admission(waiting, where, now, limits)
            made = _admission(waiting, TaskState.SCHEDULED, now)
            return made if where is None else replace(made, placement=where)
        case GateVerdict.ASK:
            return _admission(waiting, TaskState.APPROVAL_REQUIRED, now, note=ruled.reason)
        case GateVerdict.DENY:
            return _admission(waiting, TaskState.DENIED, now, note=f"safety_denied: {ruled.reason}")
        case GateVerdict.LATER:
            later = now + ruled.after_ms
            return _admission(waiting, TaskState.PENDING, later, wait_reason=WaitReason.POLICY, note=ruled.reason)
        case _:
            assert_never(ruled.ruling)


def delayed_admission(waiting: ReadyTask, workflow: Workflow, until: int) -> Admission:
    """A task that is to start later."""
    made = _admission(waiting, TaskState.PENDING, until, wait_reason=WaitReason.DELAY)
    return replace(made, graph=_graph(workflow))


def skipped_admission(waiting: ReadyTask, workflow: Workflow, reason: str, *, now: int) -> Admission:
    """A task that is not to run, because its condition does not hold."""
    made = _admission(waiting, TaskState.CANCELLED, now, note=reason)
    return replace(made, graph=_graph(workflow), skipped=True)


def bad_input_admission(waiting: ReadyTask, workflow: Workflow, reason: str, *, now: int) -> Admission:
    """A task that can never run as it is: what it is to be given cannot be had."""
    letter = "bad_input" if workflow.dead_letter else None
    made = _admission(waiting, TaskState.FAILED, now, note=reason, dead_letter=letter)
    return replace(made, graph=_graph(workflow))


def _graph(workflow: Workflow) -> Workflow | None:
    return None if workflow.is_single_step else workflow


def launch_failed_admission(
    waiting: ReadyTask, reason: str, *, now: int, limits: GiveUpLimits, workflow: Workflow | None = None
) -> Admission:
    """What becomes of a task whose definition cannot be had: tried again a few times, then it has failed.

    `workflow` is that of its run, if that can be had; if not, the run has failed with it.
    """
    made = _retry_or_fail(waiting, f"launch_failed: {reason}", now, most=limits.launches, letter="launch_failed")
    return made if workflow is None else replace(made, graph=_graph(workflow))


def _unroutable_admission(waiting: ReadyTask, why: Unroutable, now: int, limits: GiveUpLimits) -> Admission:
    if why.after_ms is not None:
        # Whoever sets a limit wants what is over it to wait, not to fail.
        later = now + why.after_ms
        return _admission(waiting, TaskState.PENDING, later, wait_reason=WaitReason.ROUTE, note=str(why))
    return _retry_or_fail(waiting, str(why), now, most=limits.routings, letter=why.code.value)


def _retry_or_fail(waiting: ReadyTask, reason: str, now: int, *, most: int, letter: str) -> Admission:
    tries = waiting.task.routings + 1
    if tries >= most:
        return _admission(waiting, TaskState.FAILED, now, routings=tries, note=reason, dead_letter=letter)
    later = now + routing_delay_ms(tries - 1, share_of(waiting.task.task_id, tries))
    return _admission(waiting, TaskState.PENDING, later, wait_reason=WaitReason.ROUTE, routings=tries, note=reason)


def _admission(
    waiting: ReadyTask,
    state: TaskState,
    available_at: int,
    *,
    wait_reason: WaitReason = WaitReason.READY,
    routings: int | None = None,
    note: str | None = None,
    dead_letter: str | None = None,
) -> Admission:
    task = waiting.task
    return Admission(
        task_id=task.task_id,
        run_id=task.run_id,
        schedule_uid=waiting.run.schedule_uid,
        state=state,
        wait_reason=wait_reason,
        available_at=available_at,
        routings=task.routings if routings is None else routings,
        fence=task.fence,
        behind=waiting.behind,
        note=note,
        dead_letter=dead_letter,
    )
