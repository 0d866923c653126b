"""The constants of the seed's scheduler as settings: each is changed here, and its effect is seen.

docs/decisions has the table. Those of the policy kernel are in tests/app/test_kernel.py, those of the reconciler and of
deadlines in test_deadlines.py, those of locks in tests/acceptance/test_no_locks.py.
"""

import pytest
from msgspec.structs import replace

from contracts.store import NOON
from gnomon.config.settings import Settings, load
from gnomon.core.model import Overlap, Result, TaskId
from gnomon.core.runs.outcomes import AttemptOutcome, complete_attempt
from gnomon.core.runs.retry import routing_delay_ms
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.errors import BusUnavailable, FieldError
from gnomon.services.execution.dispatcher import give_up_limits
from gnomon.services.loop import Backoff
from gnomon.services.observed_events import NullEvents
from support.execution import ExecutionHarness, FakeRunner
from support.policy_harness import PolicyHarness, function
from support.running_assignments import NOW, running_assignment

pytestmark = pytest.mark.req("R-20")


def test_the_defaults_are_those_of_the_seed() -> None:
    found = Settings()

    assert found.execution.max_routings == 50
    assert (found.execution.routing_backoff_ms, found.execution.max_routing_backoff_ms) == (1_000, 30_000)
    assert (found.nats.busy_retry_ms, found.nats.store_retry_ms, found.nats.publish_retry_ms) == (500, 1_000, 2_000)
    assert (found.nats.timeout_ms, found.redis.timeout_ms) == (2_000, 2_000)
    assert found.policy.throttle_ms == 5_000
    assert found.worker.renewals == 3


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("worker.renewals", 1),
        ("execution.routing_backoff_ms", 0),
        ("nats.busy_retry_ms", 5),
        ("nats.store_retry_ms", 0),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, wrong: int) -> None:
    with pytest.raises(FieldError) as refused:
        load(flags={name: wrong})

    assert refused.value.field == name


@pytest.mark.parametrize(("first_ms", "longest_ms", "delays"), [
    (1_000, 30_000, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]),
    (100, 1_000, [100, 200, 400, 800, 1_000, 1_000, 1_000]),
])  # fmt: skip
def test_the_backoff_of_scheduling_retries_is_a_setting(first_ms: int, longest_ms: int, delays: list[int]) -> None:
    found = [routing_delay_ms(tries, 0, first_ms=first_ms, longest_ms=longest_ms) for tries in range(7)]

    assert found == delays


@pytest.mark.parametrize(("first_ms", "longest_ms"), [(1_000, 30_000), (50, 60)])
async def test_a_task_without_a_worker_waits_for_as_long_as_the_settings_say(first_ms: int, longest_ms: int) -> None:
    flags = {"execution.routing_backoff_ms": first_ms, "execution.max_routing_backoff_ms": longest_ms}
    harness = ExecutionHarness(flags=flags)
    harness.worker = harness.new_worker("w1", FakeRunner("other"))
    run = await harness.run(await harness.job())
    waits = []
    for _ in range(3):
        await harness.run_until_idle()
        [task] = await harness.store.history.tasks([run])
        waits.append(task.available_at - harness.clock.now())
        harness.clock.advance(waits[-1])

    for number, wait in enumerate(waits):
        assert min(first_ms << number, longest_ms) <= wait <= min((first_ms << number) + 500, longest_ms)


@pytest.mark.parametrize("most", [2, 5])
async def test_a_task_without_a_worker_fails_after_as_many_tries_as_the_settings_say(most: int) -> None:
    harness = ExecutionHarness(flags={"execution.max_routings": most, "execution.routing_backoff_ms": 1})
    harness.worker = harness.new_worker("w1", FakeRunner("other"))
    run = await harness.run(await harness.job())
    tries = 0
    while (await harness.store.history.tasks([run]))[0].state is TaskState.PENDING:
        await harness.run_until_idle()
        harness.clock.advance(60_000)
        tries += 1

    [letter] = await harness.store.dead_letters.page("default")
    assert (tries, letter.reason) == (most, "no_workers")


def test_an_attempt_that_never_started_waits_for_as_long() -> None:
    limits = give_up_limits(
        load(flags={"execution.routing_backoff_ms": 7, "execution.max_routing_backoff_ms": 7}).execution
    )
    held = running_assignment()

    ended = complete_attempt(held, AttemptOutcome(result=Result.NEVER_STARTED), now=NOW, limits=limits)

    assert ended.available_at == NOW + 7
    assert replace(ended, available_at=0).state is TaskState.PENDING


@pytest.mark.parametrize("longest_ms", [2_000, 400])
def test_the_longest_pause_after_a_failed_publish_is_a_setting(longest_ms: int) -> None:
    settings = load(flags={"nats.publish_retry_ms": longest_ms})
    backoff = Backoff(NullEvents(), "courier", longest=settings.nats.publish_retry_ms / 1000)

    pauses = [backoff.failed(BusUnavailable("away")) for _ in range(9)]

    assert pauses[0] == 0.05
    assert max(pauses) == longest_ms / 1000


@pytest.mark.parametrize("throttle_ms", [5_000, 70_000])
async def test_a_throttled_task_is_asked_about_again_after_as_long_as_the_settings_say(throttle_ms: int) -> None:
    harness = PolicyHarness(throttle_ms=throttle_ms)
    await harness.apply("rules: [{id: slow, decision: throttle}]")

    task, [ruling] = await harness.tried(function())

    assert (task.wait_reason, task.available_at - ruling.last_at) == (WaitReason.POLICY, throttle_ms)


@pytest.mark.parametrize(
    ("setting", "begun", "state"),
    [
        ("reconciler.dispatch_timeout_ms", False, TaskState.PENDING),
        ("reconciler.running_timeout_ms", True, TaskState.TIMEOUT),
    ],
)
@pytest.mark.parametrize("limit_ms", [60_000, 2_000])
async def test_the_reconciler_takes_a_task_back_after_as_long_as_the_settings_say(
    setting: str, state: TaskState, limit_ms: int, *, begun: bool
) -> None:
    harness = ExecutionHarness(flags={setting: limit_ms, "worker.lease_ms": 300})
    run = await harness.run(await harness.job())
    await harness.worker.step()
    await harness.dispatcher.step()
    now = harness.clock.now()
    assert await harness.store.attempts.take("silent", limit=1, lease_ms=10 * 60_000, now=now, begin=begun)
    states = []
    for ms in (limit_ms, 1):
        harness.clock.advance(ms)
        await harness.reconciler.step()
        states.append((await harness.store.history.tasks([run]))[0].state)

    assert states == [TaskState.RUNNING if begun else TaskState.DISPATCHED, state]


@pytest.mark.parametrize("pending_ms", [120_000, 5_000])
async def test_a_ready_task_is_offered_again_after_as_long_as_the_settings_say(pending_ms: int) -> None:
    harness = ExecutionHarness(flags={"reconciler.pending_ms": pending_ms})
    await harness.run(await harness.job())
    offered = []
    for ms in (pending_ms - 1, 1):
        harness.clock.advance(ms)
        await harness.reconciler.step()
        offered.append(harness.woken.count("reconciler"))

    assert offered == [0, 1]


@pytest.mark.parametrize("poll_ms", [30_000, 700])
async def test_the_reconciler_looks_as_often_as_the_settings_say(poll_ms: int) -> None:
    assert await ExecutionHarness(flags={"reconciler.poll_ms": poll_ms}).reconciler.step() == poll_ms / 1000


@pytest.mark.parametrize(("batch", "iterations", "found"), [(1, 2, 2), (2, 1, 2), (2, 2, 4), (200, 100, 5)])
async def test_the_reconciler_looks_at_as_many_attempts_at_once_as_the_settings_say(
    batch: int, iterations: int, found: int
) -> None:
    harness = ExecutionHarness(flags={"reconciler.batch": batch, "reconciler.max_iterations": iterations})
    job = await harness.job(overlap=Overlap.ALLOW)
    for number in range(5):
        await harness.run(job, str(number))
    await harness.run_until_idle()
    harness.clock.advance(harness.settings.worker.lease_ms + 1)

    await harness.reconciler.step()

    assert harness.events.names().count("attempt_ended_by_reconciler") == found


@pytest.mark.parametrize("lease_ms", [30_000, 5_000])
async def test_the_lease_of_an_attempt_is_a_setting(lease_ms: int) -> None:
    harness = ExecutionHarness(flags={"worker.lease_ms": lease_ms})
    await harness.run(await harness.job())
    await harness.run_until_idle()

    assert harness.runner.started
    [found] = (await harness.store.attempts.open_attempts(after=TaskId(""), limit=5)).attempts

    assert found.attempt.lease_until == NOON + lease_ms
