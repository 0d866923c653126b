"""The context: what a function learns about its attempt."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from msgspec.structs import replace

from gnomon.core.ids import tick_key
from gnomon.core.instants import instant_of
from gnomon.core.messages import assignment_of, decode_task_message, encode_task_message, task_message_of
from gnomon.core.model import RunSource
from gnomon.core.policy.constraints import Constraints
from gnomon.errors import FieldError
from gnomon.runners.child_process import attempt_variables
from gnomon.runners.context import Cancelled, Context, StopFlag, attempt_info, snooze_ms
from gnomon.runners.logs import TaskLog
from gnomon.runners.registry import Functions
from runners.runner_harness import PLANNED, assignment, open_runner


async def test_it_says_all_about_the_attempt() -> None:
    functions, seen = Functions(), []

    @functions.function
    async def looks(ctx: Context) -> None:
        seen.append(ctx)

    async with open_runner(functions) as harness:
        first = assignment("looks", timeout_ms=60_000)
        second = replace(first, task=replace(first.task, attempts=2, fence=5))
        harness.runner.start([second])
        await harness.outcome(second)

    [ctx] = seen
    assert (ctx.run_id, ctx.task_id) == (first.run.run_id, first.task.task_id)
    assert (ctx.job, ctx.step, ctx.source, ctx.user_id) == ("nightly", "main", "cron", "ada")
    assert (ctx.attempt, ctx.fence, ctx.cancelled) == (3, 5, False)
    assert ctx.planned_at == instant_of(PLANNED)
    assert ctx.deadline is not None
    assert timedelta(seconds=50) < ctx.deadline - datetime.now(UTC) <= timedelta(seconds=60)
    assert 50 < ctx.remaining() <= 60


@pytest.mark.req("R-02")
def test_the_limits_of_the_policy_reach_functions_and_commands_also_through_a_message() -> None:
    given = assignment("any")
    limited = replace(given, task=replace(given.task, constraints=Constraints(max_runtime_ms=5_000, network=False)))
    sent = assignment_of(
        decode_task_message(encode_task_message(task_message_of(limited, deadline=PLANNED), now=PLANNED))
    )

    limits = {"max_runtime_ms": 5_000, "network": False}
    for held in (limited, sent):
        facts = attempt_info(held, deadline_at=None)
        assert Context(facts, TaskLog(10), StopFlag(), None).constraints == limits
        assert json.loads(attempt_variables(facts)["GNOMON_CONSTRAINTS"]) == limits
    assert "GNOMON_CONSTRAINTS" not in attempt_variables(attempt_info(given, deadline_at=None))


def test_the_key_of_a_tick_is_the_ticks() -> None:
    facts = attempt_info(assignment("any"), deadline_at=None)

    assert facts.idempotency_key == tick_key("nightly", PLANNED).hex()


@pytest.mark.parametrize("named", ["order-7", None])
def test_the_key_of_another_run_is_its_callers_or_its_own(named: str | None) -> None:
    assigned = assignment("any")
    run = replace(assigned.run, source=RunSource.API, idempotency_key=named)

    facts = attempt_info(replace(assigned, run=run), deadline_at=None)

    assert facts.idempotency_key == (named or run.run_id)


def test_a_cancelled_function_can_let_itself_be_ended() -> None:
    stop = StopFlag()
    ctx = Context(attempt_info(assignment("any"), deadline_at=None), TaskLog(1), stop, None)
    ctx.raise_if_cancelled()
    stop.request()

    with pytest.raises(Cancelled):
        ctx.raise_if_cancelled()


@pytest.mark.parametrize(
    ("delay", "delay_ms"),
    [(0, 0), (1.5, 1500), (timedelta(minutes=1), 60_000), (Decimal("0.25"), 250), (365 * 86400, 365 * 86_400_000)],
)
def test_a_function_may_sleep_for_up_to_a_year(delay: object, delay_ms: int) -> None:
    assert snooze_ms(delay) == delay_ms


@pytest.mark.parametrize(
    "delay", [-1, float("nan"), float("inf"), 1e18, 10**400, 365 * 86400 + 1, timedelta(seconds=-1), "60", None]
)
def test_nobody_can_be_called_again_in_the_past_or_never(delay: object) -> None:
    with pytest.raises(FieldError, match=r"must be a number of seconds from 0 to 31536000 \(365 days\)"):
        snooze_ms(delay)
