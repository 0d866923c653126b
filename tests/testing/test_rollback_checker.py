"""The checker of rollbacks finds each way in which one can be wrong."""

import pytest
from msgspec.structs import replace

from gnomon.core.model import Attempt, Result, Run, RunStatus, Task, TaskId
from gnomon.core.runs.rollback import RollbackStatus
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.testing.rollback_checker import check_rollbacks
from support.dispatched_assignments import dispatched_assignment

STEPS = tuple(
    Step(name=name, function="f", depends_on=needs, compensate=Step(name=f"compensate:{name}", function="g"))
    for name, needs in (("flight", ()), ("hotel", ("flight",)), ("car", ()))
)
WORKFLOW = Workflow(workflow_id="trip", version=1, steps=STEPS)
#: When each step and compensation began; each took one millisecond.
GOOD = {"flight": 1, "hotel": 3, "car": 5, "compensate:car": 10, "compensate:hotel": 12, "compensate:flight": 14}


def problems(began: dict[str, int], states: dict[str, TaskState] | None = None, **said: object) -> list[str]:
    base = dispatched_assignment()
    run: Run = replace(
        base.run, **{"status": RunStatus.FAILED, "rollback": RollbackStatus.COMPLETE, "completed_at": 20, **said}
    )
    tasks: list[Task] = []
    attempts: dict[TaskId, list[Attempt]] = {}
    for name, at in began.items():
        state = (states or {}).get(name, TaskState.SUCCEEDED)
        tasks.append(
            replace(base.task, task_id=TaskId(name), step=name, state=state, available_at=at + 1, created_at=at)
        )
        result = Result.SUCCEEDED if state is TaskState.SUCCEEDED else Result.FAILED
        attempts[TaskId(name)] = [
            Attempt(
                task_id=TaskId(name),
                number=1,
                worker="w",
                lease_until=99,
                dispatched_at=at,
                started_at=at,
                ended_at=at + 1,
                result=result,
            )
        ]
    return [str(one) for one in check_rollbacks([run], WORKFLOW, tasks, attempts)]


def test_a_rollback_in_order_is_right() -> None:
    assert problems(GOOD) == []


@pytest.mark.req("R-09")
@pytest.mark.parametrize(
    ("began", "reason"),
    [
        (GOOD | {"compensate:car": 12, "compensate:hotel": 10}, "which has succeeded after it"),
        (GOOD | {"compensate:flight": 12, "compensate:hotel": 14}, "which depends on it"),
        (GOOD | {"compensate:hotel": 10}, "before"),
        (GOOD | {"compensate:car#2": 16}, "is undone 2 times"),
        ({name: at for name, at in GOOD.items() if name != "compensate:car"}, "without ['car']"),
    ],
    ids=["order", "dependency", "together", "twice", "left"],
)
def test_a_rollback_that_is_wrong_is_found(began: dict[str, int], reason: str) -> None:
    assert any(reason in one for one in problems(began)), problems(began)


def test_a_failed_compensation_leaves_the_rollback_incomplete() -> None:
    failed = {"compensate:hotel": TaskState.FAILED}
    assert problems(GOOD, failed, rollback=RollbackStatus.INCOMPLETE) == []
    assert any("without ['hotel']" in one for one in problems(GOOD, failed))
    assert any("everything is undone" in one for one in problems(GOOD, rollback=RollbackStatus.INCOMPLETE))


def test_nothing_is_undone_that_has_failed_or_without_a_rollback() -> None:
    assert any("has no effect" in one for one in problems(GOOD, {"car": TaskState.FAILED}))
    assert any("without a rollback" in one for one in problems(GOOD, rollback=None))
