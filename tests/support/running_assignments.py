"""A running task, for tests that need one."""

from typing import Any

from gnomon.core.model import Run, RunId, RunSource, RunStatus, ScheduleUid, Task, TaskId
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import RetryPolicy, Step, Workflow

NOW = 1_772_452_800_000


def running_assignment(
    *,
    attempts: int = 0,
    losses: int = 0,
    routings: int = 0,
    retry: RetryPolicy | None = None,
    **said: Any,  # noqa: ANN401 - any field of the workflow
) -> Assignment:
    """A running task after so many attempts, losses and routings."""
    run = Run(
        run_id=RunId("run_1"),
        tenant="default",
        schedule_uid=ScheduleUid("sch_1"),
        schedule_id="report",
        workflow_id="report",
        workflow_version=1,
        user_id="",
        source=RunSource.CRON,
        status=RunStatus.RUNNING,
        queued=False,
        planned_at=NOW,
        fire_at=NOW,
        created_at=NOW,
    )
    task = Task(
        task_id=TaskId("task_1"),
        tenant="default",
        run_id=run.run_id,
        step="main",
        state=TaskState.RUNNING,
        wait_reason=WaitReason.READY,
        available_at=NOW,
        created_at=NOW,
        attempts=attempts,
        losses=losses,
        routings=routings,
        fence=attempts + 1,
    )
    step = Step(name="main", function="f", retry=retry)
    workflow = Workflow(workflow_id="report", version=1, steps=(step,), **said)
    return Assignment(task=task, run=run, workflow=workflow, step=step, input={})
