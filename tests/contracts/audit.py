"""The contract of stores for the audit trail: one suite, inherited by the tests of each adapter."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from contracts.backfills import backfill
from contracts.external_events import event
from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.audit import (
    GENESIS,
    AuditEntry,
    ChainHead,
    ChainProgress,
    SignedCheckpoint,
    accepted_entry,
    refused_entry,
    schedule_digest,
    verify_chain,
)
from gnomon.core.cron import Cron
from gnomon.core.ledger.edits import edited_schedule, paused_schedule, resumed_schedule, verdict_before_edit
from gnomon.core.ledger.plan import schedule_after
from gnomon.core.model import ENGINE, Overlap, Result, Run, RunId, RunSource, Schedule, TickException
from gnomon.core.model_names import model_actor
from gnomon.core.runs.launch import CancelOutcome, LaunchOutcome, LaunchRequest, new_requested_run
from gnomon.core.triggers import OnEvent
from gnomon.ports.audit import AuditQuery, Sealing, SealOutcome
from gnomon.ports.schedules import JobChangeset, ScheduleEdit
from gnomon.ports.store import Store
from support.task_steps import completion_of, finish_run, take_task, workflow

LATER = NOON + HOUR


class PlainKey:
    """Signs with a word: what a signature proves is tested with a real key."""

    kid = "plain"

    def sign(self, head: ChainHead, *, at: int) -> SignedCheckpoint:
        return SignedCheckpoint(seq=head.seq, hash=head.hash, at=at, kid=self.kid, signature="signed")

    def is_valid(self, checkpoint: SignedCheckpoint) -> bool:
        return checkpoint.signature == "signed"


class AuditContract:
    """Tests for any store. `store` is a fresh one."""

    @pytest.mark.req("Z-12")
    async def test_a_model_is_recorded_under_its_own_name_with_its_owner_beside_it(self, store: Store) -> None:
        actor = model_actor("claude", "ada for bob")
        await store.schedules.add([minutely("report")], actor=actor, tzdata="")
        long = refused_entry("GET /", "x" * 990, actor=actor, tenant="default", now=NOON)
        await store.audit.add(long)

        [refused, registered] = await store.audit.page(AuditQuery(tenant="default", actor="model:claude"))
        assert json.loads(registered.entry.details) == {"owner": "ada for bob", "revision": 1}
        assert json.loads(refused.entry.details)["owner"] == "ada for bob"
        assert await store.audit.page(AuditQuery(tenant="default", actor=actor)) == []

    async def entries(self, store: Store, **query: object) -> list[AuditEntry]:
        """The entries of the trail, oldest first."""
        found = await store.audit.page(AuditQuery(**query))  # type: ignore[arg-type]
        return [kept.entry for kept in reversed(found)]

    async def reported(self, store: Store) -> list[tuple[str, str, str, str]]:
        return [(one.actor, one.action, one.kind, one.name) for one in await self.entries(store)]

    async def job(self, store: Store, name: str = "report", overlap: Overlap = Overlap.ALLOW) -> Schedule:
        made = minutely(name, overlap=overlap)
        assert not await store.schedules.add([made], actor="ada", tzdata="")
        return made

    async def triggered(self, store: Store, job: Schedule, name: str = "a", **fields: object) -> Run:
        user = str(fields.pop("user_id", "bob"))
        run = new_requested_run(RunId(f"run_{name}"), job, source=RunSource.MANUAL, now=NOON, actor="bob", user_id=user)
        run = replace(run, replay_of=fields.pop("replay_of", None))
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",), **fields)], now=NOON)  # type: ignore[arg-type]
        return run

    async def dead_letter(self, store: Store, job: Schedule, name: str = "a") -> str:
        run = await self.triggered(store, job, name)
        taken = await take_task(store, "worker", run, now=NOON)
        definition = workflow(dead_letter=True)
        await store.attempts.report([completion_of(taken, Result.FAILED, now=NOON, definition=definition)])
        return (await store.dead_letters.page("default", unresolved=True))[0].dead_letter_id

    # ---- entries -----------------------------------------------------------------------------

    @pytest.mark.req("H-23")
    async def test_a_refused_action_is_audited_in_its_own_transaction(self, store: Store) -> None:
        entry = refused_entry("DELETE /v1/jobs/report", "needs a role", actor="eve", tenant="default", now=NOON)
        await store.audit.add(entry)

        assert await self.entries(store, action="refuse", kind="request") == [entry]

    @pytest.mark.req("H-23")
    async def test_a_registration_is_written_down(self, store: Store) -> None:
        job = await self.job(store)

        [entry] = await self.entries(store)

        assert entry == AuditEntry(
            at=NOON,
            actor="ada",
            tenant="default",
            action="register",
            kind="job",
            name="report",
            after=schedule_digest(job),
            details='{"revision":1}',
        )

    async def test_a_name_that_was_taken_is_not(self, store: Store) -> None:
        await self.job(store)

        await store.schedules.add([minutely(), minutely("other")], actor="eve", tzdata="")

        assert [(one.actor, one.name) for one in await self.entries(store)] == [("ada", "report"), ("eve", "other")]

    @pytest.mark.req("H-23")
    async def test_an_update_is_written_down_with_what_was_and_what_is(self, store: Store) -> None:
        job = await self.job(store)
        verdict = verdict_before_edit(job, now=LATER)
        after = edited_schedule(verdict, replace(job.spec, trigger=Cron("5 * * * *")), now=LATER)

        assert await store.schedules.change(verdict, after, now=LATER, actor="bob", tzdata="")

        entry = (await self.entries(store))[-1]
        assert (entry.at, entry.actor, entry.action) == (LATER, "bob", "update")
        assert (entry.before, entry.after) == (schedule_digest(job), schedule_digest(after))
        assert entry.before != entry.after

    @pytest.mark.req("H-23")
    async def test_pause_and_resume_are_written_down(self, store: Store) -> None:
        job = await self.job(store)
        verdict = verdict_before_edit(job, now=NOON + 1)
        await store.schedules.change(
            verdict, paused_schedule(verdict, now=NOON + 1), now=NOON + 1, actor="bob", tzdata=""
        )
        stopped = await store.schedules.find("default", "report")
        assert stopped is not None
        verdict = verdict_before_edit(stopped, now=LATER)
        await store.schedules.change(verdict, resumed_schedule(verdict, now=LATER), now=LATER, actor="eve", tzdata="")

        assert (await self.reported(store))[1:] == [
            ("bob", "pause", "job", "report"),
            ("eve", "resume", "job", "report"),
        ]

    @pytest.mark.req("H-23")
    async def test_a_deletion_is_written_down(self, store: Store) -> None:
        job = await self.job(store)

        assert await store.schedules.delete(verdict_before_edit(job, now=LATER), now=LATER, actor="bob")

        entry = (await self.entries(store))[-1]
        assert (entry.action, entry.before, entry.after) == ("delete", schedule_digest(job), None)

    async def test_a_change_that_came_too_late_is_not(self, store: Store) -> None:
        job = await self.job(store)
        verdict = verdict_before_edit(replace(job, revision=7), now=LATER)

        assert not await store.schedules.change(
            verdict, paused_schedule(verdict, now=LATER), now=LATER, actor="bob", tzdata=""
        )
        assert not await store.schedules.delete(verdict, now=LATER, actor="bob")

        assert len(await self.entries(store)) == 1

    @pytest.mark.req("H-23")
    async def test_all_that_is_applied_together_is_written_down(self, store: Store) -> None:
        job = await self.job(store)
        verdict = verdict_before_edit(job, now=LATER)
        edit = ScheduleEdit(verdict, edited_schedule(verdict, replace(job.spec, workflow_version=2), now=LATER))
        changeset = JobChangeset(workflows=[workflow(version=2)], added=[minutely("new", mark=LATER)], edits=[edit])

        assert await store.jobs.apply(changeset, now=LATER, actor="bob", tzdata="")

        assert (await self.reported(store))[1:] == [
            ("bob", "deploy", "workflow", "report"),
            ("bob", "register", "job", "new"),
            ("bob", "update", "job", "report"),
        ]

    @pytest.mark.req("H-23")
    async def test_a_schedule_that_is_removed_with_other_changes_is_written_down(self, store: Store) -> None:
        job = await self.job(store)
        changes = JobChangeset(added=[minutely("new", mark=LATER)], removed=[verdict_before_edit(job, now=LATER)])

        assert await store.jobs.apply(changes, now=LATER, actor="bob", tzdata="")

        assert (await self.reported(store))[1:] == [
            ("bob", "register", "job", "new"),
            ("bob", "delete", "job", "report"),
        ]

    async def test_a_failed_apply_leaves_nothing(self, store: Store) -> None:
        await self.job(store)
        changeset = JobChangeset(workflows=[workflow()], added=[minutely("new"), minutely("report")])

        assert not await store.jobs.apply(changeset, now=LATER, actor="bob", tzdata="")

        assert len(await self.entries(store)) == 1

    @pytest.mark.req("H-23")
    async def test_a_manual_trigger_is_written_down(self, store: Store) -> None:
        job = await self.job(store)

        await self.triggered(store, job, input=b"{}", force=True)

        entry = (await self.entries(store))[-1]
        assert (entry.actor, entry.action, entry.kind, entry.name) == ("bob", "trigger", "job", "report")
        assert json.loads(entry.details) == {"execution": "run_a", "became": "started", "forced": True}

    async def test_a_trigger_that_starts_nothing_is_not(self, store: Store) -> None:
        job = await self.job(store, overlap=Overlap.SKIP)
        await self.triggered(store, job)

        await self.triggered(store, job)
        await self.triggered(store, job, "b")

        assert [action for _, action, _, _ in await self.reported(store)] == ["register", "trigger"]

    @pytest.mark.req("H-23")
    async def test_a_cancellation_is_written_down(self, store: Store) -> None:
        run = await self.triggered(store, await self.job(store))

        assert await store.runs.cancel(run.run_id, reason="no", now=LATER, actor="eve") is CancelOutcome.CANCELLED
        assert await store.runs.cancel(run.run_id, reason="no", now=LATER, actor="eve") is CancelOutcome.OVER

        entry = (await self.entries(store))[-1]
        assert (entry.actor, entry.action, entry.kind, entry.name) == ("eve", "cancel", "execution", "run_a")
        assert entry.before != entry.after
        assert len(await self.entries(store)) == 3

    async def test_a_replay_is_written_down(self, store: Store) -> None:
        job = await self.job(store)
        letter = await self.dead_letter(store, job)

        await self.triggered(store, job, "again", replay_of=letter)

        entry = (await self.entries(store))[-1]
        assert (entry.action, entry.name, json.loads(entry.details)["dead_letter"]) == ("replay", "report", letter)

    async def test_resolving_dead_letters_is_audited_once_for_each(self, store: Store) -> None:
        job = await self.job(store)
        first, second = await self.dead_letter(store, job), await self.dead_letter(store, job, "b")
        await store.dead_letters.resolve("default", [first], by="eve", actor="eve", now=LATER)

        assert (
            await store.dead_letters.resolve(
                "default", [first, second, "dl_none"], by="bob, in favour of dl_9", actor="bob", now=LATER
            )
            == 1
        )
        assert (
            await store.dead_letters.resolve("acme", [first], by="bob, in favour of dl_9", actor="bob", now=LATER) == 0
        )

        entries = await self.entries(store, action="resolve")
        assert [(one.actor, one.name) for one in entries] == [("eve", first), ("bob", second)]
        assert json.loads(entries[1].details) == {"by": "bob, in favour of dl_9"}

    async def test_the_actor_of_a_launch_is_its_caller_whatever_user_it_is_for(self, store: Store) -> None:
        job = await self.job(store)

        run = await self.triggered(store, job, user_id="alice-the-ceo")

        entry = (await self.entries(store))[-1]
        assert (entry.actor, json.loads(entry.details)["user_id"]) == ("bob", "alice-the-ceo")
        kept = await store.executions.find_run(run.run_id)
        assert kept is not None
        assert (kept.actor, kept.user_id) == ("bob", "alice-the-ceo")

    async def test_the_runs_of_events_and_backfills_carry_the_actor_that_asked_for_them(self, store: Store) -> None:
        listener = replace(minutely("retrain", trigger=OnEvent("model.drift"), user_id="robot"), next_fire_at=None)
        await store.jobs.apply(JobChangeset(workflows=[workflow()], added=[listener]), now=NOON, actor="ada", tzdata="")

        [effect] = await store.events.emit(replace(event(1), actor="eve"), now=NOON)

        run = await store.executions.find_run(RunId(str(effect.run_id)))
        assert run is not None
        assert (run.actor, run.user_id) == ("eve", "robot")

    async def test_an_event_is_written_down_once(self, store: Store) -> None:
        for again in (event(1), event(1), replace(event(1), actor="eve")):
            await store.events.emit(again, now=NOON)

        assert await self.reported(store) == [("ada", "emit", "event", "model.drift")]

    @pytest.mark.req("H-23")
    @pytest.mark.req("H-23")
    async def test_a_backfill_and_its_end_are_written_down_once_and_not_if_the_engine_ends_it(
        self, store: Store
    ) -> None:
        await self.job(store)
        for name in ("bf_1", "bf_2"):
            await store.backfills.add(backfill(name))
        for _ in range(2):
            await store.backfills.cancel("default", "bf_1", now=NOON, actor="bob")
        await store.backfills.cancel("default", "bf_2", now=NOON)

        assert (await self.reported(store))[1:] == [
            ("ada", "backfill", "job", "report"),
            ("ada", "backfill", "job", "report"),
            ("bob", "cancel", "backfill", "bf_1"),
        ]
        assert json.loads((await self.entries(store))[1].details) == {"backfill": "bf_1", "planned": 5}

    @pytest.mark.req("H-23")
    async def test_a_tick_that_is_skipped_is_written_down_as_that(self, store: Store) -> None:
        job = await self.job(store)
        spec = replace(job.spec, exceptions=(TickException(NOON + HOUR),))

        verdict = verdict_before_edit(job, now=NOON)
        assert await store.schedules.change(
            verdict, edited_schedule(verdict, spec, now=NOON), now=NOON, actor="bob", tzdata=""
        )

        assert (await self.reported(store))[1:] == [("bob", "skip", "job", "report")]
        assert json.loads((await self.entries(store))[1].details)["skipped"] == ["2026-03-02T13:00:00+00:00"]

    async def test_changes_by_the_scheduler_itself_are_not_audited(self, store: Store) -> None:
        listener = replace(minutely("retrain", trigger=OnEvent("model.drift")), next_fire_at=None)
        changeset = JobChangeset(workflows=[workflow()], added=[listener])
        await store.jobs.apply(changeset, now=NOON, actor="ada", tzdata="")
        [entry] = await store.events.emit(event(1), now=NOON)
        run = await store.executions.find_run(RunId(str(entry.run_id)))
        assert run is not None

        await finish_run(store, run, now=NOON + MINUTE)
        other = await self.triggered(store, listener, "b")
        await store.runs.cancel(other.run_id, reason="superseded", now=LATER, actor=ENGINE)

        actions = [action for _, action, _, _ in await self.reported(store)]
        assert actions == ["deploy", "register", "emit", "trigger"]

    async def test_ticks_that_are_decided_before_an_edit_are_no_change_by_anybody(self, store: Store) -> None:
        job = await self.job(store)
        verdict = verdict_before_edit(job, now=LATER)

        assert await store.schedules.change(verdict, schedule_after(verdict), now=LATER, actor="", tzdata="")

        assert await self.reported(store) == [("ada", "register", "job", "report")]

    # ---- queries -----------------------------------------------------------------------------

    async def test_entries_can_be_narrowed_down(self, store: Store) -> None:
        job = await self.job(store)
        await self.job(store, "other")
        await store.schedules.add([minutely(tenant="acme")], actor="zoe", tzdata="")
        await self.triggered(store, job)
        found = await store.schedules.find("default", "report")
        assert found is not None
        await store.schedules.delete(verdict_before_edit(found, now=LATER), now=LATER, actor="eve")

        assert [one.actor for one in await self.entries(store, tenant="acme")] == ["zoe"]
        assert [one.action for one in await self.entries(store, name="report", kind="job")] == [
            "register",
            "trigger",
            "delete",
        ]
        assert [one.name for one in await self.entries(store, actor="ada")] == ["report", "other"]
        assert [one.action for one in await self.entries(store, since_at=LATER)] == ["delete"]
        assert len(await self.entries(store, until_at=LATER)) == 3

    async def test_entries_can_be_paged_through_from_the_newest(self, store: Store) -> None:
        for number in range(5):
            await self.job(store, f"job{number}")

        first = await store.audit.page(AuditQuery(limit=2))
        second = await store.audit.page(AuditQuery(limit=2, before=first[-1].number))

        assert [kept.entry.name for kept in (*first, *second)] == ["job4", "job3", "job2", "job1"]

    # ---- sealing -----------------------------------------------------------------------------

    async def test_without_entries_there_is_nothing_to_seal(self, store: Store) -> None:
        assert await store.audit.seal(limit=10) == SealOutcome(0)
        assert await store.audit.head() == (ChainHead(0, GENESIS), 0)

    @pytest.mark.req("H-23")
    async def test_entries_are_sealed_in_their_order_a_batch_at_a_time(self, store: Store) -> None:
        for number in range(5):
            await self.job(store, f"job{number}")

        assert [(await store.audit.seal(limit=2)).sealed for _ in range(4)] == [2, 2, 1, 0]

        chain = await store.audit.sealed(after=0, limit=10)
        assert [(kept.seq, kept.entry.name) for kept in chain] == [(n + 1, f"job{n}") for n in range(5)]
        progress, broken = verify_chain(ChainProgress(), chain)
        assert (progress.head, 0) == await store.audit.head()
        assert broken == []

    async def test_the_chain_continues_where_it_ended(self, store: Store) -> None:
        await self.job(store)
        await store.audit.seal(limit=10)
        await self.job(store, "other")
        assert (await store.audit.head())[1] == 1

        await store.audit.seal(limit=10)

        [first, second] = await store.audit.sealed(after=0, limit=10)
        assert second.prev_hash == first.hash
        assert await store.audit.sealed(after=1, limit=10) == [second]

    async def test_sealers_at_once_make_one_chain(self, store: Store) -> None:
        for number in range(20):
            await self.job(store, f"job{number}")

        await asyncio.gather(*(store.audit.seal(limit=7) for _ in range(6)))
        while (await store.audit.seal(limit=7)).sealed:
            pass

        chain = await store.audit.sealed(after=0, limit=100)
        assert len(chain) == 20
        assert verify_chain(ChainProgress(), chain)[1] == []

    @pytest.mark.req("H-23")
    async def test_a_key_signs_the_end_of_the_chain_with_every_batch(self, store: Store) -> None:
        sealing = Sealing(key=PlainKey(), begin=True, now=LATER)
        for name in ("a", "b"):
            await self.job(store, name)
            done = await store.audit.seal(limit=10, sealing=sealing)

        head, _ = await store.audit.head()
        assert done == SealOutcome(1, PlainKey().sign(head, at=LATER))
        assert await store.audit.checkpoint("plain") == done.checkpoint
        assert await store.audit.checkpoint("other") is None
        assert verify_chain(ChainProgress(), await store.audit.sealed(after=0, limit=9))[0].signed_seq == 2

    async def test_a_chain_that_was_sealed_without_a_key_is_signed_as_soon_as_there_is_one(self, store: Store) -> None:
        await self.job(store)
        await store.audit.seal(limit=10)

        done = await store.audit.seal(limit=10, sealing=Sealing(key=PlainKey(), begin=True, now=LATER))

        assert (done.sealed, done.checkpoint is not None) == (0, True)

    async def test_a_chain_that_lacks_what_was_signed_is_not_signed_again(self, store: Store) -> None:
        await self.job(store)
        elsewhere = PlainKey().sign(ChainHead(5, "x"), at=NOON)

        cut = await store.audit.seal(
            limit=9, sealing=Sealing(key=PlainKey(), anchored=elsewhere, begin=True, now=LATER)
        )
        await self.job(store, "other")
        gone = await store.audit.seal(limit=9, sealing=Sealing(key=PlainKey(), now=LATER))

        assert (cut.sealed, cut.checkpoint, "the end was cut off" in cut.broken) == (1, None, True)
        assert (gone.sealed, gone.checkpoint, "is gone" in gone.broken) == (1, None, True)

    async def test_the_owner_can_have_the_chain_signed_as_it_is(self, store: Store) -> None:
        entry = accepted_entry(actor="ada", now=LATER)
        assert await store.audit.accept(PlainKey(), entry) is None
        await store.audit.seal(limit=10)

        made = await store.audit.accept(PlainKey(), entry)

        head, unsealed = await store.audit.head()
        assert (made, unsealed) == (PlainKey().sign(head, at=LATER), 1)
        assert await store.audit.checkpoint("plain") == made

    async def test_sealing_changes_nothing_that_an_entry_says(self, store: Store) -> None:
        await self.triggered(store, await self.job(store))
        before = await self.entries(store)

        await store.audit.seal(limit=10)

        assert await self.entries(store) == before

    async def test_a_launch_is_what_it_was(self, store: Store) -> None:
        job = await self.job(store)
        run = new_requested_run(RunId("run_x"), job, source=RunSource.API, now=NOON, actor="bob", user_id="bob")

        assert await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON) == [
            LaunchOutcome.STARTED
        ]
