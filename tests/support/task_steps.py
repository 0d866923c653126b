"""The steps of dispatchers and workers by hand, on any store."""

from typing import Any

from msgspec.structs import replace

from gnomon.core.model import Result, Run, Schedule, ScheduleUid, Task
from gnomon.core.runs.admission import Admission, AdmissionRequest, ReadyTask
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome, GiveUpLimits, TaskCompletion, complete_attempt
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import ONLY_STEP, RoutingRequirements, Step, Workflow
from gnomon.ports.store import Store

LEASE = 30_000


def workflow(name: str = "report", **changes: Any) -> Workflow:  # noqa: ANN401 - any field of the workflow or its step
    """A workflow with one step."""
    step = {key: changes.pop(key) for key in ("retry", "timeout_ms", "isolation", "breaker") if key in changes}
    steps = (Step(name=ONLY_STEP, function=changes.pop("function", "reports.make"), **step),)
    return Workflow(workflow_id=name, version=changes.pop("version", 1), steps=steps, **changes)


def admission(task: Task, *, schedule_uid: ScheduleUid | None = None, **changes: Any) -> Admission:  # noqa: ANN401
    """An admission that allows the task, with these changes."""
    allowed = Admission(
        task_id=task.task_id,
        run_id=task.run_id,
        schedule_uid=schedule_uid,
        state=TaskState.SCHEDULED,
        available_at=task.available_at,
        routings=task.routings,
    )
    return replace(allowed, **changes)


def admission_request(waiting: ReadyTask) -> AdmissionRequest:
    """The request to a gate for the only step of a run."""
    definition = workflow()
    return AdmissionRequest(waiting=waiting, workflow=definition, step=definition.steps[0], input={})


def assignment_of(taken: ReadyTask, definition: Workflow | None = None) -> Assignment:
    """The assignment of a taken task."""
    definition = definition or workflow()
    return Assignment(task=taken.task, run=taken.run, workflow=definition, step=definition.steps[0], input={})


def completion_of(
    taken: ReadyTask,
    result: Result,
    *,
    now: int,
    definition: Workflow | None = None,
    **reported: Any,  # noqa: ANN401
) -> TaskCompletion:
    """The completion of an attempt with this result."""
    outcome = AttemptOutcome(result=result, **reported)
    return complete_attempt(assignment_of(taken, definition), outcome, now=now, limits=GiveUpLimits())


async def take_task(store: Store, worker: str, run: Run, *, now: int, begin: bool = True) -> ReadyTask:
    """Admit the only task of the run and let the worker take it."""
    [task] = await store.history.tasks([run])
    await store.tasks.admit([admission(task, schedule_uid=run.schedule_uid)], now=now)
    taken = await store.attempts.take(worker, limit=1000, lease_ms=LEASE, now=now, begin=begin)
    [ours] = [one for one in taken if one.task.task_id == task.task_id]
    return ours


async def finish_run(store: Store, run: Run, *, result: Result = Result.SUCCEEDED, now: int) -> bool:
    """End the only task of the run and thereby the run; False if it had ended before."""
    [task] = await store.history.tasks([run])
    if task.state not in (TaskState.PENDING, TaskState.SCHEDULED):
        return False
    ours = await take_task(store, "worker", run, now=now)
    return bool(await store.attempts.report([completion_of(ours, result, now=now)]))


async def runs_of(store: Store, schedule: Schedule) -> list[Run]:
    """The runs of a schedule, oldest first."""
    return list(reversed(await store.history.runs(schedule.uid, before=1 << 62, limit=1000)))


def routed_workflow(name: str, route: RoutingRequirements | None, function: str = "reports.make") -> Workflow:
    """A workflow with one step that has routing fields."""
    return Workflow(workflow_id=name, version=1, steps=(Step(name=ONLY_STEP, function=function, route=route),))
