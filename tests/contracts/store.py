"""The contract of stores for schedules, the ledger, overlap and shards, inherited by the tests of each adapter."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gnomon.core.cron import Cron
from gnomon.core.ids import SHARDS, run_id, shard_of, tick_key
from gnomon.core.ledger.edits import (
    edited_schedule,
    has_remaining_due,
    redeclared,
    resumed_schedule,
    verdict_before_edit,
)
from gnomon.core.ledger.plan import CatchupLimit, paused_range, plan, schedule_after
from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import (
    Catchup,
    Overlap,
    Reason,
    Result,
    RunId,
    RunStatus,
    Schedule,
    ScheduleUid,
    Spec,
    Tick,
    TickException,
    TickKind,
    TickStatus,
    TickVerdict,
)
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.errors import ClockAhead, StaleTerm
from gnomon.ports.audit import AuditQuery
from gnomon.ports.ledger import Terms
from gnomon.ports.schedules import ScheduleOrder, TenantTickQuery, schedule_position
from gnomon.ports.store import Store
from support.task_steps import completion_of, finish_run, runs_of, take_task

MINUTE = 60_000
HOUR = 60 * MINUTE
NOON = 1_772_452_800_000  # 2026-03-02T12:00:00Z
ALL_SHARDS = frozenset(range(SHARDS))
TTL = 10_000

Advance = Callable[[int], None]


def minutely(name: str = "report", *, tenant: str = "default", mark: int = NOON, **changes: Any) -> Schedule:  # noqa: ANN401
    """A schedule that fires each minute and has been decided up to `mark`."""
    uid = ScheduleUid(f"sch_{tenant}_{name}")
    said: dict[str, Any] = {"trigger": Cron("* * * * *"), "workflow_id": "report", "user_id": "ada"} | changes
    spec = Spec(**said)
    return Schedule(
        uid=uid,
        tenant=tenant,
        schedule_id=name,
        spec=spec,
        shard=shard_of(uid),
        mark_at=mark,
        next_fire_at=Ticks(name, spec).next_fire_at(mark),
        created_at=mark,
        updated_at=mark,
    )


class ManualClock:
    """A clock that is moved by hand. It begins later than every time at which the tests decide."""

    def __init__(self) -> None:
        self.now = NOON + 30 * 24 * HOUR

    def advance(self, by: int) -> None:
        """Move the clock forward."""
        self.now += by


class StoreContract:
    """Tests for any store. `store` is a fresh one, `advance` moves the clock that decides when leases expire."""

    @pytest.fixture
    async def terms(self, store: Store) -> Terms:
        return await store.shards.claim("node", ttl_ms=TTL, limit=SHARDS)

    async def registered(self, store: Store, *schedules: Schedule) -> None:
        assert await store.schedules.add(schedules, actor="ada", tzdata="2026a") == frozenset()

    async def current(self, store: Store, schedule: Schedule) -> Schedule:
        found = await store.schedules.find(schedule.tenant, schedule.schedule_id)
        assert found is not None
        return found

    async def decided(self, store: Store, schedule: Schedule, *, now: int, terms: Terms) -> TickVerdict:
        """Plan from the schedule in the store, and apply the verdict."""
        verdict = plan(await self.current(store, schedule), now=now)
        assert await store.ledger.decide([verdict], now=now, terms=terms) == {schedule.uid}
        return verdict

    # ---- revisions -----------------------------------------------------------------------------

    async def test_revisions_are_read_from_the_newest_backwards(self, store: Store) -> None:
        schedule = minutely()
        await self.registered(store, schedule)
        for grace in (1, 2, 3, 4):
            now = NOON + grace
            verdict = verdict_before_edit(await self.current(store, schedule), now=now)
            spec = replace(schedule.spec, misfire_grace_ms=grace)
            changed = edited_schedule(verdict, spec, now=now)
            assert await store.schedules.change(verdict, changed, now=now, actor="grace", tzdata="2026a")

        async def numbers(before: int | None, newest: int | None) -> list[int]:
            found = await store.history.revisions(schedule.uid, before=before, newest=newest)
            assert [one.schedule.spec.misfire_grace_ms for one in found if one.revision > 1] == [
                one.revision - 1 for one in found if one.revision > 1
            ]
            return [one.revision for one in found]

        assert await numbers(None, None) == [1, 2, 3, 4, 5]
        assert await numbers(None, 2) == [4, 5]
        assert await numbers(4, 2) == [2, 3]
        assert await numbers(2, 9) == [1]
        assert await numbers(1, 9) == []

    # ---- time ----------------------------------------------------------------------------------

    @pytest.mark.guarantee("C10", "S16")
    async def test_a_decision_that_is_early_by_the_clock_of_the_store_is_refused_and_nothing_is_written(
        self, store: Store, terms: Terms
    ) -> None:
        now = await store.now()
        schedule = minutely(mark=now, overlap=Overlap.ALLOW, catchup=Catchup.ALL)
        await self.registered(store, schedule)

        with pytest.raises(ClockAhead) as caught:
            await store.ledger.decide([plan(schedule, now=now + HOUR)], now=now + HOUR, terms=terms)

        assert 0 < caught.value.ahead_ms <= HOUR
        assert await self.current(store, schedule) == schedule
        assert not await store.history.ticks(schedule.uid, before=1 << 60, limit=10)

    async def ahead(self, store: Store, **changes: Any) -> Schedule:  # noqa: ANN401
        """A schedule whose ticks of the coming hour were decided by a clock that was an hour ahead."""
        now = await store.now()
        schedule = minutely(mark=now, overlap=Overlap.ALLOW, **changes)
        await self.registered(store, schedule)
        verdict = plan(schedule, now=now + HOUR)
        assert await store.schedules.change(verdict, schedule_after(verdict), now=now, actor="", tzdata="")
        return schedule

    @pytest.mark.guarantee("S16", "K19")
    async def test_a_mark_ahead_of_the_clock_is_set_back_and_what_did_not_run_is_decided_in_its_time(
        self, store: Store, terms: Terms
    ) -> None:
        schedule = await self.ahead(store, catchup=Catchup.LATEST)
        [fired, coalesced] = await store.history.ticks(schedule.uid, before=1 << 60, limit=10)

        [corrected] = await store.ledger.set_back_marks(terms=terms, limit=10)

        assert corrected == await self.current(store, schedule)
        assert corrected.mark_at <= await store.now()
        assert corrected.next_fire_at == Ticks("report", schedule.spec).after(corrected.mark_at)
        assert corrected.mark_correction is not None
        assert corrected.mark_correction.from_at == fired.decision.planned_at
        assert corrected.mark_correction.withdrawn == coalesced.decision.count
        assert corrected.mark_correction.decided == (fired.decision.planned_at,)
        assert [one.decision for one in await store.history.ticks(schedule.uid, before=1 << 60, limit=10)] == [
            fired.decision
        ]
        assert await store.ledger.set_back_marks(terms=terms, limit=10) == []

    @pytest.mark.guarantee("S2", "S16")
    async def test_a_tick_that_ran_before_its_mark_was_set_back_is_not_decided_again(
        self, store: Store, terms: Terms
    ) -> None:
        schedule = await self.ahead(store, catchup=Catchup.ALL)
        before = await store.history.ticks(schedule.uid, before=1 << 60, limit=100)
        [corrected] = await store.ledger.set_back_marks(terms=terms, limit=10)

        later = plan(corrected, now=corrected.mark_at + 2 * HOUR)

        last = max(tick.decision.planned_at for tick in before)
        assert min(one.planned_at for one in later.decisions) == last + MINUTE
        assert await store.schedules.change(later, schedule_after(later), now=corrected.mark_at, actor="", tzdata="")

    @pytest.mark.guarantee("S1", "S16")
    async def test_a_range_that_reaches_into_the_future_ends_now_also_if_the_schedule_was_edited_since(
        self, store: Store, terms: Terms
    ) -> None:
        now = await store.now()
        schedule = replace(minutely(mark=now - HOUR), paused_at=now - HOUR, next_fire_at=None)
        await self.registered(store, schedule)
        verdict = verdict_before_edit(schedule, now=now + HOUR)
        hourly = replace(schedule.spec, trigger=Cron("0 * * * *"))
        edited = edited_schedule(verdict, hourly, now=now + HOUR)
        assert await store.schedules.change(verdict, edited, now=now, actor="eve", tzdata="")

        await store.ledger.set_back_marks(terms=terms, limit=10)

        [paused] = await store.history.ticks(schedule.uid, before=1 << 60, limit=10)
        ticks = Ticks("report", schedule.spec)
        assert paused.decision.last_at == ticks.up_to((await self.current(store, schedule)).mark_at)
        assert paused.decision.count == ticks.count(after=now - HOUR, until=paused.decision.last_at)

    @pytest.mark.guarantee("S16", "S22")
    async def test_a_range_that_reaches_into_the_future_ends_now_and_the_correction_is_audited(
        self, store: Store, terms: Terms
    ) -> None:
        now = await store.now()
        schedule = minutely(mark=now - HOUR, overlap=Overlap.ALLOW)
        await self.registered(store, schedule)
        verdict = plan(schedule, now=now + HOUR)
        await store.schedules.change(verdict, schedule_after(verdict), now=now, actor="", tzdata="")

        [corrected] = await store.ledger.set_back_marks(terms=terms, limit=10)

        [fired, missed] = await store.history.ticks(schedule.uid, before=1 << 60, limit=10)
        ticks = Ticks("report", schedule.spec)
        assert fired.decision.planned_at > corrected.mark_at
        assert (missed.decision.kind, missed.decision.last_at) == (TickKind.MISSED, ticks.up_to(corrected.mark_at))
        assert missed.decision.count == ticks.count(after=now - HOUR, until=corrected.mark_at)
        [entry] = await store.audit.page(AuditQuery(action="set_back_mark"))
        assert (entry.entry.actor, entry.entry.name) == ("gnomon", "report")

    async def test_marks_that_jitter_puts_ahead_or_of_other_shards_stay(self, store: Store, terms: Terms) -> None:
        now = await store.now()
        early = replace(minutely("early", mark=now, jitter_ms=HOUR), mark_at=now + MINUTE)
        await self.registered(store, early)
        foreign = await self.ahead(store, catchup=Catchup.LATEST)

        own = {shard: term for shard, term in terms.items() if shard != foreign.shard}

        assert await store.ledger.set_back_marks(terms=own, limit=10) == []

    # ---- schedules ---------------------------------------------------------------------------

    async def test_a_schedule_comes_back_as_it_was_added(self, store: Store) -> None:
        schedule = minutely(
            trigger=Cron("30 2 * * *", "America/New_York"),
            start_at=NOON - HOUR,
            end_at=NOON + 1000 * HOUR,
            overlap=Overlap.QUEUE,
            catchup=Catchup.SPREAD,
            jitter_ms=5000,
            first_steps=("extract", "check"),
            exceptions=(TickException(NOON + HOUR), TickException(NOON + 2 * HOUR, NOON + 3 * HOUR)),
            origin="file:/etc/gnomon/jobs.yaml",
            orphaned=True,
        )

        await self.registered(store, schedule)

        assert await store.schedules.find("default", "report") == schedule
        assert [kept.schedule.spec for kept in await store.history.revisions(schedule.uid)] == [schedule.spec]

    async def test_a_name_that_is_taken_is_given_back_and_the_others_are_added(self, store: Store) -> None:
        first = minutely("a")
        await self.registered(store, first)

        taken = await store.schedules.add(
            [replace(minutely("a"), uid=ScheduleUid("sch_new")), minutely("b")], actor="eve", tzdata=""
        )

        assert taken == {"a"}
        assert await store.schedules.find("default", "a") == first
        assert await store.schedules.find("default", "b") == minutely("b")

    async def test_two_tenants_may_use_one_name(self, store: Store) -> None:
        await self.registered(store, minutely("a"), minutely("a", tenant="acme"))

        assert (await self.current(store, minutely("a", tenant="acme"))).tenant == "acme"

    async def test_a_schedule_that_was_never_added_is_not_found(self, store: Store) -> None:
        assert await store.schedules.find("default", "nothing") is None

    async def test_schedules_are_listed_by_name_page_by_page(self, store: Store) -> None:
        await self.registered(store, *(minutely(name) for name in ("c", "a", "d", "b")), minutely("b", tenant="acme"))

        first = await store.schedules.page("default", after="", limit=3)
        second = await store.schedules.page("default", after=first[-1].schedule_id, limit=3)

        assert [s.schedule_id for s in first] == ["a", "b", "c"]
        assert [s.schedule_id for s in second] == ["d"]

    @pytest.mark.parametrize("size", [1, 2, 3, 10])
    @pytest.mark.parametrize(
        ("order", "expected"),
        [
            (ScheduleOrder.NAME, ["a", "b", "c", "d", "e"]),
            # Of `b` and `e`, which fire at one instant, the one with the smaller uid comes first.
            (ScheduleOrder.NEXT, ["d", "b", "e", "a", "c"]),
            (ScheduleOrder.LAST, ["b", "e", "a", "c", "d"]),
        ],
        ids=str,
    )
    async def test_schedules_are_listed_in_several_orders_page_by_page(
        self, store: Store, order: ScheduleOrder, expected: list[str], size: int
    ) -> None:
        marks = {"e": HOUR, "d": -HOUR, "b": HOUR}
        made = [minutely(name, mark=NOON + mark) for name, mark in marks.items()]
        silent = [replace(minutely(name), next_fire_at=None, paused_at=NOON) for name in ("c", "a")]
        await self.registered(store, *made, *silent, minutely("b", tenant="acme"))

        found, after = list[str](), None
        while page := await store.schedules.in_order("default", order, after=after, limit=size):
            found += [one.schedule_id for one in page]
            after = schedule_position(page[-1], order)

        assert found == expected

    async def test_every_revision_is_kept_with_who_made_it(self, store: Store) -> None:
        schedule = minutely()
        await self.registered(store, schedule)
        changed = replace(schedule, revision=2, updated_at=NOON + 5, spec=replace(schedule.spec, jitter_ms=7))

        assert await store.schedules.change(
            plan(schedule, now=NOON), changed, now=NOON + 5, actor="eve", tzdata="2026b"
        )

        kept = await store.history.revisions(schedule.uid)
        assert [(r.revision, r.actor, r.tzdata, r.from_at) for r in kept] == [
            (1, "ada", "2026a", NOON),
            (2, "eve", "2026b", NOON + 5),
        ]
        assert [r.schedule.spec for r in kept] == [schedule.spec, changed.spec]

    async def test_another_declaration_is_kept_without_a_revision_or_a_decision(self, store: Store) -> None:
        schedule = minutely(origin="import:app")
        await self.registered(store, schedule)
        now = NOON + 5 * MINUTE

        verdict, changed = redeclared(schedule, "import:app", orphaned=True)
        assert await store.schedules.change(verdict, changed, now=now, actor="ada", tzdata="")

        assert await self.current(store, schedule) == changed
        assert [kept.schedule.spec.orphaned for kept in await store.history.revisions(schedule.uid)] == [False]
        assert not await store.history.ticks(schedule.uid, before=now, limit=10)

    async def test_schedules_are_found_by_their_origin_and_orphans_by_name(self, store: Store) -> None:
        app, other = "import:app", "file:/etc/jobs.yaml"
        deleted = minutely("d", origin=app, orphaned=True)
        await self.registered(
            store,
            minutely("c", origin=app, orphaned=True),
            minutely("a", origin=app, orphaned=True),
            minutely("b", origin=other),
            minutely("e"),
            minutely("f", tenant="acme", origin=app, orphaned=True),
            deleted,
        )
        assert await store.schedules.delete(plan(deleted, now=NOON), now=NOON, actor="ada")

        assert await store.schedules.names_from("default", [app]) == {"a", "c"}
        assert await store.schedules.names_from("default", [app, other, "api"]) == {"a", "b", "c"}
        assert [one.schedule_id for one in await store.schedules.orphans("default", limit=10)] == ["a", "c"]
        assert [one.schedule_id for one in await store.schedules.orphans("default", limit=1)] == ["a"]

    async def test_a_change_decides_what_was_due_before_it(self, store: Store, terms: Terms) -> None:
        schedule = minutely()
        await self.registered(store, schedule)
        now = NOON + MINUTE + 500
        verdict = plan(schedule, now=now)
        changed = replace(schedule_after(verdict), revision=2, mark_at=now, next_fire_at=None, updated_at=now)

        assert await store.schedules.change(verdict, changed, now=now, actor="ada", tzdata="")

        [tick] = await store.history.ticks(schedule.uid, before=now, limit=10)
        assert (tick.decision.planned_at, tick.decision.kind) == (NOON + MINUTE, TickKind.FIRED)
        assert tick.term == terms[schedule.shard]
        assert await self.current(store, schedule) == changed

    async def test_a_change_of_something_that_has_moved_on_is_void(self, store: Store, terms: Terms) -> None:
        schedule = minutely()
        await self.registered(store, schedule)
        await self.decided(store, schedule, now=NOON + MINUTE, terms=terms)
        before = await self.current(store, schedule)

        assert not await store.schedules.change(
            plan(schedule, now=NOON + MINUTE), schedule, now=NOON, actor="ada", tzdata=""
        )

        assert await self.current(store, schedule) == before
        assert len(await store.history.revisions(schedule.uid)) == 1

    async def test_a_pause_is_opened_and_closed_with_who_did_it(self, store: Store) -> None:
        schedule = minutely()
        await self.registered(store, schedule)
        paused = replace(schedule, paused_at=NOON, next_fire_at=None)
        assert await store.schedules.change(plan(schedule, now=NOON), paused, now=NOON, actor="ada", tzdata="")
        [open_pause] = await store.history.pauses(schedule.uid)
        resumed_at = NOON + 3 * MINUTE
        skipped = paused_range(paused, until=resumed_at)
        verdict = TickVerdict(
            schedule=paused,
            decisions=skipped,
            mark_at=resumed_at,
            next_fire_at=resumed_at + MINUTE,
            active_runs=0,
            queued_runs=0,
        )

        resumed = replace(schedule_after(verdict), paused_at=None)
        assert await store.schedules.change(verdict, resumed, now=resumed_at, actor="eve", tzdata="")

        [pause] = await store.history.pauses(schedule.uid)
        assert (open_pause.paused_at, open_pause.paused_by, open_pause.resumed_at) == (NOON, "ada", None)
        assert (pause.resumed_at, pause.resumed_by) == (resumed_at, "eve")
        [tick] = await store.history.ticks(schedule.uid, before=resumed_at + 1, limit=10)
        assert (tick.decision.reason, tick.decision.count) == (Reason.PAUSED, 3)
        assert (tick.decision.planned_at, tick.decision.last_at) == (NOON + MINUTE, resumed_at)

    async def test_deleted_schedules_are_found_by_name_newest_first_with_time_and_actor(self, store: Store) -> None:
        await self.registered(store, minutely("other"), minutely("report", tenant="acme"))
        for number, actor in enumerate(("ada", "eve"), 1):
            now = NOON + number * HOUR
            made = replace(minutely(mark=now), uid=ScheduleUid(f"sch_{number}"))
            await self.registered(store, made)
            assert await store.schedules.delete(plan(made, now=now + 5), now=now + 5, actor=actor)
        await self.registered(store, minutely())

        found = await store.history.deleted("default", "report", limit=10)

        assert [(one.schedule.uid, one.deleted_at, one.deleted_by) for one in found] == [
            ("sch_2", NOON + 2 * HOUR + 5, "eve"),
            ("sch_1", NOON + HOUR + 5, "ada"),
        ]
        assert [one.schedule.spec for one in found] == [minutely().spec] * 2
        assert [one.schedule.uid for one in await store.history.deleted("default", "report", limit=1)] == ["sch_2"]
        assert await store.history.deleted("default", "other", limit=10) == []

    async def test_a_deleted_schedule_frees_its_name_and_keeps_its_history(self, store: Store, terms: Terms) -> None:
        schedule = minutely()
        await self.registered(store, schedule)
        await self.decided(store, schedule, now=NOON + MINUTE, terms=terms)

        current = await self.current(store, schedule)
        assert await store.schedules.delete(plan(current, now=NOON + MINUTE), now=NOON + MINUTE, actor="ada")

        assert await store.schedules.find("default", "report") is None
        assert await store.ledger.due(NOON + HOUR, shards=ALL_SHARDS, limit=10) == []
        assert len(await store.history.ticks(schedule.uid, before=NOON + HOUR, limit=10)) == 1
        again = replace(minutely(mark=NOON + HOUR), uid=ScheduleUid("sch_again"))
        assert await store.schedules.add([again], actor="ada", tzdata="") == frozenset()

    async def test_deleting_lets_a_run_go_on_and_cancels_those_that_wait(self, store: Store, terms: Terms) -> None:
        schedule = minutely(overlap=Overlap.QUEUE)
        await self.registered(store, schedule)
        for minute in (1, 2):
            await self.decided(store, schedule, now=NOON + minute * MINUTE, terms=terms)

        current = await self.current(store, schedule)
        assert await store.schedules.delete(plan(current, now=NOON + 2 * MINUTE), now=NOON + 2 * MINUTE, actor="ada")

        waiting, running = await store.history.runs(schedule.uid, before=NOON + HOUR, limit=10)
        assert (waiting.status, waiting.queued) == (RunStatus.CANCELLED, False)
        assert (running.status, running.cancel_requested_at) == (RunStatus.PENDING, None)
        assert await finish_run(store, running, now=NOON + HOUR)

    async def test_a_schedule_may_be_paused_from_the_start(self, store: Store) -> None:
        schedule = replace(minutely(), paused_at=NOON, next_fire_at=None)
        await self.registered(store, schedule)
        verdict = verdict_before_edit(schedule, now=NOON + HOUR)

        assert await store.schedules.change(
            verdict, resumed_schedule(verdict, now=NOON + HOUR), now=NOON + HOUR, actor="eve", tzdata=""
        )

        [pause] = await store.history.pauses(schedule.uid)
        assert (pause.paused_at, pause.paused_by, pause.resumed_by) == (NOON, "ada", "eve")

    @pytest.mark.req("C-06")
    async def test_a_change_puts_off_the_starts_of_ticks_beyond_the_limit_and_the_next_tick_waits_for_them(
        self, store: Store
    ) -> None:
        schedule, now, limit = minutely(overlap=Overlap.ALLOW, catchup=Catchup.ALL), NOON + 5 * MINUTE, CatchupLimit(2)
        await self.registered(store, schedule)

        while has_remaining_due(
            verdict := verdict_before_edit(await self.current(store, schedule), now=now, limit=limit), now=now
        ):
            assert await store.schedules.change(verdict, schedule_after(verdict), now=now, actor="", tzdata="")
        changed = edited_schedule(verdict, replace(schedule.spec, user_id="eve"), now=now)
        assert await store.schedules.change(verdict, changed, now=now, actor="eve", tzdata="")

        starts = [max(now, run.fire_at) for run in await runs_of(store, schedule)]
        assert starts == [now, now, now + 1000, now + 1000, now + 2000]
        assert (await self.current(store, schedule)).next_fire_at == now + MINUTE
        assert [run.planned_at for run in await runs_of(store, schedule)] == [NOON + i * MINUTE for i in range(1, 6)]

    # ---- ledger ------------------------------------------------------------------------------

    async def test_only_schedules_whose_time_has_come_are_due_earliest_first(self, store: Store) -> None:
        ended = minutely("ended", end_at=NOON)
        await self.registered(
            store,
            minutely("past", mark=NOON - HOUR),
            minutely("present", mark=NOON - MINUTE),
            minutely("future"),
            ended,
        )

        due = await store.ledger.due(NOON, shards=ALL_SHARDS, limit=10)

        assert [s.schedule_id for s in due] == ["past", "present"]

    async def test_no_more_are_due_than_asked_for(self, store: Store) -> None:
        await self.registered(store, *(minutely(f"s{i}", mark=NOON - HOUR) for i in range(5)))

        assert len(await store.ledger.due(NOON, shards=ALL_SHARDS, limit=3)) == 3

    async def test_only_schedules_of_the_given_shards_are_due(self, store: Store) -> None:
        schedules = [minutely(f"s{i}", mark=NOON - HOUR) for i in range(20)]
        await self.registered(store, *schedules)
        shards = frozenset(s.shard for s in schedules[:3])

        due = await store.ledger.due(NOON, shards=shards, limit=100)

        assert {s.uid for s in due} == {s.uid for s in schedules if s.shard in shards}

    async def test_the_next_due_instant_is_that_of_the_given_shards(self, store: Store) -> None:
        early, late = minutely("early", mark=NOON - HOUR), minutely("late")
        await self.registered(store, early, late)

        assert await store.ledger.next_due_at(shards=ALL_SHARDS) == early.next_fire_at
        assert await store.ledger.next_due_at(shards=ALL_SHARDS - {early.shard}) == late.next_fire_at
        assert await store.ledger.next_due_at(shards=frozenset()) is None

    async def test_a_decision_makes_a_tick_a_run_and_its_first_tasks(self, store: Store, terms: Terms) -> None:
        schedule = minutely(first_steps=("extract", "check"))
        await self.registered(store, schedule)
        now = NOON + MINUTE + 40

        await self.decided(store, schedule, now=now, terms=terms)

        [tick] = await store.history.ticks(schedule.uid, before=NOON + HOUR, limit=10)
        [run] = await store.history.runs(schedule.uid, before=NOON + HOUR, limit=10)
        tasks = await store.history.tasks([run])
        assert (tick.decision.kind, tick.decision.reason, tick.status) == (
            TickKind.FIRED,
            Reason.ON_TIME,
            TickStatus.ENQUEUED,
        )
        assert (tick.key, tick.decided_at, tick.revision) == (tick_key("report", NOON + MINUTE), now, 1)
        assert (tick.run_id, run.planned_at, run.user_id, run.status) == (
            run.run_id,
            NOON + MINUTE,
            "ada",
            RunStatus.PENDING,
        )
        assert [(task.step, task.state, task.wait_reason) for task in tasks] == [
            ("check", TaskState.PENDING, WaitReason.READY),
            ("extract", TaskState.PENDING, WaitReason.READY),
        ]

    async def test_a_decision_moves_the_schedule_on(self, store: Store, terms: Terms) -> None:
        schedule = minutely()
        await self.registered(store, schedule)

        await self.decided(store, schedule, now=NOON + MINUTE, terms=terms)

        after = await self.current(store, schedule)
        assert (after.mark_at, after.next_fire_at, after.active_runs) == (NOON + MINUTE, NOON + 2 * MINUTE, 1)

    @pytest.mark.req("C-02")
    @pytest.mark.guarantee("S2")
    async def test_a_tick_is_decided_once_however_often_it_is_tried(self, store: Store, terms: Terms) -> None:
        schedule = minutely()
        await self.registered(store, schedule)
        verdict = plan(schedule, now=NOON + MINUTE)

        first = await store.ledger.decide([verdict], now=NOON + MINUTE, terms=terms)
        second = await store.ledger.decide([verdict], now=NOON + MINUTE, terms=terms)

        assert [first, second] == [frozenset({schedule.uid}), frozenset()]
        assert len(await store.history.ticks(schedule.uid, before=NOON + HOUR, limit=10)) == 1
        assert len(await store.history.runs(schedule.uid, before=NOON + HOUR, limit=10)) == 1

    async def test_a_verdict_on_a_paused_schedule_is_void(self, store: Store, terms: Terms) -> None:
        schedule = minutely()
        await self.registered(store, schedule)
        paused = replace(schedule, paused_at=NOON, next_fire_at=None)
        assert await store.schedules.change(plan(schedule, now=NOON), paused, now=NOON, actor="ada", tzdata="")

        done = await store.ledger.decide([plan(schedule, now=NOON + MINUTE)], now=NOON + MINUTE, terms=terms)

        assert done == frozenset()
        assert await store.history.ticks(schedule.uid, before=NOON + HOUR, limit=10) == []

    async def test_a_void_verdict_does_not_hold_up_the_others(self, store: Store, terms: Terms) -> None:
        one, other = minutely("one"), minutely("other")
        await self.registered(store, one, other)
        await self.decided(store, one, now=NOON + MINUTE, terms=terms)

        verdicts = [plan(one, now=NOON + MINUTE), plan(other, now=NOON + MINUTE)]
        done = await store.ledger.decide(verdicts, now=NOON + MINUTE, terms=terms)

        assert done == {other.uid}

    async def test_many_verdicts_are_carried_out_together(self, store: Store, terms: Terms) -> None:
        schedules = [minutely(f"s{i}") for i in range(300)]
        await self.registered(store, *schedules)

        now = NOON + MINUTE
        done = await store.ledger.decide([plan(s, now=now) for s in schedules], now=now, terms=terms)

        assert done == {s.uid for s in schedules}
        assert await store.ledger.due(now, shards=ALL_SHARDS, limit=10) == []

    async def test_a_stretch_of_missed_ticks_is_one_row(self, store: Store, terms: Terms) -> None:
        schedule = minutely()
        await self.registered(store, schedule)

        await self.decided(store, schedule, now=NOON + HOUR + 30_000, terms=terms)

        newest, missed = await store.history.ticks(schedule.uid, before=NOON + 2 * HOUR, limit=10)
        assert newest.decision.planned_at == NOON + HOUR
        assert (missed.decision.kind, missed.decision.count, missed.status) == (TickKind.MISSED, 59, TickStatus.SKIPPED)
        assert missed.decision.last_at == NOON + 59 * MINUTE

    async def test_a_decision_under_an_old_term_is_refused_whole(self, store: Store, terms: Terms) -> None:
        one, other = minutely("one"), minutely("other")
        await self.registered(store, one, other)
        await store.shards.claim("rival", ttl_ms=TTL, limit=SHARDS, by_force=True)

        with pytest.raises(StaleTerm):
            await store.ledger.decide(
                [plan(s, now=NOON + MINUTE) for s in (one, other)], now=NOON + MINUTE, terms=terms
            )

        assert await store.history.ticks(one.uid, before=NOON + HOUR, limit=10) == []
        assert await self.current(store, one) == one

    async def test_a_decision_for_a_shard_one_does_not_have_is_refused(self, store: Store, terms: Terms) -> None:
        schedule = minutely()
        await self.registered(store, schedule)
        others = {shard: term for shard, term in terms.items() if shard != schedule.shard}

        with pytest.raises(StaleTerm) as refused:
            await store.ledger.decide([plan(schedule, now=NOON + MINUTE)], now=NOON + MINUTE, terms=others)

        assert refused.value.shards == (schedule.shard,)

    async def test_ticks_come_newest_first_page_by_page(self, store: Store, terms: Terms) -> None:
        schedule = minutely(overlap=Overlap.ALLOW)
        await self.registered(store, schedule)
        for minute in range(1, 6):
            await self.decided(store, schedule, now=NOON + minute * MINUTE, terms=terms)

        first = await store.history.ticks(schedule.uid, before=NOON + HOUR, limit=3)
        second = await store.history.ticks(schedule.uid, before=first[-1].decision.planned_at, limit=3)

        assert [(t.decision.planned_at - NOON) // MINUTE for t in [*first, *second]] == [5, 4, 3, 2, 1]

    async def test_the_newest_ticks_of_many_schedules_are_read_at_once(self, store: Store, terms: Terms) -> None:
        fires, skips, idle = minutely(overlap=Overlap.ALLOW), minutely("skips", overlap=Overlap.SKIP), minutely("idle")
        await self.registered(store, fires, skips, idle)
        for minute in range(1, 5):
            for schedule in (fires, skips):
                await self.decided(store, schedule, now=NOON + minute * MINUTE, terms=terms)

        found = await store.tick_history.newest([one.uid for one in (fires, skips, idle)], each=3)

        assert {uid: [(one.planned_at - NOON) // MINUTE for one in marks] for uid, marks in found.items()} == {
            fires.uid: [4, 3, 2],
            skips.uid: [4, 3, 2],
        }
        newest, last_run = found[skips.uid][0], found[fires.uid][0].run_id
        assert (newest.kind, newest.reason, newest.status) == (TickKind.SKIPPED, Reason.OVERLAP, TickStatus.SKIPPED)
        assert (newest.count, newest.run_id) == (1, None)
        assert last_run == run_id(fires.uid, NOON + 4 * MINUTE)
        assert [len(marks) for marks in (await store.tick_history.newest([fires.uid], each=20)).values()] == [4]
        assert await store.tick_history.newest([], each=20) == {}

    async def test_the_recent_history_of_many_schedules_is_that_of_each(self, store: Store, terms: Terms) -> None:
        fires, skips, idle = minutely(overlap=Overlap.ALLOW), minutely("skips", overlap=Overlap.SKIP), minutely("idle")
        await self.registered(store, fires, skips, idle)
        for minute in range(1, 5):
            for schedule in (fires, skips):
                await self.decided(store, schedule, now=NOON + minute * MINUTE, terms=terms)
        one = await self.current(store, idle)
        paused = replace(one, paused_at=NOON, next_fire_at=None)
        assert await store.schedules.change(plan(one, now=NOON), paused, now=NOON, actor="ada", tzdata="")
        revised = replace(paused, revision=2, spec=replace(paused.spec, misfire_grace_ms=5))
        unchanged = replace(plan(paused, now=NOON), schedule=paused)
        assert await store.schedules.change(unchanged, revised, now=NOON + 1, actor="eve", tzdata="")
        [run] = await store.history.runs(fires.uid, before=NOON + HOUR, limit=1)
        await take_task(store, "worker", run, now=NOON + 5 * MINUTE)
        standing = await store.schedules.page("default", after="", limit=9)

        found = await store.tick_history.recent(standing, each=3)

        assert len(found) == len(standing) == 3
        for one in standing:
            known = found[one.uid]
            assert list(known.ticks) == list(await store.history.ticks(one.uid, before=NOON + HOUR, limit=3))
            assert list(known.runs) == list(await store.history.runs(one.uid, before=NOON + HOUR, limit=3))
            assert list(known.revisions) == list(await store.history.revisions(one.uid))
            assert list(known.pauses) == list(await store.history.pauses(one.uid))
        assert [len(found[one.uid].ticks) for one in (fires, skips, idle)] == [3, 3, 0]
        assert [len(found[one.uid].runs) for one in (fires, skips, idle)] == [3, 1, 0]
        assert [len(found[one.uid].pauses) for one in (fires, idle)] == [0, 1]
        assert [one.revision for one in found[idle.uid].revisions] == [1, 2]
        assert found[fires.uid].ticks[0].run_changed_at is not None
        assert await store.tick_history.recent([], each=3) == {}

    async def test_the_ticks_of_a_tenant_come_in_one_order_of_time(self, store: Store, terms: Terms) -> None:
        ones, others = minutely("ones", overlap=Overlap.ALLOW), minutely("others", overlap=Overlap.SKIP)
        strange = replace(minutely("strange", overlap=Overlap.ALLOW), tenant="strangers")
        await self.registered(store, ones, others, strange)
        for minute in (1, 2, 3):
            for schedule in (strange, others, ones):
                await self.decided(store, schedule, now=NOON + minute * MINUTE, terms=terms)
        in_order = [
            (NOON + minute * MINUTE, uid)
            for minute in (3, 2, 1)
            for uid in sorted((ones.uid, others.uid), reverse=True)
        ]

        found, query = list[Tick](), TenantTickQuery(tenant="default", limit=4)
        while page := await store.tick_history.page(query):
            found += page
            query = replace(query, before=(page[-1].decision.planned_at, page[-1].uid))

        assert [(one.decision.planned_at, one.uid) for one in found] == in_order
        whole = TenantTickQuery(tenant="default", limit=10)
        within = replace(whole, before=in_order[1], down_to=in_order[3])
        assert await store.tick_history.page(within) == found[2:4]
        assert [one for one in found if one.uid == ones.uid] == await store.history.ticks(
            ones.uid, before=NOON + HOUR, limit=9
        )
        assert await store.tick_history.page(replace(whole, kind=TickKind.SKIPPED)) == [
            one for one in found if one.decision.kind is TickKind.SKIPPED
        ]
        assert len(await store.tick_history.page(replace(whole, reason=Reason.OVERLAP))) == 2
        assert len(await store.tick_history.page(replace(whole, status=TickStatus.ENQUEUED))) == 4
        assert await store.tick_history.position(whole, 6) == in_order[5]
        assert await store.tick_history.position(replace(whole, kind=TickKind.MISSED), 6) == in_order[5]
        assert await store.tick_history.position(whole, 7) is None
        assert await store.tick_history.page(replace(whole, tenant="nobody")) == []

    async def test_a_tick_for_several_times_is_found_by_the_last_of_them(self, store: Store, terms: Terms) -> None:
        late, punctual = minutely("late", catchup=Catchup.NONE), minutely("punctual")
        await self.registered(store, late, punctual)
        await self.decided(store, punctual, now=NOON + MINUTE, terms=terms)
        await self.decided(store, late, now=NOON + HOUR, terms=terms)
        [several] = [
            one for one in await store.history.ticks(late.uid, before=NOON + HOUR, limit=9) if one.decision.count > 1
        ]
        last_at = several.decision.last_at
        query = TenantTickQuery(tenant="default", before=(last_at, ""), reaching=last_at, limit=10)

        assert several.decision.planned_at < last_at
        assert await store.tick_history.page(query) == [several]
        assert await store.tick_history.page(replace(query, reaching=last_at + 1)) == []
        assert await store.tick_history.page(replace(query, before=(several.decision.planned_at, ""))) == []
        assert await store.tick_history.position(query, 1) == (several.decision.planned_at, late.uid)
        assert await store.tick_history.position(query, 2) is None

    # ---- overlap -----------------------------------------------------------------------------

    @pytest.mark.guarantee("S8")
    async def test_a_run_that_ends_makes_room_for_the_next_tick(self, store: Store, terms: Terms) -> None:
        schedule = minutely(overlap=Overlap.SKIP)
        await self.registered(store, schedule)
        await self.decided(store, schedule, now=NOON + MINUTE, terms=terms)
        skipped = await self.decided(store, schedule, now=NOON + 2 * MINUTE, terms=terms)
        [run] = await store.history.runs(schedule.uid, before=NOON + HOUR, limit=10)

        assert await finish_run(store, run, now=NOON + 2 * MINUTE + 5)

        fired = await self.decided(store, schedule, now=NOON + 3 * MINUTE, terms=terms)
        assert [d.kind for d in (*skipped.decisions, *fired.decisions)] == [TickKind.SKIPPED, TickKind.FIRED]

    async def test_the_kind_of_the_newest_tick_of_each_schedule_is_known(self, store: Store, terms: Terms) -> None:
        fires, misses, idle = minutely(), minutely("misses", misfire_grace_ms=0), minutely("idle")
        await self.registered(store, fires, misses, idle)
        uids = [one.uid for one in (fires, misses, idle)]
        assert await store.history.last_tick_kinds(uids) == {}

        await self.decided(store, misses, now=NOON + MINUTE, terms=terms)
        await self.decided(store, misses, now=NOON + MINUTE + MINUTE // 2, terms=terms)
        assert await store.history.last_tick_kinds(uids) == {misses.uid: TickKind.FIRED}

        await self.decided(store, fires, now=NOON + MINUTE, terms=terms)
        await self.decided(store, misses, now=NOON + 2 * MINUTE + MINUTE // 2, terms=terms)
        found = await store.history.last_tick_kinds(uids)
        [newest] = await store.history.ticks(misses.uid, before=NOON + HOUR, limit=1)
        assert found == {fires.uid: TickKind.FIRED, misses.uid: newest.decision.kind}
        assert newest.decision.kind is not TickKind.FIRED
        assert await store.history.last_tick_kinds([]) == {}

    @pytest.mark.req("H-10", "C-02")
    async def test_lists_distinguish_queued_running_and_ended_runs(self, store: Store, terms: Terms) -> None:
        schedule, idle = minutely(), minutely("idle")
        await self.registered(store, schedule, idle)
        await self.decided(store, schedule, now=NOON + MINUTE, terms=terms)
        [run] = await store.history.runs(schedule.uid, before=NOON + HOUR, limit=10)

        async def shown() -> tuple[dict[ScheduleUid, int], dict[RunId, int], int]:
            [tick] = await store.history.ticks(schedule.uid, before=NOON + HOUR, limit=10)
            running = await store.history.running([schedule.uid, idle.uid])
            return dict(running), dict(await store.run_tasks.attempt_numbers([run.run_id])), tick.updated_at

        waiting = await shown()
        taken = await take_task(store, "worker", run, now=NOON + MINUTE + 5)
        running = await shown()
        await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON + MINUTE + 9)])
        ended = await shown()

        assert waiting == ({}, {run.run_id: 0}, NOON + MINUTE)
        assert running == ({schedule.uid: 1}, {run.run_id: 1}, NOON + MINUTE + 5)
        assert ended == ({}, {run.run_id: 1}, NOON + MINUTE + 9)

    async def test_a_run_ends_once(self, store: Store, terms: Terms) -> None:
        schedule = minutely()
        await self.registered(store, schedule)
        await self.decided(store, schedule, now=NOON + MINUTE, terms=terms)
        [run] = await store.history.runs(schedule.uid, before=NOON + HOUR, limit=10)

        ends = [await finish_run(store, run, result=result, now=NOON) for result in (Result.SUCCEEDED, Result.FAILED)]

        assert ends == [True, False]
        [ended] = await store.history.runs(schedule.uid, before=NOON + HOUR, limit=10)
        assert (ended.status, ended.completed_at) == (RunStatus.COMPLETED, NOON)

    @pytest.mark.req("C-05")
    async def test_queued_runs_take_their_turn_in_planned_order(self, store: Store, terms: Terms) -> None:
        schedule = minutely(overlap=Overlap.QUEUE)
        await self.registered(store, schedule)
        for minute in (1, 2, 3):
            await self.decided(store, schedule, now=NOON + minute * MINUTE, terms=terms)
        third, second, first = await store.history.runs(schedule.uid, before=NOON + HOUR, limit=10)
        assert [run.queued for run in (first, second, third)] == [False, True, True]
        assert (await self.current(store, schedule)).queued_runs == 2

        await finish_run(store, first, now=NOON + HOUR)

        third, second, first = await store.history.runs(schedule.uid, before=NOON + HOUR, limit=10)
        assert [run.queued for run in (first, second, third)] == [False, False, True]
        [task] = await store.history.tasks([second])
        assert task.wait_reason is WaitReason.READY
        after = await self.current(store, schedule)
        assert (after.active_runs, after.queued_runs) == (1, 1)

    async def test_replacing_cancels_what_waits_and_asks_what_runs_to_end(self, store: Store, terms: Terms) -> None:
        schedule = minutely(overlap=Overlap.REPLACE)
        await self.registered(store, schedule)
        await self.decided(store, schedule, now=NOON + MINUTE, terms=terms)
        await take_task(store, "worker", (await runs_of(store, schedule))[0], now=NOON + MINUTE)
        for minute in (2, 3):
            await self.decided(store, schedule, now=NOON + minute * MINUTE, terms=terms)

        newest, replaced, running = await store.history.runs(schedule.uid, before=NOON + HOUR, limit=10)

        assert (newest.queued, newest.status) == (True, RunStatus.PENDING)
        assert (replaced.queued, replaced.status) == (False, RunStatus.CANCELLED)
        assert (running.status, running.cancel_requested_at) == (RunStatus.RUNNING, NOON + 2 * MINUTE)
        [task] = await store.history.tasks([replaced])
        assert task.state is TaskState.CANCELLED
        after = await self.current(store, schedule)
        assert (after.active_runs, after.queued_runs) == (1, 1)

    async def test_replacing_what_no_worker_has_begun_ends_it_at_once(self, store: Store, terms: Terms) -> None:
        schedule = minutely(overlap=Overlap.REPLACE)
        await self.registered(store, schedule)
        for minute in (1, 2):
            await self.decided(store, schedule, now=NOON + minute * MINUTE, terms=terms)

        replaced, newest = await runs_of(store, schedule)

        assert (replaced.status, newest.status) == (RunStatus.CANCELLED, RunStatus.PENDING)
        assert not newest.queued
        [task] = await store.history.tasks([newest])
        assert task.wait_reason is WaitReason.READY
        after = await self.current(store, schedule)
        assert (after.active_runs, after.queued_runs) == (1, 0)

    async def test_a_verdict_is_void_once_a_run_has_ended_in_between(self, store: Store, terms: Terms) -> None:
        schedule = minutely()
        await self.registered(store, schedule)
        await self.decided(store, schedule, now=NOON + MINUTE, terms=terms)
        [run] = await store.history.runs(schedule.uid, before=NOON + HOUR, limit=10)
        stale = plan(await self.current(store, schedule), now=NOON + 2 * MINUTE)
        await finish_run(store, run, now=NOON + 2 * MINUTE)

        assert await store.ledger.decide([stale], now=NOON + 2 * MINUTE, terms=terms) == frozenset()

    # ---- shards ------------------------------------------------------------------------------

    async def test_free_shards_are_claimed_under_rising_terms(self, store: Store) -> None:
        first = await store.shards.claim("a", ttl_ms=TTL, limit=SHARDS)
        await store.shards.release("a", range(SHARDS))
        second = await store.shards.claim("b", ttl_ms=TTL, limit=SHARDS)

        assert set(first) == set(second) == set(range(SHARDS))
        assert all(second[shard] > first[shard] for shard in first)

    async def test_no_more_shards_are_claimed_than_asked_for(self, store: Store) -> None:
        assert len(await store.shards.claim("a", ttl_ms=TTL, limit=100)) == 100

    async def test_a_shard_with_a_valid_lease_is_not_claimed(self, store: Store) -> None:
        held = await store.shards.claim("a", ttl_ms=TTL, limit=100)
        others = await store.shards.claim("b", ttl_ms=TTL, limit=SHARDS)

        assert not set(held) & set(others)
        assert len(others) == SHARDS - 100

    async def test_a_shard_whose_lease_is_over_is_claimed_anew(self, store: Store, advance: Advance) -> None:
        held = await store.shards.claim("a", ttl_ms=TTL, limit=SHARDS)
        advance(TTL + 1)

        taken = await store.shards.claim("b", ttl_ms=TTL, limit=SHARDS)

        assert all(taken[shard] > held[shard] for shard in held)

    async def test_attending_extends_the_leases(self, store: Store, advance: Advance) -> None:
        held = await store.shards.claim("a", ttl_ms=TTL, limit=SHARDS)
        advance(TTL - 2000)
        attendance = await store.shards.renew("a", ttl_ms=TTL)
        advance(TTL - 2000)

        assert dict(attendance.terms) == dict(held)
        assert await store.shards.claim("b", ttl_ms=TTL, limit=SHARDS) == {}

    async def test_a_renewal_returns_a_claim_whose_answer_was_lost(self, store: Store) -> None:
        claimed = await store.shards.claim("a", ttl_ms=TTL, limit=100)

        assert dict((await store.shards.renew("a", ttl_ms=TTL)).terms) == dict(claimed)

    async def test_attending_does_not_bring_back_a_term_that_was_taken(self, store: Store, advance: Advance) -> None:
        held = await store.shards.claim("a", ttl_ms=TTL, limit=SHARDS)
        advance(TTL + 1)
        taken = await store.shards.claim("b", ttl_ms=TTL, limit=100)

        attendance = await store.shards.renew("a", ttl_ms=TTL)

        assert set(attendance.terms) == set(held) - set(taken)

    async def test_a_renewal_returns_when_the_first_lease_of_others_ends(self, store: Store, advance: Advance) -> None:
        assert (await store.shards.renew("a", ttl_ms=TTL)).others_end_at is None
        await store.shards.claim("a", ttl_ms=TTL, limit=10)
        assert (await store.shards.renew("a", ttl_ms=TTL)).others_end_at is None
        await store.shards.claim("b", ttl_ms=TTL, limit=10)
        await store.shards.claim("c", ttl_ms=2 * TTL, limit=10)

        first = await store.shards.renew("a", ttl_ms=TTL)
        advance(TTL + 1)
        then = await store.shards.renew("a", ttl_ms=TTL)

        assert first.others_end_at is not None
        assert 0 < first.others_end_at - first.now <= TTL
        assert then.others_end_at is not None
        assert 0 < then.others_end_at - then.now <= TTL

    async def test_attending_counts_the_nodes_that_are_alive(self, store: Store, advance: Advance) -> None:
        await store.shards.renew("a", ttl_ms=TTL)
        both = await store.shards.renew("b", ttl_ms=TTL)
        advance(TTL + 1)
        alone = await store.shards.renew("b", ttl_ms=TTL)

        assert (both.nodes, alone.nodes) == (2, 1)

    async def test_releasing_does_nothing_to_the_shards_of_others(self, store: Store) -> None:
        held = await store.shards.claim("a", ttl_ms=TTL, limit=SHARDS)

        await store.shards.release("b", held)

        assert await store.shards.claim("c", ttl_ms=TTL, limit=SHARDS) == {}

    async def test_a_node_that_leaves_gives_up_its_shards_and_is_no_longer_counted(self, store: Store) -> None:
        await store.shards.renew("a", ttl_ms=TTL)
        await store.shards.claim("a", ttl_ms=TTL, limit=SHARDS)

        await store.shards.leave("a")

        assert (await store.shards.renew("b", ttl_ms=TTL)).nodes == 1
        assert len(await store.shards.claim("b", ttl_ms=TTL, limit=SHARDS)) == SHARDS

    async def test_force_takes_every_shard(self, store: Store) -> None:
        held = await store.shards.claim("a", ttl_ms=TTL, limit=SHARDS)

        await store.shards.renew("a", ttl_ms=TTL)

        taken = await store.shards.claim("b", ttl_ms=TTL, limit=SHARDS, by_force=True)

        assert all(taken[shard] > held[shard] for shard in held)
        assert (await store.shards.renew("b", ttl_ms=TTL)).nodes == 1
