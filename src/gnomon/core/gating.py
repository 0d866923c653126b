"""From PENDING to SCHEDULED: whether a task may run, and whether there is anybody who can run it."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from hashlib import sha256
from typing import Any, assert_never

import msgspec
from msgspec import Struct

from gnomon.core.attempts import Limits
from gnomon.core.model import Run, RunId, ScheduleUid, Task, TaskId
from gnomon.core.retry import routing_delay_ms, share_of
from gnomon.core.states import TERMINAL, TaskState, WaitReason
from gnomon.core.workflow import Step, Workflow

_CANONICAL = msgspec.json.Encoder(order="deterministic")


class Waiting(Struct, frozen=True, kw_only=True, gc=False):
    """A task whose time has come."""

    task: Task
    run: Run
    #: What the run was given, as JSON; None if that is the workflow's own input.
    input: bytes | None = None


class Request(Struct, frozen=True, kw_only=True, gc=False):
    """What a gate is asked about: all that will be done, before it is done. Secrets in it are still names."""

    waiting: Waiting
    workflow: Workflow
    step: Step
    input: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """A hash of what is asked for: an approval of it is an approval of nothing else."""
        run = self.waiting.run
        asked = (run.tenant, run.workflow_id, run.workflow_version, self.step.name, self.step.function, self.input)
        return sha256(_CANONICAL.encode(asked)).hexdigest()


class Ruling(StrEnum):
    """What a gate says."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    #: Not now: ask again later.
    LATER = "later"


class Ruled(Struct, frozen=True):
    """A gate's answer to one request."""

    ruling: Ruling
    reason: str = ""
    after_ms: int = 0


class Released(Struct, frozen=True, kw_only=True):
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
    note: str | None = None
    dead_letter: str | None = None
    alone: bool = True

    @property
    def over(self) -> bool:
        """Whether the task is over with it."""
        return self.state in TERMINAL


def merged_input(workflow: Workflow, step: Step, given: bytes | None) -> dict[str, Any]:
    """What a step is given: the workflow's input, or the one its run was given, and what the step adds."""
    base: dict[str, Any] = workflow.input if given is None else msgspec.json.decode(given)
    return base | step.input if step.input else base


def admitted(request: Request, ruled: Ruled, functions: Collection[str], *, now: int, limits: Limits) -> Admission:
    """What becomes of a task after the gate has spoken."""
    match ruled.ruling:
        case Ruling.ALLOW:
            if request.step.function in functions:
                return _admission(request.waiting, TaskState.SCHEDULED, now)
            reason = f"no_workers: no worker has registered the function {request.step.function!r}"
            return _unroutable(request.waiting, reason, now, limits)
        case Ruling.ASK:
            return _admission(request.waiting, TaskState.APPROVAL_REQUIRED, now, note=ruled.reason)
        case Ruling.DENY:
            return _admission(request.waiting, TaskState.DENIED, now, note=f"safety_denied: {ruled.reason}")
        case Ruling.LATER:
            later = now + ruled.after_ms
            return _admission(
                request.waiting, TaskState.PENDING, later, wait_reason=WaitReason.POLICY, note=ruled.reason
            )
        case _:
            assert_never(ruled.ruling)


def not_launchable(waiting: Waiting, reason: str, *, now: int, limits: Limits) -> Admission:
    """What becomes of a task whose definition cannot be had: tried again a few times, then the run has failed."""
    tries = waiting.task.routings + 1
    note = f"launch_failed: {reason}"
    if tries >= limits.launches:
        return _admission(waiting, TaskState.FAILED, now, routings=tries, note=note, dead_letter="launch_failed")
    later = now + routing_delay_ms(tries - 1, share_of(waiting.task.task_id, tries))
    return _admission(waiting, TaskState.PENDING, later, wait_reason=WaitReason.ROUTE, routings=tries, note=note)


def _unroutable(waiting: Waiting, reason: str, now: int, limits: Limits) -> Admission:
    tries = waiting.task.routings + 1
    if tries >= limits.routings:
        return _admission(waiting, TaskState.FAILED, now, routings=tries, note=reason, dead_letter="no_workers")
    later = now + routing_delay_ms(tries - 1, share_of(waiting.task.task_id, tries))
    return _admission(waiting, TaskState.PENDING, later, wait_reason=WaitReason.ROUTE, routings=tries, note=reason)


def _admission(
    waiting: Waiting,
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
        note=note,
        dead_letter=dead_letter,
    )
