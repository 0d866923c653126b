"""The hints of a store, the commits that send them, and that a rollback sends none."""

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
from support.sqlite_files import new_sqlite_file
from support.task_steps import admission, completion_of, take_task, workflow


class HintRecorder:
    """A store, a harness on it, and what others are told."""

    def __init__(self, store: SqlStore, clock: VirtualClock) -> None:
        self.topics: list[HintTopic] = []
        self.store = store = store.observed(hint=self.topics.append)
        self.clock = clock
        self.harness = ExecutionHarness(store=store, clock=clock)

    async def by(self, doing: Awaitable[object]) -> set[HintTopic]:
        """The hints that this sends."""
        self.topics.clear()
        await doing
        return set(self.topics)


@pytest.fixture
async def reported(tmp_path: Path) -> AsyncIterator[HintRecorder]:
    clock = VirtualClock(NOON)
    store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")), now=clock.now)
    yield HintRecorder(store, clock)
    await store.close()


async def test_every_change_of_an_operator_sends_a_hint(reported: HintRecorder) -> None:
    assert await reported.by(reported.harness.job()) == {HintTopic.CHANGES}
    job = await reported.store.schedules.find("default", "report")
    assert job is not None
    assert await reported.by(reported.harness.run(job)) == {HintTopic.CHANGES}
    [run] = await reported.store.history.runs(job.uid, before=1 << 62, limit=10)
    assert HintTopic.CHANGES in await reported.by(
        reported.store.runs.cancel(run.run_id, reason="enough", now=NOON, actor="ada")
    )
    assert HintTopic.CHANGES in await reported.by(
        EventService(reported.store.events, reported.clock, CountedIds()).emit("landed", actor="ada")
    )


async def test_a_requested_backfill_sends_a_hint(reported: HintRecorder) -> None:
    await reported.harness.job(trigger=Cron("0 * * * *"))
    backfill_service = BackfillService(reported.store.backfills, reported.store.schedules, reported.clock, CountedIds())

    assert await reported.by(backfill_service.start("report", NOON - 7_200_000, NOON, actor="ada")) == {
        HintTopic.CHANGES
    }


async def test_an_admitted_task_sends_a_hint_to_workers(reported: HintRecorder) -> None:
    run = await reported.harness.run(await reported.harness.job())
    [task] = await reported.store.history.tasks([run])

    assert await reported.by(reported.store.tasks.admit([admission(task)], now=NOON)) == {HintTopic.WORK}
    assert await reported.by(reported.store.tasks.admit([admission(task)], now=NOON)) == set()


async def test_a_new_or_changed_worker_sends_a_hint_and_other_heartbeats_send_none(reported: HintRecorder) -> None:
    card = WorkerInfo(worker="w", functions=("a",), slots=1, started_at=NOON)

    assert await reported.by(reported.store.workers.register(card, ttl_ms=1000)) == {HintTopic.WORKERS}
    assert await reported.by(reported.store.workers.register(replace(card, in_hand=1, slots=3), ttl_ms=1000)) == set()
    assert await reported.by(reported.store.workers.register(replace(card, labels={"zone": "eu"}), ttl_ms=1000)) == {
        HintTopic.WORKERS
    }


async def test_the_end_of_the_last_step_is_of_no_interest(reported: HintRecorder) -> None:
    run = await reported.harness.run(await reported.harness.job())
    ours = await take_task(reported.store, "w", run, now=NOON)

    assert await reported.by(reported.store.attempts.report([completion_of(ours, Result.SUCCEEDED, now=NOON)])) == set()


async def test_a_retry_sends_a_hint_to_dispatchers(reported: HintRecorder) -> None:
    definition = workflow(retry=RetryPolicy(max_attempts=3))
    run = await reported.harness.run(await reported.harness.job(definition))
    ours = await take_task(reported.store, "w", run, now=NOON)

    failed = completion_of(ours, Result.FAILED, now=NOON, definition=definition)
    assert await reported.by(reported.store.attempts.report([failed])) == {HintTopic.READY}


async def test_the_next_step_of_a_graph_sends_a_hint_to_dispatchers(reported: HintRecorder) -> None:
    first = Step(name="first", function="reports.make")
    definition = Workflow(
        workflow_id="report",
        version=1,
        steps=(first, Step(name="second", function="reports.make", depends_on=("first",))),
    )
    run = await reported.harness.run(await reported.harness.job(definition), first_steps=("first",))
    ours = await take_task(reported.store, "w", run, now=NOON)

    done = completion_of(ours, Result.SUCCEEDED, now=NOON, definition=definition)
    assert await reported.by(reported.store.attempts.report([done])) == {HintTopic.READY}


async def test_a_promoted_run_sends_a_hint_to_dispatchers(reported: HintRecorder) -> None:
    job = await reported.harness.job(overlap=Overlap.QUEUE)
    run = await reported.harness.run(job, "a")
    await reported.harness.run(job, "b")
    ours = await take_task(reported.store, "w", run, now=NOON)

    assert await reported.by(reported.store.attempts.report([completion_of(ours, Result.SUCCEEDED, now=NOON)])) == {
        HintTopic.READY
    }


@pytest.mark.req("H-16")
async def test_released_shards_send_a_hint_to_electors(reported: HintRecorder) -> None:
    assert await reported.by(reported.store.shards.claim("a", ttl_ms=1000, limit=10)) == set()
    assert await reported.by(reported.store.shards.renew("a", ttl_ms=1000)) == set()
    assert await reported.by(reported.store.shards.release("a", [1, 2])) == {HintTopic.SHARDS}
    assert await reported.by(reported.store.shards.leave("a")) == {HintTopic.SHARDS}


# ---- when it is told -----------------------------------------------------------------------------


def hinting(conn: sa.Connection) -> str:
    for _ in range(3):
        hint_after_commit(conn, HintTopic.WORK)
    return "done"


def failing(conn: sa.Connection) -> str:
    hinting(conn)
    raise ZeroDivisionError


async def test_a_commit_sends_its_hints_once_and_a_rollback_sends_none(reported: HintRecorder) -> None:
    engine = reported.store.transactions
    jobs = [hinting, failing, hinting] * 20
    done = await asyncio.gather(*(engine.write(job) for job in jobs), return_exceptions=True)

    assert done.count("done") == len(reported.topics) == 40


async def test_a_store_that_nobody_listens_to_hints_at_nothing(tmp_path: Path) -> None:
    store = await open_sqlite(str(new_sqlite_file(tmp_path / "gnomon.db")))

    assert await store.transactions.write(hinting) == "done"
    await store.close()
