"""What a store hints at, after which commits, and that nothing is told of what was taken back."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest
import sqlalchemy as sa
from msgspec.structs import replace

from contracts.store import NOON
from gnomon.adapters.sql import SqlStore, open_sqlite
from gnomon.adapters.sql.after_commit import hint_after_commit
from gnomon.core.cron import Cron
from gnomon.core.model import Overlap, Result
from gnomon.core.runs.workflow import RetryPolicy, Step, Workflow
from gnomon.ports.coordination import HintTopic
from gnomon.ports.tasks import WorkerInfo
from gnomon.services.operations.backfills import BackfillService
from gnomon.services.operations.events import EventService
from gnomon.testing.clock import CountedIds, VirtualClock
from support.execution import ExecutionHarness
from support.task_steps import admission, completion_of, take_task, workflow


class HintRecorder:
    """A store, a harness on it, and what others are told."""

    def __init__(self, store: SqlStore, clock: VirtualClock) -> None:
        self.topics: list[HintTopic] = []
        self.store = store = store.observed(hint=self.topics.append)
        self.clock = clock
        self.harness = ExecutionHarness(store=store, clock=clock)

    async def by(self, doing: Awaitable[object]) -> set[HintTopic]:
        """What is told because of this."""
        self.topics.clear()
        await doing
        return set(self.topics)


@pytest.fixture
async def told(tmp_path: Path) -> AsyncIterator[HintRecorder]:
    clock = VirtualClock(NOON)
    store = await open_sqlite(str(tmp_path / "gnomon.db"), now=clock.now)
    yield HintRecorder(store, clock)
    await store.close()


async def test_whatever_an_operator_does_is_told(told: HintRecorder) -> None:
    assert await told.by(told.harness.job()) == {HintTopic.CHANGES}
    job = await told.store.schedules.find("default", "report")
    assert job is not None
    assert await told.by(told.harness.run(job)) == {HintTopic.CHANGES}
    [run] = await told.store.history.runs(job.uid, before=1 << 62, limit=10)
    assert HintTopic.CHANGES in await told.by(
        told.store.runs.cancel(run.run_id, reason="enough", now=NOON, actor="ada")
    )
    assert HintTopic.CHANGES in await told.by(
        EventService(told.store.events, told.clock, CountedIds()).emit("landed", actor="ada")
    )


async def test_a_backfill_that_is_asked_for_is_told(told: HintRecorder) -> None:
    await told.harness.job(trigger=Cron("0 * * * *"))
    backfill_service = BackfillService(told.store.backfills, told.store.schedules, told.clock, CountedIds())

    assert await told.by(backfill_service.start("report", NOON - 7_200_000, NOON, actor="ada")) == {HintTopic.CHANGES}


async def test_a_task_that_has_passed_the_gate_is_told_to_workers(told: HintRecorder) -> None:
    run = await told.harness.run(await told.harness.job())
    [task] = await told.store.history.tasks([run])

    assert await told.by(told.store.tasks.admit([admission(task)], now=NOON)) == {HintTopic.WORK}
    assert await told.by(told.store.tasks.admit([admission(task)], now=NOON)) == set()


async def test_a_worker_that_comes_or_can_do_something_else_is_told_and_no_other_heartbeat(told: HintRecorder) -> None:
    card = WorkerInfo(worker="w", functions=("a",), slots=1, started_at=NOON)

    assert await told.by(told.store.workers.register(card, ttl_ms=1000)) == {HintTopic.WORKERS}
    assert await told.by(told.store.workers.register(replace(card, in_hand=1, slots=3), ttl_ms=1000)) == set()
    assert await told.by(told.store.workers.register(replace(card, labels={"zone": "eu"}), ttl_ms=1000)) == {
        HintTopic.WORKERS
    }


async def test_the_end_of_the_last_step_is_of_no_interest(told: HintRecorder) -> None:
    run = await told.harness.run(await told.harness.job())
    ours = await take_task(told.store, "w", run, now=NOON)

    assert await told.by(told.store.attempts.report([completion_of(ours, Result.SUCCEEDED, now=NOON)])) == set()


async def test_a_task_that_is_to_be_tried_again_is_told_to_dispatchers(told: HintRecorder) -> None:
    definition = workflow(retry=RetryPolicy(max_attempts=3))
    run = await told.harness.run(await told.harness.job(definition))
    ours = await take_task(told.store, "w", run, now=NOON)

    failed = completion_of(ours, Result.FAILED, now=NOON, definition=definition)
    assert await told.by(told.store.attempts.report([failed])) == {HintTopic.READY}


async def test_the_next_step_of_a_graph_is_told_to_dispatchers(told: HintRecorder) -> None:
    first = Step(name="first", function="reports.make")
    definition = Workflow(
        workflow_id="report",
        version=1,
        steps=(first, Step(name="second", function="reports.make", depends_on=("first",))),
    )
    run = await told.harness.run(await told.harness.job(definition), first_steps=("first",))
    ours = await take_task(told.store, "w", run, now=NOON)

    done = completion_of(ours, Result.SUCCEEDED, now=NOON, definition=definition)
    assert await told.by(told.store.attempts.report([done])) == {HintTopic.READY}


async def test_a_run_that_waited_for_its_turn_is_told_to_dispatchers(told: HintRecorder) -> None:
    job = await told.harness.job(overlap=Overlap.QUEUE)
    run = await told.harness.run(job, "a")
    await told.harness.run(job, "b")
    ours = await take_task(told.store, "w", run, now=NOON)

    assert await told.by(told.store.attempts.report([completion_of(ours, Result.SUCCEEDED, now=NOON)])) == {
        HintTopic.READY
    }


@pytest.mark.req("H-16")
async def test_shards_that_are_given_up_are_told_to_electors(told: HintRecorder) -> None:
    assert await told.by(told.store.shards.claim("a", ttl_ms=1000, limit=10)) == set()
    assert await told.by(told.store.shards.renew("a", ttl_ms=1000)) == set()
    assert await told.by(told.store.shards.release("a", [1, 2])) == {HintTopic.SHARDS}
    assert await told.by(told.store.shards.leave("a")) == {HintTopic.SHARDS}


# ---- when it is told -----------------------------------------------------------------------------


def hinting(conn: sa.Connection) -> str:
    for _ in range(3):
        hint_after_commit(conn, HintTopic.WORK)
    return "done"


def failing(conn: sa.Connection) -> str:
    hinting(conn)
    raise ZeroDivisionError


async def test_what_was_committed_is_told_once_and_what_was_taken_back_never(told: HintRecorder) -> None:
    engine = told.store.transactions
    jobs = [hinting, failing, hinting] * 20
    done = await asyncio.gather(*(engine.write(job) for job in jobs), return_exceptions=True)

    assert done.count("done") == len(told.topics) == 40


async def test_a_store_that_nobody_listens_to_hints_at_nothing(tmp_path: Path) -> None:
    store = await open_sqlite(str(tmp_path / "gnomon.db"))

    assert await store.transactions.write(hinting) == "done"
    await store.close()
