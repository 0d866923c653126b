"""The life of a task, tested as the graph it is."""

import pytest

from gnomon.core.runs.states import TERMINAL, TRANSITIONS, Signal, TaskState, advance
from gnomon.errors import IllegalTransition

pytestmark = [pytest.mark.req("R-01"), pytest.mark.guarantee("S6")]


def test_every_state_has_a_row() -> None:
    assert TRANSITIONS.keys() == set(TaskState)


def test_the_terminal_states_are_the_seeds() -> None:
    assert {
        TaskState.SUCCEEDED,
        TaskState.FAILED,
        TaskState.TIMEOUT,
        TaskState.CANCELLED,
        TaskState.DENIED,
        TaskState.OUTPUT_QUARANTINED,
    } == TERMINAL


def test_every_state_can_be_reached_from_pending() -> None:
    reached: set[TaskState] = set()
    frontier = {TaskState.PENDING}
    while frontier:
        reached |= frontier
        frontier = {after for state in frontier for after in TRANSITIONS[state].values()} - reached

    assert reached == set(TaskState)


@pytest.mark.parametrize("state", sorted(set(TaskState) - TERMINAL))
def test_a_task_that_is_not_over_can_be_cancelled(state: TaskState) -> None:
    assert advance(state, Signal.CANCEL) is TaskState.CANCELLED


@pytest.mark.parametrize("state", sorted(set(TaskState) - TERMINAL))
def test_a_task_that_is_not_over_can_time_out(state: TaskState) -> None:
    assert advance(state, Signal.EXPIRE) is TaskState.TIMEOUT


@pytest.mark.parametrize("state", sorted(TERMINAL))
@pytest.mark.parametrize("signal", sorted(set(Signal) - {Signal.QUARANTINE}))
def test_a_task_that_is_over_stays_over(state: TaskState, signal: Signal) -> None:
    with pytest.raises(IllegalTransition) as refused:
        advance(state, signal)

    assert (refused.value.state, refused.value.signal) == (state, signal)


def test_a_late_look_at_the_output_may_quarantine_it() -> None:
    assert advance(TaskState.SUCCEEDED, Signal.QUARANTINE) is TaskState.OUTPUT_QUARANTINED


@pytest.mark.parametrize("state", [TaskState.DISPATCHED, TaskState.RUNNING])
def test_a_lost_or_failed_attempt_puts_the_task_back(state: TaskState) -> None:
    assert advance(state, Signal.RETRY) is TaskState.PENDING


def test_an_approved_task_is_pending_again() -> None:
    assert advance(TaskState.APPROVAL_REQUIRED, Signal.APPROVE) is TaskState.PENDING


def test_nothing_runs_that_was_not_dispatched() -> None:
    before = {state for state, exits in TRANSITIONS.items() if TaskState.RUNNING in exits.values()}

    assert before == {TaskState.DISPATCHED}
