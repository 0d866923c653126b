"""The contract of stores for retention: one suite, inherited by the tests of each adapter."""

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from contracts.backfills import backfill, batch_of
from contracts.store import HOUR, MINUTE, NOON, TTL, minutely
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.edits import verdict_before_edit
from gnomon.core.ledger.plan import plan, schedule_after
from gnomon.core.model import Catchup, LogLine, Overlap, Result, Run, RunId, RunSource, Schedule
from gnomon.core.retention import RetainedSchedule, RetentionHorizons
from gnomon.core.runs.admission import AdmissionRequest, FanOut
from gnomon.core.runs.backfill import BatchOutcome
from gnomon.core.runs.external_events import ExternalEvent
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.prepare import prepare_task
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.core.triggers import OnDemand, OnEvent
from gnomon.ports.maintenance import HISTORY_START, RetentionBatch, RetentionKind
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from support.row_editing import EditRow
from support.task_steps import completion_of, finish_run, runs_of, take_task, workflow

Advance = Callable[[int], None]
#: Everything of the first hour has expired.
LATER = NOON + 2 * HOUR
OLD = RetentionHorizons(NOON + HOUR, NOON + HOUR)
CALLER = Workflow(workflow_id="caller", version=1, steps=(Step(name="sub", workflow="report"),))


class RetentionContract:
    """Tests for any store. `store` is a fresh one, `advance` moves the clock that decides when leases expire."""

    @pytest.fixture
    async def kept(self, store: Store) -> Schedule:
        made = minutely("kept", overlap=Overlap.ALLOW)
        await store.schedules.add([made], actor="ada", tzdata="")
        return made

    async def ticks_of(self, store: Store, schedule: Schedule, *minutes: int) -> list[Run]:
        terms = await store.shards.claim("node", ttl_ms=TTL, limit=SHARDS, by_force=True)
        for minute in minutes:
            found = await store.schedules.find(schedule.tenant, schedule.schedule_id)
            assert found is not None
            now = NOON + minute * MINUTE
            assert await store.ledger.decide([plan(found, now=now)], now=now, terms=terms)
        return await runs_of(store, schedule)

    async def past(self, store: Store, schedule: Schedule) -> RetainedSchedule:
        [found] = [
            one for one in await store.retention.retained_schedules(after="", limit=100) if one.uid == schedule.uid
        ]
        return found

    async def aged(
        self, store: Store, schedule: Schedule, kept: RetentionHorizons = OLD, *, limit: int = 100
    ) -> RetentionBatch:
        return await store.retention.expired_runs(
            await self.past(store, schedule), kept, after=HISTORY_START, limit=limit
        )

    async def expired_ticks(self, store: Store, schedule: Schedule, kept: RetentionHorizons = OLD) -> RetentionBatch:
        return await store.retention.expired_ticks(
            await self.past(store, schedule), kept, after=HISTORY_START, limit=100
        )

    async def wanted(self, store: Store, schedule: Schedule, name: str, **said: object) -> Run:
        run = replace(new_requested_run(RunId(f"run_{name}"), schedule, source=RunSource.MANUAL, now=NOON), **said)
        assert await store.runs.launch([LaunchRequest(run=run, first_steps=("main",), input=b'{"a": 1}')], now=NOON)
        return run

    # ---- runs --------------------------------------------------------------------------------

    @pytest.mark.req("H-11")
    async def test_a_run_that_ended_long_ago_may_go_with_all_that_belongs_to_it(
        self, store: Store, kept: Schedule
    ) -> None:
        run = await self.wanted(store, kept, "a")
        ours = await take_task(store, "w", run, now=NOON)
        line = LogLine(NOON, "info", "done")
        await store.attempts.report([completion_of(ours, Result.SUCCEEDED, now=NOON, output=b"1", logs=(line,))])

        lot = await self.aged(store, kept)

        assert (lot.kind, lot.names, lot.after) == (RetentionKind.RUNS, ("run_a",), None)
        rows = Counter(record.table for record in lot.records)
        assert rows == {"run": 1, "task": 1, "attempt": 1, "task_log": 1, "payload": 2}
        assert {record.at for record in lot.records} == {NOON}
        assert all(msgspec.json.encode({"table": record.table, **record.row}) for record in lot.records)
        [shown] = [record.row for record in lot.records if record.table == "run"]
        assert (shown["run_id"], shown["status"], shown["completed_at"]) == ("run_a", "completed", NOON)
        assert {r.row["body"] for r in lot.records if r.table == "payload"} == {'{"a": 1}', "1"}

    async def test_a_removal_removes_exactly_its_batch(self, store: Store, kept: Schedule) -> None:
        going, staying = await self.wanted(store, kept, "a"), await self.wanted(store, kept, "b")
        await finish_run(store, going, now=NOON)

        assert await store.retention.remove(await self.aged(store, kept), limit=100)

        assert await store.executions.find_run(going.run_id) is None
        assert list(await store.history.tasks([going])) == []
        assert await store.executions.payload(going.run_id, "input") is None
        assert (await self.aged(store, kept)).names == ()
        assert await store.executions.find_run(staying.run_id) is not None
        assert len(await store.history.tasks([staying])) == 1

    @pytest.mark.guarantee("S19")
    async def test_nothing_that_is_under_way_or_ended_lately_may_go(self, store: Store, kept: Schedule) -> None:
        first, _ = await self.ticks_of(store, kept, 1, 2)
        await finish_run(store, first, now=LATER)

        assert (await self.aged(store, kept)).names == ()
        assert (await self.aged(store, kept, RetentionHorizons(LATER + 1, LATER + 1))).names == (first.run_id,)

    @pytest.mark.guarantee("S19")
    async def test_a_run_that_someone_named_stays_until_nobody_can_ask_for_it_again(
        self, store: Store, kept: Schedule
    ) -> None:
        run = await self.wanted(store, kept, "a", idempotency_key="monday")
        await finish_run(store, run, now=NOON)

        assert (await self.aged(store, kept, RetentionHorizons(LATER, NOON - 1))).names == ()
        assert (await self.aged(store, kept, RetentionHorizons(LATER, NOON + 1))).names == ("run_a",)

    # ---- the number of runs ------------------------------------------------------------------

    def most(self, runs: int, *, keys_at: int = NOON + HOUR) -> RetentionHorizons:
        """So many runs are kept, and no age matters."""
        return RetentionHorizons(NOON - HOUR, keys_at, runs)

    @pytest.mark.req("Z-09")
    async def test_the_newest_runs_are_kept_and_those_before_them_go(self, store: Store, kept: Schedule) -> None:
        # They were created in another order than they were planned, as by a backfill.
        runs = [await self.wanted(store, kept, str(n), created_at=NOON + n, planned_at=NOON - n) for n in range(5)]
        for run in runs:
            await finish_run(store, run, now=NOON + MINUTE)

        for most, going in {1: 4, 3: 2, 5: 0, 9: 0}.items():
            lot = await self.aged(store, kept, self.most(most))
            assert set(lot.names) == {run.run_id for run in runs[:going]}, most

    @pytest.mark.req("Z-09")
    async def test_runs_that_have_not_ended_and_those_of_other_jobs_do_not_count(
        self, store: Store, kept: Schedule
    ) -> None:
        other = minutely("other", overlap=Overlap.ALLOW)
        await store.schedules.add([other], actor="ada", tzdata="")
        ended = [await self.wanted(store, kept, f"a{n}", created_at=NOON + n) for n in range(3)]
        await self.wanted(store, kept, "open", created_at=NOON + 9)
        theirs = [await self.wanted(store, other, f"b{n}", created_at=NOON + n) for n in range(3)]
        for run in (*ended, *theirs):
            await finish_run(store, run, now=NOON + MINUTE)

        assert (await self.aged(store, kept, self.most(2))).names == (ended[0].run_id,)
        assert await store.retention.remove(await self.aged(store, kept, self.most(2)), limit=100)
        assert (await self.aged(store, kept, self.most(2))).names == ()

    @pytest.mark.guarantee("S19")
    async def test_a_run_under_a_key_stays_whatever_number_is_kept(self, store: Store, kept: Schedule) -> None:
        named = await self.wanted(store, kept, "a", idempotency_key="monday")
        plain = await self.wanted(store, kept, "b", created_at=NOON + 1)
        last = await self.wanted(store, kept, "c", created_at=NOON + 2)
        for run in (named, plain, last):
            await finish_run(store, run, now=NOON)

        assert (await self.aged(store, kept, self.most(1, keys_at=NOON))).names == (plain.run_id,)
        assert set((await self.aged(store, kept, self.most(1))).names) == {named.run_id, plain.run_id}

    async def test_lots_of_surplus_runs_go_on_where_the_last_one_ended(self, store: Store, kept: Schedule) -> None:
        for n in range(6):
            run = await self.wanted(store, kept, str(n), created_at=NOON + n, planned_at=NOON + n)
            await finish_run(store, run, now=NOON + MINUTE)
        past, names, place = await self.past(store, kept), list[object](), HISTORY_START
        while True:
            lot = await store.retention.expired_runs(past, self.most(2), after=place, limit=1)
            names += lot.names
            if lot.after is None:
                break
            place = lot.after

        assert names == ["run_0", "run_1", "run_2", "run_3"]

    async def test_lots_are_small_and_go_on_where_the_last_one_ended(self, store: Store, kept: Schedule) -> None:
        for run in await self.ticks_of(store, kept, 1, 2, 3):
            await finish_run(store, run, now=NOON + 3 * MINUTE)
        past = await self.past(store, kept)
        names: list[str] = []
        place = HISTORY_START
        while True:
            lot = await store.retention.expired_runs(past, OLD, after=place, limit=1)
            names += lot.names
            if lot.after is None:
                break
            place = lot.after

        assert names == [run.run_id for run in await runs_of(store, kept)]

    async def test_many_rows_go_in_portions_and_the_run_goes_last(self, store: Store, kept: Schedule) -> None:
        runs = [await self.wanted(store, kept, name) for name in "abc"]
        for run in runs:
            await finish_run(store, run, now=NOON)
        lot = await self.aged(store, kept)

        assert not await store.retention.remove(lot, limit=2)
        assert set((await self.aged(store, kept)).names) == {"run_a", "run_b", "run_c"}
        assert await store.retention.remove(lot, limit=2)
        assert (await self.aged(store, kept)).names == ()

    async def test_removing_twice_is_the_same_as_once(self, store: Store, kept: Schedule) -> None:
        await finish_run(store, await self.wanted(store, kept, "a"), now=NOON)
        lot = await self.aged(store, kept)

        assert [await store.retention.remove(lot, limit=100), await store.retention.remove(lot, limit=100)] == [
            True,
            True,
        ]

    async def test_the_run_of_a_dead_letter_that_is_being_tried_again_stays(self, store: Store, kept: Schedule) -> None:
        run = await self.wanted(store, kept, "a")
        ours = await take_task(store, "w", run, now=NOON)
        await store.attempts.report(
            [completion_of(ours, Result.FAILED, now=NOON, definition=workflow(dead_letter=True))]
        )
        [letter] = await store.dead_letters.page("default")
        again = await self.wanted(store, kept, "b", replay_of=letter.dead_letter_id)

        assert (await self.aged(store, kept)).names == ()
        await finish_run(store, again, now=NOON)
        assert set((await self.aged(store, kept)).names) == {"run_a", "run_b"}

    async def test_a_run_without_a_job_stays_until_its_dead_letter_is_resolved(
        self, store: Store, kept: Schedule
    ) -> None:
        run = await self.wanted(store, kept, "a", schedule_uid=None, schedule_id=None)
        ours = await take_task(store, "w", run, now=NOON)
        await store.attempts.report(
            [completion_of(ours, Result.FAILED, now=NOON, definition=workflow(dead_letter=True))]
        )
        [letter] = await store.dead_letters.page("default")

        assert (await store.retention.expired_runs(None, OLD, after=HISTORY_START, limit=100)).names == ()
        await store.dead_letters.resolve("default", [letter.dead_letter_id], by="ada", actor="ada", now=NOON)
        assert (await store.retention.expired_runs(None, OLD, after=HISTORY_START, limit=100)).names == ("run_a",)

    async def outer_and_inner(self, store: Store) -> tuple[Run, Run]:
        """A run of a job, and the run that its only step waits for."""
        job = minutely("caller", trigger=OnDemand())
        job = replace(job, spec=replace(job.spec, workflow_id="caller", first_steps=("sub",)), next_fire_at=None)
        changeset = JobChangeset(workflows=[CALLER, workflow()], added=[job])
        assert await store.jobs.apply(changeset, now=NOON, actor="ada", tzdata="")
        outer = new_requested_run(RunId("run_outer"), job, source=RunSource.MANUAL, now=NOON)
        await store.runs.launch([LaunchRequest(run=outer, first_steps=("sub",))], now=NOON)
        [waiting] = await store.tasks.waiting(NOON, limit=10)
        request = AdmissionRequest(waiting=waiting, workflow=CALLER, step=CALLER.steps[0], input={})
        begun = prepare_task(request, {}, workflow(), now=NOON)
        assert isinstance(begun, FanOut)
        await store.tasks.fan_out([begun], now=NOON)
        [inner] = [one.run for one in await store.tasks.waiting(NOON, limit=10)]
        return outer, inner

    async def test_a_run_that_a_step_waited_for_goes_with_the_run_of_that_step(self, store: Store) -> None:
        outer, inner = await self.outer_and_inner(store)
        past = (await store.retention.retained_schedules(after="", limit=1))[0]

        assert (await store.retention.expired_runs(past, OLD, after=HISTORY_START, limit=100)).names == ()
        await finish_run(store, inner, now=NOON)
        assert (await store.retention.expired_runs(None, OLD, after=HISTORY_START, limit=100)).names == ()
        lot = await store.retention.expired_runs(past, OLD, after=HISTORY_START, limit=100)
        assert lot.names == (outer.run_id, inner.run_id)
        assert await store.retention.remove(lot, limit=100)
        assert await store.executions.find_run(inner.run_id) is None

    @pytest.mark.guarantee("S19")
    async def test_a_run_stays_while_one_that_it_started_is_under_way(self, store: Store, plant: EditRow) -> None:
        outer, _ = await self.outer_and_inner(store)
        await plant("run", "run_id", outer.run_id, "status", "failed")
        await plant("run", "run_id", outer.run_id, "completed_at", NOON)

        past = (await store.retention.retained_schedules(after="", limit=1))[0]
        assert (await store.retention.expired_runs(past, OLD, after=HISTORY_START, limit=100)).names == ()

    @pytest.mark.guarantee("S19")
    async def test_a_run_that_is_under_way_is_not_removed_whoever_asks(self, store: Store, kept: Schedule) -> None:
        run = await self.wanted(store, kept, "a")

        await store.retention.remove(RetentionBatch(kind=RetentionKind.RUNS, names=(run.run_id,)), limit=100)

        assert await store.executions.find_run(run.run_id) is not None
        assert len(await store.history.tasks([run])) == 1

    # ---- ticks -------------------------------------------------------------------------------

    @pytest.mark.guarantee("S19")
    async def test_a_tick_may_go_once_its_run_is_gone_but_never_the_newest(self, store: Store, kept: Schedule) -> None:
        for run in await self.ticks_of(store, kept, 1, 2, 3):
            await finish_run(store, run, now=NOON + 3 * MINUTE)

        assert (await self.expired_ticks(store, kept)).names == ()
        await store.retention.remove(await self.aged(store, kept), limit=100)
        lot = await self.expired_ticks(store, kept)
        assert lot.names == (NOON + MINUTE, NOON + 2 * MINUTE)
        assert [(record.table, len(record.row["key"])) for record in lot.records] == [("tick", 64)] * 2
        assert await store.retention.remove(lot, limit=100)
        assert [tick.decision.planned_at for tick in await store.history.ticks(kept.uid, before=LATER, limit=10)] == [
            NOON + 3 * MINUTE
        ]

    @pytest.mark.guarantee("S19")
    async def test_a_tick_whose_key_is_young_stays_though_its_run_is_gone(self, store: Store, kept: Schedule) -> None:
        for run in await self.ticks_of(store, kept, 1, 2):
            await finish_run(store, run, now=NOON + 2 * MINUTE)
        young = RetentionHorizons(NOON + HOUR, NOON)
        await store.retention.remove(await self.aged(store, kept, young), limit=100)

        assert (await self.expired_ticks(store, kept, young)).names == ()

    @pytest.mark.guarantee("S16")
    async def test_a_tick_that_is_gone_is_not_decided_again_when_the_clock_goes_back(
        self, store: Store, kept: Schedule
    ) -> None:
        for run in await self.ticks_of(store, kept, 1, 2):
            await finish_run(store, run, now=NOON + 2 * MINUTE)
        await store.retention.remove(await self.aged(store, kept), limit=100)
        await store.retention.remove(await self.expired_ticks(store, kept), limit=100)
        found = await store.schedules.find("default", "kept")
        assert found is not None

        assert plan(found, now=NOON + MINUTE).decisions == ()
        assert await store.ledger.due(NOON + MINUTE, shards=frozenset(range(SHARDS)), limit=10) == []

    @pytest.mark.guarantee("S2", "S16")
    async def test_a_tick_that_ran_ahead_of_its_time_and_is_gone_does_not_run_again_once_the_clock_is_right(
        self, store: Store
    ) -> None:
        """A clock is an hour ahead, then a year, when the cleaner removes that hour, and then right again."""
        now = await store.now()
        job = minutely("kept", mark=now, overlap=Overlap.ALLOW, catchup=Catchup.ALL)
        await store.schedules.add([job], actor="ada", tzdata="")
        verdict = plan(job, now=now + HOUR)
        assert await store.schedules.change(verdict, schedule_after(verdict), now=now, actor="", tzdata="")
        for run in await runs_of(store, job):
            await finish_run(store, run, now=now)
        year = RetentionHorizons(now + 365 * 24 * HOUR, now + 365 * 24 * HOUR)
        while (runs := await self.aged(store, job, year)).names:
            await store.retention.remove(runs, limit=1000)
        gone = await self.expired_ticks(store, job, year)
        await store.retention.remove(gone, limit=1000)

        terms = await store.shards.claim("node", ttl_ms=TTL, limit=SHARDS, by_force=True)
        [corrected] = await store.ledger.set_back_marks(terms=terms, limit=10)

        ran = {decision.planned_at for decision in verdict.decisions}
        again = plan(corrected, now=now + 2 * HOUR)
        assert len(gone.names) > 50
        assert not ran & {decision.planned_at for decision in again.decisions}
        assert corrected.mark_at == max(gone.names)
        assert await store.ledger.set_back_marks(terms=terms, limit=10) == []

    # ---- schedules ---------------------------------------------------------------------------

    async def test_a_past_says_what_is_left_of_a_schedule(self, store: Store, kept: Schedule) -> None:
        assert await self.past(store, kept) == RetainedSchedule(
            uid=kept.uid,
            tenant="default",
            schedule_id="kept",
            workflow_id="report",
            mark_at=NOON,
            catchup_window_ms=kept.spec.catchup_window_ms,
        )
        await self.ticks_of(store, kept, 1, 2)
        past = await self.past(store, kept)
        assert (past.oldest_run_at, past.oldest_tick_at) == (NOON + MINUTE, NOON + MINUTE)
        assert (past.newest_tick_at, past.mark_at) == (NOON + 2 * MINUTE, NOON + 2 * MINUTE)

    async def test_pasts_come_in_pages_by_uid(self, store: Store, kept: Schedule) -> None:
        await store.schedules.add([minutely("another")], actor="ada", tzdata="")

        first = await store.retention.retained_schedules(after="", limit=1)
        second = await store.retention.retained_schedules(after=first[-1].uid, limit=1)

        assert [one.schedule_id for one in (*first, *second)] == ["another", "kept"]
        assert await store.retention.retained_schedules(after=kept.uid, limit=1) == []

    @pytest.mark.guarantee("S19")
    async def test_a_deleted_schedule_is_removed_to_its_last_tick(self, store: Store, kept: Schedule) -> None:
        for run in await self.ticks_of(store, kept, 1, 2):
            await finish_run(store, run, now=NOON + 2 * MINUTE)
        found = await store.schedules.find("default", "kept")
        assert found is not None
        assert await store.schedules.delete(
            verdict_before_edit(found, now=NOON + 2 * MINUTE), now=NOON + 2 * MINUTE, actor="ada"
        )
        await store.retention.remove(await self.aged(store, kept), limit=100)
        lot = await self.expired_ticks(store, kept)
        assert lot.names == (NOON + MINUTE, NOON + 2 * MINUTE)
        await store.retention.remove(lot, limit=100)

        past = await self.past(store, kept)
        assert past.deleted_at == NOON + 2 * MINUTE
        assert past.oldest_run_at is past.oldest_tick_at is None
        gone = await store.retention.expired_schedule(kept.uid)
        assert Counter(record.table for record in gone.records) == {"schedule": 1, "schedule_revision": 2}
        assert await store.retention.remove(gone, limit=100)
        assert await store.retention.retained_schedules(after="", limit=10) == []

    # ---- events and dead letters -------------------------------------------------------------

    async def test_an_event_may_go_unless_it_still_waits_for_others(self, store: Store) -> None:
        gathers = minutely("gathers", trigger=OnEvent("drift", debounce_ms=MINUTE))
        await store.jobs.apply(
            JobChangeset(workflows=[workflow()], added=[replace(gathers, next_fire_at=None)]),
            now=NOON,
            actor="ada",
            tzdata="",
        )
        for name in ("drift", "other"):
            event = ExternalEvent(event_id=f"evt_{name}", name=name, body=b"[1]", emitted_at=NOON, actor="ada")
            await store.events.emit(event, now=NOON)

        assert (await store.retention.expired_events("default", NOON, after=HISTORY_START, limit=10)).names == ()
        assert (await store.retention.expired_events("default", LATER, after=HISTORY_START, limit=10)).names == (
            "evt_other",
        )
        await store.events.close_batches(LATER, limit=10)
        lot = await store.retention.expired_events("default", LATER, after=HISTORY_START, limit=10)
        assert set(lot.names) == {"evt_drift", "evt_other"}
        assert Counter(record.table for record in lot.records) == {"event": 2, "event_entry": 1}
        assert await store.retention.tenants() == ["default"]
        assert await store.retention.remove(lot, limit=100)
        assert await store.events.find("evt_drift") is None
        assert await store.events.effects(["evt_drift"]) == []

    async def test_a_dead_letter_stays_until_it_is_resolved(self, store: Store, kept: Schedule) -> None:
        run = await self.wanted(store, kept, "a")
        ours = await take_task(store, "w", run, now=NOON)
        await store.attempts.report(
            [completion_of(ours, Result.FAILED, now=NOON, definition=workflow(dead_letter=True))]
        )
        [letter] = await store.dead_letters.page("default")
        await store.retention.remove(await self.aged(store, kept), limit=100)
        assert await store.executions.find_run(run.run_id) is None

        assert (await store.retention.expired_dead_letters("default", LATER, after=HISTORY_START, limit=10)).names == ()
        await store.dead_letters.resolve("default", [letter.dead_letter_id], by="ada", actor="ada", now=NOON)
        lot = await store.retention.expired_dead_letters("default", LATER, after=HISTORY_START, limit=10)
        assert lot.names == (letter.dead_letter_id,)
        assert [record.row["input"] for record in lot.records] == ['{"a": 1}']
        assert await store.retention.remove(lot, limit=10)
        assert await store.dead_letters.page("default") == []

    # ---- definitions -------------------------------------------------------------------------

    async def versions(self, store: Store, *, at: tuple[int, ...] = (NOON, NOON + 1, LATER)) -> None:
        """Versions of a workflow, each created at one of these times."""
        for version, created_at in enumerate(at, 1):
            change = JobChangeset(workflows=[workflow("report", version=version)])
            assert await store.jobs.apply(change, now=created_at, actor="ada", tzdata="")

    async def test_versions_that_were_followed_by_another_long_ago_may_go(self, store: Store) -> None:
        await self.versions(store)

        lot = await store.retention.superseded_workflows(LATER, after=HISTORY_START, limit=10)

        assert (lot.kind, lot.names) == (RetentionKind.WORKFLOWS, (("default", "report", 1),))
        [kept] = lot.records
        assert (kept.table, kept.at, kept.row["workflow_id"], kept.row["version"]) == ("workflow", NOON, "report", 1)
        assert await store.retention.remove(lot, limit=10)
        assert await store.jobs.workflow("default", "report", 1) is None
        assert await store.jobs.workflow("default", "report", 2) is not None

    async def test_versions_are_found_page_by_page_and_the_newest_stays(self, store: Store) -> None:
        await self.versions(store, at=(1, 2, 3, 4))
        names, place = [], HISTORY_START
        while True:
            lot = await store.retention.superseded_workflows(LATER, after=place, limit=2)
            names += [version for _, _, version in lot.names]
            if lot.after is None:
                break
            place = lot.after

        assert names == [1, 2, 3]

    @pytest.mark.guarantee("S19")
    async def test_a_version_that_a_schedule_needs_stays_even_if_it_comes_to_need_it_late(self, store: Store) -> None:
        await self.versions(store, at=(1, 2, 3))
        lot = await store.retention.superseded_workflows(LATER, after=HISTORY_START, limit=10)
        made = minutely("late")
        made = replace(made, spec=replace(made.spec, workflow_id="report", workflow_version=1))
        await store.schedules.add([made], actor="ada", tzdata="")

        assert await store.retention.remove(lot, limit=10)

        assert await store.jobs.workflow("default", "report", 1) is not None
        assert await store.jobs.workflow("default", "report", 2) is None
        again = await store.retention.superseded_workflows(LATER, after=HISTORY_START, limit=10)
        assert again.names == ()

    async def test_the_versions_of_runs_are_listed_page_by_page(self, store: Store, kept: Schedule) -> None:
        for name, version in (("a", 1), ("b", 1), ("c", 2)):
            await self.wanted(store, kept, name, workflow_id="report", workflow_version=version)

        first = await store.retention.versions_of_runs(after=RunId(""), limit=2)
        assert (first.versions, first.after) == (frozenset({("default", "report", 1)}), "run_b")
        assert first.after is not None
        second = await store.retention.versions_of_runs(after=first.after, limit=2)
        assert (second.versions, second.after) == (frozenset({("default", "report", 2)}), None)

    async def test_a_backfill_goes_with_its_ticks_once_none_of_its_runs_is_left(
        self, store: Store, kept: Schedule
    ) -> None:
        asked = backfill(schedule_uid=kept.uid, schedule_id=kept.schedule_id)
        assert await store.backfills.add(asked)
        await self.versions(store, at=(1, 2))
        lot = batch_of(asked, schedule=kept)
        assert await store.backfills.apply_batch(lot, now=NOON) is BatchOutcome.DONE
        assert (await store.retention.expired_backfills(LATER, after=HISTORY_START, limit=100)).names == ()
        assert await store.backfills.cancel("default", "bf_1", now=NOON)
        assert (await store.retention.expired_backfills(LATER, after=HISTORY_START, limit=100)).names == ()
        runs = await runs_of(store, kept)
        for run in runs:
            await finish_run(store, run, now=NOON)
        assert await store.retention.remove(await self.aged(store, kept), limit=100)

        assert (await store.retention.expired_backfills(NOON, after=HISTORY_START, limit=100)).names == ()
        expired = await store.retention.expired_backfills(LATER, after=HISTORY_START, limit=100)
        assert expired.names == ("bf_1",)
        assert Counter(record.table for record in expired.records) == {"backfill": 1, "backfill_tick": len(runs)}
        while not await store.retention.remove(expired, limit=1):
            pass

        assert await store.backfills.find("default", "bf_1") is None
        assert await store.backfills.times_already_run(kept.uid, first_at=0, last_at=NOON) == {}

    # ---- singleton leases --------------------------------------------------------------------

    @pytest.mark.req("R-07")
    async def test_a_turn_is_one_holders_until_it_ends(self, store: Store, advance: Advance) -> None:
        assert await store.singletons.acquire_singleton("clean", "a", ttl_ms=TTL)
        assert not await store.singletons.acquire_singleton("clean", "b", ttl_ms=TTL)
        assert await store.singletons.acquire_singleton("clean", "a", ttl_ms=TTL)
        assert await store.singletons.acquire_singleton("mend", "b", ttl_ms=TTL)
        advance(TTL + 1000)
        assert await store.singletons.acquire_singleton("clean", "b", ttl_ms=TTL)
        assert not await store.singletons.acquire_singleton("clean", "a", ttl_ms=TTL)

    async def test_turns_that_are_given_up_are_others_to_take(self, store: Store) -> None:
        for name, holder in (("clean", "a"), ("mend", "a"), ("watch", "b")):
            await store.singletons.acquire_singleton(name, holder, ttl_ms=TTL)
        await store.singletons.release_singletons("a")
        await store.singletons.release_singletons("nobody")

        assert await store.singletons.acquire_singleton("clean", "c", ttl_ms=TTL)
        assert await store.singletons.acquire_singleton("mend", "c", ttl_ms=TTL)
        assert not await store.singletons.acquire_singleton("watch", "c", ttl_ms=TTL)
