"""The table of transitions, tested as a graph."""

import pytest

from gnomon.core.runs.states import (
    ASSIGNED,
    INITIAL,
    TERMINAL,
    TRANSITIONS,
    WAITING,
    TaskState,
    check_initial,
    check_transition,
)
from gnomon.errors import IllegalTransition
from gnomon.testing.work_checker import LEGAL_EDGES

pytestmark = pytest.mark.guarantee("S6")

S = TaskState
OPEN = sorted(set(TaskState) - TERMINAL)


def test_every_state_has_a_row() -> None:
    assert TRANSITIONS.keys() == set(TaskState)


@pytest.mark.req("R-01")
def test_the_terminal_states_are_the_seeds() -> None:
    assert {S.SUCCEEDED, S.FAILED, S.TIMEOUT, S.CANCELLED, S.DENIED, S.OUTPUT_QUARANTINED} == TERMINAL


def test_waiting_assigned_and_terminal_states_are_all_states_and_do_not_overlap() -> None:
    assert {S.PENDING, S.APPROVAL_REQUIRED, S.SCHEDULED} == WAITING
    assert {S.DISPATCHED, S.RUNNING} == ASSIGNED
    assert len(WAITING) + len(ASSIGNED) + len(TERMINAL) == len(TaskState)


def test_the_simulator_has_its_own_copy_without_fan_outs_and_late_starts() -> None:
    edges = {(before, after) for before, exits in TRANSITIONS.items() for after in exits}

    assert edges >= LEGAL_EDGES
    assert edges - LEGAL_EDGES == {
        (S.PENDING, S.PENDING),
        (S.PENDING, S.RUNNING),
        (S.DISPATCHED, S.SUCCEEDED),
        (S.DISPATCHED, S.OUTPUT_QUARANTINED),
    }


def test_every_state_can_be_reached_from_pending() -> None:
    reached: set[TaskState] = set()
    frontier = {S.PENDING}
    while frontier:
        reached |= frontier
        frontier = {after for state in frontier for after in TRANSITIONS[state]} - reached

    assert reached == set(TaskState)


@pytest.mark.parametrize("state", OPEN)
def test_a_task_that_is_not_over_can_be_cancelled_fail_and_time_out(state: TaskState) -> None:
    assert {S.CANCELLED, S.FAILED, S.TIMEOUT} <= TRANSITIONS[state].keys()


@pytest.mark.parametrize("state", [S.PENDING, S.APPROVAL_REQUIRED, S.SCHEDULED, S.DISPATCHED])
def test_a_task_that_has_not_started_can_be_denied(state: TaskState) -> None:
    assert S.DENIED in TRANSITIONS[state]


def test_only_its_worker_denies_a_task_that_it_took_and_started_in_one_commit() -> None:
    assert TRANSITIONS[S.RUNNING][S.DENIED] == "refused by the worker before the program exists"


@pytest.mark.parametrize("before", sorted(TERMINAL))
@pytest.mark.parametrize("after", list(TaskState))
def test_a_task_that_is_over_stays_over(before: TaskState, after: TaskState) -> None:
    if {before, after} == {S.SUCCEEDED, S.OUTPUT_QUARANTINED}:
        check_transition("task_1", before, after)
        return
    with pytest.raises(IllegalTransition) as refused:
        check_transition("task_1", before, after)

    assert (refused.value.task, refused.value.before, refused.value.after) == ("task_1", before, after)
    assert str(refused.value) == f"task_1 cannot go from {before} to {after}"


@pytest.mark.parametrize("state", sorted(ASSIGNED))
def test_a_lost_or_failed_attempt_puts_the_task_back(state: TaskState) -> None:
    assert S.PENDING in TRANSITIONS[state]


def test_an_approval_leads_back_to_the_gate_and_not_past_it() -> None:
    assert S.PENDING in TRANSITIONS[S.APPROVAL_REQUIRED]
    assert not {S.SCHEDULED, *ASSIGNED} & TRANSITIONS[S.APPROVAL_REQUIRED].keys()


def test_only_an_admitted_task_is_assigned_to_a_worker() -> None:
    assert {before for before, exits in TRANSITIONS.items() if S.DISPATCHED in exits} == {S.SCHEDULED}


def test_the_only_transition_into_the_same_state_is_a_postponed_task() -> None:
    assert {state for state, exits in TRANSITIONS.items() if state in exits} == {S.PENDING}


@pytest.mark.parametrize("state", list(TaskState))
def test_a_task_is_created_waiting_admitted_assigned_or_skipped(state: TaskState) -> None:
    if state in (S.PENDING, S.SCHEDULED, S.DISPATCHED, S.CANCELLED):
        assert INITIAL[state]
        check_initial("task_1", state)
        return
    with pytest.raises(IllegalTransition, match=f"^task_1 cannot be created as {state}$"):
        check_initial("task_1", state)
