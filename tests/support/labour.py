"""Doing the work of dispatchers and workers by hand, on any store."""

from typing import Any, Protocol

from msgspec.structs import replace

from gnomon.core.model import Result, Run, Schedule, ScheduleUid, Task
from gnomon.core.runs.admission import Admission, Request, Waiting
from gnomon.core.runs.outcomes import Assignment, Ending, Limits, Outcome, ending
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import ONLY_STEP, Route, Step, Workflow
from gnomon.ports.audit import AuditTrail
from gnomon.ports.external_events import EventLog
from gnomon.ports.ledger import Ledger, Shards
from gnomon.ports.maintenance import Keeping, Mending, Turns, Vitals
from gnomon.ports.runs import Backfills, DeadLetters, Executions, Runs
from gnomon.ports.schedules import History, Jobs, Schedules
from gnomon.ports.tasks import Work, Workers

LEASE = 30_000


class Store(
    Ledger,
    Schedules,
    History,
    Runs,
    Executions,
    DeadLetters,
    Jobs,
    Work,
    Workers,
    EventLog,
    Shards,
    Keeping,
    Turns,
    Mending,
    Vitals,
    Backfills,
    AuditTrail,
    Protocol,
):
    """All the ports of a store together."""


def workflow(name: str = "report", **changes: Any) -> Workflow:  # noqa: ANN401 - any field of the workflow or its step
    """A workflow with one step."""
    step = {key: changes.pop(key) for key in ("retry", "timeout_ms", "isolation") if key in changes}
    steps = (Step(name=ONLY_STEP, function=changes.pop("function", "reports.make"), **step),)
    return Workflow(workflow_id=name, version=changes.pop("version", 1), steps=steps, **changes)


def admission(task: Task, *, schedule_uid: ScheduleUid | None = None, **changes: Any) -> Admission:  # noqa: ANN401
    """The task may run, unless the changes say something else."""
    allowed = Admission(
        task_id=task.task_id,
        run_id=task.run_id,
        schedule_uid=schedule_uid,
        state=TaskState.SCHEDULED,
        available_at=task.available_at,
        routings=task.routings,
    )
    return replace(allowed, **changes)


def asked(waiting: Waiting) -> Request:
    """What a gate was asked about the only step of a run."""
    definition = workflow()
    return Request(waiting=waiting, workflow=definition, step=definition.steps[0], input={})


def assigned(taken: Waiting, definition: Workflow | None = None) -> Assignment:
    """What a worker has in hand."""
    definition = definition or workflow()
    return Assignment(task=taken.task, run=taken.run, workflow=definition, step=definition.steps[0], input={})


def ended(taken: Waiting, result: Result, *, now: int, definition: Workflow | None = None, **told: Any) -> Ending:  # noqa: ANN401
    """What follows from how the attempt ended."""
    outcome = Outcome(result=result, **told)
    return ending(assigned(taken, definition), outcome, now=now, limits=Limits())


async def taken_by(store: Store, worker: str, run: Run, *, now: int, begin: bool = True) -> Waiting:
    """The only task of the run, past the gate and in the hands of the worker."""
    [task] = await store.tasks([run])
    await store.admit([admission(task, schedule_uid=run.schedule_uid)], now=now)
    taken = await store.take(worker, limit=1000, lease_ms=LEASE, now=now, begin=begin)
    [ours] = [one for one in taken if one.task.task_id == task.task_id]
    return ours


async def finish(store: Store, run: Run, *, result: Result = Result.SUCCEEDED, now: int) -> bool:
    """The only task of the run is done, and so is the run. False if it had ended before."""
    [task] = await store.tasks([run])
    if task.state not in (TaskState.PENDING, TaskState.SCHEDULED):
        return False
    ours = await taken_by(store, "worker", run, now=now)
    return bool(await store.report([ended(ours, result, now=now)]))


async def the_runs(store: Store, schedule: Schedule) -> list[Run]:
    """The runs of a schedule, oldest first."""
    return list(reversed(await store.runs(schedule.uid, before=1 << 62, limit=1000)))


def routed(name: str, route: Route | None, function: str = "reports.make") -> Workflow:
    """A workflow with one step that says where it is to go."""
    return Workflow(workflow_id=name, version=1, steps=(Step(name=ONLY_STEP, function=function, route=route),))
