"""The schedule service: requests are checked whole, written once, and never lose a tick."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from contracts.store import HOUR, MINUTE, NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.core.cron import Cron, Dst
from gnomon.core.instants import instant_of
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.ledger.edits import MissedTicks, ResumeChoice, ResumePolicy
from gnomon.core.model import Catchup, Overlap, Reason, Tick, TickKind
from gnomon.core.triggers import Every
from gnomon.errors import CronError, FieldError, NotFound
from gnomon.services.operations.schedules import ResumeResult, ScheduleService
from gnomon.testing.clock import CountedIds, VirtualClock
from support.task_steps import finish_run

BILLING: dict[str, Any] = {
    "schedule_id": "billing",
    "schedule": "* * * * *",
    "workflow_id": "invoice",
    "user_id": "ada",
}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOON)


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock.now)


@pytest.fixture
def schedules(store: MemoryStore, clock: VirtualClock) -> ScheduleService:
    return ScheduleService(store.schedules, store.history, clock, CountedIds(), tzdata="2026b")


async def ticks_of(schedules: ScheduleService, name: str = "billing") -> list[Tick]:
    return list((await schedules.get(name, last=1000)).last_ticks)


@pytest.mark.req("C-03")
async def test_registering_answers_with_the_name_and_the_next_run(schedules: ScheduleService) -> None:
    answer = await schedules.upsert(BILLING, actor="ada")

    assert (answer.schedule_id, answer.next_run_at) == ("billing", NOON + MINUTE)


@pytest.mark.req("C-01")
async def test_a_schedule_without_a_name_is_given_one(schedules: ScheduleService) -> None:
    unnamed = {key: value for key, value in BILLING.items() if key != "schedule_id"}

    answer = await schedules.upsert(unnamed, actor="ada")

    assert (await schedules.get(answer.schedule_id)).schedule.schedule_id == answer.schedule_id


@pytest.mark.req("C-01", "C-03")
async def test_the_names_of_other_schedulers_fields_are_taken(schedules: ScheduleService) -> None:
    await schedules.upsert(
        {
            "schedule_id": "billing",
            "cron_expr": "0 9 * * *",
            "timezone": "America/New_York",
            "workflow_id": "invoice",
            "version": 7,
            "user_id": "ada",
            "start_at": "2026-03-03T00:00:00Z",
            "end_at": "2026-04-03T00:00:00+00:00",
            "jitter_ms": 250,
            "overlap_policy": "queue",
            "catchup_policy": "fire_immediately",
        },
        actor="ada",
    )

    spec = (await schedules.get("billing")).schedule.spec
    assert spec.trigger == Cron("0 9 * * *", "America/New_York")
    assert (spec.workflow_version, spec.overlap, spec.catchup, spec.jitter_ms) == (7, Overlap.QUEUE, Catchup.ALL, 250)
    assert spec.start_at == NOON + 12 * HOUR


async def test_a_sentence_may_be_said_and_a_choice_about_clock_changes(schedules: ScheduleService) -> None:
    said = BILLING | {"schedule": "every day at 2:30am", "timezone": "Europe/Rome", "dst": {"gap": "skip"}}

    await schedules.upsert(said, actor="ada")

    assert (await schedules.get("billing")).schedule.spec.trigger == Cron(
        "30 2 * * *", "Europe/Rome", dst=Dst(gap="skip")
    )


async def test_an_interval_counts_from_its_registration(schedules: ScheduleService) -> None:
    await schedules.upsert(BILLING | {"schedule": "every 7 minutes"}, actor="ada")

    assert (await schedules.get("billing")).next_runs[:2] == (NOON + 7 * MINUTE, NOON + 14 * MINUTE)


async def test_saying_an_interval_again_does_not_move_its_grid(schedules: ScheduleService, clock: VirtualClock) -> None:
    await schedules.upsert(BILLING | {"schedule": "every 7 minutes"}, actor="ada")
    clock.advance(3 * MINUTE)

    await schedules.upsert(BILLING | {"schedule": "every 7 minutes"}, actor="ada")

    schedule = (await schedules.get("billing")).schedule
    assert schedule.spec.trigger == Every(timedelta(minutes=7), instant_of(NOON))
    assert schedule.revision == 1


async def test_saying_it_again_answers_with_the_next_run_there_is(
    schedules: ScheduleService, clock: VirtualClock
) -> None:
    first = await schedules.upsert(BILLING | {"schedule": "every 7 minutes"}, actor="ada")
    clock.advance(1600)

    assert await schedules.upsert(BILLING | {"schedule": "every 7 minutes"}, actor="ada") == first


async def test_a_long_backlog_does_not_keep_an_operator_from_pausing(
    schedules: ScheduleService, clock: VirtualClock
) -> None:
    await schedules.upsert(BILLING | {"schedule": "* * * * * *", "catchup": "all", "overlap": "allow"}, actor="ada")
    clock.advance(4 * HOUR)

    await schedules.pause("billing", actor="ada")

    assert len((await schedules.get("billing", last=100_000)).last_ticks) == 4 * 3600


@pytest.mark.parametrize(
    ("call", "field"),
    [
        pytest.param(lambda r: r.upsert(BILLING, actor="a\x00"), "actor", id="a NUL in who acts"),
        pytest.param(lambda r: r.pause("billing", actor="\ud800"), "actor", id="half a character in who acts"),
        pytest.param(lambda r: r.upsert(BILLING, actor="a", tenant="A B"), "tenant", id="a tenant that is no name"),
        pytest.param(lambda r: r.get("a\x00b"), "schedule_id", id="a name that is none"),
        pytest.param(lambda r: r.page(limit=-1), "limit", id="a negative page"),
        pytest.param(lambda r: r.page(limit=2**70), "limit", id="an endless page"),
    ],
)
async def test_values_that_no_store_could_keep_are_refused(
    schedules: ScheduleService, call: Callable[..., Any], field: str
) -> None:
    with pytest.raises(FieldError) as refused:
        await call(schedules)

    assert refused.value.field == field


async def test_registering_twice_changes_nothing(schedules: ScheduleService, store: MemoryStore) -> None:
    await schedules.upsert(BILLING, actor="ada")
    before = await store.schedules.find("default", "billing")

    await schedules.upsert(BILLING, actor="eve")

    assert await store.schedules.find("default", "billing") == before


async def test_a_change_is_a_new_revision_with_its_author(schedules: ScheduleService, store: MemoryStore) -> None:
    await schedules.upsert(BILLING, actor="ada")
    uid = (await schedules.get("billing")).schedule.uid

    await schedules.upsert(BILLING | {"overlap": "allow"}, actor="eve")

    kept = await store.history.revisions(uid)
    assert [(r.revision, r.actor, r.tzdata) for r in kept] == [(1, "ada", "2026b"), (2, "eve", "2026b")]


@pytest.mark.guarantee("S1")
async def test_a_change_decides_what_was_due_under_the_old_spec(
    schedules: ScheduleService, clock: VirtualClock
) -> None:
    await schedules.upsert(BILLING, actor="ada")
    clock.advance(MINUTE + 500)

    await schedules.upsert(BILLING | {"schedule": "0 0 * * *"}, actor="ada")

    [tick] = await ticks_of(schedules)
    assert (tick.decision.planned_at, tick.decision.kind, tick.revision) == (NOON + MINUTE, TickKind.FIRED, 1)


async def test_a_change_to_a_denser_schedule_makes_up_for_nothing(
    schedules: ScheduleService, clock: VirtualClock
) -> None:
    await schedules.upsert(BILLING | {"schedule": "0 0 1 1 *", "catchup": "all"}, actor="ada")
    clock.advance(HOUR)

    await schedules.upsert(BILLING | {"catchup": "all"}, actor="ada")

    view = await schedules.get("billing")
    assert (view.last_ticks, view.schedule.next_fire_at) == ((), NOON + HOUR + MINUTE)


async def test_a_change_decides_all_that_was_due_even_beyond_the_cap(
    schedules: ScheduleService, clock: VirtualClock
) -> None:
    await schedules.upsert(BILLING | {"catchup": "all", "overlap": "allow"}, actor="ada")
    clock.advance(250 * MINUTE)

    await schedules.upsert(BILLING | {"schedule": "0 0 * * *"}, actor="ada")

    assert len(await ticks_of(schedules)) == 250


@pytest.mark.guarantee("S11")
async def test_a_paused_schedule_has_no_next_fire(schedules: ScheduleService) -> None:
    await schedules.upsert(BILLING, actor="ada")

    await schedules.pause("billing", actor="ada")

    assert (await schedules.get("billing")).schedule.next_fire_at is None


async def test_an_upsert_never_resumes_what_an_operator_paused(schedules: ScheduleService) -> None:
    await schedules.upsert(BILLING, actor="ada")
    await schedules.pause("billing", actor="ada")

    await schedules.upsert(BILLING | {"overlap": "allow"}, actor="deploy")

    schedule = (await schedules.get("billing")).schedule
    assert (schedule.paused_at, schedule.next_fire_at, schedule.spec.overlap) == (NOON, None, Overlap.ALLOW)


@pytest.mark.guarantee("S11")
async def test_resuming_writes_down_what_the_pause_swallowed(schedules: ScheduleService, clock: VirtualClock) -> None:
    await schedules.upsert(BILLING | {"catchup": "all"}, actor="ada")
    await schedules.pause("billing", actor="ada")
    clock.advance(90 * MINUTE)

    await schedules.resume("billing", actor="ada")

    [tick] = await ticks_of(schedules)
    assert (tick.decision.kind, tick.decision.reason, tick.decision.count) == (TickKind.SKIPPED, Reason.PAUSED, 90)
    assert (await schedules.get("billing")).schedule.next_fire_at == NOON + 91 * MINUTE


async def test_an_edit_during_a_pause_keeps_the_ticks_of_both_specs_apart(
    schedules: ScheduleService, clock: VirtualClock
) -> None:
    await schedules.upsert(BILLING, actor="ada")
    await schedules.pause("billing", actor="ada")
    clock.advance(10 * MINUTE)
    await schedules.upsert(BILLING | {"schedule": "*/2 * * * *"}, actor="ada")
    clock.advance(10 * MINUTE)

    await schedules.resume("billing", actor="ada")

    assert [(t.revision, t.decision.count) for t in await ticks_of(schedules)] == [(2, 5), (1, 10)]


@pytest.mark.parametrize("times", [1, 2])
async def test_pausing_and_resuming_twice_is_doing_it_once(
    schedules: ScheduleService, store: MemoryStore, times: int
) -> None:
    await schedules.upsert(BILLING, actor="ada")
    for _ in range(times):
        await schedules.pause("billing", actor="ada")
    for _ in range(times):
        await schedules.resume("billing", actor="ada")

    assert len(await store.history.pauses((await schedules.get("billing")).schedule.uid)) == 1


async def test_a_deleted_schedule_is_gone_and_its_name_is_free(schedules: ScheduleService) -> None:
    await schedules.upsert(BILLING, actor="ada")
    old = (await schedules.get("billing")).schedule.uid

    await schedules.delete("billing", actor="ada")

    with pytest.raises(NotFound):
        await schedules.get("billing")
    await schedules.upsert(BILLING, actor="ada")
    assert (await schedules.get("billing")).schedule.uid != old


@pytest.mark.parametrize("act", ["pause", "resume", "delete", "get"])
async def test_a_missing_schedule_cannot_be_changed(schedules: ScheduleService, act: str) -> None:
    arguments = {} if act == "get" else {"actor": "ada"}
    with pytest.raises(NotFound, match="no schedule 'nothing'"):
        await getattr(schedules, act)("nothing", **arguments)


@pytest.mark.req("C-03", "C-14", "H-25")
async def test_a_look_shows_the_next_five_runs(schedules: ScheduleService) -> None:
    await schedules.upsert(BILLING, actor="ada")

    assert (await schedules.get("billing")).next_runs == tuple(NOON + minute * MINUTE for minute in range(1, 6))


@pytest.mark.parametrize("later", [0, 30_000, 5 * MINUTE, 2 * HOUR])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, id="every minute"),
        pytest.param({"schedule": "0 3 29 2 *"}, id="in two years"),
        pytest.param({"jitter_ms": 20_000}, id="with jitter"),
        pytest.param({"start_at": NOON + 30 * MINUTE}, id="from later on"),
        pytest.param({"end_at": NOON + MINUTE}, id="that is over before it begins"),
    ],
)
@pytest.mark.parametrize("act", ["", "pause", "skip"])
async def test_the_next_run_is_the_first_of_the_next_runs(
    schedules: ScheduleService, clock: VirtualClock, change: dict[str, Any], later: int, act: str
) -> None:
    await schedules.upsert({**BILLING, **change}, actor="ada")
    coming = (await schedules.get("billing")).next_runs
    if act == "pause":
        await schedules.pause("billing", actor="ada")
    if act == "skip" and coming:
        await schedules.skip("billing", coming[0], actor="ada")

    clock.advance(later)

    one, two = await schedules.get("billing", coming=1), await schedules.get("billing", coming=2)
    assert one.next_runs == two.next_runs[:1]


@pytest.mark.req("C-15")
@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"timezone": "Mars/Olympus"}, "timezone", id="an unknown zone"),
        pytest.param({"schedule": "61 * * * *"}, "minute", id="bad cron"),
        pytest.param({"schedule": "0 0 31 2 *"}, "expression", id="never fires"),
        pytest.param({"schedule": 5}, "schedule", id="a schedule that is a number"),
        pytest.param({"start_at": NOON, "end_at": NOON}, "end_at", id="an end that is not after the start"),
        pytest.param({"start_at": "2026-03-03"}, "start_at", id="an instant without a zone"),
        pytest.param({"start_at": "soon"}, "start_at", id="no instant"),
        pytest.param({"start_at": True}, "start_at", id="a truth is no instant"),
        pytest.param({"start_at": 10**30}, "start_at", id="an instant off the calendar"),
        pytest.param({"start_at": float("nan")}, "start_at", id="not a number at all"),
        pytest.param({"user_id": "ada\x00"}, "user_id", id="a NUL in a text"),
        pytest.param({"user_id": "\ud800"}, "user_id", id="half a character"),
        pytest.param({"jitter_ms": 10**30}, "jitter_ms", id="more jitter than there is time"),
        pytest.param({5: 5}, "5", id="a key that is a number"),
        pytest.param({"jitter_ms": -1}, "jitter_ms", id="negative jitter"),
        pytest.param({"jitter_ms": 1.5}, "jitter_ms", id="broken jitter"),
        pytest.param({"jitter_ms": True}, "jitter_ms", id="a truth is no number"),
        pytest.param({"overlap": "sometimes"}, "overlap", id="an unknown overlap policy"),
        pytest.param({"catchup": ["all"]}, "catchup", id="a policy that is a list"),
        pytest.param({"dst": {"gap": "shift"}}, "dst.gap", id="an unknown choice"),
        pytest.param({"dst": {"gaps": "skip"}}, "dst.gaps", id="an unknown key of a choice"),
        pytest.param({"dst": "skip"}, "dst", id="a choice that is no mapping"),
        pytest.param({"schedule_id": "Billing Run"}, "schedule_id", id="a name outside the grammar"),
        pytest.param({"schedule_id": "../x"}, "schedule_id", id="a name that is a path"),
        pytest.param({"schedule_id": "a" * 129}, "schedule_id", id="a name that is too long"),
        pytest.param({"workflow_id": ""}, "workflow_id", id="no workflow"),
        pytest.param({"workflow_version": 2**31}, "workflow_version", id="more versions than a column holds"),
        pytest.param({"workflow_version": 0}, "workflow_version", id="no version"),
        pytest.param({"user_id": "x" * 10_000_000}, "user_id", id="ten megabytes"),
        pytest.param({"overlap_policy": "skip", "overlap": "skip"}, "overlap", id="a field said twice"),
        pytest.param({"jiter_ms": 5}, "jiter_ms", id="a misspelt field"),
        pytest.param({"tenant": "other"}, "tenant", id="a field that is not the caller's"),
    ],
)
async def test_bad_input_names_its_field_and_changes_nothing(
    schedules: ScheduleService, store: MemoryStore, change: dict[Any, Any], field: str
) -> None:
    with pytest.raises((FieldError, CronError)) as refused:
        await schedules.upsert_all([BILLING | {"schedule_id": "good"}, BILLING | change], actor="ada")

    assert getattr(refused.value, "field", None) == field
    assert await store.schedules.page("default", after="", limit=10) == []


async def test_a_misspelt_field_suggests_the_right_one(schedules: ScheduleService) -> None:
    with pytest.raises(FieldError, match="did you mean jitter_ms"):
        await schedules.upsert(BILLING | {"jiter_ms": 5}, actor="ada")


async def test_one_name_twice_in_one_file_is_refused(schedules: ScheduleService, store: MemoryStore) -> None:
    with pytest.raises(FieldError, match="named twice"):
        await schedules.upsert_all([BILLING, BILLING], actor="ada")

    assert await store.schedules.page("default", after="", limit=10) == []


async def test_many_are_registered_together(schedules: ScheduleService) -> None:
    requests = [BILLING | {"schedule_id": f"s{i:04}"} for i in range(2500)]

    answers = await schedules.upsert_all(requests, actor="ada")

    assert len(answers) == 2500
    assert [s.schedule_id for s in await schedules.page(after="s2497")] == ["s2498", "s2499"]


# ---- exceptions ----------------------------------------------------------------------------------


async def test_a_coming_tick_is_skipped_and_the_others_are_not(schedules: ScheduleService, clock: VirtualClock) -> None:
    await schedules.upsert(BILLING, actor="ada")

    await schedules.skip("billing", NOON + 2 * MINUTE, actor="eve")

    seen = await schedules.get("billing", coming=2)
    assert seen.next_runs == (NOON + MINUTE, NOON + 3 * MINUTE)
    assert seen.schedule.revision == 2
    clock.advance(2 * MINUTE + 30_000)
    await schedules.pause("billing", actor="ada")
    assert [(t.decision.kind, t.decision.reason) for t in await ticks_of(schedules)] == [
        (TickKind.SKIPPED, Reason.SKIPPED_ONCE),
        (TickKind.MISSED, Reason.CATCHUP_NONE),
    ]


async def test_a_tick_is_moved_and_moved_back(schedules: ScheduleService) -> None:
    await schedules.upsert(BILLING, actor="ada")

    await schedules.skip("billing", NOON + MINUTE, move_to=NOON + 90_000, actor="eve")
    moved = (await schedules.get("billing", coming=2)).next_runs
    await schedules.undo_skip("billing", NOON + MINUTE, actor="eve")

    assert moved == (NOON + 90_000, NOON + 2 * MINUTE)
    assert (await schedules.get("billing", coming=2)).next_runs == (NOON + MINUTE, NOON + 2 * MINUTE)


async def test_registering_again_keeps_exceptions_and_changes_nothing(schedules: ScheduleService) -> None:
    await schedules.upsert(BILLING, actor="ada")
    await schedules.skip("billing", NOON + MINUTE, actor="eve")

    answer = await schedules.upsert(BILLING, actor="ada")

    assert answer.next_run_at == NOON + 2 * MINUTE
    assert (await schedules.get("billing")).schedule.revision == 2


async def test_an_exception_that_is_refused_changes_nothing(schedules: ScheduleService) -> None:
    await schedules.upsert(BILLING, actor="ada")

    with pytest.raises(FieldError, match="is no planned time"):
        await schedules.skip("billing", NOON + 1, actor="eve")

    assert (await schedules.get("billing")).schedule.revision == 1


# ---- the end of a pause --------------------------------------------------------------------------


@pytest.mark.parametrize("overlap", ["skip", "queue"])
async def test_all_that_a_pause_swallowed_can_run_one_after_the_other(
    schedules: ScheduleService, store: MemoryStore, clock: VirtualClock, overlap: str
) -> None:
    await schedules.upsert(BILLING | {"overlap": overlap, "queue_limit": 1}, actor="ada")
    await schedules.pause("billing", actor="ada")
    clock.advance(4 * MINUTE)

    done = await schedules.resume("billing", actor="ada", missed=ResumeChoice(ResumePolicy.ALL))

    assert (done.swallowed.count, done.runs) == (4, 4)
    uid = (await schedules.get("billing")).schedule.uid
    for number in range(4):
        waiting = await store.tasks.waiting(clock.now(), limit=10)
        assert [one.run.planned_at for one in waiting] == [NOON + (number + 1) * MINUTE]
        assert await finish_run(store, waiting[0].run, now=clock.now())
    schedule = (await schedules.get("billing")).schedule
    assert (schedule.uid, schedule.active_runs, schedule.queued_runs) == (uid, 0, 0)


async def test_resuming_an_active_schedule_swallowed_nothing(schedules: ScheduleService) -> None:
    await schedules.upsert(BILLING, actor="ada")

    assert await schedules.resume("billing", actor="ada", missed=ResumeChoice(ResumePolicy.ALL)) == ResumeResult(
        MissedTicks(0)
    )


async def test_a_choice_that_is_refused_leaves_the_pause_on(schedules: ScheduleService, clock: VirtualClock) -> None:
    await schedules.upsert(BILLING, actor="ada")
    await schedules.pause("billing", actor="ada")
    clock.advance(2000 * MINUTE)

    with pytest.raises(FieldError, match="2000 runs"):
        await schedules.resume("billing", actor="ada", missed=ResumeChoice(ResumePolicy.ALL))

    assert (await schedules.get("billing")).schedule.paused_at == NOON


@pytest.mark.req("C-01", "Z-14")
async def test_a_schedule_whose_only_time_is_past_the_grace_is_refused_and_within_it_is_due(
    schedules: ScheduleService, clock: VirtualClock
) -> None:
    said = {"workflow_id": "report", "schedule": instant_of(NOON - 2 * MINUTE).isoformat()}

    with pytest.raises(FieldError, match="would never run"):
        await schedules.upsert({"schedule_id": "once", **said}, actor="ada")
    with pytest.raises(NotFound):
        await schedules.get("once")

    moment_ago = instant_of(clock.now() - 1000).isoformat()
    await schedules.upsert({"schedule_id": "once", **said, "schedule": moment_ago}, actor="ada")
    assert (await schedules.get("once")).schedule.next_fire_at == clock.now() - 1000


@pytest.mark.req("C-15")
async def test_a_schedule_in_a_zone_that_the_settings_do_not_allow_is_refused(
    store: MemoryStore, clock: VirtualClock
) -> None:
    narrowed = ScheduleService(
        store.schedules, store.history, clock, CountedIds(), defaults=Defaults(zones=("UTC", "Europe/Berlin"))
    )
    said = {"schedule_id": "daily", "workflow_id": "report", "schedule": "@daily"}

    with pytest.raises(FieldError, match="not among the time zones"):
        await narrowed.upsert({**said, "timezone": "Asia/Tokyo"}, actor="ada")
    with pytest.raises(NotFound):
        await narrowed.get("daily")

    await narrowed.upsert({**said, "timezone": "Europe/Berlin"}, actor="ada")
