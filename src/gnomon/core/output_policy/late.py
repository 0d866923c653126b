"""The check of an output after it was stored: what it decides, and what has read the output by then."""

from collections.abc import Iterable

from msgspec import Struct

from gnomon.core.model import Run, RunId, Task, TaskId
from gnomon.core.output_policy.ruling import (
    OUTPUT_QUARANTINED,
    HeldStatus,
    OutputDecision,
    OutputPhase,
    OutputRuling,
    StoredOutputRuling,
    held_text,
)
from gnomon.core.runs.launch import sub_run_ids
from gnomon.core.runs.prepare import outputs_needed
from gnomon.core.runs.states import TERMINAL, TaskState
from gnomon.core.runs.workflow import Workflow

#: The end of the note of a task whose output is taken away.
_LATE = ", after it was stored"
#: How many steps a record names that have read an output.
MOST_READERS = 100
#: A task in these states has no attempt, and nobody has seen its input.
_NOT_BEGUN = frozenset({TaskState.PENDING, TaskState.SCHEDULED})
_NEVER_RAN = frozenset({TaskState.CANCELLED, TaskState.DENIED})


class LateCheck(Struct, frozen=True, kw_only=True):
    """A task whose output is stored, and has to be checked."""

    task: Task
    run: Run
    added_at: int


class LateResult(Struct, frozen=True, kw_only=True):
    """The result of the check of a stored output."""

    #: The topic of its step.
    topic: str
    #: None: nobody could rule on it, and it stays.
    ruling: OutputRuling | None
    #: How long it took.
    ms: int = 0
    #: For QUARANTINE: the output, encrypted if there is a key for it.
    held: bytes | None = None
    #: The workflow of its run; None if it is not stored any more.
    workflow: Workflow | None = None

    @property
    def changes_output(self) -> bool:
        """Whether the output may not stay as it is."""
        return self.ruling is not None and self.ruling.decision is not OutputDecision.ALLOW


def late_record(check: LateCheck, ruling: OutputRuling, readers: Iterable[str], *, now: int) -> StoredOutputRuling:
    """The record of a ruling that redacts a stored output or takes it away."""
    task, run = check.task, check.run
    held = ruling.decision is OutputDecision.QUARANTINE
    return StoredOutputRuling(
        task_id=task.task_id,
        number=task.fence,
        tenant=run.tenant,
        run_id=run.run_id,
        job=run.schedule_id or run.workflow_id,
        step=task.step,
        phase=OutputPhase.LATE,
        decision=ruling.decision,
        rule=ruling.rule,
        version=ruling.version,
        reason=ruling.reason,
        findings=ruling.findings,
        content_digest=ruling.content_digest,
        size=ruling.size,
        ruled_at=now,
        status=HeldStatus.HELD if held else None,
        readers=tuple(dict.fromkeys(readers))[:MOST_READERS],
    )


def late_note(ruling: OutputRuling) -> str:
    """The note of a task whose output is taken away."""
    return f"{held_text(ruling)}{_LATE}"


def late_reason(task: Task) -> str | None:
    """The reason for which the output of the task was taken away; None if it was not, or is released."""
    note = task.note or ""
    if task.state is not TaskState.OUTPUT_QUARANTINED or not note.endswith(_LATE):
        return None
    return note.removeprefix(f"{OUTPUT_QUARANTINED}: ").removesuffix(_LATE)


def referring_tasks(workflow: Workflow | None, step: str, tasks: Iterable[Task]) -> list[Task]:
    """The tasks of a run whose steps refer to the output of a step."""
    if workflow is None:
        return []
    found = list(tasks)
    referring = {name for name in {task.step for task in found} if _refers(workflow, name, step)}
    return [task for task in found if task.step in referring]


def has_read(task: Task) -> bool:
    """Whether a task that refers to an output has begun, and so has read it."""
    return bool(task.fence) or task.state not in (_NOT_BEGUN | _NEVER_RAN)


def needs_stored_input(task: Task) -> bool:
    """Whether the stored input of the task is still to be read: that of any other can be made again, or is not needed.

    An item gets its input only once; and a task that waits for a worker, or was sent to one, is read again with it.
    """
    if task.state in TERMINAL:
        return False
    return task.parent is not None or task.state in (TaskState.SCHEDULED, TaskState.DISPATCHED)


def runs_with_input_of(workflow: Workflow | None, tasks: Iterable[Task]) -> list[RunId]:
    """The runs that these tasks can have started: those of steps that run another workflow, with their input."""
    if workflow is None:
        return []
    starting = {step.name for step in workflow.steps if step.workflow is not None}
    return [name for task in tasks if task.step in starting for name in sub_run_ids(task)]


def is_last_step(workflow: Workflow | None, step: str) -> bool:
    """Whether the output of the step is part of that of its run."""
    return workflow is not None and not any(step in one.depends_on for one in workflow.steps)


def reader_name(task: Task, own: Run) -> str:
    """The name of a step that has read an output of the run `own`."""
    return task.step if task.run_id == own.run_id else f"{task.step} of {task.run_id}"


def is_under_way(run: Run, tasks: Iterable[Task]) -> bool:
    """Whether any step of the run may still begin or end: its end is not decided yet."""
    return not run.over and any(task.state not in TERMINAL for task in tasks)


def steps_to_decide_again(workflow: Workflow, step: str, tasks: Iterable[Task]) -> list[TaskId]:
    """The tasks that became ready by the success of a step, and that have not begun: its output is away."""
    return [
        task.task_id
        for task in tasks
        if task.parent is None
        and task.state is TaskState.PENDING
        and not task.fence
        and (found := workflow.step(task.step)) is not None
        and step in found.depends_on
    ]


def _refers(workflow: Workflow, name: str, step: str) -> bool:
    found = workflow.step(name)
    return found is not None and step in outputs_needed(found)
