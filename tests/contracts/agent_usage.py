"""The contract of the usage of agents, for any store."""

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, NOON, minutely
from gnomon.core.agents.rules import AgentSpending
from gnomon.core.agents.usage import AgentUsageTotal, day_of
from gnomon.core.model import DAY_MS, LogLine, Overlap, Result, RunId, RunSource
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.core.runs.progress import AttemptProgress
from gnomon.ports.store import Store
from support.task_steps import completion_of, take_task

SPENT = AgentSpending(
    requests=2, input_tokens=100, output_tokens=20, cost_micros=1500, tool_calls=3, actions=1, model="openai:small"
)


def progress_of(one: TaskCompletion, spent: AgentSpending, first: int = 0, *lines: str) -> AttemptProgress:
    """The progress of the attempt that ends so."""
    kept = tuple(LogLine(NOON, "tool", text) for text in lines)
    return AttemptProgress(task_id=one.task_id, fence=one.fence, spent=spent, first=first, lines=kept)


class AgentUsageContract:
    """Tests for any store. `store` is a fresh one."""

    async def ended(
        self, store: Store, number: int, spent: AgentSpending | None, *, now: int = NOON, job: str = "triage"
    ) -> TaskCompletion:
        """An attempt that is about to end with this usage."""
        schedule = minutely(job, overlap=Overlap.ALLOW)
        if await store.schedules.find("default", job) is None:
            await store.schedules.add([schedule], actor="ada", tzdata="")
        run = new_requested_run(RunId(f"run_{number:03}"), schedule, source=RunSource.API, now=now)
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=now)
        taken = await take_task(store, "w1", run, now=now)
        return completion_of(taken, Result.SUCCEEDED, now=now, usage=spent)

    async def test_the_usage_of_an_attempt_is_written_once_with_its_end(self, store: Store) -> None:
        one = await self.ended(store, 1, SPENT)

        assert await store.agent_usages.cost_since("default", NOON - HOUR) == 0
        await store.attempts.report([one])
        await store.attempts.report([one])

        assert await store.agent_usages.cost_since("default", NOON - HOUR) == 1500
        assert await store.agent_usages.cost_since("default", NOON + 1) == 0
        assert await store.agent_usages.cost_since("acme", 0) == 0
        total = AgentUsageTotal(attempts=1, spent=replace(SPENT, model=""))
        assert await store.agent_usages.of_runs("default", [one.run_id, "run_x"]) == {one.run_id: total}
        assert await store.agent_usages.of_runs("acme", [one.run_id]) == {}
        assert await store.agent_usages.of_job("default", "triage", since=NOON) == total
        others = [("default", "triage", NOON + 1), ("default", "other", 0), ("acme", "triage", 0)]
        found = [await store.agent_usages.of_job(tenant, job, since=since) for tenant, job, since in others]
        assert found == [AgentUsageTotal()] * 3

    async def test_an_attempt_that_is_another_ones_by_now_writes_no_usage(self, store: Store) -> None:
        one = await self.ended(store, 1, SPENT)

        await store.attempts.report([replace(one, fence=one.fence + 1)])

        assert await store.agent_usages.cost_since("default", 0) == 0

    async def test_other_functions_have_no_usage(self, store: Store) -> None:
        await store.attempts.report([await self.ended(store, 1, None)])

        assert await store.agent_usages.by_day("default", since=0) == []

    async def test_usage_is_summed_by_day_and_model(self, store: Store) -> None:
        other = replace(SPENT, model="claude:big", cost_micros=7)
        for number, (spent, at) in enumerate([(SPENT, NOON), (SPENT, NOON), (other, NOON), (SPENT, NOON + DAY_MS)]):
            await store.attempts.report([await self.ended(store, number, spent, now=at)])

        found = await store.agent_usages.by_day("default", since=0)

        today, day = day_of(NOON + DAY_MS), day_of(NOON)
        assert [(one.day, one.model, one.attempts, one.spent.cost_micros) for one in found] == [
            (today, "openai:small", 1, 1500),
            (day, "claude:big", 1, 7),
            (day, "openai:small", 2, 3000),
        ]
        assert found[2].spent == replace(
            SPENT, requests=4, input_tokens=200, output_tokens=40, cost_micros=3000, tool_calls=6, actions=2
        )
        assert [one.day for one in await store.agent_usages.by_day("default", since=today)] == [today]

    async def test_usage_is_summed_by_job_the_dearest_first(self, store: Store) -> None:
        spent = [("triage", SPENT, NOON), ("triage", SPENT, NOON), ("cheap", replace(SPENT, cost_micros=7), NOON)]
        old = ("big", replace(SPENT, cost_micros=9000), NOON - DAY_MS)
        for number, (job, usage, at) in enumerate([old, *spent]):
            await store.attempts.report([await self.ended(store, number, usage, now=at, job=job)])

        found = await store.agent_usages.by_job("default", since=NOON, limit=10)

        assert [(one.job, one.attempts, one.spent.cost_micros) for one in found] == [
            ("triage", 2, 3000),
            ("cheap", 1, 7),
        ]
        assert found[0].spent.requests == 2 * SPENT.requests
        [dearest] = await store.agent_usages.by_job("default", since=0, limit=1)
        assert dearest.job == "big"
        assert await store.agent_usages.by_job("acme", since=0, limit=10) == []

    async def test_the_usage_of_a_running_attempt_counts_and_only_grows(self, store: Store) -> None:
        one = await self.ended(store, 1, SPENT)
        early, late = progress_of(one, SPENT), progress_of(one, replace(SPENT, requests=3, cost_micros=2000))

        kept = [await store.attempts.keep_progress(each, worker=None, now=NOON) for each in (late, late, early)]

        assert kept == [True] * 3
        assert await store.agent_usages.cost_since("default", NOON) == 2000
        await store.attempts.report([replace(one, usage=replace(SPENT, cost_micros=2500))])
        assert await store.agent_usages.cost_since("default", NOON) == 2500
        [day] = await store.agent_usages.by_day("default", since=0)
        assert day.attempts == 1

    @pytest.mark.parametrize("result", [Result.LOST, Result.TIMED_OUT, Result.CANCELLED])
    async def test_an_attempt_that_its_worker_does_not_report_ends_with_what_was_kept(
        self, store: Store, result: Result
    ) -> None:
        one = replace(await self.ended(store, 1, None), result=result, logs=())
        begun = progress_of(one, SPENT, 0, "read_file: allowed", "shell: has not ended")
        ended = progress_of(one, replace(SPENT, tool_calls=4), 1, "shell: allowed")
        for each in (begun, ended):
            await store.attempts.keep_progress(each, worker=None, now=NOON)

        counted = await store.attempts.report([one])

        assert counted == {(one.task_id, one.fence)}
        page = await store.executions.log_lines(one.task_id)
        assert [line.text for line in page] == ["read_file: allowed", "shell: allowed"]
        [day] = await store.agent_usages.by_day("default", since=0)
        assert (day.attempts, day.spent) == (1, replace(SPENT, tool_calls=4))

    async def test_an_attempt_that_has_ended_or_is_another_ones_keeps_nothing(self, store: Store) -> None:
        one = await self.ended(store, 1, SPENT)
        more = replace(SPENT, requests=9, cost_micros=9000)

        others = await store.attempts.keep_progress(
            progress_of(replace(one, fence=one.fence + 1), more), worker=None, now=NOON
        )
        foreign = await store.attempts.keep_progress(progress_of(one, more), worker="remote_x", now=NOON)
        await store.attempts.report([one])
        late = await store.attempts.keep_progress(progress_of(one, more), worker=None, now=NOON)

        assert (others, foreign, late) == (False, False, False)
        assert await store.agent_usages.cost_since("default", 0) == SPENT.cost_micros

    @pytest.mark.req("Z-12")
    async def test_a_lost_attempt_keeps_all_its_reserved_actions(self, store: Store) -> None:
        """Its last action may not have been kept."""
        one = replace(await self.ended(store, 1, None), result=Result.LOST)
        await store.actions.reserve(one.task_id, one.fence, "default", count=4, limit=10, now=NOON)
        await store.attempts.keep_progress(progress_of(one, SPENT), worker=None, now=NOON)

        await store.attempts.report([one])

        assert await store.tasks.actions_since("default", since=NOON - HOUR) == 4

    @pytest.mark.req("Z-12")
    async def test_reserved_actions_count_until_the_attempt_has_ended_with_fewer(self, store: Store) -> None:
        one = await self.ended(store, 1, SPENT)

        async def reserve(count: int) -> bool:
            return await store.actions.reserve(one.task_id, one.fence, "default", count=count, limit=10, now=NOON)

        async def spent() -> int:
            return await store.tasks.actions_since("default", since=NOON - HOUR)

        assert not await reserve(11)
        assert await reserve(10)
        assert await reserve(9)
        assert not await store.actions.reserve("task_2", 1, "default", count=2, limit=10, now=NOON)
        assert await store.actions.reserve("task_2", 1, "acme", count=10, limit=10, now=NOON)
        assert await spent() == 9
        await store.attempts.report([one])
        assert await spent() == SPENT.actions

    @pytest.mark.req("Z-12")
    async def test_the_next_attempt_does_not_give_back_the_actions_of_the_one_before(self, store: Store) -> None:
        one = await self.ended(store, 1, SPENT)
        for number in (one.fence, one.fence + 1):
            await store.actions.reserve(one.task_id, number, "default", count=4, limit=10, now=NOON)
        assert await store.tasks.actions_since("default", since=NOON - HOUR) == 8

        await store.attempts.report([one])

        assert await store.tasks.actions_since("default", since=NOON - HOUR) == SPENT.actions + 4

    @pytest.mark.req("Z-12")
    @pytest.mark.parametrize("result", [Result.DENIED, Result.NEVER_STARTED, Result.GAVE_UP])
    async def test_an_agent_whose_process_never_began_gives_all_actions_back(
        self, store: Store, result: Result
    ) -> None:
        one = replace(await self.ended(store, 1, None), result=result, never_began=True)
        await store.actions.reserve(one.task_id, one.fence, "default", count=4, limit=10, now=NOON)

        await store.attempts.report([one])

        assert await store.tasks.actions_since("default", since=NOON - HOUR) == 0

    @pytest.mark.req("Z-12")
    async def test_an_admitted_agent_that_is_cancelled_gives_all_actions_back(self, store: Store) -> None:
        schedule = minutely("triage", overlap=Overlap.ALLOW)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        run = new_requested_run(RunId("run_1"), schedule, source=RunSource.API, now=NOON)
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
        [task] = await store.history.tasks([run])
        await store.actions.reserve(task.task_id, task.fence + 1, "default", count=4, limit=10, now=NOON)

        await store.runs.cancel(run.run_id, reason="enough", now=NOON)

        assert await store.tasks.actions_since("default", since=NOON - HOUR) == 0
