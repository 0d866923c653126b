"""The contract of stores for announcements: one suite, inherited by the tests of each adapter."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.announcements.model import Announcement, AnnouncementState, AnnounceMoment, AnnounceRule
from gnomon.core.ids import SHARDS
from gnomon.core.instants import instant_of
from gnomon.core.ledger.edits import paused_schedule, resumed_schedule, verdict_before_edit
from gnomon.core.ledger.plan import plan
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, RunStatus, Schedule, TickKind, TickStatus
from gnomon.core.retention import RetentionHorizons
from gnomon.core.runs.admission import AdmissionRequest, FanOut
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.prepare import prepare_task
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.core.triggers import At, OnDemand
from gnomon.ports.announcements import AnnouncementClaim, AnnouncementQuery, AnnouncementUpdate
from gnomon.ports.audit import AuditQuery
from gnomon.ports.maintenance import FIRST_OPEN_RUN, HISTORY_START, RetentionKind
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from support.task_steps import completion_of, runs_of, take_task, workflow

ALL = tuple(AnnounceMoment)
END = 1 << 60


def rule(channel: str = "ops", **fields: Any) -> AnnounceRule:  # noqa: ANN401
    return AnnounceRule(**{"channel": channel, "to": "C1", **fields})


def request(holder: str = "a", **fields: Any) -> AnnouncementClaim:  # noqa: ANN401
    return AnnouncementClaim(**{"holder": holder, "limit": 10, "per_channel": 10, "claim_ms": MINUTE, **fields})


class AnnouncementContract:
    """Tests for any store. `store` is a fresh one, `advance` moves the clock that decides when claims end."""

    async def announced_job(
        self,
        store: Store,
        *rules: AnnounceRule,
        tenant: str = "default",
        name: str = "report",
        **spec: Any,  # noqa: ANN401
    ) -> Schedule:
        """A job that announces by these rules."""
        made = minutely(name, tenant=tenant, **{"trigger": OnDemand(), "overlap": Overlap.ALLOW, **spec})
        nothing_due = {} if "trigger" in spec else {"next_fire_at": None}
        made = replace(made, spec=replace(made.spec, workflow_id=name), **nothing_due)
        definition = workflow(name, announce=rules, tenant=tenant)
        changes = JobChangeset(workflows=[definition], added=[made])
        assert await store.jobs.apply(changes, now=NOON, actor="ada", tzdata="")
        return made

    async def begin_announced(self, store: Store, job: Schedule, name: str, *, now: int = NOON) -> Run:
        run = new_requested_run(RunId(f"run_{name}"), job, source=RunSource.MANUAL, now=now)
        await store.runs.launch([LaunchRequest(run=run, first_steps=job.spec.first_steps)], now=now)
        return run

    async def end_announced(self, store: Store, run: Run, result: Result, *, now: int = NOON, **reported: Any) -> None:  # noqa: ANN401
        definition = await store.jobs.workflow(run.tenant, run.workflow_id)
        taken = await take_task(store, "worker", run, now=now)
        assert await store.attempts.report([completion_of(taken, result, now=now, definition=definition, **reported)])

    async def announced_run(
        self, store: Store, job: Schedule, name: str, result: Result = Result.SUCCEEDED, *, now: int = NOON
    ) -> Run:
        """A run of the job that has ended so."""
        run = await self.begin_announced(store, job, name, now=now)
        error = None if result is Result.SUCCEEDED else "disk full"
        await self.end_announced(store, run, result, now=now, error=error)
        return run

    async def all_announcements(self, store: Store, **query: Any) -> list[Announcement]:  # noqa: ANN401
        """All announcements, oldest first."""
        return list(reversed(await store.announcements.page(AnnouncementQuery(**query))))

    async def how_it_ended(self, store: Store, run: Run) -> tuple[RunStatus, str | None]:
        found = await store.executions.find_run(run.run_id)
        assert found is not None
        return found.status, found.error

    async def close_announcement(
        self, store: Store, one: Announcement, state: AnnouncementState, note: str | None = None
    ) -> None:
        """The claimed announcement is over."""
        over = replace(one, state=state, ended_at=NOON, note=note)
        assert await store.announcement_queue.update([AnnouncementUpdate(announcement=over)], now=NOON)

    # ---- writing -------------------------------------------------------------------------------

    @pytest.mark.req("Z-07")
    async def test_the_end_of_a_run_is_announced_in_its_transaction_as_its_job_asks(self, store: Store) -> None:
        job = await self.announced_job(
            store,
            rule(on=(AnnounceMoment.FAILURE,), text="${error}"),
            rule("all", on=ALL, best_effort=True),
            rule("good", on=(AnnounceMoment.SUCCESS,)),
        )

        failed = await self.announced_run(store, job, "a", Result.FAILED)
        good = await self.announced_run(store, job, "b", now=NOON + 1)

        found = [(one.run_id, one.channel, one.moment) for one in await self.all_announcements(store)]
        assert found == [
            (failed.run_id, "ops", AnnounceMoment.FAILURE),
            (failed.run_id, "all", AnnounceMoment.FAILURE),
            (good.run_id, "all", AnnounceMoment.RECOVERY),
            (good.run_id, "good", AnnounceMoment.SUCCESS),
        ]
        [first, *_] = await self.all_announcements(store)
        assert first.template == "${error}"
        assert first.facts.error == "disk full"
        assert (first.recipient, first.tenant, first.job) == ("C1", "default", "report")
        assert await self.how_it_ended(store, failed) == (RunStatus.FAILED, "disk full")

    async def test_a_cancelled_run_is_not_announced_and_counts_neither_as_failure_nor_as_success(
        self, store: Store
    ) -> None:
        job = await self.announced_job(store, rule(on=ALL, after=2))
        await self.announced_run(store, job, "a", Result.FAILED)
        stopped = await self.begin_announced(store, job, "b")
        await store.runs.cancel(stopped.run_id, reason="enough", now=NOON)
        await self.announced_run(store, job, "c", Result.FAILED)

        assert [one.run_id for one in await self.all_announcements(store)] == ["run_c"]

    async def test_failures_are_announced_from_the_chosen_one_in_a_row_on_and_then_the_recovery(
        self, store: Store
    ) -> None:
        job = await self.announced_job(store, rule(on=(AnnounceMoment.FAILURE, AnnounceMoment.RECOVERY), after=3))
        ends = [Result.FAILED, Result.FAILED, Result.SUCCEEDED, *[Result.FAILED] * 4, *[Result.SUCCEEDED] * 2]
        for number, result in enumerate(ends):
            await self.announced_run(store, job, f"{number}", result, now=NOON + number)

        found = [(one.run_id, one.moment.value, one.facts.failures) for one in await self.all_announcements(store)]

        assert found == [("run_5", "failure", 3), ("run_6", "failure", 4), ("run_7", "recovery", 4)]

    async def test_the_end_of_a_graph_and_of_a_run_without_a_job_is_announced(self, store: Store) -> None:
        steps = (Step(name="first", function="f"), Step(name="second", function="f", depends_on=("first",)))
        graph = Workflow(workflow_id="graph", version=1, steps=steps, announce=(rule(on=ALL, after=2),))
        assert await store.jobs.apply(JobChangeset(workflows=[graph]), now=NOON, actor="ada", tzdata="")
        for name in ("a", "b"):
            run = Run(
                run_id=RunId(f"run_{name}"), tenant="default", schedule_uid=None, schedule_id=None,
                workflow_id="graph", workflow_version=1, user_id="ada", source=RunSource.API, status=RunStatus.PENDING,
                queued=False, planned_at=NOON, fire_at=NOON, created_at=NOON,
            )  # fmt: skip
            await store.runs.launch([LaunchRequest(run=run, first_steps=("first",))], now=NOON)
            await self.end_announced(store, run, Result.FAILED, error="disk full")

        [reported] = await self.all_announcements(store)
        assert (reported.run_id, reported.job, reported.facts.error) == ("run_b", "graph", "step first: disk full")

    @pytest.mark.req("Z-07")
    async def test_missed_and_skipped_ticks_are_announced_in_the_transaction_that_decides_them(
        self, store: Store
    ) -> None:
        job = minutely(overlap=Overlap.SKIP)
        definition = workflow(announce=(rule(on=(AnnounceMoment.MISSED, AnnounceMoment.SKIPPED)),))
        silent = minutely("silent", overlap=Overlap.SKIP, workflow_id="silent")
        changes = JobChangeset(workflows=[definition, workflow("silent")], added=[job, silent])
        assert await store.jobs.apply(changes, now=NOON, actor="ada", tzdata="")
        terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS)
        for minutes in (1, 2, 10):
            at = NOON + minutes * MINUTE
            for name in ("report", "silent"):
                current = await store.schedules.find("default", name)
                assert current is not None
                verdict = plan(current, now=at)
                assert await store.ledger.decide([verdict], now=at, terms=terms)

        found = [
            (one.moment.value, one.planned_at, one.facts.reason, one.facts.count, one.run_id)
            for one in await self.all_announcements(store)
        ]

        assert found == [
            ("skipped", NOON + 2 * MINUTE, "overlap", 1, None),
            ("missed", NOON + 3 * MINUTE, "catchup_none", 6, None),
            ("skipped", NOON + 10 * MINUTE, "overlap", 1, None),
        ]
        assert {one.job for one in await self.all_announcements(store)} == {"report"}

    async def test_a_pause_is_not_announced(self, store: Store) -> None:
        job = minutely()
        definition = workflow(announce=(rule(on=ALL),))
        assert await store.jobs.apply(
            JobChangeset(workflows=[definition], added=[job]), now=NOON, actor="ada", tzdata=""
        )
        verdict = verdict_before_edit(job, now=NOON)
        assert await store.schedules.change(verdict, paused_schedule(verdict, now=NOON), now=NOON, actor="a", tzdata="")
        paused = await store.schedules.find("default", "report")
        assert paused is not None
        verdict = verdict_before_edit(paused, now=NOON + HOUR)
        resumed = resumed_schedule(verdict, now=NOON + HOUR)
        assert any(tick.kind is TickKind.SKIPPED for tick in verdict.decisions)
        assert await store.schedules.change(verdict, resumed, now=NOON + HOUR, actor="a", tzdata="")

        assert await self.all_announcements(store) == []

    # ---- runs that wait ------------------------------------------------------------------------

    @pytest.mark.req("Z-07")
    @pytest.mark.parametrize(
        ("result", "end", "expected"),
        [
            (Result.SUCCEEDED, AnnouncementState.SENT, (RunStatus.COMPLETED, None)),
            (Result.SUCCEEDED, AnnouncementState.SILENT, (RunStatus.COMPLETED, None)),
            (Result.SUCCEEDED, AnnouncementState.GIVEN_UP, (RunStatus.FAILED, "not announced to ops: no such channel")),
            (Result.FAILED, AnnouncementState.SENT, (RunStatus.FAILED, "disk full")),
            (Result.FAILED, AnnouncementState.GIVEN_UP, (RunStatus.FAILED, "disk full")),
        ],
    )
    async def test_a_run_is_over_when_it_is_announced_or_given_up(
        self, store: Store, result: Result, end: AnnouncementState, expected: tuple[RunStatus, str | None]
    ) -> None:
        job = await self.announced_job(store, rule(best_effort=False), rule("other"), overlap=Overlap.QUEUE)
        run = await self.announced_run(store, job, "a", result)
        behind = await self.begin_announced(store, job, "b")
        other, reported = sorted(await store.announcement_queue.claim(request()), key=lambda one: one.best_effort)[::-1]
        await self.close_announcement(store, other, AnnouncementState.SENT)
        assert await self.how_it_ended(store, run) == (RunStatus.RUNNING, None)

        await self.close_announcement(store, reported, end, "no such channel")

        assert await self.how_it_ended(store, run) == expected
        found = await store.executions.find_run(behind.run_id)
        assert found is not None
        assert not found.queued
        assert [task.attempts + task.fence for task in await store.history.tasks([run])] == [
            1 if result is Result.SUCCEEDED else 2
        ]

    async def test_a_run_that_waits_for_several_ends_with_the_last_and_fails_if_one_is_given_up(
        self, store: Store
    ) -> None:
        job = await self.announced_job(store, rule("a", best_effort=False), rule("b", best_effort=False))
        run = await self.announced_run(store, job, "a")
        first, second = await store.announcement_queue.claim(request())

        await self.close_announcement(store, first, AnnouncementState.GIVEN_UP, "gone")
        assert (await self.how_it_ended(store, run))[0] is RunStatus.RUNNING
        await self.close_announcement(store, second, AnnouncementState.SENT)

        assert await self.how_it_ended(store, run) == (RunStatus.FAILED, "not announced to a: gone")

    async def test_a_run_that_waits_for_its_announcement_is_not_stuck_and_can_be_cancelled(self, store: Store) -> None:
        job = await self.announced_job(store, rule(best_effort=False))
        run = await self.announced_run(store, job, "a")
        page = await store.invariants.stuck_runs(before_at=END, after=FIRST_OPEN_RUN, limit=10)
        assert page.runs == {}
        assert await store.invariants.repair_runs([run.run_id], now=NOON) == []

        await store.runs.cancel(run.run_id, reason="enough", now=NOON)

        assert (await self.how_it_ended(store, run))[0] is RunStatus.CANCELLED
        [reported] = await store.announcement_queue.claim(request())
        await self.close_announcement(store, reported, AnnouncementState.SENT)
        assert (await self.how_it_ended(store, run))[0] is RunStatus.CANCELLED

    @pytest.mark.req("Z-07", "Z-08")
    @pytest.mark.parametrize("end", [AnnouncementState.SENT, AnnouncementState.GIVEN_UP])
    async def test_a_one_shot_is_disabled_if_it_is_not_announced(self, store: Store, end: AnnouncementState) -> None:
        once = At(instant_of(NOON + MINUTE))
        job = await self.announced_job(store, rule(best_effort=False), trigger=once, delete_after_run=True)
        terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS)
        at = NOON + MINUTE
        assert await store.ledger.decide([plan(job, now=at)], now=at, terms=terms)
        [run] = await runs_of(store, job)
        await self.end_announced(store, run, Result.SUCCEEDED, now=at)
        assert await store.schedules.find("default", "report") is not None

        [reported] = await store.announcement_queue.claim(request())
        await self.close_announcement(store, reported, end, "gone")

        left = await store.schedules.find("default", "report")
        if end is AnnouncementState.SENT:
            assert left is None
        else:
            assert left is not None
            assert left.paused_at is not None
            [tick] = await store.history.ticks(job.uid, before=END, limit=10)
            assert tick.status is TickStatus.FAILED

    async def test_a_step_continues_when_the_run_that_it_waits_for_is_announced(self, store: Store) -> None:
        inner = workflow("inner", announce=(rule(best_effort=False),))
        caller = Workflow(workflow_id="caller", version=1, steps=(Step(name="sub", workflow="inner"),))
        outer = minutely("caller", trigger=OnDemand(), workflow_id="caller", first_steps=("sub",))
        changes = JobChangeset(workflows=[inner, caller], added=[outer])
        assert await store.jobs.apply(changes, now=NOON, actor="ada", tzdata="")
        run = await self.begin_announced(store, outer, "a")
        [waiting] = await store.tasks.waiting(NOON, limit=10)
        made = prepare_task(
            AdmissionRequest(waiting=waiting, workflow=caller, step=caller.steps[0], input={}), {}, inner, now=NOON
        )
        assert isinstance(made, FanOut)
        await store.tasks.fan_out([made], now=NOON)
        found = await store.executions.find_by_prefix("default", "run_", limit=10)
        [below] = [one for one in found if one.parent_task]
        await self.end_announced(store, below, Result.SUCCEEDED)
        assert (await self.how_it_ended(store, run))[0] is RunStatus.RUNNING

        [reported] = await store.announcement_queue.claim(request())
        await self.close_announcement(store, reported, AnnouncementState.SENT)

        assert (await self.how_it_ended(store, run))[0] is RunStatus.COMPLETED

    # ---- sending -------------------------------------------------------------------------------

    async def test_an_announcement_has_one_holder_until_its_claim_ends(
        self, store: Store, advance: Callable[[int], None]
    ) -> None:
        job = await self.announced_job(store, rule())
        await self.announced_run(store, job, "a")
        queue = store.announcement_queue
        [mine] = await queue.claim(request("a", claim_ms=MINUTE))
        assert mine.fence == 1
        assert await queue.claim(request("b")) == []

        assert await queue.update(
            [AnnouncementUpdate(announcement=replace(mine, parts_sent=1), claim_ms=2 * MINUTE)], now=NOON
        )
        advance(MINUTE + 1)
        assert await queue.claim(request("b")) == []
        advance(MINUTE)
        [theirs] = await queue.claim(request("b"))

        assert (theirs.fence, theirs.parts_sent) == (2, 1)
        late = replace(mine, parts_sent=2)
        assert not await queue.update([AnnouncementUpdate(announcement=late, claim_ms=MINUTE)], now=NOON)
        await self.close_announcement(store, theirs, AnnouncementState.SENT)
        again = replace(theirs, parts_sent=9)
        assert not await queue.update([AnnouncementUpdate(announcement=again)], now=NOON)
        [reported] = await self.all_announcements(store)
        assert (reported.state, reported.parts_sent) == (AnnouncementState.SENT, 1)
        assert await queue.next_at() is None

    async def test_an_announcement_that_is_to_be_tried_again_waits_and_so_do_the_later_ones_of_its_job(
        self, store: Store
    ) -> None:
        one, other = await self.announced_job(store, rule()), await self.announced_job(store, rule(), name="other")
        await self.announced_run(store, one, "a")
        queue = store.announcement_queue
        [first] = await queue.claim(request())
        later = await store.now() + HOUR
        again = replace(first, tries=1, next_at=later, note="answered 500")
        await queue.update([AnnouncementUpdate(announcement=again)], now=NOON)
        await self.announced_run(store, one, "b", now=NOON + 1)
        await self.announced_run(store, other, "c", now=NOON + 2)

        assert [reported.run_id for reported in await queue.claim(request())] == ["run_c"]
        assert await queue.next_at() == NOON + 1

    async def test_tenants_and_channels_take_turns_and_a_channel_can_be_left_out(self, store: Store) -> None:
        jobs = [
            await self.announced_job(store, rule("ops"), rule("dead"), tenant=tenant, name="report")
            for tenant in ("default", "second")
        ]
        for number in range(6):
            await self.announced_run(store, jobs[0], f"a{number}", now=NOON + number)
        await self.announced_run(store, jobs[1], "b", now=NOON + 100)
        queue = store.announcement_queue

        first = await queue.claim(request(limit=4, per_channel=3))

        assert [(one.tenant, one.channel) for one in first].count(("second", "ops")) == 1
        assert [(one.tenant, one.channel) for one in first].count(("second", "dead")) == 1
        assert len(first) == 4
        assert {one.channel for one in await queue.claim(request(limit=9, without={"dead"}))} == {"ops"}
        assert (await store.stats.read(NOON, overdue_before=NOON, max_jobs=0)).unannounced == 14

    async def test_announcements_that_wait_for_too_long_are_given_up_but_for_those_in_hand(self, store: Store) -> None:
        job = await self.announced_job(store, rule(best_effort=False), rule("other"))
        first = await self.announced_run(store, job, "a")
        second = await self.announced_run(store, job, "b", now=NOON + HOUR)
        queue = store.announcement_queue
        [held, _] = await queue.claim(request(limit=2))
        assert held.channel == "ops"

        gone = await queue.give_up_stale("ops", since_before=NOON + 1, note="old", limit=10, now=NOON + HOUR)
        assert gone == []
        await queue.update([AnnouncementUpdate(announcement=held)], now=NOON)
        gone = await queue.give_up_stale("ops", since_before=NOON + 1, note="old", limit=10, now=NOON + HOUR)

        assert gone == [held.announcement_id]
        assert await self.how_it_ended(store, first) == (RunStatus.FAILED, "not announced to ops: old")
        assert (await self.how_it_ended(store, second))[0] is RunStatus.RUNNING
        assert not await queue.update([AnnouncementUpdate(announcement=held)], now=NOON)

    # ---- reading -------------------------------------------------------------------------------

    async def test_announcements_are_found_by_id_run_job_state_and_page(self, store: Store) -> None:
        job, other = await self.announced_job(store, rule()), await self.announced_job(store, rule(), name="other")
        await self.announced_run(store, job, "a")
        await self.announced_run(store, job, "b", now=NOON + 1)
        await self.announced_run(store, other, "c", now=NOON + 2)
        first, second, third = await self.all_announcements(store)

        assert await store.announcements.find("default", first.announcement_id) == first
        assert await store.announcements.find("second", first.announcement_id) is None
        assert await self.all_announcements(store, job="report") == [first, second]
        assert await self.all_announcements(store, limit=1) == [third]
        place = third.created_at, third.announcement_id
        assert await self.all_announcements(store, after=place) == [first, second]
        assert await self.all_announcements(store, tenant="second") == []
        found = await store.announcements.find_by_prefix("default", "ann_a", limit=10)
        assert list(found) == [first]
        assert await store.announcements.find_by_prefix("second", "ann_", limit=10) == []
        of_runs = await store.announcements.of_runs([RunId("run_a"), RunId("run_x")])
        assert {run: list(some) for run, some in of_runs.items()} == {"run_a": [first]}
        [held, *_] = await store.announcement_queue.claim(request())
        await self.close_announcement(store, held, AnnouncementState.SENT)
        assert [one.announcement_id for one in await self.all_announcements(store, state=AnnouncementState.SENT)] == [
            held.announcement_id
        ]

    async def test_an_announcement_that_was_given_up_is_tried_again_from_where_it_stopped(self, store: Store) -> None:
        job = await self.announced_job(store, rule(best_effort=False))
        run = await self.announced_run(store, job, "a")
        [held] = await store.announcement_queue.claim(request())
        name, retry = held.announcement_id, store.announcements.retry
        assert not await retry("default", name, actor="ada", now=NOON)
        half = replace(held, parts_sent=2, tries=7)
        await self.close_announcement(store, half, AnnouncementState.GIVEN_UP, "gone")
        assert not await retry("second", name, actor="ada", now=NOON)

        assert await retry("default", name, actor="ada", now=NOON + HOUR)

        [again] = await store.announcement_queue.claim(request())
        assert (again.parts_sent, again.tries, again.since_at, again.note) == (2, 0, NOON + HOUR, None)
        await self.close_announcement(store, again, AnnouncementState.SENT)
        assert (await self.how_it_ended(store, run))[0] is RunStatus.FAILED
        entries = await store.audit.page(AuditQuery(tenant="default", kind="announcement"))
        assert [(one.entry.action, one.entry.actor, one.entry.name) for one in entries] == [("retry", "ada", name)]

    # ---- retention -----------------------------------------------------------------------------

    async def test_announcements_go_with_their_run_and_are_archived_but_not_while_they_are_pending(
        self, store: Store
    ) -> None:
        job = await self.announced_job(store, rule())
        run = await self.announced_run(store, job, "a")
        [past] = await store.retention.retained_schedules(after="", limit=10)
        kept = RetentionHorizons(runs_at=END, keys_at=END)
        assert (await store.retention.expired_runs(past, kept, after=HISTORY_START, limit=100)).names == ()
        [held] = await store.announcement_queue.claim(request())
        await self.close_announcement(store, held, AnnouncementState.SENT)

        batch = await store.retention.expired_runs(past, kept, after=HISTORY_START, limit=100)
        assert batch.names == (run.run_id,)
        [record] = [one for one in batch.records if one.table == "announcement"]
        assert record.row["announcement_id"] == held.announcement_id
        while not await store.retention.remove(batch, limit=100):
            pass

        assert await self.all_announcements(store) == []

    async def test_announcements_of_ticks_go_with_their_ticks(self, store: Store) -> None:
        job = minutely(overlap=Overlap.SKIP)
        definition = workflow(announce=(rule(on=(AnnounceMoment.MISSED,)),))
        changes = JobChangeset(workflows=[definition], added=[job])
        assert await store.jobs.apply(changes, now=NOON, actor="ada", tzdata="")
        terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS)
        at = NOON + 10 * MINUTE
        assert await store.ledger.decide([plan(job, now=at)], now=at, terms=terms)
        [reported] = await self.all_announcements(store)
        [past] = await store.retention.retained_schedules(after="", limit=10)
        kept = RetentionHorizons(runs_at=END, keys_at=END)

        batch = await store.retention.expired_ticks(past, kept, after=HISTORY_START, limit=100)

        assert batch.kind is RetentionKind.TICKS
        records = [one for one in batch.records if one.table == "announcement"]
        assert [one.row["announcement_id"] for one in records] == [reported.announcement_id]
        assert await store.retention.remove(batch, limit=100)
        assert await self.all_announcements(store) == []
