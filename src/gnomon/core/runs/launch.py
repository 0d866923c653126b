"""Launching runs: requests without a tick (API, CLI, dead letter, event), first tasks of a run, and the run queue."""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.ids import item_id, task_id
from gnomon.core.model import Overlap, Run, RunId, RunSource, RunStatus, Schedule, Spec, Task
from gnomon.core.runs.deadlines import NO_DEADLINES, run_deadline, task_deadline
from gnomon.core.runs.rollback import is_compensation
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Workflow


class LaunchOutcome(StrEnum):
    """The outcome of a request to start a run."""

    STARTED = "started"
    #: It waits for earlier runs of its schedule to end.
    QUEUED = "queued"
    #: A request with the same key has started the run before.
    ALREADY = "already"
    OVERLAP = "overlap"
    QUEUE_FULL = "queue_full"
    #: The schedule is gone.
    GONE = "gone"


class LaunchRequest(Struct, frozen=True, kw_only=True):
    """A request to start a run."""

    run: Run
    first_steps: tuple[str, ...]
    #: How long the tasks of the first steps may take, by step.
    first_spans_ms: Mapping[str, int] = NO_DEADLINES
    #: The input of the run, as JSON; None for the workflow's own input.
    input: bytes | None = None
    #: Start it in parallel to others, whatever the overlap policy.
    force: bool = False
    #: Queue it where the overlap policy would refuse it or let it replace others, and beyond the limit of the queue.
    waits: bool = False


def decide_launch(
    spec: Spec, *, active: int, queued: int, force: bool, waits: bool = False
) -> tuple[LaunchOutcome, bool]:
    """The outcome of a request while so many runs are active and queued, and whether it replaces them."""
    if force or spec.overlap is Overlap.ALLOW or not active + queued:
        return LaunchOutcome.STARTED, False
    if waits:
        return LaunchOutcome.QUEUED, False
    match spec.overlap:
        case Overlap.SKIP:
            return LaunchOutcome.OVERLAP, False
        case Overlap.QUEUE:
            return (LaunchOutcome.QUEUE_FULL if queued >= spec.queue_limit else LaunchOutcome.QUEUED), False
        case Overlap.REPLACE:
            return LaunchOutcome.QUEUED, True
        case _:
            assert_never(spec.overlap)


def new_requested_run(  # noqa: PLR0913 - everything that a caller may choose
    run_id: RunId,
    schedule: Schedule,
    *,
    source: RunSource,
    now: int,
    actor: str = "",
    groups: Collection[str] = (),
    key: str | None = None,
    user_id: str = "",
    deadline_ms: int | None = None,
) -> Run:
    """A run of a schedule's workflow, requested now by the actor in these groups, on behalf of the user.

    `deadline_ms` is how long it may take at most, if its job does not say less.
    """
    spans = schedule.spec.deadlines
    own = None if spans is None else run_deadline(spans.run_ms, created_at=now, planned_at=now)
    return Run(
        run_id=run_id,
        tenant=schedule.tenant,
        schedule_uid=schedule.uid,
        schedule_id=schedule.schedule_id,
        workflow_id=schedule.spec.workflow_id,
        workflow_version=schedule.spec.workflow_version,
        user_id=user_id or schedule.spec.user_id,
        source=source,
        status=RunStatus.PENDING,
        queued=False,
        planned_at=now,
        fire_at=now,
        created_at=now,
        idempotency_key=key,
        actor=actor,
        actor_groups=tuple(sorted(groups)),
        deadline_at=run_deadline(deadline_ms, created_at=now, planned_at=now, inherited=own),
    )


def first_tasks(
    run: Run, steps: tuple[str, ...], *, now: int, spans_ms: Mapping[str, int] = NO_DEADLINES
) -> tuple[Task, ...]:
    """The tasks of the steps that depend on no other step. `spans_ms` is how long they may take, by step."""
    wait = WaitReason.QUEUE if run.queued else WaitReason.DELAY if run.fire_at > now else WaitReason.READY
    return tuple(
        Task(
            task_id=task_id(run.run_id, step),
            tenant=run.tenant,
            run_id=run.run_id,
            step=step,
            state=TaskState.PENDING,
            wait_reason=wait,
            available_at=run.fire_at,
            created_at=now,
            deadline_at=task_deadline(run, spans_ms.get(step), created_at=now) if spans_ms else run.deadline_at,
        )
        for step in steps
    )


class SkippedStep(Struct, frozen=True):
    """A step that will not run, and why."""

    step: str
    note: str
    #: A step before it did not succeed; otherwise its condition or rule excluded it.
    upstream_failed: bool = False


def skipped_task(run: Run, why: SkippedStep, *, now: int) -> Task:
    """The task of a step that will not run: over from the start, with a note that says why."""
    [task] = first_tasks(run, (why.step,), now=now)
    failed = why.upstream_failed
    return replace(
        task, state=TaskState.CANCELLED, note=why.note, skipped=not failed, upstream_failed=failed, deadline_at=None
    )


def next_tasks(run: Run, steps: Sequence[str], graph: Workflow, *, held: bool, now: int) -> tuple[Task, ...]:
    """The tasks of steps whose dependencies are over; `held` ones wait because of `max_parallel`."""
    if not steps:
        return ()
    wait = WaitReason.DEPS if held else WaitReason.READY
    spans = {one.name: one.deadline_ms for one in graph.steps if one.deadline_ms is not None}
    made = first_tasks(run, tuple(steps), now=now, spans_ms=spans)
    # A rollback has no deadline: the effects of a run are undone, however late that is.
    return tuple(
        replace(
            task,
            available_at=now,
            wait_reason=wait,
            deadline_at=None if is_compensation(task.step) else task.deadline_at,
        )
        for task in made
    )


def item_tasks(parent: Task, numbers: Sequence[int], *, limit: int | None, now: int) -> tuple[Task, ...]:
    """The tasks of a step's items, which have these numbers; those beyond the first `limit` wait for others to end."""
    ready = len(numbers) if limit is None else limit
    return tuple(
        Task(
            task_id=item_id(parent.task_id, number),
            tenant=parent.tenant,
            run_id=parent.run_id,
            step=parent.step,
            state=TaskState.PENDING,
            wait_reason=WaitReason.READY if place < ready else WaitReason.DEPS,
            available_at=now,
            created_at=now,
            parent=parent.task_id,
            item=number,
            deadline_at=parent.deadline_at,
        )
        for place, number in enumerate(numbers)
    )


def sub_run_ids(task: Task) -> list[RunId]:
    """The ids of all runs that the attempts of a step can have started, the last one first."""
    return [sub_run_id(replace(task, fence=number)) for number in range(task.fence, 0, -1)]


def sub_run_id(task: Task) -> RunId:
    """The id of the only run that an attempt of a step can start and wait for."""
    return keyed_run_id(task.tenant, task.task_id, str(task.fence))


def keyed_run_id(tenant: str, scope: str, key: str) -> RunId:
    """The id of the only run that a caller's key can have within a scope, such as a job or a dead letter."""
    digest = sha256(f"{tenant}\0{scope}\0{key}".encode()).hexdigest()
    return RunId(f"run_{digest[:32]}")


class QueueAdvance(Struct, frozen=True):
    """The counts of a schedule after runs have ended, and the queued run that starts next."""

    active: int
    queued: int
    released: Run | None = None


def advance_queue(*, active: int, waiting: tuple[Run, ...]) -> QueueAdvance:
    """Release the oldest waiting run if none is active."""
    if active > 0 or not waiting:
        return QueueAdvance(active, len(waiting))
    return QueueAdvance(active + 1, len(waiting) - 1, waiting[0])


class CancelOutcome(StrEnum):
    """The outcome of a request to cancel a run."""

    #: It is over.
    CANCELLED = "cancelled"
    #: A worker has been asked to stop it.
    ASKED = "asked"
    #: It was over before.
    OVER = "over"
    UNKNOWN = "unknown"
