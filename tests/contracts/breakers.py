"""The contract of circuit breakers that all processes share, for any store."""

import asyncio
from collections.abc import Sequence

import pytest

from contracts.store import NOON, minutely
from gnomon.core.breakers import CLOSED_BREAKER, BreakerLimits, BreakerState, StepBreaker
from gnomon.core.model import SECOND_MS as SECOND
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, TaskId
from gnomon.core.named_breakers import NO_TENANT, BreakerKey, BreakerUse, RequestOutcome
from gnomon.core.runs.admission import Admission
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.task_breakers import breaker_use
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.audit import AuditQuery
from gnomon.ports.store import Store
from support.task_steps import LEASE, completion_of, workflow

#: Two failures open it for ten seconds; then one probe at a time.
STRIPE = StepBreaker(name="stripe", limits=BreakerLimits(failures=2, open_ms=10_000, probes=1, successes=1))
PAY = workflow("pay", breaker=STRIPE)
KEY = BreakerKey("default", "stripe")
LIMITS = BreakerLimits(failures=2, open_ms=10 * SECOND, probes=2, successes=2, probe_ms=5 * SECOND)


def use(request: str, *, key: BreakerKey = KEY, limits: BreakerLimits = LIMITS, user: str = "pay") -> BreakerUse:
    return BreakerUse(key=key, limits=limits, user=user, request=request)


async def open_breaker(store: Store, *, now: int = NOON, key: BreakerKey = KEY) -> None:
    for number in range(2):
        await store.breakers.record(use(f"failing-{number}", key=key), RequestOutcome.FAILED, now=now)


class BreakerContract:
    """Tests for any store. `store` is a fresh one."""

    async def test_a_breaker_that_nobody_has_used_does_not_exist(self, store: Store) -> None:
        assert await store.breakers.find(KEY) is None
        assert list(await store.breakers.page("default", limit=10)) == []
        assert await store.breakers.reset(KEY, actor="ada", now=NOON) is None

    @pytest.mark.req("R-12")
    async def test_failures_of_different_users_open_it_for_all_of_them(self, store: Store) -> None:
        await store.breakers.record(use("a", user="pay"), RequestOutcome.FAILED, now=NOON)
        opened = await store.breakers.record(use("b", user="refund"), RequestOutcome.FAILED, now=NOON + SECOND)

        refused = await store.breakers.request(use("c", user="report"), now=NOON + 2 * SECOND)

        assert opened.state(NOON + SECOND) is BreakerState.OPEN
        assert (opened.opened_by, opened.changed_at) == ("b", NOON + SECOND)
        assert refused.ask_again_at == NOON + 11 * SECOND
        assert await store.breakers.find(KEY) == refused.named

    @pytest.mark.req("R-12")
    async def test_half_open_it_grants_no_more_probes_than_its_limit_however_many_ask_at_once(
        self, store: Store
    ) -> None:
        await open_breaker(store)

        asked = [store.breakers.request(use(f"probe-{number}"), now=NOON + 10 * SECOND) for number in range(6)]

        assert sum(one.granted for one in await asyncio.gather(*asked)) == 2

    @pytest.mark.req("R-12")
    async def test_successful_probes_close_it(self, store: Store) -> None:
        await open_breaker(store)
        for number in range(2):
            await store.breakers.request(use(f"probe-{number}"), now=NOON + 10 * SECOND)
            after = await store.breakers.record(
                use(f"probe-{number}"), RequestOutcome.SUCCEEDED, now=NOON + 11 * SECOND
            )

        assert after.breaker == CLOSED_BREAKER
        assert (after.opened_by, after.changed_at) == ("", NOON + 11 * SECOND)
        assert await store.breakers.find(KEY) == after

    @pytest.mark.req("R-12")
    async def test_a_cancelled_probe_leaves_its_slot_to_another(self, store: Store) -> None:
        await open_breaker(store)
        for name in ("a", "b"):
            await store.breakers.request(use(name), now=NOON + 10 * SECOND)

        await store.breakers.record(use("a"), RequestOutcome.NEITHER, now=NOON + 10 * SECOND)

        assert (await store.breakers.request(use("c"), now=NOON + 10 * SECOND)).granted

    async def test_failures_that_happen_at_once_are_all_counted(self, store: Store) -> None:
        strict = BreakerLimits(failures=6)
        failing = [
            store.breakers.record(use(f"r{number}", limits=strict), RequestOutcome.FAILED, now=NOON)
            for number in range(6)
        ]

        await asyncio.gather(*failing)

        found = await store.breakers.find(KEY)
        assert found is not None
        assert found.state(NOON) is BreakerState.OPEN

    async def test_the_strictest_of_different_definitions_applies(self, store: Store) -> None:
        lax = BreakerLimits(failures=5, open_ms=60 * SECOND)
        await store.breakers.request(use("a", limits=lax, user="report"), now=NOON)
        await open_breaker(store)

        found = await store.breakers.find(KEY)

        assert found is not None
        assert found.definitions == {"report": lax, "pay": LIMITS}
        assert found.breaker.open_until == NOON + 60 * SECOND

    async def test_breakers_of_the_same_name_in_different_tenants_are_different(self, store: Store) -> None:
        await open_breaker(store)

        assert (await store.breakers.request(use("a", key=BreakerKey("other", "stripe")), now=NOON)).granted
        assert (await store.breakers.request(use("a", key=BreakerKey(NO_TENANT, "stripe")), now=NOON)).granted

    async def test_they_are_listed_by_name_within_their_tenant(self, store: Store) -> None:
        for name in ("b", "c", "a"):
            await store.breakers.request(use("r", key=BreakerKey("default", name)), now=NOON)
        await store.breakers.request(use("r", key=BreakerKey("other", "d")), now=NOON)

        assert [one.name for one in await store.breakers.page("default", limit=2)] == ["a", "b"]
        assert [one.name for one in await store.breakers.page("default", after="b", limit=2)] == ["c"]

    async def test_an_operator_closes_it_and_the_audit_trail_says_so(self, store: Store) -> None:
        await open_breaker(store)

        closed = await store.breakers.reset(KEY, actor="ada", now=NOON + SECOND)

        assert closed is not None
        assert closed.breaker == CLOSED_BREAKER
        assert (await store.breakers.request(use("a"), now=NOON + SECOND)).granted
        [entry] = await store.audit.page(AuditQuery(tenant="default", kind="breaker"))
        assert (entry.entry.actor, entry.entry.action, entry.entry.name) == ("ada", "reset", "stripe")
        assert "open" in entry.entry.details

    # ---- tasks -----------------------------------------------------------------------------------

    @pytest.mark.req("R-12")
    @pytest.mark.req("R-04")
    async def test_a_task_that_finds_its_breaker_open_waits_without_an_attempt(self, store: Store) -> None:
        runs = await launched(store, 3)
        await fail(store, runs[:2], now=NOON + SECOND)

        one = await admit(store, runs[2], now=NOON + 2 * SECOND)

        assert (one.state, one.wait_reason, one.available_at) == (
            TaskState.PENDING,
            WaitReason.BREAKER,
            NOON + 11 * SECOND,
        )
        [task] = await store.history.tasks([runs[2]])
        assert (task.attempts, task.routings, task.fence) == (0, 0, 0)
        assert task.note == "the breaker stripe is open after 2 failures in a row"
        assert await store.tasks.next_available_at() == NOON + 11 * SECOND

    @pytest.mark.req("R-12")
    async def test_half_open_one_task_tries_and_the_others_wait_for_it(self, store: Store) -> None:
        runs = await launched(store, 5)
        await fail(store, runs[:2], now=NOON)

        done = [await admit(store, run, now=NOON + 10 * SECOND) for run in runs[2:]]

        assert [one.state for one in done] == [TaskState.SCHEDULED, TaskState.PENDING, TaskState.PENDING]
        assert done[1].note == "the breaker stripe is half open, and a probe is under way"
        assert done[1].available_at == NOON + 11 * SECOND

    @pytest.mark.req("R-12")
    async def test_of_tasks_that_are_admitted_together_only_one_is_the_probe(self, store: Store) -> None:
        runs = await launched(store, 5)
        await fail(store, runs[:2], now=NOON)
        [tasks] = [await store.history.tasks(runs[2:])]
        asked = [admission_of(run, task.task_id) for run, task in zip(runs[2:], tasks, strict=True)]

        done = await store.tasks.admit(asked, now=NOON + 10 * SECOND)

        assert sorted(one.state for one in done.values()) == ["PENDING", "PENDING", "SCHEDULED"]

    @pytest.mark.req("R-12")
    async def test_the_success_of_the_probe_wakes_all_that_wait(self, store: Store) -> None:
        runs = await launched(store, 4)
        await fail(store, runs[:2], now=NOON)
        await admit(store, runs[2], now=NOON + 10 * SECOND)
        await admit(store, runs[3], now=NOON + 10 * SECOND)

        await end(store, Result.SUCCEEDED, now=NOON + 10 * SECOND + 5)

        assert await store.tasks.next_available_at() == NOON + 10 * SECOND + 5
        assert (await admit(store, runs[3], now=NOON + 10 * SECOND + 5)).state is TaskState.SCHEDULED

    @pytest.mark.req("R-12")
    async def test_the_failure_of_the_probe_opens_it_again_from_that_failure(self, store: Store) -> None:
        runs = await launched(store, 4)
        await fail(store, runs[:2], now=NOON)
        await admit(store, runs[2], now=NOON + 10 * SECOND)

        await end(store, Result.FAILED, now=NOON + 12 * SECOND)

        assert (await admit(store, runs[3], now=NOON + 13 * SECOND)).available_at == NOON + 22 * SECOND

    async def test_a_probe_that_is_cancelled_before_a_worker_takes_it_leaves_its_place(self, store: Store) -> None:
        runs = await launched(store, 4)
        await fail(store, runs[:2], now=NOON)
        await admit(store, runs[2], now=NOON + 10 * SECOND)

        await store.runs.cancel(runs[2].run_id, reason="not needed", actor="ada", now=NOON + 11 * SECOND)

        assert (await admit(store, runs[3], now=NOON + 12 * SECOND)).state is TaskState.SCHEDULED

    async def test_a_probe_that_gives_up_or_is_lost_leaves_its_place_and_says_nothing(self, store: Store) -> None:
        runs = await launched(store, 4)
        await fail(store, runs[:2], now=NOON)
        for number, result in enumerate((Result.GAVE_UP, Result.LOST)):
            one = await admit(store, runs[2 + number], now=NOON + 10 * SECOND)
            assert one.state is TaskState.SCHEDULED
            await end(store, result, now=NOON + 10 * SECOND)

        found = await store.breakers.find(KEY)

        assert found is not None
        assert (found.state(NOON + 10 * SECOND), dict(found.breaker.probes)) == (BreakerState.HALF_OPEN, {})

    async def test_successes_while_all_is_well_leave_the_breaker_as_it_was(self, store: Store) -> None:
        runs = await launched(store, 2)
        await admit(store, runs[0], now=NOON)
        before = await store.breakers.find(KEY)
        await end(store, Result.SUCCEEDED, now=NOON + SECOND)

        assert await store.breakers.find(KEY) == before

    async def test_an_operator_who_resets_it_wakes_the_tasks_that_wait(self, store: Store) -> None:
        runs = await launched(store, 3)
        await fail(store, runs[:2], now=NOON)
        await admit(store, runs[2], now=NOON + SECOND)

        await store.breakers.reset(KEY, actor="ada", now=NOON + 2 * SECOND)

        assert await store.tasks.next_available_at() == NOON + 2 * SECOND
        assert (await admit(store, runs[2], now=NOON + 2 * SECOND)).state is TaskState.SCHEDULED


async def launched(store: Store, count: int, definition: Workflow = PAY) -> list[Run]:
    schedule = minutely(definition.workflow_id, overlap=Overlap.ALLOW)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    runs = [
        new_requested_run(RunId(f"run_{number}"), schedule, source=RunSource.API, now=NOON) for number in range(count)
    ]
    await store.runs.launch([LaunchRequest(run=run, first_steps=("main",)) for run in runs], now=NOON)
    return runs


def admission_of(run: Run, task_id: TaskId, fence: int = 0) -> Admission:
    return Admission(
        task_id=task_id,
        run_id=run.run_id,
        schedule_uid=run.schedule_uid,
        state=TaskState.SCHEDULED,
        available_at=NOON,
        routings=0,
        breaker=breaker_use(PAY.steps[0], run, task_id, fence + 1),
    )


async def admit(store: Store, run: Run, *, now: int) -> Admission:
    [task] = await store.history.tasks([run])
    return (await store.tasks.admit([admission_of(run, task.task_id, task.fence)], now=now))[task.task_id]


async def end(store: Store, result: Result, *, now: int) -> None:
    """Take the admitted task, and end its attempt."""
    [taken] = await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=now)
    await store.attempts.report([completion_of(taken, result, now=now, definition=PAY)])


async def fail(store: Store, runs: Sequence[Run], *, now: int) -> None:
    for run in runs:
        await admit(store, run, now=now)
        await end(store, Result.FAILED, now=now)
