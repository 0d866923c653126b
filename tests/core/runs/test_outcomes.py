"""The consequences of the end of an attempt."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gnomon.core.agents.rules import AgentSpending
from gnomon.core.agents.spec import AgentSpec
from gnomon.core.model import Result, RunStatus, TickStatus
from gnomon.core.policy.constraints import Constraints
from gnomon.core.runs.outcomes import (
    Assignment,
    AttemptOutcome,
    GiveUpLimits,
    TaskCompletion,
    cancel_instead_of_retry,
    complete_attempt,
    run_status,
    tick_status,
)
from gnomon.core.runs.retry import delay_ms, routing_delay_ms, share_of
from gnomon.core.runs.states import TRANSITIONS, TaskState, WaitReason
from gnomon.core.runs.workflow import Delivery, RetryPolicy
from support.running_assignments import NOW, running_assignment

TRY_THRICE = RetryPolicy(max_attempts=3, initial_delay_ms=10_000, multiplier=2, max_delay_ms=300_000, jitter=0)


def after(assignment: Assignment, result: Result, **reported: Any) -> TaskCompletion:  # noqa: ANN401
    return complete_attempt(assignment, AttemptOutcome(result=result, **reported), now=NOW, limits=GiveUpLimits())


# ---- delays --------------------------------------------------------------------------------------


@pytest.mark.req("H-08")
@pytest.mark.parametrize(("failures", "seconds"), [(1, 30), (2, 60), (3, 120), (4, 240), (5, 300), (99, 300)])
def test_the_delay_doubles_up_to_its_limit(failures: int, seconds: int) -> None:
    retry = RetryPolicy(initial_delay_ms=30_000, multiplier=2, max_delay_ms=300_000, jitter=0.1)

    assert delay_ms(retry, failures, 0.5) == seconds * 1000
    assert delay_ms(retry, failures, 0.0) == round(seconds * 1000 * 0.9)
    assert delay_ms(retry, failures, 1.0) == round(seconds * 1000 * 1.1)


@pytest.mark.req("Z-06")
@pytest.mark.parametrize(("failures", "usual"), [(1, 200), (2, 400), (3, 800), (8, 25_600), (9, 30_000), (99, 30_000)])
def test_a_jitter_in_time_is_added_to_the_delay_also_beyond_its_limit(failures: int, usual: int) -> None:
    retry = RetryPolicy(initial_delay_ms=200, multiplier=2, max_delay_ms=30_000, jitter=0, jitter_ms=250)

    assert delay_ms(retry, failures, 0.0) == usual
    assert delay_ms(retry, failures, 0.5) == usual + 125
    assert delay_ms(retry, failures, 0.9999) == usual + 250


@pytest.mark.req("H-08")
@pytest.mark.guarantee("S12")
def test_the_jitter_of_many_tasks_is_spread_evenly() -> None:
    shares = sorted(share_of(f"task_{n}", 1) for n in range(1000))

    assert all(0 <= share < 1 for share in shares)
    assert all(abs(share - n / 1000) < 0.06 for n, share in enumerate(shares))


@pytest.mark.req("R-04")
@pytest.mark.parametrize(
    ("tries", "low", "high"), [(0, 1000, 1499), (1, 2000, 2499), (4, 16_000, 16_499), (5, 30_000, 30_000)]
)
def test_a_task_that_nobody_can_take_waits_longer_each_time(tries: int, low: int, high: int) -> None:
    assert (routing_delay_ms(tries, 0.0), routing_delay_ms(tries, 0.99999)) == (low, high)


def test_a_huge_number_of_failures_does_not_overflow() -> None:
    assert delay_ms(RetryPolicy(multiplier=1000.0), 10_000, 0.5) == 300_000


# ---- failures ------------------------------------------------------------------------------------


def test_success_ends_the_task() -> None:
    ended = after(running_assignment(), Result.SUCCEEDED, output=b"1")

    assert (ended.state, ended.output, ended.attempts, ended.dead_letter) == (TaskState.SUCCEEDED, b"1", 0, None)


def test_output_that_is_held_back_is_quarantined() -> None:
    ended = after(running_assignment(), Result.SUCCEEDED, quarantine="too much")

    assert (ended.state, ended.error) == (TaskState.OUTPUT_QUARANTINED, "too much")


def test_output_is_held_back_even_if_the_reason_is_empty() -> None:
    assert after(running_assignment(), Result.SUCCEEDED, quarantine="").state is TaskState.OUTPUT_QUARANTINED


@pytest.mark.req("H-08")
@pytest.mark.guarantee("S12")
def test_three_attempts_are_one_and_two_retries() -> None:
    ends = [after(running_assignment(attempts=n, retry=TRY_THRICE), Result.FAILED) for n in range(3)]

    assert [one.state for one in ends] == [TaskState.PENDING, TaskState.PENDING, TaskState.FAILED]
    assert [one.available_at - NOW for one in ends[:2]] == [10_000, 20_000]
    assert {one.wait_reason for one in ends[:2]} == {WaitReason.RETRY}


def test_a_retry_waits_as_long_as_the_other_side_asks_but_never_less_than_its_own_delay() -> None:
    ends = [
        after(running_assignment(retry=TRY_THRICE), Result.FAILED, retry_after_ms=asked) for asked in (0, 9_000, 60_000)
    ]

    assert [one.available_at - NOW for one in ends] == [10_000, 10_000, 60_000]
    assert after(running_assignment(), Result.FAILED, retry_after_ms=60_000).state is TaskState.FAILED
    last = after(running_assignment(attempts=2, retry=TRY_THRICE), Result.FAILED, retry_after_ms=60_000)
    assert last.state is TaskState.FAILED


def test_a_job_that_says_nothing_of_retries_is_not_tried_again_when_it_fails() -> None:
    assert after(running_assignment(), Result.FAILED).state is TaskState.FAILED


def test_a_job_that_runs_out_of_time_is_tried_again_like_one_that_fails() -> None:
    ends = [after(running_assignment(attempts=n, retry=TRY_THRICE), Result.TIMED_OUT) for n in (0, 2)]

    assert [one.state for one in ends] == [TaskState.PENDING, TaskState.TIMEOUT]


def test_giving_up_is_final_whatever_is_left() -> None:
    ended = after(running_assignment(retry=TRY_THRICE, dead_letter=True), Result.GAVE_UP)

    assert (ended.state, ended.dead_letter) == (TaskState.FAILED, "gave_up")


def test_a_snooze_counts_for_nothing() -> None:
    ended = after(running_assignment(attempts=1), Result.SNOOZED, snooze_ms=7000)

    assert (ended.state, ended.wait_reason, ended.attempts) == (TaskState.PENDING, WaitReason.DELAY, 1)
    assert ended.available_at == NOW + 7000


@pytest.mark.req("H-09")
@pytest.mark.parametrize(("asked_for", "letter"), [(True, "attempts_exhausted"), (False, None)])
def test_a_dead_letter_is_left_by_those_who_ask_for_it(asked_for: bool, letter: str | None) -> None:  # noqa: FBT001
    assert after(running_assignment(dead_letter=asked_for), Result.FAILED).dead_letter == letter


# ---- losses --------------------------------------------------------------------------------------


@pytest.mark.guarantee("S4")
def test_a_lost_attempt_is_retried_even_without_a_retry_policy() -> None:
    ended = after(running_assignment(), Result.LOST)

    assert (ended.state, ended.wait_reason) == (TaskState.PENDING, WaitReason.RETRY)
    assert (ended.attempts, ended.losses) == (1, 1)


@pytest.mark.guarantee("S12")
def test_a_lost_attempt_counts_among_those_that_a_job_allows() -> None:
    ended = after(running_assignment(retry=replace(TRY_THRICE, max_attempts=1)), Result.LOST)

    assert ended.state is TaskState.FAILED


@pytest.mark.guarantee("S18")
def test_a_task_that_kills_three_workers_is_given_up_with_a_dead_letter() -> None:
    ended = after(running_assignment(attempts=2, losses=2, retry=replace(TRY_THRICE, max_attempts=10)), Result.LOST)

    assert (ended.state, ended.dead_letter) == (TaskState.FAILED, "worker_lost")


@pytest.mark.guarantee("S5")
@pytest.mark.parametrize("result", [Result.LOST, Result.FAILED, Result.TIMED_OUT])
def test_at_most_once_is_never_tried_again(result: Result) -> None:
    ended = after(running_assignment(retry=TRY_THRICE, delivery=Delivery.AT_MOST_ONCE), result)

    assert ended.state in (TaskState.FAILED, TaskState.TIMEOUT)


@pytest.mark.guarantee("S5")
def test_at_most_once_cannot_ask_to_be_called_again() -> None:
    ended = after(running_assignment(delivery=Delivery.AT_MOST_ONCE), Result.SNOOZED, snooze_ms=1)

    assert ended.state is TaskState.FAILED
    assert ended.error == "it asked to be called again, which at_most_once does not allow"


@pytest.mark.parametrize("delivery", list(Delivery))
def test_a_task_that_never_started_is_dispatched_again_and_has_not_failed(delivery: Delivery) -> None:
    ended = after(running_assignment(delivery=delivery), Result.NEVER_STARTED)

    assert (ended.state, ended.wait_reason) == (TaskState.PENDING, WaitReason.ROUTE)
    assert (ended.attempts, ended.routings) == (0, 1)


@pytest.mark.req("Z-01")
@pytest.mark.parametrize("delivery", list(Delivery))
def test_a_wait_for_a_slot_of_the_worker_is_no_failed_dispatch(delivery: Delivery) -> None:
    assigned = running_assignment(delivery=delivery)
    assigned = replace(assigned, task=replace(assigned.task, routings=49))

    ended = after(assigned, Result.NEVER_STARTED, error="no process was free within 10 s", waited_for_slot=True)

    assert (ended.state, ended.wait_reason) == (TaskState.PENDING, WaitReason.RETRY)
    assert (ended.routings, ended.attempts, ended.dead_letter) == (49, 0, None)
    assert 1000 <= ended.available_at - NOW < 1500


@pytest.mark.req("R-04")
def test_a_task_not_started_fifty_times_is_given_up_with_a_dead_letter() -> None:
    ended = after(running_assignment(routings=49), Result.NEVER_STARTED)

    assert (ended.state, ended.dead_letter) == (TaskState.FAILED, "dispatch_failed")


@pytest.mark.guarantee("S6")
@pytest.mark.parametrize("result", list(Result))
@pytest.mark.parametrize("retry", [None, TRY_THRICE])
def test_no_ending_leaves_the_table_of_states(result: Result, retry: RetryPolicy | None) -> None:
    from_where = TaskState.DISPATCHED if result is Result.NEVER_STARTED else TaskState.RUNNING

    assert after(running_assignment(retry=retry), result).state in TRANSITIONS[from_where]


# ---- cancelling, runs, ticks ---------------------------------------------------------------------


def test_a_run_that_is_to_end_has_no_more_attempts() -> None:
    retried, done = (
        after(running_assignment(retry=TRY_THRICE), Result.FAILED),
        after(running_assignment(), Result.SUCCEEDED),
    )

    assert cancel_instead_of_retry(retried).state is TaskState.CANCELLED
    assert cancel_instead_of_retry(done) == done


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (TaskState.SUCCEEDED, RunStatus.COMPLETED),
        (TaskState.CANCELLED, RunStatus.CANCELLED),
        (TaskState.FAILED, RunStatus.FAILED),
        (TaskState.TIMEOUT, RunStatus.FAILED),
        (TaskState.DENIED, RunStatus.FAILED),
        (TaskState.OUTPUT_QUARANTINED, RunStatus.FAILED),
    ],
)
def test_a_run_shows_what_became_of_its_only_task(state: TaskState, status: RunStatus) -> None:
    assert run_status(state) is status


def test_a_tick_whose_run_was_cancelled_before_it_began_was_skipped() -> None:
    assert tick_status(RunStatus.CANCELLED, started=False) is TickStatus.SKIPPED
    assert tick_status(RunStatus.CANCELLED, started=True) is TickStatus.FAILED


@pytest.mark.parametrize(
    ("tools", "retry", "state"),
    [
        (("read_file", "http_get"), None, TaskState.PENDING),
        (("read_file", "shell"), None, TaskState.FAILED),
        (("shell",), TRY_THRICE, TaskState.PENDING),
    ],
)
@pytest.mark.parametrize("result", [Result.LOST, Result.INTERRUPTED])
def test_a_lost_agent_is_repeated_only_if_that_changes_nothing_twice(
    tools: tuple[str, ...], retry: RetryPolicy | None, state: TaskState, result: Result
) -> None:
    held = running_assignment(retry=retry)
    agent = replace(held, step=replace(held.step, agent=AgentSpec(tools=tools)))

    assert after(agent, result).state is state


def test_an_agent_spends_of_the_meters_of_budgets() -> None:
    usage = AgentSpending(input_tokens=70, output_tokens=30, cost_micros=9, actions=2)

    assert after(running_assignment(), Result.FAILED, usage=usage).spent == {
        "actions": 2,
        "tokens": 100,
        "cost_micros": 9,
    }


@pytest.mark.req("R-02")
def test_an_output_beyond_the_limit_of_the_policy_is_cut_whatever_the_worker_sent() -> None:
    held = running_assignment()
    limited = replace(held, task=replace(held.task, constraints=Constraints(max_output_bytes=300)))
    output = msgspec.json.encode("x" * 1000)

    cut = after(limited, Result.SUCCEEDED, output=output).output or b""

    assert len(cut) <= 300
    assert (msgspec.json.decode(cut)["truncated"], msgspec.json.decode(cut)["bytes"]) == (True, len(output))
    assert after(limited, Result.SUCCEEDED, output=b"1").output == b"1"
    assert after(held, Result.SUCCEEDED, output=output).output == output
