"""The contract of stores for deadlines of runs and tasks, inherited by the tests of each adapter."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, TTL, minutely
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import plan
from gnomon.core.model import ENGINE, Overlap, Result, Run, RunId, RunSource, RunStatus, Schedule, Task
from gnomon.core.runs.admission import FanOut, ReadyTask
from gnomon.core.runs.deadlines import DEADLINE_EXCEEDED, OverdueEnd, OverdueTask, overdue_end
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest, new_requested_run, sub_run_id
from gnomon.core.runs.outcomes import Assignment, GiveUpLimits, complete_attempt
from gnomon.core.runs.reconcile import overdue_attempt_outcome
from gnomon.core.runs.states import TERMINAL, TaskState, WaitReason
from gnomon.core.runs.workflow import RetryPolicy, RunDeadlines, Step, Workflow
from gnomon.errors import ClockAhead
from gnomon.ports.ledger import Terms
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from gnomon.ports.tasks import QueuePosition
from support.task_steps import LEASE, admission, completion_of, runs_of, take_task, workflow

GRACE = 30_000
FIRST: QueuePosition = (-(2**62), "")
LIMITED = RunDeadlines(run_ms=10 * MINUTE)


class DeadlineContract:
    """Tests for any store."""

    async def limited_schedule(
        self,
        store: Store,
        deadlines: RunDeadlines | None = LIMITED,
        **changes: Any,  # noqa: ANN401
    ) -> Schedule:
        made = minutely(**{"overlap": Overlap.ALLOW, "deadlines": deadlines, **changes})
        await store.schedules.add([made], actor="ada", tzdata="")
        return made

    async def limited_tick(self, store: Store, schedule: Schedule, minute: int = 1) -> Run:
        """The run of the tick at that minute after noon."""
        terms: Terms = await store.shards.claim("node", ttl_ms=TTL, limit=SHARDS, by_force=True)
        found = await store.schedules.find(schedule.tenant, schedule.schedule_id)
        assert found is not None
        now = NOON + minute * MINUTE
        assert await store.ledger.decide([plan(found, now=now)], now=now, terms=terms)
        return (await runs_of(store, schedule))[-1]

    async def limited_run(self, store: Store, schedule: Schedule, name: str = "one", **fields: Any) -> Run:  # noqa: ANN401
        run = new_requested_run(RunId(f"run_{name}"), schedule, source=RunSource.MANUAL, now=NOON)
        request = LaunchRequest(run=run, **{"first_steps": ("main",), **fields})
        [became] = await store.runs.launch([request], now=NOON)
        assert became in (LaunchOutcome.STARTED, LaunchOutcome.QUEUED)
        return run

    async def overdue_tasks(self, store: Store, now: int) -> list[OverdueTask]:
        return list(await store.deadlines.overdue(now, grace_ms=GRACE, after=FIRST, limit=100))

    async def end_waiting(self, store: Store, now: int, definition: Workflow | None = None) -> set[str]:
        """End every waiting task that is past its deadline."""
        found = await self.overdue_tasks(store, now)
        ends = [overdue_end(one, definition or workflow()) for one in found if one.attempt is None]
        return set(await store.deadlines.end_overdue(ends, now=now))

    async def only_task(self, store: Store, run: Run) -> Task:
        found = await store.executions.find_run(run.run_id)
        assert found is not None
        [task] = await store.history.tasks([found])
        return task

    async def status_of(self, store: Store, run: Run) -> RunStatus:
        found = await store.executions.find_run(run.run_id)
        assert found is not None
        return found.status

    # ---- where deadlines come from -----------------------------------------------------------

    async def test_runs_and_first_tasks_of_a_schedule_have_its_deadlines(self, store: Store) -> None:
        schedule = await self.limited_schedule(store, RunDeadlines(run_ms=10 * MINUTE, steps_ms={"main": 2 * MINUTE}))

        run = await self.limited_tick(store, schedule)
        launched = await self.limited_run(store, schedule, first_spans_ms={"main": HOUR})

        assert run.deadline_at == NOON + 11 * MINUTE
        assert (await self.only_task(store, run)).deadline_at == NOON + 3 * MINUTE
        assert (await store.executions.find_run(launched.run_id)) == launched
        assert launched.deadline_at == (await self.only_task(store, launched)).deadline_at == NOON + 10 * MINUTE

    async def test_a_schedule_keeps_its_deadlines_in_every_revision(self, store: Store) -> None:
        schedule = await self.limited_schedule(store)

        found = await store.schedules.find("default", "report")
        [revision] = await store.history.revisions(schedule.uid)

        assert found is not None
        assert found.spec.deadlines == revision.schedule.spec.deadlines == LIMITED

    async def test_a_run_without_a_deadline_is_never_looked_at(self, store: Store) -> None:
        run = await self.limited_tick(store, await self.limited_schedule(store, None))

        assert run.deadline_at is (await self.only_task(store, run)).deadline_at is None
        assert await store.deadlines.next_end_at(grace_ms=GRACE) is None
        assert await self.overdue_tasks(store, NOON + 24 * HOUR) == []

    # ---- waiting tasks -----------------------------------------------------------------------

    async def test_a_waiting_task_is_overdue_at_its_deadline_and_not_before(self, store: Store) -> None:
        run = await self.limited_run(store, await self.limited_schedule(store))
        at = run.deadline_at or 0

        assert await store.deadlines.next_end_at(grace_ms=GRACE) == at
        assert await self.overdue_tasks(store, at - 1) == []
        [found] = await self.overdue_tasks(store, at)
        too_early = await store.deadlines.end_overdue([overdue_end(found, workflow())], now=at - 1)

        assert found == OverdueTask(task=await self.only_task(store, run), run=run)
        assert too_early == frozenset()
        assert (await self.only_task(store, run)).state is TaskState.PENDING

    @pytest.mark.req("R-07")
    @pytest.mark.parametrize("state", [TaskState.PENDING, TaskState.APPROVAL_REQUIRED, TaskState.SCHEDULED])
    async def test_a_task_ends_in_every_waiting_state_with_a_reason_and_a_dead_letter(
        self, store: Store, state: TaskState
    ) -> None:
        run = await self.limited_run(store, await self.limited_schedule(store))
        task, at = await self.only_task(store, run), run.deadline_at or 0
        if state is not TaskState.PENDING:
            asked = admission(task, schedule_uid=run.schedule_uid, state=state, note="an approval is required")
            assert await store.tasks.admit([asked], now=NOON)

        assert await self.end_waiting(store, at) == {task.task_id}
        assert await self.end_waiting(store, at) == set()

        after = await self.only_task(store, run)
        [letter] = await store.dead_letters.page("default")
        assert after.state is TaskState.TIMEOUT
        assert (after.note or "").startswith("its deadline passed at 2026-03-02T12:10:00.000+00:00")
        assert (letter.task_id, letter.reason, letter.last_error) == (task.task_id, DEADLINE_EXCEEDED, after.note)
        assert await self.status_of(store, run) is RunStatus.FAILED
        assert await store.deadlines.next_end_at(grace_ms=GRACE) is None
        assert await store.attempts.take("w1", limit=10, lease_ms=LEASE, now=at) == []

    @pytest.mark.req("R-07")
    @pytest.mark.parametrize("wait", [WaitReason.RETRY, WaitReason.DELAY, WaitReason.ROUTE, WaitReason.POLICY])
    async def test_a_task_ends_whatever_it_waits_for(self, store: Store, wait: WaitReason) -> None:
        run = await self.limited_run(store, await self.limited_schedule(store))
        task, at = await self.only_task(store, run), run.deadline_at or 0
        waits = admission(task, state=TaskState.PENDING, wait_reason=wait, available_at=at + HOUR, note="no worker")
        assert await store.tasks.admit([waits], now=NOON)

        assert await self.end_waiting(store, at) == {task.task_id}
        assert (await self.only_task(store, run)).note == (
            "its deadline passed at 2026-03-02T12:10:00.000+00:00 while it waited (no worker)"
        )

    @pytest.mark.req("R-07")
    async def test_a_run_that_waits_in_the_queue_ends_and_makes_no_room_for_another(self, store: Store) -> None:
        schedule = await self.limited_schedule(store, overlap=Overlap.QUEUE)
        first, second = await self.limited_run(store, schedule, "a"), await self.limited_run(store, schedule, "b")
        taken = await take_task(store, "w1", first, now=NOON)

        assert len(await self.end_waiting(store, second.deadline_at or 0)) == 1

        found = await store.schedules.find("default", "report")
        assert found is not None
        assert (found.active_runs, found.queued_runs) == (1, 0)
        assert await self.status_of(store, second) is RunStatus.FAILED
        assert taken.task.state is (await self.only_task(store, first)).state is TaskState.RUNNING

    async def test_the_run_behind_one_that_its_deadline_ended_starts(self, store: Store) -> None:
        schedule = await self.limited_schedule(store, overlap=Overlap.QUEUE)
        limited = await self.limited_run(store, schedule, "a")
        later = replace(
            new_requested_run(RunId("run_b"), schedule, source=RunSource.MANUAL, now=NOON + MINUTE), deadline_at=None
        )
        await store.runs.launch([LaunchRequest(run=later, first_steps=("main",))], now=NOON + MINUTE)

        assert len(await self.end_waiting(store, limited.deadline_at or 0)) == 1

        found = await store.executions.find_run(later.run_id)
        assert found is not None
        assert not found.queued
        assert (await self.only_task(store, later)).wait_reason is WaitReason.READY

    async def test_a_task_that_was_attempted_since_it_was_read_is_left_alone(self, store: Store) -> None:
        run = await self.limited_run(store, await self.limited_schedule(store))
        at = run.deadline_at or 0
        [read] = await self.overdue_tasks(store, at)
        taken = await take_task(store, "w1", run, now=at - 1)
        definition = workflow(retry=RetryPolicy(max_attempts=5, initial_delay_ms=0, jitter=0))
        early = completion_of(replace(taken, task=replace(taken.task, deadline_at=None)), Result.FAILED, now=at - 1)
        again = replace(early, state=TaskState.PENDING, wait_reason=WaitReason.RETRY)
        assert await store.attempts.report([again])

        assert await store.deadlines.end_overdue([overdue_end(read, definition)], now=at) == frozenset()
        assert (await self.only_task(store, run)).state is TaskState.PENDING

    async def test_tasks_come_by_their_deadlines_page_by_page(self, store: Store) -> None:
        schedule = await self.limited_schedule(store)
        runs = [await self.limited_tick(store, schedule, minute) for minute in (1, 2, 3)]
        last = max(run.deadline_at or 0 for run in runs)

        page = await store.deadlines.overdue(last, grace_ms=GRACE, after=FIRST, limit=2)
        place = page[-1].task.deadline_at or 0, page[-1].task.task_id
        rest = await store.deadlines.overdue(last, grace_ms=GRACE, after=place, limit=2)

        assert [one.run.run_id for one in (*page, *rest)] == [run.run_id for run in runs]

    @pytest.mark.guarantee("C10")
    async def test_a_clock_that_is_ahead_of_the_store_ends_nothing(self, store: Store) -> None:
        run = await self.limited_run(store, await self.limited_schedule(store))
        [found] = await self.overdue_tasks(store, run.deadline_at or 0)
        ahead = await store.now() + HOUR

        with pytest.raises(ClockAhead):
            await self.overdue_tasks(store, ahead)
        with pytest.raises(ClockAhead):
            await store.deadlines.end_overdue([overdue_end(found, workflow())], now=ahead)
        assert (await self.only_task(store, run)).state is TaskState.PENDING

    # ---- tasks of workers --------------------------------------------------------------------

    @pytest.mark.req("R-07")
    @pytest.mark.parametrize("begin", [False, True])
    async def test_a_task_that_its_worker_does_not_end_is_overdue_after_the_grace(
        self, store: Store, *, begin: bool
    ) -> None:
        run = await self.limited_run(store, await self.limited_schedule(store))
        taken, at = await take_task(store, "w1", run, now=NOON, begin=begin), run.deadline_at or 0

        assert await store.deadlines.next_end_at(grace_ms=GRACE) == at + GRACE
        assert await self.overdue_tasks(store, at + GRACE - 1) == []
        [found] = await self.overdue_tasks(store, at + GRACE)
        assert found.attempt is not None
        held = Assignment(task=found.task, run=found.run, workflow=workflow(), step=workflow().steps[0], input={})
        end = complete_attempt(held, overdue_attempt_outcome(found), now=at + GRACE, limits=GiveUpLimits())
        assert await store.attempts.report([end]) == {(taken.task.task_id, 1)}

        after, [letter] = await self.only_task(store, run), await store.dead_letters.page("default")
        assert (after.state, letter.reason) == (TaskState.TIMEOUT, DEADLINE_EXCEEDED)
        assert await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=at + GRACE)]) == frozenset()
        assert await self.overdue_tasks(store, at + HOUR) == []

    # ---- steps of graphs ---------------------------------------------------------------------

    async def limited_graph(self, store: Store, *steps: Step, **fields: Any) -> tuple[Workflow, Run]:  # noqa: ANN401
        definition = Workflow(workflow_id="report", version=1, steps=steps, **fields)
        await store.jobs.apply(JobChangeset(workflows=[definition]), now=NOON, actor="ada", tzdata="")
        schedule = await self.limited_schedule(store, definition.deadlines)
        spans = definition.deadlines.steps_ms if definition.deadlines else {}
        run = await self.limited_run(store, schedule, first_steps=definition.first_steps, first_spans_ms=spans)
        return definition, run

    async def tasks_by_step(self, store: Store, run: Run) -> dict[str, Task]:
        return {task.step: task for task in await store.run_tasks.steps([run.run_id])}

    async def test_a_later_step_has_its_own_deadline_or_that_of_the_run_if_it_is_earlier(self, store: Store) -> None:
        steps = (
            Step(name="a", function="f"),
            Step(name="b", function="f", depends_on=("a",), deadline_ms=MINUTE),
            Step(name="c", function="f", depends_on=("a",), deadline_ms=HOUR),
        )
        definition, run = await self.limited_graph(store, *steps, deadline_ms=10 * MINUTE)
        [taken] = await self.take_first(store, run)
        await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON + 5, definition=definition)])

        tasks = await self.tasks_by_step(store, run)

        assert tasks["b"].deadline_at == NOON + 5 + MINUTE
        assert tasks["c"].deadline_at == run.deadline_at == NOON + 10 * MINUTE

    async def take_first(self, store: Store, run: Run) -> list[ReadyTask]:
        waiting = [task for task in await store.history.tasks([run]) if task.state is TaskState.PENDING]
        await store.tasks.admit([admission(task, schedule_uid=run.schedule_uid) for task in waiting], now=NOON)
        return list(await store.attempts.take("w1", limit=100, lease_ms=LEASE, now=NOON))

    @pytest.mark.req("R-07")
    async def test_the_deadline_of_a_run_ends_all_of_its_open_steps_and_the_run(self, store: Store) -> None:
        steps = (
            Step(name="a", function="f"),
            Step(name="b", function="f"),
            Step(name="c", function="f", depends_on=("a", "b")),
        )
        definition, run = await self.limited_graph(store, *steps, deadline_ms=10 * MINUTE)

        assert len(await self.end_waiting(store, run.deadline_at or 0, definition)) == 2

        tasks = await self.tasks_by_step(store, run)
        assert {name: task.state for name, task in tasks.items()} == {
            "a": TaskState.TIMEOUT,
            "b": TaskState.TIMEOUT,
            "c": TaskState.CANCELLED,
        }
        assert await self.status_of(store, run) is RunStatus.FAILED
        assert len(await store.dead_letters.page("default")) == 2

    @pytest.mark.req("R-07")
    async def test_items_have_the_deadline_of_their_step_and_end_it(self, store: Store) -> None:
        step = Step(name="all", function="f", foreach=[1, 2, 3], max_parallel=1, deadline_ms=MINUTE)
        definition, run = await self.limited_graph(store, step)
        [task] = await store.history.tasks([run])
        items = FanOut(
            task_id=task.task_id,
            run_id=run.run_id,
            schedule_uid=run.schedule_uid,
            fence=task.fence,
            graph=definition,
            items=(b"{}", b"{}", b"{}"),
            limit=1,
        )
        assert await store.tasks.fan_out([items], now=NOON + 10_000)

        found = await self.overdue_tasks(store, NOON + MINUTE)
        assert {one.task.deadline_at for one in found} == {NOON + MINUTE}
        assert all(one.task.parent == task.task_id for one in found)
        assert len(await self.end_waiting(store, NOON + MINUTE, definition)) == 3

        steps = await self.tasks_by_step(store, run)
        assert steps["all"].state is TaskState.TIMEOUT
        assert await self.status_of(store, run) is RunStatus.FAILED
        assert {letter.reason for letter in await store.dead_letters.page("default")} == {DEADLINE_EXCEEDED}
        assert await self.overdue_tasks(store, NOON + HOUR) == []

    @pytest.mark.req("R-07")
    async def test_a_step_with_a_sub_run_ends_with_it(self, store: Store) -> None:
        inner = Workflow(workflow_id="inner", version=1, steps=(Step(name="main", function="f"),))
        await store.jobs.apply(JobChangeset(workflows=[inner]), now=NOON, actor="ada", tzdata="")
        retried = RetryPolicy(max_attempts=5, initial_delay_ms=1, jitter=0)
        step = Step(name="all", workflow="inner", deadline_ms=MINUTE, retry=retried)
        definition, run = await self.limited_graph(store, step)
        [task] = await store.history.tasks([run])
        held = replace(task, fence=task.fence + 1)
        sub = replace(
            run,
            run_id=sub_run_id(held),
            schedule_uid=None,
            schedule_id=None,
            workflow_id="inner",
            parent_task=task.task_id,
            depth=1,
            deadline_at=task.deadline_at,
        )
        fan_out = FanOut(
            task_id=task.task_id,
            run_id=run.run_id,
            schedule_uid=run.schedule_uid,
            fence=task.fence,
            graph=definition,
            launch=LaunchRequest(run=sub, first_steps=("main",)),
        )
        assert await store.tasks.fan_out([fan_out], now=NOON)

        [found] = await self.overdue_tasks(store, NOON + MINUTE)
        assert found.run.run_id == sub.run_id
        assert await self.end_waiting(store, NOON + MINUTE, inner) == {found.task.task_id}

        assert await self.status_of(store, sub) is await self.status_of(store, run) is RunStatus.FAILED
        [attempt] = await store.executions.attempts([task.task_id])
        assert (attempt.worker, attempt.result) == (ENGINE, Result.TIMED_OUT)
        assert (await self.tasks_by_step(store, run))["all"].state is TaskState.TIMEOUT

    async def test_an_end_of_an_unknown_task_changes_nothing(self, store: Store) -> None:
        run = await self.limited_run(store, await self.limited_schedule(store))
        unknown = OverdueEnd(
            task_id=replace(await self.only_task(store, run)).task_id,
            run_id=run.run_id,
            schedule_uid=run.schedule_uid,
            fence=7,
            note="no such attempt",
        )

        assert await store.deadlines.end_overdue([unknown], now=run.deadline_at or 0) == frozenset()
        assert (await self.only_task(store, run)).state not in TERMINAL
