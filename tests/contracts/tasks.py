"""The contract of stores for tasks, attempts, runs and jobs: one suite, inherited by the tests of each adapter."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, TTL, minutely
from gnomon.config.settings import load
from gnomon.core.ids import SHARDS
from gnomon.core.instants import instant_of
from gnomon.core.ledger.edits import edited_schedule, verdict_before_edit
from gnomon.core.ledger.plan import plan
from gnomon.core.model import (
    LogLine,
    Overlap,
    Result,
    Run,
    RunId,
    RunSource,
    RunStatus,
    Schedule,
    ScheduleUid,
    TaskId,
    TickStatus,
)
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest, new_requested_run
from gnomon.core.runs.routing import Placement
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import RetryPolicy, Workflow
from gnomon.core.triggers import At, OnDemand
from gnomon.ports.ledger import Terms
from gnomon.ports.runs import LetterQuery, LogQuery, RunQuery
from gnomon.ports.schedules import JobChangeset, ScheduleEdit
from gnomon.ports.store import Store
from gnomon.ports.tasks import WorkerInfo
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.execution.reconciler import Reconciler
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.observed_events import NullEvents
from gnomon.testing.clock import VirtualClock
from support.task_steps import (
    LEASE,
    admission,
    admission_request,
    completion_of,
    finish_run,
    runs_of,
    take_task,
    workflow,
)

Advance = Callable[[int], None]


class TaskContract:
    """Tests for any store. `store` is a fresh one, `advance` moves the clock that decides when leases expire."""

    @pytest.fixture
    async def schedule(self, store: Store) -> Schedule:
        made = minutely(overlap=Overlap.ALLOW)
        await store.schedules.add([made], actor="ada", tzdata="")
        return made

    @pytest.fixture
    async def run(self, store: Store, schedule: Schedule) -> Run:
        """A run of the tick at 12:01."""
        await self.tick(store, schedule, 1)
        [made] = await runs_of(store, schedule)
        return made

    async def tick(self, store: Store, schedule: Schedule, minute: int) -> None:
        terms: Terms = await store.shards.claim("node", ttl_ms=TTL, limit=SHARDS, by_force=True)
        found = await store.schedules.find(schedule.tenant, schedule.schedule_id)
        assert found is not None
        now = NOON + minute * MINUTE
        assert await store.ledger.decide([plan(found, now=now)], now=now, terms=terms)

    async def launched(self, store: Store, schedule: Schedule, name: str, **fields: object) -> LaunchOutcome:
        run = new_requested_run(RunId(f"run_{name}"), schedule, source=RunSource.MANUAL, now=NOON)
        [became] = await store.runs.launch([LaunchRequest(run=run, first_steps=("main",), **fields)], now=NOON)  # type: ignore[arg-type]
        return became

    async def found(self, store: Store, run: Run) -> Run:
        found = await store.executions.find_run(run.run_id)
        assert found is not None
        return found

    async def counts(self, store: Store, schedule: Schedule) -> tuple[int, int]:
        found = await store.schedules.find(schedule.tenant, schedule.schedule_id)
        assert found is not None
        return found.active_runs, found.queued_runs

    # ---- waiting and the gate ----------------------------------------------------------------

    async def test_a_task_waits_until_its_time_has_come(self, store: Store, run: Run) -> None:
        assert await store.tasks.waiting(run.fire_at - 1, limit=10) == []
        [waiting] = await store.tasks.waiting(run.fire_at, limit=10)

        assert (waiting.run, waiting.input) == (run, None)
        assert waiting.task.state is TaskState.PENDING
        assert await store.tasks.next_available_at() == run.fire_at

    async def test_those_that_wait_come_earliest_first_and_no_more_than_asked_for(
        self, store: Store, schedule: Schedule
    ) -> None:
        for minute in (1, 2, 3):
            await self.tick(store, schedule, minute)

        waiting = await store.tasks.waiting(NOON + HOUR, limit=2)

        assert [one.run.planned_at for one in waiting] == [NOON + MINUTE, NOON + 2 * MINUTE]

    async def test_a_queued_run_has_no_ready_tasks(self, store: Store) -> None:
        schedule = minutely("serial", overlap=Overlap.QUEUE)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        for minute in (1, 2):
            await self.tick(store, schedule, minute)

        waiting = await store.tasks.waiting(NOON + HOUR, limit=10)

        assert [one.run.planned_at for one in waiting] == [NOON + MINUTE]

    async def test_an_admitted_task_is_scheduled_once(self, store: Store, run: Run) -> None:
        [task] = await store.history.tasks([run])

        assert set(await store.tasks.admit([admission(task)], now=NOON)) == {task.task_id}
        assert await store.tasks.admit([admission(task)], now=NOON) == {}
        assert await store.tasks.waiting(NOON + HOUR, limit=10) == []
        assert await store.tasks.next_available_at() is None

    async def test_an_admission_from_before_the_last_attempt_is_void(self, store: Store, run: Run) -> None:
        [read] = await store.history.tasks([run])
        definition = workflow(retry=RetryPolicy(max_attempts=5, initial_delay_ms=HOUR, jitter=0))
        taken = await take_task(store, "w1", run, now=NOON)
        await store.attempts.report([completion_of(taken, Result.FAILED, now=NOON, definition=definition)])

        assert await store.tasks.admit([admission(read, fence=read.fence)], now=NOON) == {}

    async def test_an_admission_that_rests_on_an_attempt_is_void_unless_that_succeeded(
        self, store: Store, schedule: Schedule, run: Run
    ) -> None:
        first = await take_task(store, "w1", run, now=NOON)
        await self.tick(store, schedule, 2)
        _, other = await runs_of(store, schedule)
        [task] = await store.history.tasks([other])
        held, another = (first.task.task_id, first.task.fence), (first.task.task_id, first.task.fence + 1)

        assert await store.tasks.admit([admission(task, behind=held)], now=NOON) == {}
        await store.attempts.report([completion_of(first, Result.SUCCEEDED, now=NOON)])
        assert await store.tasks.admit([admission(task, behind=another)], now=NOON) == {}
        assert set(await store.tasks.admit([admission(task, behind=held)], now=NOON)) == {task.task_id}

    async def test_a_task_that_nobody_can_take_waits_and_says_why(self, store: Store, run: Run) -> None:
        [task] = await store.history.tasks([run])
        later = admission(
            task,
            state=TaskState.PENDING,
            wait_reason=WaitReason.ROUTE,
            available_at=NOON + HOUR,
            routings=1,
            note="no_workers: nobody",
        )
        await store.tasks.admit([later], now=NOON)

        [task] = await store.history.tasks([run])
        assert (task.wait_reason, task.routings, task.note) == (WaitReason.ROUTE, 1, "no_workers: nobody")
        assert await store.tasks.next_available_at() == NOON + HOUR

    @pytest.mark.req("R-04")
    async def test_unroutable_tasks_are_found_before_they_are_due_page_by_page(
        self, store: Store, schedule: Schedule
    ) -> None:
        for minute in (1, 2, 3, 4):
            await self.tick(store, schedule, minute)
        first, second, limited, _ = [
            task for run in await runs_of(store, schedule) for task in await store.history.tasks([run])
        ]
        waits: dict[str, Any] = {"state": TaskState.PENDING, "wait_reason": WaitReason.ROUTE}
        later = [
            admission(second, available_at=NOON + 2 * HOUR, routings=2, **waits),
            admission(first, available_at=NOON + 3 * HOUR, routings=1, **waits),
            # Not unroutable: its tenant has too many tasks in flight.
            admission(limited, available_at=NOON + HOUR, **waits),
        ]
        await store.tasks.admit(later, now=NOON)

        [one] = await store.tasks.unroutable_tasks(after=(NOON, ""), limit=1)
        assert one.task.task_id == second.task_id
        [other] = await store.tasks.unroutable_tasks(after=(one.task.available_at, one.task.task_id), limit=10)
        assert other.task.task_id == first.task_id

    @pytest.mark.req("C-08")
    async def test_a_task_that_cannot_be_launched_fails_its_run_and_its_tick(
        self, store: Store, schedule: Schedule, run: Run
    ) -> None:
        [task] = await store.history.tasks([run])
        lost = admission(
            task,
            schedule_uid=schedule.uid,
            state=TaskState.FAILED,
            note="launch_failed: no workflow",
            dead_letter="launch_failed",
        )
        await store.tasks.admit([lost], now=NOON + HOUR)

        after = await self.found(store, run)
        assert (after.status, after.error, after.completed_at) == (RunStatus.FAILED, lost.note, NOON + HOUR)
        [tick] = await store.history.ticks(schedule.uid, before=NOON + HOUR, limit=10)
        assert tick.status is TickStatus.FAILED
        assert await self.counts(store, schedule) == (0, 0)
        [letter] = await store.dead_letters.page("default")
        assert (letter.reason, letter.attempts, letter.run_id) == ("launch_failed", 0, run.run_id)

    # ---- attempts ----------------------------------------------------------------------------

    @pytest.mark.req("C-10")
    async def test_taking_a_task_starts_its_attempt_its_run_and_its_tick(
        self, store: Store, schedule: Schedule, run: Run
    ) -> None:
        taken = await take_task(store, "w1", run, now=NOON + MINUTE + 5)

        assert (taken.task.state, taken.task.fence) == (TaskState.RUNNING, 1)
        [attempt] = await store.executions.attempts([taken.task.task_id])
        assert (attempt.number, attempt.worker, attempt.started_at) == (1, "w1", NOON + MINUTE + 5)
        after = await self.found(store, run)
        assert (after.status, after.started_at) == (RunStatus.RUNNING, NOON + MINUTE + 5)
        [tick] = await store.history.ticks(schedule.uid, before=NOON + HOUR, limit=10)
        assert tick.status is TickStatus.STARTED

    async def test_only_what_has_passed_the_gate_is_taken(self, store: Store, run: Run) -> None:
        del run
        assert await store.attempts.take("w1", limit=10, lease_ms=LEASE, now=NOON + HOUR) == []

    async def test_a_task_is_taken_by_one_worker(self, store: Store, schedule: Schedule) -> None:
        for minute in range(1, 21):
            await self.tick(store, schedule, minute)
        tasks = await store.history.tasks(await runs_of(store, schedule))
        await store.tasks.admit([admission(task) for task in tasks], now=NOON)

        batches = await asyncio.gather(
            *(store.attempts.take(f"w{n}", limit=5, lease_ms=LEASE, now=NOON + HOUR) for n in range(6))
        )

        taken = [one.task.task_id for batch in batches for one in batch]
        assert sorted(taken) == sorted(task.task_id for task in tasks)

    async def test_a_cached_task_is_taken_without_reading_it(self, store: Store, run: Run) -> None:
        [task] = await store.history.tasks([run])
        await store.tasks.admit([admission(task)], now=NOON)
        known = {task.task_id: admission_request(ReadyTask(task=task, run=run, input=b'{"read": "before"}'))}

        [taken] = await store.attempts.take("w1", limit=10, lease_ms=LEASE, now=NOON + HOUR, known=known)

        assert (taken.task.state, taken.task.fence) == (TaskState.RUNNING, 1)
        assert taken.run == await self.found(store, run)

    async def test_a_task_cached_before_another_attempt_is_read_again(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "w1", run, now=NOON)
        await store.attempts.report([completion_of(taken, Result.INTERRUPTED, now=NOON)])
        [task] = await store.history.tasks([run])
        await store.tasks.admit([admission(task)], now=NOON)
        stale = {task.task_id: admission_request(ReadyTask(task=replace(taken.task, fence=0, attempts=7), run=run))}

        [again] = await store.attempts.take("w2", limit=10, lease_ms=LEASE, now=NOON + HOUR, known=stale)

        assert (again.task.fence, again.task.attempts) == (2, task.attempts)

    @pytest.mark.parametrize("begin", [True, False])
    async def test_an_attempt_never_begins_before_the_end_of_the_one_before_it(
        self, store: Store, run: Run, *, begin: bool
    ) -> None:
        taken = await take_task(store, "w1", run, now=NOON + MINUTE)
        await store.attempts.report([completion_of(taken, Result.INTERRUPTED, now=NOON + 2 * MINUTE)])
        [task] = await store.history.tasks([run])
        await store.tasks.admit([admission(task, available_at=NOON + 2 * MINUTE)], now=NOON + 2 * MINUTE)

        # The worker looked at its clock before the first attempt ended, and its take was written after that.
        await store.attempts.take("w2", limit=10, lease_ms=LEASE, now=NOON + MINUTE + 1, begin=begin)

        first, second = await store.executions.attempts([task.task_id])
        assert first.ended_at == second.dispatched_at == NOON + 2 * MINUTE
        assert second.started_at == (second.dispatched_at if begin else None)

    async def test_known_and_unknown_tasks_are_taken_in_order(self, store: Store, schedule: Schedule) -> None:
        for minute in range(1, 6):
            await self.tick(store, schedule, minute)
        runs = {run.run_id: run for run in await runs_of(store, schedule)}
        tasks = sorted(
            await store.history.tasks(list(runs.values())), key=lambda task: (task.available_at, task.task_id)
        )
        await store.tasks.admit([admission(task) for task in tasks], now=NOON)
        known = {task.task_id: admission_request(ReadyTask(task=task, run=runs[task.run_id])) for task in tasks[1::2]}

        taken = await store.attempts.take("w1", limit=4, lease_ms=LEASE, now=NOON + HOUR, known=known)

        assert [one.task.task_id for one in taken] == [task.task_id for task in tasks[:4]]

    async def test_a_dispatched_task_runs_once_its_start_is_granted(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "w1", run, now=NOON, begin=False)
        assert taken.task.state is TaskState.DISPATCHED
        assert (await self.found(store, run)).started_at is None
        held = taken.task.task_id, taken.task.fence

        assert await store.attempts.begin([held], now=NOON + 7) == {held}

        assert await store.attempts.begin([held], now=NOON + 8) == frozenset()
        [attempt] = await store.executions.attempts([taken.task.task_id])
        assert (attempt.dispatched_at, attempt.started_at) == (NOON, NOON + 7)
        assert (await self.found(store, run)).started_at == NOON + 7

    @pytest.mark.guarantee("S5")
    async def test_a_start_is_not_granted_under_an_old_fence(self, store: Store, run: Run) -> None:
        first = await take_task(store, "w1", run, now=NOON, begin=False)
        await store.attempts.report([completion_of(first, Result.NEVER_STARTED, now=NOON)])
        second = await take_task(store, "w2", run, now=NOON, begin=False)

        assert await store.attempts.begin([(first.task.task_id, first.task.fence)], now=NOON) == frozenset()
        assert second.task.fence > first.task.fence

    @pytest.mark.guarantee("S5")
    async def test_a_worker_that_begins_has_it_from_then_on_and_may_ask_again(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "courier", run, now=NOON, begin=False)
        held = taken.task.task_id, taken.task.fence

        assert await store.attempts.begin([held], now=NOON, worker="w1") == {held}
        assert await store.attempts.begin([held], now=NOON + 5, worker="w1") == {held}
        assert await store.attempts.begin([held], now=NOON + 6, worker="w2") == frozenset()
        [attempt] = await store.executions.attempts([taken.task.task_id])
        assert (attempt.worker, attempt.started_at) == ("w1", NOON)

        await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON + 7)])
        assert await store.attempts.begin([held], now=NOON + 8, worker="w1") == frozenset()

    async def test_assigned_tasks_can_be_read_again(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "w1", run, now=NOON, begin=False)
        held = taken.task.task_id, taken.task.fence
        [found] = await store.attempts.assigned_tasks([held, (held[0], held[1] + 1), (TaskId("task_x"), 1)])
        assert (found.task, found.run) == (taken.task, taken.run)

        await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON + 7)])
        assert not await store.attempts.assigned_tasks([held])

    async def test_the_newest_attempt_alone_may_end_a_task(self, store: Store, run: Run) -> None:
        definition = workflow(retry=RetryPolicy(max_attempts=5, initial_delay_ms=0))
        first = await take_task(store, "w1", run, now=NOON + MINUTE)
        await store.attempts.report([completion_of(first, Result.LOST, now=NOON + 2 * MINUTE, definition=definition)])
        second = await take_task(store, "w2", run, now=NOON + 3 * MINUTE)

        late = completion_of(first, Result.SUCCEEDED, now=NOON + 4 * MINUTE, output=b'"old"')
        assert await store.attempts.report([late]) == frozenset()
        assert (await self.found(store, run)).status is RunStatus.RUNNING
        right = completion_of(second, Result.SUCCEEDED, now=NOON + 5 * MINUTE, output=b'"new"')
        assert await store.attempts.report([right]) == {(second.task.task_id, 2)}
        assert await store.executions.payload(second.task.task_id, "output") == b'"new"'

    @pytest.mark.guarantee("S7")
    async def test_an_attempt_ends_once(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "w1", run, now=NOON + MINUTE)
        success = completion_of(taken, Result.SUCCEEDED, now=NOON + 2 * MINUTE)
        failure = completion_of(taken, Result.FAILED, now=NOON + 3 * MINUTE, error="too late")

        assert await store.attempts.report([success, failure]) == {(taken.task.task_id, 1)}
        assert await store.attempts.report([failure]) == frozenset()

        after = await self.found(store, run)
        assert (after.status, after.completed_at, after.error) == (RunStatus.COMPLETED, NOON + 2 * MINUTE, None)

    @pytest.mark.req("C-10", "H-10")
    @pytest.mark.parametrize(
        ("result", "status", "tick_status"),
        [
            (Result.SUCCEEDED, RunStatus.COMPLETED, TickStatus.SUCCESS),
            (Result.FAILED, RunStatus.FAILED, TickStatus.FAILED),
            (Result.GAVE_UP, RunStatus.FAILED, TickStatus.FAILED),
            (Result.TIMED_OUT, RunStatus.FAILED, TickStatus.FAILED),
            (Result.CANCELLED, RunStatus.CANCELLED, TickStatus.FAILED),
        ],
    )
    async def test_the_end_of_the_only_task_is_the_end_of_run_and_tick(
        self,
        store: Store,
        schedule: Schedule,
        run: Run,
        result: Result,
        status: RunStatus,
        tick_status: TickStatus,
    ) -> None:
        assert await finish_run(store, run, result=result, now=NOON + HOUR)

        after = await self.found(store, run)
        assert (after.status, after.completed_at) == (status, NOON + HOUR)
        [tick] = await store.history.ticks(schedule.uid, before=NOON + HOUR, limit=10)
        assert tick.status is tick_status
        assert await self.counts(store, schedule) == (0, 0)

    async def test_a_failed_attempt_is_tried_again_later(self, store: Store, run: Run) -> None:
        definition = workflow(retry=RetryPolicy(max_attempts=2, initial_delay_ms=60_000, jitter=0))
        taken = await take_task(store, "w1", run, now=NOON + MINUTE)

        await store.attempts.report(
            [completion_of(taken, Result.FAILED, now=NOON + 2 * MINUTE, definition=definition, error="no")]
        )

        [task] = await store.history.tasks([run])
        assert (task.state, task.wait_reason, task.attempts) == (TaskState.PENDING, WaitReason.RETRY, 1)
        assert (task.available_at, task.note) == (NOON + 3 * MINUTE, "no")
        [attempt] = await store.executions.attempts([task.task_id])
        assert (attempt.result, attempt.error, attempt.ended_at) == (Result.FAILED, "no", NOON + 2 * MINUTE)
        assert await store.tasks.next_available_at() == NOON + 3 * MINUTE
        assert not (await self.found(store, run)).over

    async def test_a_snoozed_task_waits_without_having_failed(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "w1", run, now=NOON + MINUTE)

        await store.attempts.report([completion_of(taken, Result.SNOOZED, now=NOON + MINUTE, snooze_ms=5000)])

        [task] = await store.history.tasks([run])
        assert (task.wait_reason, task.attempts) == (WaitReason.DELAY, 0)
        assert task.available_at == NOON + MINUTE + 5000

    async def test_the_log_and_output_of_an_attempt_are_stored(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "w1", run, now=NOON + MINUTE)
        said = tuple(LogLine(NOON + n, "info", f"line {n}") for n in range(5))

        await store.attempts.report(
            [completion_of(taken, Result.SUCCEEDED, now=NOON + HOUR, output=b'{"rows":3}', logs=said)]
        )

        assert await store.executions.payload(taken.task.task_id, "output") == b'{"rows":3}'
        assert tuple(await store.executions.log_lines(taken.task.task_id)) == said
        assert tuple(await store.executions.log_lines(taken.task.task_id, after=1, limit=2)) == said[1:3]
        logged = await store.run_tasks.log(LogQuery(run_id=run.run_id, since=NOON + 1, limit=3))
        rest = await store.run_tasks.log(LogQuery(run_id=run.run_id, after=logged[-1].place))
        assert [(one.line, one.number, one.task) for one in (*logged, *rest)] == [
            (line, number, taken.task.task_id) for number, line in enumerate(said, 1) if number > 1
        ]

    async def test_the_next_attempt_speaks_after_the_one_before(self, store: Store, run: Run) -> None:
        definition = workflow(retry=RetryPolicy(max_attempts=2, initial_delay_ms=0))
        for number, result in enumerate((Result.FAILED, Result.SUCCEEDED)):
            taken = await take_task(store, "w1", run, now=NOON + HOUR)
            line = LogLine(NOON + number, "info", f"attempt {number}")
            await store.attempts.report(
                [completion_of(taken, result, now=NOON + HOUR, definition=definition, logs=(line,))]
            )

        [task] = await store.history.tasks([run])
        assert [line.text for line in await store.executions.log_lines(task.task_id)] == ["attempt 0", "attempt 1"]

    # ---- leases ------------------------------------------------------------------------------

    async def test_a_renewed_lease_counts_from_the_renewal(self, store: Store, run: Run, advance: Advance) -> None:
        taken = await take_task(store, "w1", run, now=NOON + MINUTE)
        advance(LEASE // 2)
        before = await store.attempts.open_attempts(after=TaskId(""), limit=10)

        renewal = await store.attempts.renew("w1", [(taken.task.task_id, 1)], lease_ms=LEASE)

        after = await store.attempts.open_attempts(after=TaskId(""), limit=10)
        assert (renewal.lost, renewal.to_cancel) == (frozenset(), frozenset())
        [old], [new] = before.attempts, after.attempts
        assert new.attempt.lease_until - old.attempt.lease_until >= LEASE // 2
        assert new.attempt.lease_until > after.now

    async def test_a_worker_learns_what_it_has_lost(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "w1", run, now=NOON + MINUTE)
        held = taken.task.task_id, 1
        await store.attempts.report([completion_of(taken, Result.LOST, now=NOON + HOUR)])

        assert (await store.attempts.renew("w1", [held], lease_ms=LEASE)).lost == {held}

    @pytest.mark.guarantee("S9")
    async def test_an_attempt_renewed_since_the_check_is_not_lost(
        self, store: Store, run: Run, advance: Advance
    ) -> None:
        taken = await take_task(store, "w1", run, now=NOON)
        advance(LEASE)
        [seen] = (await store.attempts.open_attempts(after=TaskId(""), limit=10)).attempts
        lost = completion_of(taken, Result.LOST, now=NOON, lease_until=seen.attempt.lease_until)
        await store.attempts.renew("w1", [(taken.task.task_id, 1)], lease_ms=LEASE + 1)

        assert await store.attempts.report([lost]) == frozenset()
        [again] = (await store.attempts.open_attempts(after=TaskId(""), limit=10)).attempts
        assert await store.attempts.report([replace(lost, lease_until=again.attempt.lease_until)])

    @pytest.mark.guarantee("S9")
    async def test_an_attempt_started_by_one_worker_is_lost_to_any_other(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "courier", run, now=NOON, begin=False)
        held = taken.task.task_id, taken.task.fence
        assert not (await store.attempts.renew("w1", [held], lease_ms=LEASE)).lost
        await store.attempts.begin([held], now=NOON, worker="w2")

        assert (await store.attempts.renew("w1", [held], lease_ms=LEASE)).lost == {held}
        assert not (await store.attempts.renew("w2", [held], lease_ms=LEASE)).lost

    @pytest.mark.guarantee("S5", "S9")
    async def test_a_report_on_the_attempt_of_another_worker_is_void(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "courier", run, now=NOON, begin=False)
        held = taken.task.task_id, taken.task.fence
        await store.attempts.begin([held], now=NOON, worker="w2")
        of_others, of_its_own = (
            completion_of(taken, Result.NEVER_STARTED, now=NOON, reported_by=one) for one in ("w1", "w2")
        )

        assert not await store.attempts.report([of_others])
        assert await store.attempts.report([of_its_own]) == {held}

    @pytest.mark.guarantee("S5", "S9")
    @pytest.mark.parametrize("result", [Result.SUCCEEDED, Result.FAILED, Result.GAVE_UP, Result.LOST])
    async def test_only_the_worker_that_has_begun_an_attempt_ends_it(
        self, store: Store, run: Run, result: Result
    ) -> None:
        taken = await take_task(store, "courier", run, now=NOON, begin=False)
        held = taken.task.task_id, taken.task.fence
        await store.attempts.begin([held], now=NOON, worker="field_1")
        of_others, of_its_own = (
            completion_of(taken, result, now=NOON, reported_by=one) for one in ("field_2", "field_1")
        )

        assert not await store.attempts.report([of_others])
        assert await store.attempts.report([of_others, of_its_own]) == {held}
        [attempt] = await store.executions.attempts([taken.task.task_id])
        assert (attempt.worker, attempt.result) == ("field_1", result)

    @pytest.mark.guarantee("S9")
    async def test_a_task_sent_to_one_worker_cannot_be_started_by_another(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "field_1", run, now=NOON, begin=False)
        held = taken.task.task_id, taken.task.fence

        assert await store.attempts.begin([held], now=NOON, worker="field_2") == frozenset()
        assert (await store.attempts.renew("field_2", [held], lease_ms=LEASE)).lost == {held}
        assert not await store.attempts.report([completion_of(taken, Result.FAILED, now=NOON, reported_by="field_2")])
        assert not (await store.attempts.renew("field_1", [held], lease_ms=LEASE)).lost
        assert await store.attempts.begin([held], now=NOON, worker="field_1") == {held}

    @pytest.mark.guarantee("S9")
    async def test_an_enrolled_worker_gets_what_was_sent_to_its_pool_and_nothing_else(
        self, store: Store, run: Run
    ) -> None:
        taken = await take_task(store, "courier", run, now=NOON, begin=False)
        held, stranger = (taken.task.task_id, taken.task.fence), "field_gpu.one.1"

        assert await store.attempts.begin([held], now=NOON, worker=stranger) == frozenset()
        assert (await store.attempts.renew(stranger, [held], lease_ms=LEASE)).lost == {held}
        assert not await store.attempts.report([completion_of(taken, Result.FAILED, now=NOON, reported_by=stranger)])
        assert await store.attempts.begin([held], now=NOON, worker="field_default.one.1") == {held}

    async def test_open_attempts_are_paged_by_task(self, store: Store, schedule: Schedule) -> None:
        for minute in (1, 2, 3):
            await self.tick(store, schedule, minute)
        runs = await runs_of(store, schedule)
        for run in runs:
            await take_task(store, "w1", run, now=NOON + HOUR)

        first = await store.attempts.open_attempts(after=TaskId(""), limit=2)
        rest = await store.attempts.open_attempts(after=first.attempts[-1].task.task_id, limit=2)

        assert sorted(one.run.run_id for one in [*first.attempts, *rest.attempts]) == [r.run_id for r in runs]
        assert {one.attempt.worker for one in first.attempts} == {"w1"}

    async def test_an_attempt_that_has_ended_is_not_open(self, store: Store, run: Run) -> None:
        await finish_run(store, run, now=NOON + HOUR)

        assert (await store.attempts.open_attempts(after=TaskId(""), limit=10)).attempts == []

    # ---- workers -----------------------------------------------------------------------------

    async def test_a_worker_is_known_until_its_time_is_over(self, store: Store, advance: Advance) -> None:
        card = WorkerInfo(worker="w1", functions=("a", "b/c"), slots=7, started_at=NOON)
        await store.workers.register(replace(card, slots=5), ttl_ms=1000)
        await store.workers.register(card, ttl_ms=1000)

        assert [replace(one, seen_at=0) for one in await store.workers.alive()] == [card]
        advance(1001)
        assert await store.workers.alive() == []

    async def test_a_worker_that_leaves_is_gone_at_once(self, store: Store) -> None:
        await store.workers.register(WorkerInfo(worker="w1", functions=(), slots=1, started_at=NOON), ttl_ms=60_000)
        await store.workers.deregister("w1")

        assert await store.workers.alive() == []

    # ---- launching ---------------------------------------------------------------------------

    @pytest.mark.req("H-26")
    async def test_a_run_can_be_launched_by_hand_with_its_own_input(self, store: Store, schedule: Schedule) -> None:
        assert await self.launched(store, schedule, "a", input=b'{"x":1}') is LaunchOutcome.STARTED

        [waiting] = await store.tasks.waiting(NOON, limit=10)
        assert (waiting.run.source, waiting.input) == (RunSource.MANUAL, b'{"x":1}')
        assert await self.counts(store, schedule) == (1, 0)
        assert await store.executions.payload(waiting.run.run_id, "input") == b'{"x":1}'

    async def test_the_same_launch_twice_is_one_run(self, store: Store, schedule: Schedule) -> None:
        became = [await self.launched(store, schedule, "a") for _ in range(2)]

        assert became == [LaunchOutcome.STARTED, LaunchOutcome.ALREADY]
        assert await self.counts(store, schedule) == (1, 0)

    @pytest.mark.guarantee("S8")
    @pytest.mark.parametrize(
        ("overlap", "became", "counts"),
        [
            (Overlap.ALLOW, LaunchOutcome.STARTED, (2, 0)),
            (Overlap.SKIP, LaunchOutcome.OVERLAP, (1, 0)),
            (Overlap.QUEUE, LaunchOutcome.QUEUED, (1, 1)),
            (Overlap.REPLACE, LaunchOutcome.QUEUED, (1, 1)),
        ],
    )
    async def test_a_launch_keeps_the_overlap_policy(
        self, store: Store, overlap: Overlap, became: LaunchOutcome, counts: tuple[int, int]
    ) -> None:
        schedule = minutely("kept", overlap=overlap)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        await self.launched(store, schedule, "a")
        [first] = await runs_of(store, schedule)
        await take_task(store, "w1", first, now=NOON)

        assert await self.launched(store, schedule, "b") is became
        assert await self.counts(store, schedule) == counts
        asked = (await self.found(store, first)).cancel_requested_at
        assert (asked is not None) == (overlap is Overlap.REPLACE)

    async def test_a_full_queue_takes_no_launch(self, store: Store) -> None:
        schedule = minutely("kept", overlap=Overlap.QUEUE, queue_limit=1)
        await store.schedules.add([schedule], actor="ada", tzdata="")

        became = [await self.launched(store, schedule, name) for name in "abc"]

        assert became == [LaunchOutcome.STARTED, LaunchOutcome.QUEUED, LaunchOutcome.QUEUE_FULL]

    async def test_a_forced_launch_runs_beside_others(self, store: Store) -> None:
        schedule = minutely("kept", overlap=Overlap.SKIP)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        await self.launched(store, schedule, "a")

        assert await self.launched(store, schedule, "b", force=True) is LaunchOutcome.STARTED
        assert await self.counts(store, schedule) == (2, 0)

    async def test_a_deleted_schedule_cannot_be_launched(self, store: Store, schedule: Schedule) -> None:
        assert await store.schedules.delete(verdict_before_edit(schedule, now=NOON), now=NOON, actor="ada")

        assert await self.launched(store, schedule, "a") is LaunchOutcome.GONE

    async def test_a_queued_launch_starts_when_its_turn_comes(self, store: Store) -> None:
        schedule = minutely("kept", overlap=Overlap.QUEUE)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        for name in "ab":
            await self.launched(store, schedule, name)
        first, second = await runs_of(store, schedule)

        await finish_run(store, first, now=NOON + 1)

        assert not (await self.found(store, second)).queued
        assert [one.run.run_id for one in await store.tasks.waiting(NOON + 1, limit=10)] == [second.run_id]

    async def test_a_queued_run_whose_fire_lies_ahead_waits_for_it(self, store: Store) -> None:
        schedule = minutely("kept", overlap=Overlap.QUEUE)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        await self.launched(store, schedule, "a")
        later = replace(
            new_requested_run(RunId("run_b"), schedule, source=RunSource.API, now=NOON), fire_at=NOON + HOUR
        )
        await store.runs.launch([LaunchRequest(run=later, first_steps=("main",))], now=NOON)
        first, second = await runs_of(store, schedule)

        await finish_run(store, first, now=NOON + 1)

        [task] = await store.history.tasks([second])
        assert (task.wait_reason, task.available_at) == (WaitReason.DELAY, NOON + HOUR)

    async def test_many_are_launched_at_once(self, store: Store, schedule: Schedule) -> None:
        runs = [new_requested_run(RunId(f"run_{n:04}"), schedule, source=RunSource.API, now=NOON) for n in range(300)]
        became = await store.runs.launch(
            [LaunchRequest(run=run, first_steps=("main",)) for run in [*runs, runs[0]]], now=NOON
        )

        assert became == [*[LaunchOutcome.STARTED] * 300, LaunchOutcome.ALREADY]
        assert await self.counts(store, schedule) == (300, 0)
        assert len(await store.tasks.waiting(NOON, limit=1000)) == 300

    async def test_a_workflow_runs_without_a_schedule(self, store: Store, schedule: Schedule) -> None:
        wanted = new_requested_run(RunId("run_free"), schedule, source=RunSource.API, now=NOON, key="k", user_id="eve")
        free = replace(wanted, schedule_uid=None, schedule_id=None)

        assert await store.runs.launch([LaunchRequest(run=free, first_steps=("main",))], now=NOON) == [
            LaunchOutcome.STARTED
        ]
        assert await finish_run(store, free, now=NOON + 1)
        assert await self.found(store, free) == replace(
            free, status=RunStatus.COMPLETED, started_at=NOON + 1, completed_at=NOON + 1
        )

    # ---- one-shots ---------------------------------------------------------------------------

    @pytest.mark.req("Z-08")
    @pytest.mark.parametrize("result", [Result.SUCCEEDED, Result.FAILED])
    async def test_a_one_shot_is_gone_after_success_and_paused_after_failure(
        self, store: Store, result: Result
    ) -> None:
        once = minutely("once", trigger=At(instant_of(NOON + MINUTE)), delete_after_run=True)
        await store.schedules.add([once], actor="ada", tzdata="")
        await self.tick(store, once, 1)
        [run] = await runs_of(store, once)

        await finish_run(store, run, result=result, now=NOON + HOUR)

        found = await store.schedules.find("default", "once")
        assert (found is None) == (result is Result.SUCCEEDED)
        assert found is None or found.paused_at == NOON + HOUR
        assert len(await store.history.ticks(once.uid, before=NOON + HOUR, limit=10)) == 1
        assert [p.paused_by for p in await store.history.pauses(once.uid)] == ([] if found is None else ["gnomon"])

    async def test_a_one_shot_that_was_run_by_hand_still_has_its_day(self, store: Store) -> None:
        once = minutely("once", trigger=At(instant_of(NOON + HOUR)), delete_after_run=True)
        await store.schedules.add([once], actor="ada", tzdata="")
        await self.launched(store, once, "a")

        await finish_run(store, (await runs_of(store, once))[0], now=NOON)

        found = await store.schedules.find("default", "once")
        assert found is not None
        assert found.next_fire_at == NOON + HOUR

    # ---- cancelling --------------------------------------------------------------------------

    @pytest.mark.req("H-26")
    async def test_a_waiting_run_is_cancelled_at_once(self, store: Store, schedule: Schedule, run: Run) -> None:
        assert await store.runs.cancel(run.run_id, reason="not today", now=NOON + HOUR) is CancelOutcome.CANCELLED

        after = await self.found(store, run)
        assert (after.status, after.error, after.completed_at) == (RunStatus.CANCELLED, "not today", NOON + HOUR)
        [task] = await store.history.tasks([run])
        assert task.state is TaskState.CANCELLED
        [tick] = await store.history.ticks(schedule.uid, before=NOON + HOUR, limit=10)
        assert tick.status is TickStatus.SKIPPED
        assert await self.counts(store, schedule) == (0, 0)
        assert await store.tasks.waiting(NOON + 2 * HOUR, limit=10) == []

    @pytest.mark.req("H-26")
    async def test_an_admitted_task_that_has_not_started_is_cancelled_at_once(self, store: Store, run: Run) -> None:
        [task] = await store.history.tasks([run])
        await store.tasks.admit([admission(task)], now=NOON)

        assert await store.runs.cancel(run.run_id, reason="no", now=NOON) is CancelOutcome.CANCELLED
        assert await store.attempts.take("w1", limit=10, lease_ms=LEASE, now=NOON + HOUR) == []

    @pytest.mark.req("H-26")
    async def test_a_running_run_is_asked_to_end_and_its_worker_learns_it(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "w1", run, now=NOON)

        assert await store.runs.cancel(run.run_id, reason="no", now=NOON + 5) is CancelOutcome.ASKED
        assert await store.runs.cancel(run.run_id, reason="really", now=NOON + 9) is CancelOutcome.ASKED

        assert await store.attempts.cancel_requests("w1") == {(taken.task.task_id, 1)}
        assert await store.attempts.cancel_requests("w2") == frozenset()
        renewal = await store.attempts.renew("w1", [(taken.task.task_id, 1)], lease_ms=LEASE)
        assert renewal.to_cancel == {(taken.task.task_id, 1)}
        assert (await self.found(store, run)).cancel_requested_at == NOON + 5
        await store.attempts.report([completion_of(taken, Result.CANCELLED, now=NOON + 10)])
        after = await self.found(store, run)
        assert (after.status, after.error) == (RunStatus.CANCELLED, "no")

    async def test_a_run_that_is_to_end_is_not_tried_again(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "w1", run, now=NOON)
        await store.runs.cancel(run.run_id, reason="no", now=NOON)

        await store.attempts.report([completion_of(taken, Result.LOST, now=NOON + HOUR)])

        assert (await self.found(store, run)).status is RunStatus.CANCELLED

    async def test_a_run_that_succeeded_before_it_heard_of_its_end_has_succeeded(self, store: Store, run: Run) -> None:
        taken = await take_task(store, "w1", run, now=NOON)
        await store.runs.cancel(run.run_id, reason="no", now=NOON)

        await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON + 1)])

        assert (await self.found(store, run)).status is RunStatus.COMPLETED

    async def test_a_queued_run_that_is_cancelled_leaves_the_queue(self, store: Store) -> None:
        schedule = minutely("kept", overlap=Overlap.QUEUE)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        for name in "abc":
            await self.launched(store, schedule, name)
        first, second, third = await runs_of(store, schedule)

        assert await store.runs.cancel(second.run_id, reason="no", now=NOON) is CancelOutcome.CANCELLED
        assert await self.counts(store, schedule) == (1, 1)
        await finish_run(store, first, now=NOON + 1)
        assert not (await self.found(store, third)).queued

    async def test_a_finished_or_unknown_run_is_not_cancelled(self, store: Store, run: Run) -> None:
        await finish_run(store, run, now=NOON)

        assert await store.runs.cancel(run.run_id, reason="no", now=NOON) is CancelOutcome.OVER
        assert await store.runs.cancel(RunId("run_none"), reason="no", now=NOON) is CancelOutcome.UNKNOWN

    # ---- reconciling -------------------------------------------------------------------------

    @pytest.mark.req("R-07")
    @pytest.mark.guarantee("S4")
    async def test_a_lost_attempt_is_found_behind_more_open_ones_than_one_pass_covers(
        self, store: Store, schedule: Schedule, advance: Callable[[int], None]
    ) -> None:
        for minute in range(1, 8):
            await self.tick(store, schedule, minute)
        tasks = sorted(await store.history.tasks(await runs_of(store, schedule)), key=lambda task: task.task_id)
        homes = ["alive"] * 6 + ["gone"]
        placed = [
            admission(task, placement=Placement(directed_to=home)) for task, home in zip(tasks, homes, strict=True)
        ]
        await store.tasks.admit(placed, now=NOON)
        now = await store.now()
        assert len(await store.attempts.take("alive", limit=10, lease_ms=HOUR, now=now)) == 6
        assert len(await store.attempts.take("gone", limit=10, lease_ms=1000, now=now)) == 1
        advance(1001)
        reconciler = Reconciler(
            store,
            WorkflowCache(store.jobs),
            VirtualClock(now),
            NullEvents(),
            load(flags={"reconciler.batch": 2, "reconciler.max_iterations": 1}),
            lease=AlwaysHeldSingleton(),
            on_ready=lambda: None,
        )

        # Two attempts in each step; the last one is found in the fourth, after which it begins again.
        for _ in range(3):
            assert await reconciler.step() == 0.0
            assert (await store.executions.attempts([tasks[-1].task_id]))[-1].ended_at is None
        await reconciler.step()

        [lost] = await store.executions.attempts([tasks[-1].task_id])
        assert lost.result is Result.LOST
        others = await store.executions.attempts([task.task_id for task in tasks[:-1]])
        assert {one.ended_at for one in others} == {None}

    # ---- queries -----------------------------------------------------------------------------

    @pytest.mark.req("H-10")
    async def test_runs_are_listed_newest_first_in_pages(self, store: Store, schedule: Schedule) -> None:
        for minute in (1, 2, 3):
            await self.tick(store, schedule, minute)
        runs = list(reversed(await runs_of(store, schedule)))

        first = await store.executions.list_runs(RunQuery(limit=2))
        rest = await store.executions.list_runs(RunQuery(limit=2, after=(first[-1].created_at, first[-1].run_id)))

        assert [*first, *rest] == runs

    @pytest.mark.req("H-06")
    async def test_runs_that_exclude_others_are_the_active_ones_of_schedules_that_skip(self, store: Store) -> None:
        skipping, over = minutely("a", overlap=Overlap.SKIP), minutely("b", overlap=Overlap.SKIP)
        others = [minutely("c", overlap=Overlap.ALLOW), minutely("d", overlap=Overlap.QUEUE)]
        await store.schedules.add([skipping, over, *others], actor="ada", tzdata="")
        for owner in (skipping, over, *others):
            await self.launched(store, owner, owner.schedule_id)
        [ended] = await runs_of(store, over)
        await finish_run(store, ended, now=NOON)

        found = await store.executions.excluding_runs(limit=10)

        assert found == await runs_of(store, skipping)
        assert await store.executions.excluding_runs(limit=0) == []

    async def test_runs_are_listed_by_job_and_by_status(self, store: Store, schedule: Schedule, run: Run) -> None:
        other = minutely("other")
        await store.schedules.add([other], actor="ada", tzdata="")
        await self.launched(store, other, "b")
        await finish_run(store, run, now=NOON)

        assert [r.run_id for r in await store.executions.list_runs(RunQuery(schedule_id="other"))] == ["run_b"]
        completed = await store.executions.list_runs(
            RunQuery(schedule_id=schedule.schedule_id, status=RunStatus.COMPLETED)
        )
        assert [r.run_id for r in completed] == [run.run_id]
        assert await store.executions.list_runs(RunQuery(tenant="other")) == []

    async def test_runs_are_listed_by_what_started_them_and_when(self, store: Store, schedule: Schedule) -> None:
        for minute in (1, 2, 3):
            await self.tick(store, schedule, minute)
        newest, middle, oldest = reversed(await runs_of(store, schedule))

        assert await store.executions.list_runs(RunQuery(source=RunSource.CRON, limit=1)) == [newest]
        assert await store.executions.list_runs(RunQuery(source=RunSource.API)) == []
        assert await store.executions.list_runs(RunQuery(since=middle.created_at)) == [newest, middle]
        assert await store.executions.list_runs(RunQuery(until=middle.created_at)) == [oldest]
        assert await store.executions.list_runs(RunQuery(since=middle.created_at, until=newest.created_at)) == [middle]

    async def test_a_search_can_stop_at_a_place_of_the_listing(self, store: Store, schedule: Schedule) -> None:
        for minute in (1, 2, 3):
            await self.tick(store, schedule, minute)
        newest, middle, _ = reversed(await runs_of(store, schedule))

        place = await store.executions.run_position(RunQuery(status=RunStatus.FAILED), 2)

        assert place == (middle.created_at, middle.run_id)
        assert await store.executions.list_runs(RunQuery(down_to=place)) == [newest, middle]
        after = RunQuery(after=(newest.created_at, newest.run_id))
        assert await store.executions.run_position(after, 1) == place
        assert await store.executions.run_position(after, 3) is None
        assert await store.executions.run_position(RunQuery(tenant="other"), 1) is None

    async def test_runs_that_have_not_ended_are_listed(self, store: Store, schedule: Schedule) -> None:
        for name in ("a", "b", "c"):
            await self.launched(store, schedule, name, force=True)
        assert await store.runs.cancel(RunId("run_b"), reason="no", now=NOON) is CancelOutcome.CANCELLED

        found = await store.executions.list_runs(RunQuery(unfinished=True))

        assert [run.run_id for run in found] == ["run_c", "run_a"]

    # ---- dead letters ------------------------------------------------------------------------

    async def dead(self, store: Store, run: Run) -> str:
        taken = await take_task(store, "w1", run, now=NOON + MINUTE)
        definition = workflow(dead_letter=True)
        failed = completion_of(taken, Result.FAILED, now=NOON + HOUR, definition=definition, error="it broke")
        assert await store.attempts.report([failed])
        [letter] = [one for one in await store.dead_letters.page("default") if one.run_id == run.run_id]
        return letter.dead_letter_id

    @pytest.mark.req("H-09")
    @pytest.mark.guarantee("S14")
    async def test_a_permanent_failure_leaves_one_dead_letter(self, store: Store, run: Run) -> None:
        name = await self.dead(store, run)

        letter = await store.dead_letters.find("default", name)
        assert letter is not None
        assert (letter.job, letter.step, letter.reason) == ("report", "main", "attempts_exhausted")
        assert (letter.attempts, letter.last_error, letter.input) == (1, "it broke", None)
        assert (letter.first_attempt_at, letter.last_attempt_at) == (NOON + MINUTE, NOON + MINUTE)
        assert (letter.created_at, letter.resolved_at) == (NOON + HOUR, None)
        assert await store.dead_letters.find("other", name) is None

    @pytest.mark.req("H-09")
    async def test_a_dead_letter_keeps_the_input_of_its_run(self, store: Store, schedule: Schedule) -> None:
        await self.launched(store, schedule, "a", input=b'{"x":1}')
        [run] = await runs_of(store, schedule)

        letter = await store.dead_letters.find("default", await self.dead(store, run))

        assert letter is not None
        assert letter.input == b'{"x":1}'

    @pytest.mark.req("H-09")
    async def test_a_dead_letter_keeps_the_input_that_its_run_had_of_the_workflow(
        self, store: Store, schedule: Schedule
    ) -> None:
        definition = workflow(dead_letter=True, input={"day": "monday"})
        assert await store.jobs.apply(JobChangeset(workflows=[definition]), now=NOON, actor="ada", tzdata="")
        await self.launched(store, schedule, "a")
        [run] = await runs_of(store, schedule)

        letter = await store.dead_letters.find("default", await self.dead(store, run))

        assert letter is not None
        assert letter.input == b'{"day":"monday"}'

    @pytest.mark.req("H-09")
    async def test_a_dead_letter_is_resolved_once(self, store: Store, run: Run) -> None:
        name = await self.dead(store, run)

        assert (
            await store.dead_letters.resolve("default", [name, "dl_none"], by="ada", actor="ada", now=NOON + HOUR) == 1
        )
        assert await store.dead_letters.resolve("default", [name], by="eve", actor="eve", now=NOON + HOUR) == 0
        letter = await store.dead_letters.find("default", name)
        assert letter is not None
        assert (letter.resolved_by, letter.resolved_at) == ("ada", NOON + HOUR)
        assert await store.dead_letters.page("default", unresolved=True) == []
        assert await store.dead_letters.page("default", job="report") == [letter]
        assert await store.dead_letters.page("default", job="other") == []

    @pytest.mark.guarantee("S14")
    @pytest.mark.parametrize("result", [Result.SUCCEEDED, Result.FAILED])
    async def test_a_replay_that_succeeds_resolves_its_dead_letter(
        self, store: Store, schedule: Schedule, run: Run, result: Result
    ) -> None:
        name = await self.dead(store, run)
        again = replace(
            new_requested_run(RunId("run_again"), schedule, source=RunSource.MANUAL, now=NOON), replay_of=name
        )
        await store.runs.launch([LaunchRequest(run=again, first_steps=("main",))], now=NOON)

        await finish_run(store, again, result=result, now=NOON + 2 * HOUR)

        letter = await store.dead_letters.find("default", name)
        assert letter is not None
        assert letter.replayed_by == "run_again"
        assert (letter.resolved_at is not None) == (result is Result.SUCCEEDED)

    @pytest.mark.guarantee("S14")
    async def test_the_replay_of_a_failed_replay_resolves_the_first_letter_at_once(
        self, store: Store, schedule: Schedule, run: Run
    ) -> None:
        first = await self.dead(store, run)
        again = replace(
            new_requested_run(RunId("run_again"), schedule, source=RunSource.MANUAL, now=NOON), replay_of=first
        )
        await store.runs.launch([LaunchRequest(run=again, first_steps=("main",))], now=NOON)
        second = await self.dead(store, again)
        once_more = new_requested_run(
            RunId("run_more"), schedule, source=RunSource.MANUAL, now=NOON + HOUR, actor="ada"
        )
        await store.runs.launch(
            [LaunchRequest(run=replace(once_more, replay_of=second), first_steps=("main",))], now=NOON + HOUR
        )

        found = {letter.dead_letter_id: letter for letter in await store.dead_letters.page("default")}
        assert (found[first].resolved_at, found[first].resolved_by) == (NOON + HOUR, f"ada, in favour of {second}")
        assert (found[second].resolved_at, found[second].replayed_by) == (None, "run_more")

    async def lettered(self, store: Store, schedule: Schedule, errors: Sequence[str | None]) -> list[str]:
        """The dead letters of runs that failed minute after minute with these errors."""
        for number in range(len(errors)):
            await self.launched(store, schedule, f"r{number}", force=True)
        found = []
        for minute, (run, error) in enumerate(zip(await runs_of(store, schedule), errors, strict=True)):
            taken = await take_task(store, "w1", run, now=NOON + MINUTE)
            definition = workflow(dead_letter=True)
            failed = completion_of(taken, Result.FAILED, now=NOON + minute * MINUTE, definition=definition, error=error)
            assert await store.attempts.report([failed])
            [letter] = [one for one in await store.dead_letters.page("default") if one.run_id == run.run_id]
            found.append(letter.dead_letter_id)
        return found

    @pytest.mark.req("H-09")
    async def test_dead_letters_are_found_by_step_reason_error_and_time(self, store: Store, schedule: Schedule) -> None:
        errors = ["disk full", "disk full\nat line 3", "disk fuller", None, "x" * 300]
        names = await self.lettered(store, schedule, errors)

        async def found(**filters: Any) -> list[int]:  # noqa: ANN401 - fields of the query
            page = await store.dead_letters.search(LetterQuery(oldest_first=True, **filters))
            return [names.index(one.dead_letter_id) for one in page.letters]

        assert await found() == [0, 1, 2, 3, 4]
        assert await found(error="disk full") == [0, 1, 2]
        assert await found(error="Disk") == []
        assert await found(error="disk full\n") == [1]
        assert await found(error_line="disk full") == [0, 1]
        assert await found(error_line="") == [3]
        assert await found(error_line="x" * 200) == [4]
        assert await found(step="main", reason="attempts_exhausted") == [0, 1, 2, 3, 4]
        assert await found(step="other") == await found(reason="lost") == await found(tenant="other") == []
        assert await found(since=NOON + MINUTE, until=NOON + 3 * MINUTE) == [1, 2]

    @pytest.mark.req("H-09")
    @pytest.mark.parametrize("oldest_first", [True, False])
    async def test_a_search_for_rare_dead_letters_looks_at_a_limited_number_for_a_page(
        self, store: Store, schedule: Schedule, *, oldest_first: bool
    ) -> None:
        names = await self.lettered(store, schedule, ["rare", "a", "b", "c", "rare"])
        query = LetterQuery(error="rare", oldest_first=oldest_first, scan=2, limit=5)

        pages = [await store.dead_letters.search(query)]
        while (after := pages[-1].after) is not None:
            pages.append(await store.dead_letters.search(replace(query, after=after)))

        expected = [names[0], names[4]] if oldest_first else [names[4], names[0]]
        assert [one.dead_letter_id for page in pages for one in page.letters] == expected
        assert len(pages) == 3

    @pytest.mark.req("H-09")
    async def test_dead_letters_are_grouped_by_job_step_and_first_line_of_the_error(
        self, store: Store, schedule: Schedule
    ) -> None:
        names = await self.lettered(store, schedule, ["disk full\nat 1", "no route", "disk full\nat 2", None])
        await store.dead_letters.resolve("default", names[1:2], by="ada", actor="ada", now=NOON + HOUR)

        found = await store.dead_letters.groups(LetterQuery(unresolved=True))

        assert found.after is None
        assert [(one.job, one.step, one.error_line, one.count) for one in found.groups] == [
            ("report", "main", "", 1),
            ("report", "main", "disk full", 2),
        ]
        assert (found.groups[1].oldest_at, found.groups[1].newest_at) == (NOON, NOON + 2 * MINUTE)
        parts = [await store.dead_letters.groups(LetterQuery(scan=2))]
        parts.append(await store.dead_letters.groups(LetterQuery(scan=2, after=parts[0].after)))
        assert [[(one.error_line, one.count) for one in part.groups] for part in parts] == [
            [("", 1), ("disk full", 1)],
            [("no route", 1), ("disk full", 1)],
        ]

    async def test_dead_letters_are_paged(self, store: Store, schedule: Schedule) -> None:
        for minute in (1, 2, 3):
            await self.tick(store, schedule, minute)
        names = [await self.dead(store, run) for run in await runs_of(store, schedule)]
        letters = [await store.dead_letters.find("default", name) for name in names]
        by_age = [
            name for _, name in sorted((one.created_at, one.dead_letter_id) for one in letters if one is not None)
        ]

        for oldest_first in (False, True):
            first = await store.dead_letters.page("default", oldest_first=oldest_first, limit=2)
            after = first[-1].created_at, first[-1].dead_letter_id
            rest = await store.dead_letters.page("default", oldest_first=oldest_first, after=after, limit=2)
            found = [letter.dead_letter_id for letter in [*first, *rest]]
            assert found == (by_age if oldest_first else by_age[::-1])

    async def test_runs_and_dead_letters_are_found_by_the_beginning_of_their_ids(
        self, store: Store, schedule: Schedule
    ) -> None:
        for minute in (1, 2):
            await self.tick(store, schedule, minute)
        runs = sorted([run.run_id for run in await runs_of(store, schedule)])
        letters = sorted([await self.dead(store, run) for run in await runs_of(store, schedule)])

        for prefix, found in (("run_", runs), (runs[0], runs[:1]), (runs[0][:-1], runs), ("run_x", []), ("run_~", [])):
            expected = [name for name in found if name.startswith(prefix)]
            assert [one.run_id for one in await store.executions.find_by_prefix("default", prefix, limit=5)] == expected
        assert await store.executions.find_by_prefix("other", "run_", limit=5) == []
        assert len(await store.executions.find_by_prefix("default", "run_", limit=1)) == 1
        by_prefix = store.dead_letters.find_by_prefix
        assert [one.dead_letter_id for one in await by_prefix("default", "dl_", limit=5)] == letters
        assert [one.dead_letter_id for one in await by_prefix("default", letters[1], limit=5)] == letters[1:]
        assert await by_prefix("other", "dl_", limit=5) == []

    @pytest.mark.req("H-09")
    async def test_a_replay_stands_for_every_dead_letter_of_its_execution(
        self, store: Store, schedule: Schedule
    ) -> None:
        await self.tick(store, schedule, 1)
        await self.tick(store, schedule, 2)
        one, other = await runs_of(store, schedule)
        name, apart = await self.dead(store, one), await self.dead(store, other)
        again = replace(
            new_requested_run(RunId("run_again"), schedule, source=RunSource.MANUAL, now=NOON), replay_of=name
        )

        assert await store.dead_letters.of_execution("default", name) == [name]
        assert await store.dead_letters.of_execution("other", name) == []
        assert await store.dead_letters.of_execution("default", "dl_none") == []
        await store.runs.launch([LaunchRequest(run=again, first_steps=("main",))], now=NOON)
        await finish_run(store, again, result=Result.SUCCEEDED, now=NOON + 2 * HOUR)

        found = {letter.dead_letter_id: letter for letter in await store.dead_letters.page("default")}
        assert (found[name].replayed_by, found[name].resolved_at) == ("run_again", NOON + 2 * HOUR)
        assert (found[apart].replayed_by, found[apart].resolved_at) == (None, None)

    @pytest.mark.req("C-05", "H-09")
    @pytest.mark.parametrize("overlap", [Overlap.SKIP, Overlap.QUEUE, Overlap.REPLACE, Overlap.ALLOW])
    async def test_a_run_that_waits_is_queued_where_it_may_not_overlap(self, store: Store, overlap: Overlap) -> None:
        schedule = minutely("waits", overlap=overlap, queue_limit=1)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        wanted = [
            LaunchRequest(
                run=new_requested_run(RunId(f"run_{name}"), schedule, source=RunSource.MANUAL, now=NOON),
                first_steps=("main",),
                waits=True,
            )
            for name in "abc"
        ]

        became = await store.runs.launch(wanted, now=NOON)

        started, queued = LaunchOutcome.STARTED, LaunchOutcome.QUEUED
        assert became == ([started] * 3 if overlap is Overlap.ALLOW else [started, queued, queued])

    # ---- jobs --------------------------------------------------------------------------------

    @pytest.fixture
    def definition(self) -> Workflow:
        return workflow(
            tags=("a", "b"),
            input={"n": [1, {"x": None}]},
            input_schema={"type": "object"},
            retry=RetryPolicy(max_attempts=4, multiplier=1.5),
            timeout_ms=1234,
            dead_letter=True,
        )

    async def test_a_workflow_comes_back_as_it_was_applied(self, store: Store, definition: Workflow) -> None:
        changeset = JobChangeset(workflows=[definition, replace(definition, version=2, description="new")])
        assert await store.jobs.apply(changeset, now=NOON, actor="ada", tzdata="")

        assert await store.jobs.workflow("default", "report", 1) == definition
        assert await store.jobs.workflow("default", "report") == replace(definition, version=2, description="new")
        assert await store.jobs.workflow("other", "report") is None
        assert [one.version for one in await store.jobs.list_workflows("default", after="", limit=10)] == [2]
        assert await store.jobs.list_workflows("default", after="report", limit=10) == []
        newest = await store.jobs.newest_workflows("default", ["none", "report"])
        assert [one.version for one in newest] == [2]

    async def test_a_version_that_is_taken_voids_the_whole_wish(self, store: Store, definition: Workflow) -> None:
        await store.jobs.apply(JobChangeset(workflows=[definition]), now=NOON, actor="ada", tzdata="")
        changeset = JobChangeset(workflows=[replace(definition, version=2), definition], added=[minutely()])

        assert not await store.jobs.apply(changeset, now=NOON, actor="ada", tzdata="")
        assert await store.jobs.workflow("default", "report", 2) is None
        assert await store.schedules.find("default", "report") is None

    async def test_a_name_that_is_taken_voids_the_whole_wish(self, store: Store, definition: Workflow) -> None:
        await store.schedules.add([minutely()], actor="ada", tzdata="")
        taken = replace(minutely(), uid=ScheduleUid("sch_another"))
        changeset = JobChangeset(workflows=[definition], added=[minutely("fresh"), taken])

        assert not await store.jobs.apply(changeset, now=NOON, actor="ada", tzdata="")
        assert await store.schedules.find("default", "fresh") is None
        assert await store.jobs.workflow("default", "report") is None

    async def test_schedules_are_added_and_edited_together(self, store: Store, schedule: Schedule) -> None:
        verdict = verdict_before_edit(schedule, now=NOON)
        changed = edited_schedule(verdict, replace(schedule.spec, workflow_version=2), now=NOON)
        on_demand = minutely("asked", trigger=OnDemand(), delete_after_run=True)
        changeset = JobChangeset(added=[on_demand], edits=[ScheduleEdit(verdict, changed)])

        assert await store.jobs.apply(changeset, now=NOON, actor="ada", tzdata="2026a")

        assert await store.schedules.find("default", schedule.schedule_id) == changed
        assert await store.schedules.find("default", "asked") == on_demand
        assert [one.actor for one in await store.history.revisions(schedule.uid)] == ["ada", "ada"]

    async def test_schedules_are_removed_together_with_what_is_added(self, store: Store, schedule: Schedule) -> None:
        now = NOON + MINUTE
        changeset = JobChangeset(added=[minutely("new")], removed=[verdict_before_edit(schedule, now=now)])

        assert await store.jobs.apply(changeset, now=now, actor="ada", tzdata="")

        assert await store.schedules.find("default", schedule.schedule_id) is None
        assert await store.schedules.find("default", "new") is not None
        assert [one.actor for one in await store.history.revisions(schedule.uid)] == ["ada", "ada"]
        # Due ticks have been decided before.
        assert [
            tick.decision.planned_at for tick in await store.history.ticks(schedule.uid, before=1 << 62, limit=9)
        ] == [now]

    async def test_a_removed_schedule_that_was_changed_by_others_voids_the_whole_wish(
        self, store: Store, schedule: Schedule, definition: Workflow
    ) -> None:
        verdict = verdict_before_edit(schedule, now=NOON)
        await self.launched(store, schedule, "a")
        changeset = JobChangeset(workflows=[definition], added=[minutely("new")], removed=[verdict])

        assert not await store.jobs.apply(changeset, now=NOON, actor="ada", tzdata="")
        assert await store.schedules.find("default", schedule.schedule_id) is not None
        assert await store.schedules.find("default", "new") is None
        assert await store.jobs.workflow("default", "report") is None

    async def test_a_schedule_that_was_changed_by_others_voids_the_whole_wish(
        self, store: Store, schedule: Schedule, definition: Workflow
    ) -> None:
        verdict = verdict_before_edit(schedule, now=NOON)
        changed = edited_schedule(verdict, replace(schedule.spec, workflow_version=2), now=NOON)
        await self.launched(store, schedule, "a")
        changeset = JobChangeset(
            workflows=[definition], added=[minutely("new")], edits=[ScheduleEdit(verdict, changed)]
        )

        assert not await store.jobs.apply(changeset, now=NOON, actor="ada", tzdata="")
        assert await store.schedules.find("default", "new") is None
        assert await store.jobs.workflow("default", "report") is None

    # ---- statistics --------------------------------------------------------------------------

    async def test_the_last_success_of_a_schedule_is_the_newest_and_failures_are_none(
        self, store: Store, schedule: Schedule
    ) -> None:
        never = minutely("never")
        await store.schedules.add([never], actor="ada", tzdata="")
        for minute, result in ((1, Result.SUCCEEDED), (2, Result.SUCCEEDED), (3, Result.GAVE_UP)):
            await self.tick(store, schedule, minute)
            run = max(await runs_of(store, schedule), key=lambda one: one.planned_at)
            await finish_run(store, run, result=result, now=NOON + minute * MINUTE + 500)

        found = await store.stats.last_successes([schedule.uid, never.uid, ScheduleUid("unknown")])

        assert found == {schedule.uid: NOON + 2 * MINUTE + 500}
