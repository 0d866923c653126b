"""The job book: a file of jobs is applied whole, once, and never undoes what an operator did."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from time import thread_time
from typing import Any

import pytest

from contracts.store import HOUR, MINUTE, NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.memory.schedules import MemoryJobs, MemorySchedules
from gnomon.core.instants import instant_of
from gnomon.core.jobs.job import Job, read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.ledger.edits import SYSTEM_ACTOR
from gnomon.core.ledger.plan import plan
from gnomon.core.model import Overlap, Reason, RunId, TickKind
from gnomon.core.triggers import Every
from gnomon.errors import Contended, FieldError, NotFound
from gnomon.ports.schedules import JobChangeset
from gnomon.services.operations.job_changes import JobChange
from gnomon.services.operations.jobs import ApplyResult, JobService
from gnomon.services.operations.schedules import ScheduleService
from gnomon.testing.clock import CountedIds, VirtualClock
from support.processor_time import slowness
from support.task_steps import runs_of, take_task

REPORT: dict[str, Any] = {"name": "report", "schedule": "* * * * *", "function": "reports.make"}


def job(clock: VirtualClock, **said: Any) -> Job:  # noqa: ANN401 - any field of a job
    return read_job(REPORT | said, Defaults(), now=clock.now())


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOON)


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock.now)


@pytest.fixture
def job_service(store: MemoryStore, clock: VirtualClock) -> JobService:
    return JobService(store.jobs, store.schedules, store.history, clock, CountedIds(), tzdata="2026b")


async def applied(job_service: JobService, *jobs: Job) -> list[ApplyResult]:
    return await job_service.apply(jobs, actor="ada")


# ---- applying ------------------------------------------------------------------------------------


@pytest.mark.req("H-04")
async def test_a_new_job_has_its_first_version_and_its_next_run(job_service: JobService, clock: VirtualClock) -> None:
    spec = job(clock).spec
    assert await applied(job_service, job(clock)) == [
        ApplyResult("report", JobChange.CREATED, 1, 1, NOON + MINUTE, spec)
    ]


@pytest.mark.req("H-04")
async def test_a_job_that_was_applied_stands_with_its_workflow(job_service: JobService, clock: VirtualClock) -> None:
    await applied(job_service, job(clock, input={"top": 3}))

    seen = await job_service.get("report")
    assert seen.workflow is not None
    assert (seen.workflow.steps[0].function, seen.workflow.input) == ("reports.make", {"top": 3})
    assert (seen.schedule.spec.workflow_id, seen.schedule.spec.workflow_version) == ("report", 1)


async def test_applying_the_same_again_changes_nothing(
    job_service: JobService, store: MemoryStore, clock: VirtualClock
) -> None:
    jobs = [job(clock, name=name, **when) for name, when in (("a", {}), ("b", {"schedule": "every 7 minutes"}))]
    await applied(job_service, *jobs)
    before = [await store.schedules.find("default", name) for name in ("a", "b")]
    clock.advance(90_000)

    again = [job(clock, name=name, **when) for name, when in (("a", {}), ("b", {"schedule": "every 7 minutes"}))]

    assert {one.change for one in await applied(job_service, *again)} == {JobChange.UNCHANGED}
    assert [await store.schedules.find("default", name) for name in ("a", "b")] == before


async def test_an_interval_that_is_said_again_keeps_its_grid(job_service: JobService, clock: VirtualClock) -> None:
    await applied(job_service, job(clock, schedule="every 7 minutes"))
    clock.advance(3 * MINUTE)

    await applied(job_service, job(clock, schedule="every 7 minutes", overlap="queue"))

    spec = (await job_service.get("report")).schedule.spec
    assert (spec.trigger, spec.overlap) == (Every(timedelta(minutes=7), instant_of(NOON)), Overlap.QUEUE)


async def test_a_changed_function_is_a_new_version_and_a_new_revision(
    job_service: JobService, clock: VirtualClock
) -> None:
    await applied(job_service, job(clock))

    [one] = await applied(job_service, job(clock, function="reports.make_better"))

    assert (one.change, one.version, one.revision) == (JobChange.CHANGED, 2, 2)
    assert (await job_service.get("report")).schedule.spec.workflow_version == 2


async def test_a_changed_schedule_keeps_the_version(job_service: JobService, clock: VirtualClock) -> None:
    await applied(job_service, job(clock))

    [one] = await applied(job_service, job(clock, schedule="@hourly"))

    assert (one.change, one.version, one.revision) == (JobChange.CHANGED, 1, 2)
    assert one.next_run_at == NOON + HOUR


async def test_a_job_that_is_created_again_continues_with_the_next_version(
    job_service: JobService, clock: VirtualClock
) -> None:
    await applied(job_service, job(clock))
    await job_service.delete("report", actor="ada")

    [one] = await applied(job_service, job(clock, function="reports.other"))

    assert (one.change, one.version, one.revision) == (JobChange.CREATED, 2, 1)


async def test_a_schedule_without_a_workflow_is_given_one(
    job_service: JobService, store: MemoryStore, clock: VirtualClock
) -> None:
    schedules = ScheduleService(store.schedules, store.history, clock, CountedIds())
    await schedules.upsert({"schedule_id": "report", "schedule": "* * * * *", "workflow_id": "report"}, actor="ada")

    [one] = await applied(job_service, job(clock))

    assert (one.change, one.version) == (JobChange.CHANGED, 1)
    assert (await job_service.get("report")).workflow is not None


async def test_an_edit_decides_what_was_due_before_it(job_service: JobService, clock: VirtualClock) -> None:
    await applied(job_service, job(clock, catchup="all", overlap="allow"))
    clock.advance(3 * MINUTE)

    await applied(job_service, job(clock, schedule="@hourly", catchup="all", overlap="allow"))

    kinds = [tick.decision.kind for tick in (await job_service.get("report")).last_ticks]
    assert kinds == [TickKind.FIRED] * 3


async def test_an_edit_decides_more_than_one_pass_may(job_service: JobService, clock: VirtualClock) -> None:
    await applied(job_service, job(clock, catchup="all", overlap="allow"))
    clock.advance(5 * HOUR)

    [one] = await applied(job_service, job(clock, schedule="@hourly"))

    assert one.change is JobChange.CHANGED
    assert len((await job_service.get("report", last=1000)).last_ticks) == 300


@pytest.mark.req("H-26")
async def test_applying_never_resumes_what_an_operator_paused(job_service: JobService, clock: VirtualClock) -> None:
    await applied(job_service, job(clock))
    await job_service.pause("report", actor="ada")

    [one] = await applied(job_service, job(clock, schedule="@hourly", enabled=True))

    assert one.next_run_at is None
    assert (await job_service.get("report")).schedule.paused_at == NOON


async def test_a_new_job_that_is_not_enabled_is_paused(
    job_service: JobService, store: MemoryStore, clock: VirtualClock
) -> None:
    [one] = await applied(job_service, job(clock, enabled=False))

    schedule = (await job_service.get("report")).schedule
    assert (one.change, one.next_run_at) == (JobChange.CREATED, None)
    assert (schedule.paused_at, schedule.next_fire_at) == (NOON, None)
    assert [pause.paused_by for pause in await store.history.pauses(schedule.uid)] == ["ada"]


async def test_a_new_job_that_is_not_enabled_is_never_due(
    job_service: JobService, store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, due = store.jobs.apply, []

    async def seen_by_a_ticker(request: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
        done = await apply(request, now=now, actor=actor, tzdata=tzdata)
        due.append(await store.ledger.next_due_at(shards=frozenset(range(256))))
        return done

    monkeypatch.setattr(store.jobs, "apply", seen_by_a_ticker)
    await applied(job_service, job(clock, enabled=False))

    assert due == [None]


async def test_a_job_that_was_not_enabled_can_be_resumed(job_service: JobService, clock: VirtualClock) -> None:
    await applied(job_service, job(clock, enabled=False))

    await job_service.resume("report", actor="ada")

    schedule = (await job_service.get("report")).schedule
    assert (schedule.paused_at, schedule.next_fire_at) == (None, NOON + MINUTE)


@pytest.mark.parametrize("change", [{}, {"schedule": "@hourly"}])
async def test_a_job_that_is_no_longer_enabled_is_paused(
    job_service: JobService, clock: VirtualClock, change: dict[str, Any]
) -> None:
    await applied(job_service, job(clock))

    [one] = await applied(job_service, job(clock, enabled=False, **change))

    assert one.change is JobChange.CHANGED
    assert (await job_service.get("report")).schedule.paused_at == NOON
    assert [one.change for one in await applied(job_service, job(clock, enabled=False, **change))] == [
        JobChange.UNCHANGED
    ]


async def test_a_job_that_only_waits_to_be_triggered_has_no_next_run(
    job_service: JobService, clock: VirtualClock
) -> None:
    made = read_job({"name": "report", "function": "reports.make"}, Defaults(), now=clock.now())

    [one] = await applied(job_service, made)

    assert one.next_run_at is None


def one_shot(clock: VirtualClock, **said: Any) -> Job:  # noqa: ANN401 - any field of a job
    once = {"at": instant_of(NOON + 30 * MINUTE).isoformat(), "delete_after_run": True}
    words = {"name": "report", "function": "reports.make", **once, **said}
    return read_job(words, Defaults(), now=clock.now())


async def test_a_one_shot_whose_time_is_to_come_is_registered(job_service: JobService, clock: VirtualClock) -> None:
    assert [one.change for one in await applied(job_service, one_shot(clock))] == [JobChange.CREATED]


async def test_a_one_shot_that_is_done_and_gone_does_not_come_back(
    job_service: JobService, clock: VirtualClock
) -> None:
    await applied(job_service, one_shot(clock))
    clock.advance(32 * MINUTE)
    await job_service.delete("report", actor="the worker")

    again = await applied(job_service, one_shot(clock))

    assert [(one.change, one.next_run_at) for one in again] == [(JobChange.FINISHED, None)]
    with pytest.raises(NotFound):
        await job_service.get("report")


@pytest.mark.req("Z-08")
@pytest.mark.parametrize(("deleted_by", "change"), [(SYSTEM_ACTOR, JobChange.FINISHED), ("ada", JobChange.CREATED)])
async def test_a_one_shot_that_has_just_run_does_not_run_twice(
    job_service: JobService, clock: VirtualClock, deleted_by: str, change: JobChange
) -> None:
    await applied(job_service, one_shot(clock))
    clock.advance(30 * MINUTE + 2000)
    await job_service.delete("report", actor=deleted_by)

    again = await applied(job_service, one_shot(clock))

    assert [one.change for one in again] == [change]


async def test_a_one_shot_that_is_past_and_has_failed_can_still_be_changed(
    job_service: JobService, clock: VirtualClock
) -> None:
    await applied(job_service, one_shot(clock))
    clock.advance(HOUR)

    again = await applied(job_service, one_shot(clock, function="reports.mended"))

    assert [one.change for one in again] == [JobChange.CHANGED]


@pytest.mark.req("H-01", "Z-08")
@pytest.mark.parametrize("said", [{"delete_after_run": True}, {"delete_after_run": False}])
async def test_a_one_shot_whose_time_is_past_within_the_grace_is_due_at_once(
    job_service: JobService, clock: VirtualClock, said: dict[str, Any]
) -> None:
    clock.advance(30 * MINUTE + 1000)

    [made] = await applied(job_service, one_shot(clock, **said))

    assert made.change is JobChange.CREATED
    assert (await job_service.get("report")).schedule.next_fire_at == NOON + 30 * MINUTE


@pytest.mark.req("Z-08", "Z-14")
@pytest.mark.parametrize("said", [{"delete_after_run": True}, {"delete_after_run": False}])
async def test_a_one_shot_whose_time_is_past_by_more_than_the_grace_is_refused(
    job_service: JobService, clock: VirtualClock, said: dict[str, Any]
) -> None:
    clock.advance(32 * MINUTE)

    with pytest.raises(FieldError, match="2 min ago, which is more than misfire_grace") as refused:
        await applied(job_service, one_shot(clock, **said))

    assert refused.value.field == "report.at"
    with pytest.raises(NotFound):
        await job_service.get("report")


async def test_a_one_shot_that_has_run_and_stays_is_applied_again_without_an_error(
    job_service: JobService, clock: VirtualClock
) -> None:
    await applied(job_service, one_shot(clock, delete_after_run=False))
    clock.advance(HOUR)

    [again] = await applied(job_service, one_shot(clock, delete_after_run=False))

    assert again.change is JobChange.UNCHANGED


@pytest.mark.req("Z-08", "Z-14")
async def test_a_one_shot_can_be_moved_to_a_time_within_the_grace_but_not_beyond(
    job_service: JobService, clock: VirtualClock
) -> None:
    await applied(job_service, one_shot(clock, delete_after_run=False))
    clock.advance(10 * MINUTE)

    with pytest.raises(FieldError, match="would never run"):
        await applied(
            job_service, one_shot(clock, delete_after_run=False, at=instant_of(NOON + 5 * MINUTE).isoformat())
        )
    moved = NOON + 10 * MINUTE - 1000
    await applied(job_service, one_shot(clock, delete_after_run=False, at=instant_of(moved).isoformat()))

    assert (await job_service.get("report")).schedule.next_fire_at == moved


async def test_others_have_a_turn_while_thousands_of_jobs_are_planned(
    job_service: JobService, clock: VirtualClock
) -> None:
    jobs = [job(clock, name=f"job-{number}") for number in range(5000)]

    async def longest_wait() -> float:
        turns = list[float]()

        async def other() -> None:
            while True:
                turns.append(thread_time())
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(other())
        await job_service.plan_changes(jobs, now=clock.now())
        turns.append(thread_time())
        beside.cancel()
        return max(after - before for before, after in pairwise(turns))

    tries = 4
    while (waited := await longest_wait()) >= 0.02 * slowness():
        tries -= 1
        assert tries, waited


async def test_two_jobs_of_one_name_are_refused(job_service: JobService, clock: VirtualClock) -> None:
    with pytest.raises(FieldError, match="'report' is the name of two jobs"):
        await applied(job_service, job(clock), job(clock))

    assert await job_service.page() == []


class RacingJobs(MemoryJobs):
    """Others are quicker a few times."""

    losses = 0

    async def apply(self, changes: JobChangeset, *, now: int, actor: str, tzdata: str) -> bool:
        if self.losses > 0:
            self.losses -= 1
            return False
        return await super().apply(changes, now=now, actor=actor, tzdata=tzdata)


async def test_a_file_is_tried_again_when_others_were_quicker(clock: VirtualClock) -> None:
    store = MemoryStore(clock.now)
    racing = RacingJobs(store.state, store.schedules)
    racing.losses = 3

    [one] = await applied(JobService(racing, store.schedules, store.history, clock, CountedIds()), job(clock))

    assert one.change is JobChange.CREATED


async def test_a_file_is_given_up_when_others_are_always_quicker(clock: VirtualClock) -> None:
    store = MemoryStore(clock.now)
    racing = RacingJobs(store.state, store.schedules)
    racing.losses = 1000

    with pytest.raises(Contended, match="report"):
        await applied(JobService(racing, store.schedules, store.history, clock, CountedIds()), job(clock))


class CountingSchedules(MemorySchedules):
    """Counts the questions about schedules."""

    questions = 0

    async def page(self, tenant: str, *, after: str, limit: int) -> Sequence[Any]:
        self.questions += 1
        return await super().page(tenant, after=after, limit=limit)


async def test_thousands_of_jobs_take_a_few_questions(clock: VirtualClock) -> None:
    store = MemoryStore(clock.now)
    counting = CountingSchedules(store.state, store.rules)
    job_service = JobService(store.jobs, counting, store.history, clock, CountedIds())
    jobs = [job(clock, name=f"job-{number}") for number in range(3000)]
    await applied(job_service, *jobs)
    counting.questions = 0

    assert {one.change for one in await applied(job_service, *jobs)} == {JobChange.UNCHANGED}
    assert counting.questions <= 4


@pytest.mark.parametrize("wanted", [["a"], ["m"], ["z"], ["b", "y"], ["a", "m", "n", "z"], ["a-", "a.1", "a_b", "a0"]])
async def test_jobs_are_found_among_others(job_service: JobService, clock: VirtualClock, wanted: list[str]) -> None:
    crowd = [chr(letter) + tail for letter in range(ord("a"), ord("z") + 1) for tail in ("", "-", ".1", "0", "_b")]
    await applied(job_service, *(job(clock, name=name) for name in crowd))

    done = await applied(job_service, *(job(clock, name=name) for name in wanted))

    assert {one.change for one in done} == {JobChange.UNCHANGED}


# ---- looking -------------------------------------------------------------------------------------


@pytest.mark.req("C-14", "H-25")
async def test_a_job_shows_its_next_five_fires_and_its_last_ticks(
    job_service: JobService, store: MemoryStore, clock: VirtualClock
) -> None:
    await applied(job_service, job(clock))
    clock.advance(MINUTE)
    await decide(store, clock)

    seen = await job_service.get("report")

    assert seen.next_runs == tuple(NOON + MINUTE * minute for minute in range(2, 7))
    assert [tick.decision.reason for tick in seen.last_ticks] == [Reason.ON_TIME]


@pytest.mark.parametrize("act", ["get", "pause", "resume", "delete"])
async def test_a_job_that_is_not_there_is_called_a_job(job_service: JobService, act: str) -> None:
    actor = {} if act == "get" else {"actor": "ada"}

    with pytest.raises(NotFound, match="there is no job 'nobody'"):
        await getattr(job_service, act)("nobody", **actor)


async def test_a_name_that_is_none_is_blamed_on_the_job(job_service: JobService) -> None:
    with pytest.raises(FieldError, match="job: 'No Name' must be"):
        await job_service.get("No Name")


async def test_jobs_are_listed_by_name_with_their_workflows(job_service: JobService, clock: VirtualClock) -> None:
    await applied(job_service, *(job(clock, name=name, function=f"do.{name}") for name in ("b", "a", "c")))
    await applied(job_service, job(clock, name="b", function="do.more"))

    seen = await job_service.page(limit=2)

    assert [view.schedule.schedule_id for view in seen] == ["a", "b"]
    assert [view.workflow and view.workflow.steps[0].function for view in seen] == ["do.a", "do.more"]
    assert [view.next_runs for view in seen] == [(NOON + MINUTE,)] * 2
    assert [view.schedule.schedule_id for view in await job_service.page(after="b")] == ["c"]


async def test_the_version_that_runs_is_shown_even_if_there_is_a_newer_one(
    job_service: JobService, store: MemoryStore, clock: VirtualClock
) -> None:
    await applied(job_service, job(clock))
    await applied(job_service, job(clock, function="reports.other"))
    schedules = ScheduleService(store.schedules, store.history, clock, CountedIds())
    pinned = {"schedule_id": "report", "schedule": "* * * * *", "workflow_id": "report", "workflow_version": 1}
    await schedules.upsert(pinned, actor="ada")

    [view] = await job_service.page()

    assert view.workflow is not None
    assert view.workflow.version == 1


@pytest.mark.req("H-25")
async def test_the_fires_of_all_jobs_come_on_one_line_of_time(job_service: JobService, clock: VirtualClock) -> None:
    await applied(
        job_service,
        job(clock, name="half", schedule="*/30 * * * *"),
        job(clock, name="hourly", schedule="@hourly"),
        job(clock, name="asleep", schedule="* * * * *", enabled=False),
        job(clock, name="over", schedule="* * * * *", end_at=instant_of(NOON + 1).isoformat()),
    )

    fires = await job_service.upcoming(after=NOON, until=NOON + 24 * HOUR, limit=4)

    assert [((fire.planned_at - NOON) // MINUTE, fire.schedule.schedule_id) for fire in fires] == [
        (30, "half"),
        (60, "half"),
        (60, "hourly"),
        (90, "half"),
    ]


async def test_the_fires_of_many_jobs_are_the_earliest_of_all(job_service: JobService, clock: VirtualClock) -> None:
    await applied(job_service, *(job(clock, name=f"job-{n}", schedule=f"{n % 60} * * * *") for n in range(1500)))

    fires = await job_service.upcoming(after=NOON, until=NOON + HOUR, limit=30)

    assert all(one.planned_at <= other.planned_at for one, other in pairwise(fires))
    assert [fire.planned_at for fire in fires] == [NOON + MINUTE] * 25 + [NOON + 2 * MINUTE] * 5


# ---- locks ---------------------------------------------------------------------------------------


async def decide(store: MemoryStore, clock: VirtualClock) -> None:
    terms = await store.shards.claim("node", ttl_ms=10_000, limit=256, by_force=True)
    due = await store.ledger.due(clock.now(), shards=frozenset(terms), limit=100)
    await store.ledger.decide([plan(one, now=clock.now()) for one in due], now=clock.now(), terms=terms)


@pytest.mark.req("H-06")
async def test_a_run_under_way_shows_as_the_lock_of_its_job(
    job_service: JobService, store: MemoryStore, clock: VirtualClock
) -> None:
    await applied(job_service, job(clock, lock=True, timeout="10m"))
    clock.advance(MINUTE)
    await decide(store, clock)
    seen = await job_service.get("report")
    [run] = await runs_of(store, seen.schedule)

    assert seen.lock is not None
    assert (seen.lock.key, seen.lock.execution_id) == ("scheduler.lock.report", run.run_id)
    assert (seen.lock.acquired_at, seen.lock.ttl_ms) == (NOON + MINUTE, 11 * MINUTE)
    assert [one.run_id for one in seen.under_way] == [run.run_id]


@pytest.mark.req("H-06")
async def test_a_lock_is_gone_with_its_run(job_service: JobService, store: MemoryStore, clock: VirtualClock) -> None:
    await applied(job_service, job(clock, lock=True))
    clock.advance(MINUTE)
    await decide(store, clock)
    [run] = await runs_of(store, (await job_service.get("report")).schedule)

    await store.runs.cancel(RunId(run.run_id), reason="enough", now=clock.now())

    seen = await job_service.get("report")
    assert (seen.lock, seen.under_way) == (None, ())


async def test_a_job_without_a_lock_shows_none(
    job_service: JobService, store: MemoryStore, clock: VirtualClock
) -> None:
    await applied(job_service, job(clock, lock=False))
    clock.advance(MINUTE)
    await decide(store, clock)
    [run] = await runs_of(store, (await job_service.get("report")).schedule)
    await take_task(store, "worker", run, now=clock.now())

    assert (await job_service.get("report")).lock is None


async def test_the_default_timeout_counts_for_a_lock_without_one(store: MemoryStore, clock: VirtualClock) -> None:
    job_service = JobService(
        store.jobs, store.schedules, store.history, clock, CountedIds(), default_timeout_ms=2 * MINUTE
    )
    await applied(job_service, job(clock, lock=True))
    clock.advance(MINUTE)
    await decide(store, clock)

    lock = (await job_service.get("report")).lock

    assert lock is not None
    assert lock.ttl_ms == 3 * MINUTE
