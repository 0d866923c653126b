"""The contract of stores for backfills: one suite, inherited by the tests of each adapter."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import MINUTE, NOON, minutely
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.edits import verdict_before_edit
from gnomon.core.ledger.plan import plan
from gnomon.core.model import Result, RunSource, RunStatus, Schedule
from gnomon.core.runs.backfill import (
    Backfill,
    BackfillBatch,
    BackfillTickReason,
    BatchOutcome,
    OpenBackfill,
    next_backfill_batch,
)
from gnomon.ports.audit import AuditQuery
from gnomon.ports.runs import RunQuery
from gnomon.ports.store import Store
from support.task_steps import finish_run

FIRST = NOON - 10 * MINUTE
PAST = [FIRST + minute * MINUTE for minute in range(5)]


def backfill(name: str = "bf_1", **changes: Any) -> Backfill:  # noqa: ANN401 - any field
    """A backfill of the minutes from ten to six minutes before noon."""
    schedule = minutely()
    asked = Backfill(
        backfill_id=name,
        tenant="default",
        schedule_uid=schedule.uid,
        schedule_id="report",
        revision=1,
        from_at=FIRST,
        until_at=PAST[-1],
        max_parallel=2,
        again=False,
        planned=5,
        mark_at=FIRST - 1,
        created_at=NOON,
        actor="ada",
    )
    return replace(asked, **changes)


def batch_of(asked: Backfill, *, schedule: Schedule | None = None, under_way: int = 0) -> BackfillBatch:
    planned = [at for at in PAST if at > asked.mark_at]
    lot = next_backfill_batch(OpenBackfill(asked, under_way), schedule or minutely(), planned, {}, now=NOON)
    assert lot is not None
    return lot


class BackfillContract:
    """Tests for any store."""

    async def asked(self, store: Store, *backfills: Backfill) -> None:
        await store.schedules.add([minutely()], actor="ada", tzdata="")
        for one in backfills:
            await store.backfills.add(one)

    async def test_a_backfill_comes_back_as_it_was_asked_for(self, store: Store) -> None:
        await self.asked(store, backfill(again=True))

        found = await store.backfills.find("default", "bf_1")
        assert found is not None
        assert found.backfill == backfill(again=True)
        assert await store.backfills.list_open(limit=10) == [OpenBackfill(backfill(again=True), 0)]
        assert await store.backfills.find("acme", "bf_1") is None

    @pytest.mark.req("H-22")
    async def test_open_backfills_of_tenants_come_in_turns(self, store: Store) -> None:
        names = {"bf_1": "acme", "bf_2": "acme", "bf_3": "acme", "bf_4": "beta", "bf_5": "beta"}
        await self.asked(store, *(backfill(name, tenant=tenant) for name, tenant in names.items()))

        found = [one.backfill.backfill_id for one in await store.backfills.list_open(limit=3)]

        assert found == ["bf_1", "bf_4", "bf_2"]

    async def test_a_backfill_of_the_same_id_is_kept_once(self, store: Store) -> None:
        await store.schedules.add([minutely()], actor="ada", tzdata="")

        added = [await store.backfills.add(backfill(actor=actor)) for actor in ("ada", "bob")]

        found = await store.backfills.find("default", "bf_1")
        assert found is not None
        assert (added, found.backfill.actor) == ([True, False], "ada")
        assert len(await store.audit.page(AuditQuery(action="backfill"))) == 1

    async def test_backfills_are_listed_page_by_page_the_newest_first(self, store: Store) -> None:
        made = [("bf_9", NOON), ("bf_1", NOON + 1), ("bf_2", NOON + 1), ("bf_0", NOON + 2)]
        await self.asked(store, *(backfill(name, created_at=at) for name, at in made))

        seen, after = list[str](), None
        while page := await store.backfills.page("default", after=after, limit=2):
            seen += [one.backfill.backfill_id for one in page]
            after = (page[-1].backfill.created_at, page[-1].backfill.backfill_id)

        assert seen == ["bf_0", "bf_2", "bf_1", "bf_9"]

    async def test_a_lot_makes_its_entries_and_its_runs_beside_others(self, store: Store) -> None:
        await self.asked(store, backfill())

        assert await store.backfills.apply_batch(batch_of(backfill()), now=NOON) is BatchOutcome.DONE

        runs = await store.executions.list_runs(RunQuery())
        assert sorted(run.planned_at for run in runs) == PAST[:2]
        assert {(run.source, run.queued, run.fire_at) for run in runs} == {(RunSource.BACKFILL, False, NOON)}
        schedule = await store.schedules.find("default", "report")
        assert schedule is not None
        assert (schedule.active_runs, schedule.mark_at) == (2, NOON)
        [open_] = await store.backfills.list_open(limit=10)
        assert (open_.backfill.mark_at, open_.under_way) == (PAST[1], 2)

    async def test_a_lot_that_someone_else_carried_out_is_void(self, store: Store) -> None:
        await self.asked(store, backfill())
        await store.backfills.apply_batch(batch_of(backfill()), now=NOON)

        assert await store.backfills.apply_batch(batch_of(backfill()), now=NOON) is BatchOutcome.VOID

        assert len(await store.executions.list_runs(RunQuery())) == 2

    async def test_a_planned_time_has_one_run_whichever_backfill_asks_first(self, store: Store) -> None:
        await self.asked(store, backfill(), backfill("bf_2"))

        await store.backfills.apply_batch(batch_of(backfill()), now=NOON)
        await store.backfills.apply_batch(batch_of(backfill("bf_2")), now=NOON)

        assert len(await store.executions.list_runs(RunQuery())) == 2
        second = await store.backfills.find("default", "bf_2")
        assert second is not None
        assert (second.fired, second.skipped) == (0, 2)

    async def test_a_rerun_tick_has_a_run_for_each_backfill(self, store: Store) -> None:
        first, second = backfill(again=True), backfill("bf_2", again=True)
        await self.asked(store, first, second)

        for one in (first, second):
            await store.backfills.apply_batch(batch_of(one), now=NOON)

        assert sorted(run.planned_at for run in await store.executions.list_runs(RunQuery())) == [
            *PAST[:1] * 2,
            *PAST[1:2] * 2,
        ]

    async def test_earlier_runs_of_a_tick_are_known_with_their_trigger(self, store: Store) -> None:
        schedule = minutely(mark=PAST[2])
        await store.schedules.add([schedule], actor="ada", tzdata="")
        terms = await store.shards.claim("node", ttl_ms=1000, limit=SHARDS)
        await store.ledger.decide([plan(schedule, now=PAST[3])], now=PAST[3], terms=terms)
        await store.backfills.add(backfill())
        await store.backfills.apply_batch(batch_of(backfill()), now=NOON)

        assert await store.backfills.times_already_run(schedule.uid, first_at=PAST[1], last_at=PAST[4]) == {
            PAST[1]: BackfillTickReason.BACKFILLED_BEFORE,
            PAST[3]: BackfillTickReason.HAD_A_RUN,
        }

    async def test_progress_counts_successes_and_failures(self, store: Store) -> None:
        await self.asked(store, backfill(max_parallel=3))
        await store.backfills.apply_batch(batch_of(backfill(max_parallel=3)), now=NOON)
        runs = sorted(await store.executions.list_runs(RunQuery()), key=lambda run: run.planned_at)

        await finish_run(store, runs[0], now=NOON)
        await finish_run(store, runs[1], result=Result.FAILED, now=NOON)

        [reported] = await store.backfills.page("default", job="report")
        assert (reported.fired, reported.under_way, reported.failed) == (3, 1, 1)
        assert [open_.under_way for open_ in await store.backfills.list_open(limit=10)] == [1]
        found = await store.executions.find_run(runs[0].run_id)
        assert found is not None
        assert found.status is RunStatus.COMPLETED

    async def test_a_backfill_ends(self, store: Store) -> None:
        await self.asked(store, backfill())
        last = next_backfill_batch(OpenBackfill(backfill(), 0), minutely(), [], {}, now=NOON + 5)
        assert last is not None

        assert await store.backfills.apply_batch(last, now=NOON + 5) is BatchOutcome.DONE

        assert await store.backfills.list_open(limit=10) == []
        [reported] = await store.backfills.page("default")
        assert (reported.backfill.ended_at, reported.backfill.cancelled) == (NOON + 5, False)

    async def test_a_backfill_that_was_cancelled_starts_nothing_more(self, store: Store) -> None:
        await self.asked(store, backfill())

        assert await store.backfills.cancel("default", "bf_1", now=NOON + 5)
        assert not await store.backfills.cancel("default", "bf_1", now=NOON + 6)

        assert await store.backfills.apply_batch(batch_of(backfill()), now=NOON + 7) is BatchOutcome.VOID
        assert await store.executions.list_runs(RunQuery()) == []
        [reported] = await store.backfills.page("default")
        assert (reported.backfill.ended_at, reported.backfill.cancelled) == (NOON + 5, True)

    async def test_without_its_schedule_nothing_can_be_started(self, store: Store) -> None:
        await self.asked(store, backfill())
        await store.schedules.delete(verdict_before_edit(minutely(), now=NOON), now=NOON, actor="ada")

        assert await store.backfills.apply_batch(batch_of(backfill()), now=NOON) is BatchOutcome.GONE

    async def test_backfills_are_listed_the_newest_first_and_by_job(self, store: Store) -> None:
        await self.asked(store, backfill(), backfill("bf_2", created_at=NOON + 1))

        assert [one.backfill.backfill_id for one in await store.backfills.page("default")] == ["bf_2", "bf_1"]
        assert await store.backfills.page("default", job="other") == []
