"""Compensations of steps whose output is held back: they use it, and nobody else ever reads it."""

import asyncio
from typing import Any

import msgspec
import pytest

from gnomon.core.model import Result, RunStatus
from gnomon.core.output_policy.ruling import HeldDecision
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.rollback import RollbackStatus
from gnomon.core.runs.workflow import RetryPolicy, Step, Workflow
from support.checked_execution import CheckedExecution, everything
from support.output_policies import HELD_KEY, HOLD_ALL, KEY

pytestmark = pytest.mark.req("R-09")
BOOKED = msgspec.json.encode({"id": KEY})
DECIDED = HeldDecision(actor="ada", reason="seen", at=1)
FIRST_FAILS = RetryPolicy(max_attempts=2, initial_delay_ms=1)


def booking(**said: Any) -> Workflow:  # noqa: ANN401 - any field of the step
    undo = Step(
        name="compensate:book",
        function="reports.make",
        input={"booking": "${steps.book.output.id}"},
        foreach=said.get("foreach"),
        retry=FIRST_FAILS,
    )
    return Workflow(
        workflow_id="report",
        version=1,
        steps=(Step(name="book", function="reports.make", compensate=undo, **said),),
        rollback_on=("failed",),
    )


async def rolling_back(*, keys: tuple[str, ...] = (), **said: Any) -> tuple[CheckedExecution, Assignment]:  # noqa: ANN401
    """An execution whose step was held back, and the compensation of that."""
    execution = CheckedExecution(keys=keys)
    await execution.outputs.apply(*HOLD_ALL)
    if "foreach" in said:
        await execution.run_until_idle()
    await execution.ends(booking(**said), output=BOOKED)
    return execution, compensation_of(execution)


def compensation_of(execution: CheckedExecution) -> Assignment:
    [undoing] = execution.runner.started.values()
    assert undoing.step.name == "compensate:book"
    return undoing


@pytest.mark.parametrize("keys", [(), (HELD_KEY,)], ids=["plain", "encrypted"])
async def test_it_gets_the_output_that_is_held_back_and_nothing_stores_it(keys: tuple[str, ...]) -> None:
    execution, undoing = await rolling_back(keys=keys)

    assert undoing.input == {"booking": KEY}
    execution.runner.end_all()
    await execution.run_until_idle()

    ended = await execution.now(execution.launched)
    assert (ended.status, ended.rollback) == (RunStatus.FAILED, RollbackStatus.COMPLETE)
    assert KEY not in everything(execution.store)
    assert KEY not in repr(execution.events.seen)


async def test_each_of_its_attempts_gets_it() -> None:
    execution, _ = await rolling_back()
    execution.runner.end_all(Result.FAILED, error=f"no booking {KEY}")
    await execution.run_until_idle()
    execution.clock.advance(60_000)
    await execution.run_until_idle()

    assert compensation_of(execution).input == {"booking": KEY}
    assert KEY not in everything(execution.store)


async def test_it_gets_an_output_that_was_released_meanwhile() -> None:
    execution, _ = await rolling_back()
    execution.runner.end_all(Result.FAILED)
    await execution.run_until_idle()
    task = await execution.first_ruling()
    await execution.store.held_outputs.release("default", task.task_id, BOOKED, DECIDED)
    execution.clock.advance(60_000)
    await execution.run_until_idle()

    assert compensation_of(execution).input == {"booking": KEY}


async def test_it_fails_with_a_reason_if_the_output_was_discarded() -> None:
    execution, _ = await rolling_back()
    execution.runner.end_all(Result.FAILED)
    await execution.run_until_idle()
    task = await execution.first_ruling()
    await execution.store.held_outputs.discard("default", task.task_id, DECIDED)
    execution.clock.advance(60_000)
    await execution.run_until_idle()

    letters = await execution.store.dead_letters.page("default")
    assert {(one.step, one.reason) for one in letters if one.step != "book"} == {
        ("compensate:book", "saga_compensation_failed")
    }
    [note] = [one.last_error for one in letters if one.step != "book"]
    assert note == "bad_input: it refers to the output of step book, which was held back and discarded"
    assert (await execution.now(execution.launched)).rollback is RollbackStatus.INCOMPLETE


async def test_a_key_that_is_missing_fails_the_compensation_and_says_nothing_of_the_output() -> None:
    execution = CheckedExecution(keys=(HELD_KEY,))
    execution.worker = execution.new_worker("w2", execution.runner, output_policy=execution.outputs.policy)
    await execution.outputs.apply(*HOLD_ALL)
    await execution.ends(booking(), output=BOOKED)
    await asyncio.sleep(0)
    await execution.run_until_idle()

    [note] = [one.last_error for one in await execution.store.dead_letters.page("default") if one.step != "book"]
    assert note == "bad_input: its input cannot be made of the output that is held back"
    assert execution.runner.started == {}
