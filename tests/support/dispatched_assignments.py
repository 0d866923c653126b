"""Assignments for tests of publishing."""

from collections.abc import Mapping

from gnomon.core.model import Run, RunId, RunSource, RunStatus, Task, TaskId
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import Step, Workflow


def dispatched_assignment(
    *,
    given: Mapping[str, object] | None = None,
    timeout_ms: int | None = None,
    step: Step | None = None,
    workflow: Workflow | None = None,
) -> Assignment:
    """A task that a publisher has taken and not yet sent."""
    step = step or Step(name="main", function="reports.make", timeout_ms=timeout_ms)
    run = Run(
        run_id=RunId("run_1"),
        tenant="acme",
        schedule_uid=None,
        schedule_id="nightly",
        workflow_id="report",
        workflow_version=3,
        user_id="ada",
        source=RunSource.CRON,
        status=RunStatus.PENDING,
        queued=False,
        planned_at=1_772_452_800_000,
        fire_at=1_772_452_800_000,
        created_at=1_772_452_800_000,
    )
    task = Task(
        task_id=TaskId("task_1"),
        tenant="acme",
        run_id=run.run_id,
        step=step.name,
        state=TaskState.DISPATCHED,
        wait_reason=WaitReason.READY,
        available_at=0,
        created_at=0,
        attempts=1,
        fence=2,
    )
    workflow = workflow or Workflow(workflow_id="report", version=3, steps=(step,), tenant="acme")
    return Assignment(task=task, run=run, workflow=workflow, step=step, input=given or {})
