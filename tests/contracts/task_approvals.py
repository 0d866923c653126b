"""The contract of approvals of tasks, for any store."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.announcements.decide import approval_announcements
from gnomon.core.announcements.model import AnnounceMoment, AnnounceRule
from gnomon.core.announcements.text import announcement_text
from gnomon.core.approvals.decide import asked_approval
from gnomon.core.approvals.model import Approval, ApprovalKind, ApprovalStatus, Vote, VoteKind
from gnomon.core.approvals.terms import ApprovalTerms
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, Task, TaskId
from gnomon.core.model_names import job_actor, model_actor
from gnomon.core.policy.constraints import Constraints
from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.runs.admission import FanOut
from gnomon.core.runs.external_events import ExternalEvent
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import TERMINAL, TaskState, WaitReason
from gnomon.core.triggers import OnEvent
from gnomon.errors import ApprovalChanged, ApprovalClosed, NotFound, StoreUnavailable, VotedAlready
from gnomon.ports.announcements import AnnouncementQuery
from gnomon.ports.approvals import ApprovalFilter, Resumed
from gnomon.ports.audit import AuditQuery
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from support.effort import thorough
from support.rulings import rulings_of
from support.task_steps import admission, completion_of, runs_of, workflow

TWO = ApprovalTerms(groups=("finance",), quorum=2, expires_ms=HOUR)
ASKED = Ruling(
    decision=PolicyDecision.REQUIRE_APPROVAL,
    rule="payments",
    version=3,
    digest=b"\x01" * 32,
    reason="money moves",
    rule_digest="r1",
    constraints=Constraints(max_attempts=2),
    approval=TWO,
)
APPROVE, REJECT, OVERRIDE = VoteKind.APPROVE, VoteKind.REJECT, VoteKind.OVERRIDE
#: So many tasks race at once: with more of them, transactions mostly wait for each other; and in all.
_RACES, _MANY = 6, 1_000
_MOST_TRIES = 100
#: The share of the acts that end before the next one begins; how often the gate looks whether a task is decided.
_ALONE, _GATE_READS = 0.4, 10


def vote(voter: str, kind: VoteKind = APPROVE, *, at: int = NOON + MINUTE, reason: str = "") -> Vote:
    return Vote(voter=voter, kind=kind, at=at, reason=reason)


class PaymentTask:
    """A task that waits for an approval, and what happens to it."""

    def __init__(self, store: Store, run: Run, task: Task) -> None:
        self.store, self.run, self._task = store, run, task

    async def task(self) -> Task:
        return (await self.store.history.tasks([self.run]))[0]

    async def approvals(self) -> list[Approval]:
        return list(await self.store.approvals.of_task(self._task.task_id))

    async def only(self) -> Approval:
        [one] = await self.approvals()
        return one

    async def ask(
        self,
        ruling: Ruling = ASKED,
        *,
        now: int = NOON,
        item_digests: bytes = b"",
        rules: tuple[AnnounceRule, ...] = (),
    ) -> None:
        """Write as the dispatcher does when the gate asks."""
        asked = asked_approval(self._task, self.run, ruling, now=now, item_digests=item_digests)
        made = admission(
            await self.task(),
            schedule_uid=self.run.schedule_uid,
            state=TaskState.APPROVAL_REQUIRED,
            ruling=ruling,
            approval=asked,
            announcements=tuple(approval_announcements(self.run, rules, asked, at=now)),
        )
        await self.store.tasks.admit([made], now=now)

    async def vote(self, cast: Vote) -> Approval:
        one = (await self.approvals())[-1]
        return await self.store.approvals.vote("default", one.approval_id, cast, digest=one.digest)


class TaskApprovalContract:
    """Tests for any store. `store` is a fresh one."""

    async def new_payment(self, store: Store, name: str = "pay", *, now: int = NOON) -> PaymentTask:
        definition = workflow(name)
        changes = JobChangeset(workflows=[definition])
        await store.jobs.apply(changes, now=NOON, actor="ada", tzdata="")
        schedule = minutely(name, overlap=Overlap.ALLOW, workflow_id=name)
        await store.schedules.add([schedule], actor="bob", tzdata="")
        run = new_requested_run(RunId(f"run_{name}"), schedule, source=RunSource.API, now=now, actor="eve")
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=now)
        [task] = await store.history.tasks([run])
        found = PaymentTask(store, run, task)
        await found.ask(now=now)
        return found

    @pytest.fixture
    async def payment(self, store: Store) -> PaymentTask:
        return await self.new_payment(store)

    @pytest.mark.req("R-03")
    async def test_a_task_that_needs_an_approval_waits_with_a_record_of_what_is_asked(
        self, store: Store, payment: PaymentTask
    ) -> None:
        one = await payment.only()

        assert (await payment.task()).state is TaskState.APPROVAL_REQUIRED
        assert (one.kind, one.status, one.subject, one.reason) == (
            ApprovalKind.TASK, ApprovalStatus.WAITING, "pay", "money moves",
        )  # fmt: skip
        assert one.request is not None
        assert (one.request.rule, one.request.version, one.request.terms) == ("payments", 3, TWO)
        assert (one.request.constraints, one.request.expires_at) == (ASKED.constraints, NOON + HOUR)
        assert await store.approvals.find("default", one.approval_id) == one
        assert await store.approvals.find("other", one.approval_id) is None
        assert [one.decision for one in await rulings_of(store, payment.run.run_id)] == ["require_approval"]

    @pytest.mark.usefixtures("payment")
    async def test_it_holds_no_slot_while_it_waits(self, store: Store) -> None:
        counts = await store.placement.in_flight_counts()

        assert (dict(counts.tenants), dict(counts.scheduled)) == ({}, {})
        assert await store.tasks.next_available_at() is None

    @pytest.mark.req("R-03")
    async def test_a_waiting_approval_is_announced_once_in_the_transaction_of_the_question(
        self, store: Store, payment: PaymentTask
    ) -> None:
        rules = (AnnounceRule(channel="ops"), AnnounceRule(channel="pay", to="C1", on=(AnnounceMoment.APPROVAL,)))
        await store.approval_upkeep.reopen(4, after=None, now=NOON + 1, limit=10)

        await payment.ask(replace(ASKED, version=4, rule_digest="r2"), now=NOON + 2, rules=rules)
        await store.approval_upkeep.reopen(5, after=None, now=NOON + 3, limit=10)
        await payment.ask(replace(ASKED, version=5, rule_digest="r2"), now=NOON + 4, rules=rules)

        [sent] = await store.announcements.page(AnnouncementQuery())
        one, asked = (await payment.approvals())[-1], sent.facts.approval
        assert (sent.channel, sent.recipient, sent.moment, sent.best_effort) == ("pay", "C1", "approval", True)
        assert asked is not None
        assert (asked.approval_id, asked.digest, asked.needs) == (
            one.approval_id, one.digest, "2 persons in finance within 1h",
        )  # fmt: skip
        text = announcement_text(sent, None) or ""
        assert text.startswith("step main of pay waits for 2 persons in finance within 1h: money moves\n")
        assert f"gnomon approvals approve {one.approval_id} --digest {one.digest[:8]}" in text

    @pytest.mark.req("R-02")
    async def test_the_groups_of_the_caller_are_kept_with_the_run(self, store: Store) -> None:
        schedule = minutely("grouped", overlap=Overlap.ALLOW)
        await store.schedules.add([schedule], actor="bob", tzdata="")
        made = [
            new_requested_run(RunId(f"run_{at}"), schedule, source=RunSource.API, now=NOON, actor="eve", groups=groups)
            for at, groups in enumerate((["on-call", "finance"], []))
        ]
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",)) for run in made], now=NOON)

        kept = [await store.executions.find_run(run.run_id) for run in made]

        assert [one.actor_groups for one in kept if one] == [("finance", "on-call"), ()]

    @pytest.mark.req("R-03")
    async def test_only_the_gate_reads_the_digests_of_the_items_of_a_step(
        self, store: Store, payment: PaymentTask
    ) -> None:
        digests = bytes(range(96))
        await store.approval_upkeep.reopen(4, after=None, now=NOON + 1, limit=10)
        await payment.ask(replace(ASKED, digest=b"\x02" * 32, version=4), item_digests=digests)
        [listed] = await store.approvals.page(
            ApprovalFilter(tenant="default", status=ApprovalStatus.WAITING), before=None, limit=3
        )

        [_, one] = await payment.approvals()
        voted = await payment.vote(vote("carl"))

        assert one.request is not None
        assert (one.request.items, one.request.item_digests) == (3, digests)
        assert one.request.covers_item(1, digests[32:64])
        assert not one.request.covers_item(3, b"")
        for other in (listed, await store.approvals.find("default", one.approval_id), voted):
            assert other is not None
            assert other.request == replace(one.request, item_digests=b"")

    @pytest.mark.req("R-03")
    async def test_a_step_gets_its_items_together_with_the_ruling_that_lets_it(
        self, store: Store, payment: PaymentTask
    ) -> None:
        await store.approval_upkeep.reopen(4, after=None, now=NOON + 1, limit=10)
        await payment.ask(replace(ASKED, digest=b"\x02" * 32, version=4), item_digests=bytes(64))
        await payment.vote(vote("carl", OVERRIDE, reason="now"))
        task = await payment.task()
        allowed = replace(ASKED, decision=PolicyDecision.ALLOW, version=4, reason="overridden by carl: now")
        items = FanOut(
            task_id=task.task_id,
            run_id=payment.run.run_id,
            schedule_uid=payment.run.schedule_uid,
            fence=task.fence,
            graph=workflow("pay"),
            items=(b"{}", b"{}"),
            ruling=replace(allowed, ruled_by="override"),
        )

        done = [await store.tasks.fan_out([items], now=NOON + HOUR) for _ in range(2)]

        said = [(one.decision, one.ruled_by) for one in await rulings_of(store, payment.run.run_id)]
        assert [len(one.started) for one in done] == [1, 0]
        assert said == [("require_approval", "policy"), ("require_approval", "policy"), ("allow", "override")]

    async def test_the_same_question_again_is_the_same_approval(self, payment: PaymentTask) -> None:
        await payment.ask()

        assert len(await payment.approvals()) == 1

    @pytest.mark.req("R-03")
    async def test_with_enough_votes_the_task_goes_on_to_the_gate(self, store: Store, payment: PaymentTask) -> None:
        waiting = await payment.vote(vote("carl"))
        state = (await payment.task()).state
        approved = await payment.vote(vote("dora", reason="checked"))

        assert (waiting.status, state) == (ApprovalStatus.WAITING, TaskState.APPROVAL_REQUIRED)
        assert (approved.status, approved.decided_by, approved.approvers) == ("approved", "dora", ("carl", "dora"))
        assert approved == await payment.only()
        task = await payment.task()
        assert (task.state, task.wait_reason, task.available_at) == (
            TaskState.PENDING, WaitReason.READY, NOON + MINUTE,
        )  # fmt: skip
        entries = await store.audit.page(AuditQuery(tenant="default", kind="approval"))
        assert [(one.entry.actor, one.entry.action) for one in entries] == [("dora", "approve"), ("carl", "approve")]

    @pytest.mark.req("R-03")
    async def test_one_person_counts_once(self, payment: PaymentTask) -> None:
        await payment.vote(vote("carl"))

        with pytest.raises(VotedAlready):
            await payment.vote(vote("carl"))
        assert len((await payment.only()).votes) == 1

    @pytest.mark.req("R-03")
    async def test_a_voter_who_saw_something_else_is_refused(self, store: Store, payment: PaymentTask) -> None:
        one = await payment.only()

        with pytest.raises(ApprovalChanged):
            await store.approvals.vote("default", one.approval_id, vote("carl"), digest="0" * 64)
        assert await payment.only() == one

    async def test_votes_on_unknown_approvals_and_those_of_other_tenants_are_refused(
        self, store: Store, payment: PaymentTask
    ) -> None:
        one = await payment.only()

        for tenant, name in (("default", "apr_none"), ("other", one.approval_id)):
            with pytest.raises(NotFound):
                await store.approvals.vote(tenant, name, vote("carl"), digest=one.digest)

    @pytest.mark.req("R-03")
    async def test_one_rejection_ends_the_task_and_leaves_a_dead_letter(
        self, store: Store, payment: PaymentTask
    ) -> None:
        await payment.vote(vote("carl"))
        rejected = await payment.vote(vote("dora", REJECT, reason="wrong account"))

        task = await payment.task()
        [letter] = await store.dead_letters.page("default")
        run = await store.executions.find_run(payment.run.run_id)
        assert (rejected.status, rejected.decided_by) == ("rejected", "dora")
        assert (task.state, task.note) == (TaskState.DENIED, "rejected by dora: wrong account")
        assert (letter.reason, letter.last_error) == ("approval_rejected", task.note)
        assert run is not None
        assert run.over
        rulings = await rulings_of(store, payment.run.run_id)
        assert [(one.decision, one.ruled_by) for one in rulings] == [
            ("require_approval", "policy"),
            ("deny", "approval"),
        ]
        with pytest.raises(ApprovalClosed):
            await payment.vote(vote("emil"))

    @pytest.mark.req("R-03")
    async def test_an_override_needs_no_other_vote_and_replaces_that_of_the_same_person(
        self, payment: PaymentTask
    ) -> None:
        await payment.vote(vote("carl"))
        approved = await payment.vote(vote("carl", OVERRIDE, reason="the bank closes"))

        assert (approved.status, approved.overridden, approved.approvers) == ("approved", True, ("carl",))
        assert approved == await payment.only()
        assert (await payment.task()).state is TaskState.PENDING

    @pytest.mark.req("R-03")
    async def test_an_approval_that_nobody_decides_in_time_denies_its_task(
        self, store: Store, payment: PaymentTask, advance: Callable[[int], None]
    ) -> None:
        assert await store.approval_upkeep.next_expiry() == NOON + HOUR
        assert await store.approval_upkeep.expire(now=NOON + HOUR - 1, limit=10) == 0
        advance(HOUR)

        assert await store.approval_upkeep.expire(now=NOON + HOUR, limit=10) == 1

        task, one = await payment.task(), await payment.only()
        [letter] = await store.dead_letters.page("default")
        assert (task.state, one.status, letter.reason) == (TaskState.DENIED, "expired", "approval_expired")
        assert task.note == "nobody approved it in time: it needed 2 persons in finance within 1h"
        assert await store.approval_upkeep.next_expiry() is None

    async def test_a_clock_that_is_ahead_of_the_store_ends_nothing_early(self, store: Store) -> None:
        now = await store.now()
        payment = await self.new_payment(store, now=now)

        assert await store.approval_upkeep.expire(now=now + 2 * HOUR, limit=10) == 0
        assert (await payment.task()).state is TaskState.APPROVAL_REQUIRED

    @pytest.mark.req("R-03")
    async def test_an_expiry_cannot_undo_a_decision_that_came_before(
        self, store: Store, payment: PaymentTask, advance: Callable[[int], None]
    ) -> None:
        await payment.vote(vote("carl"))
        await payment.vote(vote("dora"))
        advance(HOUR)

        assert await store.approval_upkeep.expire(now=NOON + HOUR, limit=10) == 0
        assert (await payment.only()).status is ApprovalStatus.APPROVED
        assert (await payment.task()).state is TaskState.PENDING

    async def test_a_vote_after_the_time_comes_too_late_even_if_the_expiry_is_not_written(
        self, payment: PaymentTask
    ) -> None:
        with pytest.raises(ApprovalClosed):
            await payment.vote(vote("carl", at=NOON + HOUR))

    @pytest.mark.req("R-03")
    async def test_a_cancelled_task_takes_no_votes_any_more(self, store: Store, payment: PaymentTask) -> None:
        await store.runs.cancel(payment.run.run_id, reason="not needed", now=NOON + 1)

        one = await payment.only()
        assert (one.status, one.note) == ("void", "its task does not wait any more")
        with pytest.raises(ApprovalClosed):
            await payment.vote(vote("carl"))
        assert (await payment.task()).state is TaskState.CANCELLED

    @pytest.mark.req("R-03")
    async def test_under_a_new_policy_votes_stay_if_the_rule_is_the_same(
        self, store: Store, payment: PaymentTask
    ) -> None:
        await payment.vote(vote("carl"))

        moved = await store.approval_upkeep.reopen(4, after=None, now=NOON + 1, limit=10)
        between = await payment.task()
        await payment.ask(replace(ASKED, version=4), now=NOON + 2)

        assert (moved.tasks, moved.left, moved.after) == (1, 1, None)
        assert (between.state, between.wait_reason) == (TaskState.PENDING, WaitReason.POLICY)
        one = await payment.only()
        assert one.request is not None
        assert (one.request.version, len(one.votes), one.request.expires_at) == (4, 1, NOON + HOUR)
        assert (await store.approval_upkeep.reopen(4, after=None, now=NOON + 3, limit=10)).left == 0
        assert (await payment.vote(vote("dora"))).status is ApprovalStatus.APPROVED

    @pytest.mark.req("R-03")
    async def test_under_another_rule_earlier_votes_are_void_and_say_so(
        self, store: Store, payment: PaymentTask
    ) -> None:
        await payment.vote(vote("carl"))
        await store.approval_upkeep.reopen(4, after=None, now=NOON + 1, limit=10)
        await payment.ask(replace(ASKED, version=4, rule_digest="r2"), now=NOON + 2)

        old, new = await payment.approvals()
        assert (old.status, old.note, len(old.votes)) == (
            "void", "policy 4 asks by another rule, or for something else", 1,
        )  # fmt: skip
        assert (new.status, new.votes) == ("waiting", ())
        with pytest.raises(ApprovalClosed):
            await store.approvals.vote("default", old.approval_id, vote("dora"), digest=old.digest)

    async def test_a_task_that_a_new_policy_lets_run_needs_no_approval(
        self, store: Store, payment: PaymentTask
    ) -> None:
        await store.approval_upkeep.reopen(4, after=None, now=NOON + 1, limit=10)
        allowed = replace(ASKED, decision=PolicyDecision.ALLOW, version=4, approval=None, constraints=None)
        one = admission(await payment.task(), schedule_uid=payment.run.schedule_uid, ruling=allowed)
        await store.tasks.admit([one], now=NOON + 2)

        await store.approval_upkeep.reopen(4, after=None, now=NOON + 3, limit=10)

        assert (await payment.only()).status is ApprovalStatus.VOID
        assert (await payment.task()).state is TaskState.SCHEDULED

    @pytest.mark.req("R-03")
    async def test_a_task_that_a_new_policy_puts_off_is_not_ended_by_the_time_of_its_approval(
        self, store: Store, payment: PaymentTask, advance: Callable[[int], None]
    ) -> None:
        await store.approval_upkeep.reopen(4, after=None, now=NOON + 1, limit=10)
        put_off = replace(ASKED, decision=PolicyDecision.THROTTLE, version=4, approval=None, constraints=None)
        made = admission(
            await payment.task(),
            schedule_uid=payment.run.schedule_uid,
            state=TaskState.PENDING,
            wait_reason=WaitReason.POLICY,
            ruling=put_off,
            voids_approval=True,
        )
        await store.tasks.admit([made], now=NOON + 2)
        void = await payment.only()
        advance(2 * HOUR)

        assert await store.approval_upkeep.expire(now=NOON + 2 * HOUR, limit=10) == 0
        assert (await payment.task()).state is TaskState.PENDING
        assert (void.status, void.revoked_by, void.note) == (
            ApprovalStatus.VOID, "policy", "the policy in force does not ask for it",
        )  # fmt: skip
        with pytest.raises(ApprovalClosed):
            await payment.vote(vote("carl", REJECT))

    async def test_a_run_that_is_cancelled_while_the_gate_is_asked_again_leaves_nothing_to_approve(
        self, store: Store, payment: PaymentTask
    ) -> None:
        await store.approval_upkeep.reopen(4, after=None, now=NOON + 1, limit=10)

        await store.runs.cancel(payment.run.run_id, reason="cancelled", now=NOON + 2)
        with pytest.raises(ApprovalClosed):
            await payment.vote(vote("carl"))
        looked = await store.approval_upkeep.reopen(4, after=None, now=NOON + 3, limit=10)

        assert (looked.tasks, looked.left) == (0, 0)
        assert (await payment.only()).status is ApprovalStatus.VOID

    async def test_the_last_vote_counts_also_while_the_gate_is_asked_again(
        self, store: Store, payment: PaymentTask
    ) -> None:
        await payment.vote(vote("carl"))
        await store.approval_upkeep.reopen(4, after=None, now=NOON + 1, limit=10)
        await payment.vote(vote("dora", at=NOON + 2))
        # The answer of the gate is older than the vote.
        await payment.ask(replace(ASKED, version=4), now=NOON + 3)

        task = await payment.task()
        assert (task.state, task.wait_reason) == (TaskState.PENDING, WaitReason.POLICY)
        assert (await payment.only()).status is ApprovalStatus.APPROVED

    async def test_pages_of_approvals_come_back_in_order(self, store: Store) -> None:
        made = [await self.new_payment(store, f"pay{number}", now=NOON + number) for number in range(5)]
        names = [(await one.only()).approval_id for one in made]
        await made[2].vote(vote("carl", REJECT))

        waiting = ApprovalFilter(tenant="default", status=ApprovalStatus.WAITING)
        first = await store.approvals.page(waiting, before=None, limit=3)
        rest = await store.approvals.page(waiting, before=first[-1].approval_id, limit=3)
        of_one = await store.approvals.page(ApprovalFilter(tenant="default", subject="pay2"), before=None, limit=3)

        assert [one.approval_id for one in (*first, *rest)] == [names[4], names[3], names[1], names[0]]
        assert [(one.approval_id, one.status) for one in of_one] == [(names[2], "rejected")]
        assert not await store.approvals.page(ApprovalFilter(tenant="other"), before=None, limit=3)
        assert not await store.approvals.page(
            ApprovalFilter(tenant="default", kind=ApprovalKind.COMMAND), before=None, limit=3
        )

    async def test_many_policies_are_looked_at_page_by_page(self, store: Store) -> None:
        for number in range(3):
            await self.new_payment(store, f"pay{number}", now=NOON + number)

        first = await store.approval_upkeep.reopen(4, after=None, now=NOON + 9, limit=2)
        assert first.after is not None
        rest = await store.approval_upkeep.reopen(4, after=first.after, now=NOON + 9, limit=2)

        assert (first.tasks, rest.tasks, rest.after) == (2, 1, None)

    @pytest.mark.req("R-08")
    async def test_a_task_that_waits_without_a_question_is_asked_about_again(
        self, store: Store, payment: PaymentTask
    ) -> None:
        assert await store.approval_upkeep.resume(after=TaskId(""), now=NOON + 1, limit=10) == Resumed(
            tasks=0, after=None
        )
        await store.runs.cancel(payment.run.run_id, reason="not needed", now=NOON + 1)
        stuck = await self.new_payment(store, "stuck")
        lost = admission(
            await stuck.task(), schedule_uid=stuck.run.schedule_uid, state=TaskState.APPROVAL_REQUIRED, ruling=ASKED
        )
        await store.approval_upkeep.reopen(4, after=None, now=NOON + 1, limit=10)
        await store.tasks.admit([lost], now=NOON + 2)
        await stuck.vote(vote("carl", OVERRIDE, at=NOON + 2, reason="now"))
        # As a store that lost the move of the task would have it.
        await store.tasks.admit([replace(lost, fence=None)], now=NOON + 2)

        found = await store.approval_upkeep.resume(after=TaskId(""), now=NOON + 3, limit=10)
        assert (found.tasks, found.after) == (1, None)
        assert (await stuck.task()).state is TaskState.PENDING

    @pytest.mark.req("R-03")
    async def test_the_callers_who_asked_are_known(self, store: Store, payment: PaymentTask) -> None:
        assert await store.approvals.authors(await payment.only()) == {"ada", "bob", "eve"}
        newer = workflow("pay", version=2)
        await store.jobs.apply(JobChangeset(workflows=[newer]), now=NOON + 1, actor="fay", tzdata="")
        assert await store.approvals.authors(await payment.only()) == {"ada", "bob", "eve", "fay"}

    async def asked_of(self, store: Store, name: str, **changes: object) -> Approval:
        """The approval of the only task of a run without a caller, of a workflow by ira."""
        await store.jobs.apply(JobChangeset(workflows=[workflow(name)]), now=NOON, actor="ira", tzdata="")
        run = new_requested_run(RunId(f"run_{name}"), minutely(name), source=RunSource.CRON, now=NOON)
        run = replace(run, schedule_uid=None, schedule_id=None, workflow_id=name, **changes)
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
        [task] = await store.history.tasks([run])
        found = PaymentTask(store, run, task)
        await found.ask()
        return await found.only()

    @pytest.mark.req("R-03")
    async def test_the_callers_and_authors_of_the_run_that_waits_for_this_one_have_asked_too(
        self, store: Store, payment: PaymentTask
    ) -> None:
        outer = await payment.task()

        inner = await self.asked_of(store, "inner", parent_task=outer.task_id, depth=1, root_run_id=outer.run_id)

        assert await store.approvals.authors(inner) == {"ira", "ada", "bob", "eve"}

    @pytest.mark.req("R-03")
    async def test_the_callers_and_authors_of_the_run_whose_dead_letter_is_replayed_have_asked_too(
        self, store: Store, payment: PaymentTask
    ) -> None:
        await payment.vote(vote("carl", REJECT))
        [letter] = await store.dead_letters.page("default")

        replay = await self.asked_of(store, "again", actor="dora", replay_of=letter.dead_letter_id)

        assert await store.approvals.authors(replay) == {"ira", "dora", "ada", "bob", "eve"}

    @pytest.mark.req("R-03")
    @pytest.mark.usefixtures("payment")
    async def test_the_authors_of_the_job_whose_agent_has_requested_the_run_have_asked_too(self, store: Store) -> None:
        asked = await self.asked_of(store, "tool", actor=model_actor("agent.pay", job_actor("pay")))

        assert await store.approvals.authors(asked) == {"ira", "ada", "bob", "model:agent.pay for job:pay"}

    @pytest.mark.req("R-03")
    async def test_all_who_have_emitted_one_of_the_events_of_a_run_have_asked_for_it(self, store: Store) -> None:
        job = minutely("batch", trigger=OnEvent("order", most=2, batch_ms=MINUTE), workflow_id="batch")
        job = replace(job, next_fire_at=None)
        changes = JobChangeset(workflows=[workflow("batch")], added=[job])
        await store.jobs.apply(changes, now=NOON, actor="ira", tzdata="")
        for number, actor in enumerate(("ada", "eve")):
            await store.events.emit(
                ExternalEvent(event_id=f"evt_{number}", name="order", emitted_at=NOON, actor=actor), now=NOON
            )
        [run] = await runs_of(store, job)
        [task] = await store.history.tasks([run])
        asked = PaymentTask(store, run, task)
        await asked.ask()

        assert run.actor == ""
        assert await store.approvals.authors(await asked.only()) == {"ira", "ada", "eve"}

    @pytest.mark.req("R-03")
    async def test_votes_and_rejections_at_the_same_time_lead_to_one_decision(self, payment: PaymentTask) -> None:
        casts = [vote(f"voter{number}", REJECT if number == 5 else APPROVE) for number in range(10)]

        done = await asyncio.gather(*(payment.vote(one) for one in casts), return_exceptions=True)

        one, task = await payment.only(), await payment.task()
        assert sum(not isinstance(each, BaseException) for each in done) == len(one.votes)
        assert all(isinstance(each, Approval | ApprovalClosed) for each in done)
        wanted = {"approved": TaskState.PENDING, "rejected": TaskState.DENIED}
        assert task.state is wanted[one.status]
        assert len(one.approvers) == 2 if one.status is ApprovalStatus.APPROVED else one.decided_by == "voter5"

    @pytest.mark.req("R-03", "R-07")
    @pytest.mark.guarantee("S6", "S11")
    @pytest.mark.timeout(900)
    @pytest.mark.parametrize("count", [12, thorough(_MANY)])
    async def test_votes_cancellations_and_reports_in_any_order_have_one_outcome(
        self, store: Store, count: int
    ) -> None:
        """F74: for each task two approvals, a rejection, a cancellation, and the gate, a worker and its report."""
        rng, ends = random.Random(f"{type(self).__name__} {count}"), set[TaskState]()
        for first in range(0, count, _RACES):
            payments = [
                await self.new_payment(store, f"pay{number}") for number in range(first, min(first + _RACES, count))
            ]
            acts = [act for payment in payments for act in _racing(store, payment)]
            rng.shuffle(acts)

            async with asyncio.TaskGroup() as racing:
                for act in acts:
                    begun = racing.create_task(_until_answered(act))
                    # Of acts that begin at once, a cancellation comes first: it alone reads nothing before it writes.
                    if rng.random() < _ALONE:
                        await asyncio.wait([begun])

            ends |= {await _checked_end(store, payment) for payment in payments}
        assert count < _MANY or ends >= {TaskState.SUCCEEDED, TaskState.DENIED, TaskState.CANCELLED}


_PERMISSION = replace(ASKED, decision=PolicyDecision.ALLOW, ruled_by="approval", approval=None, constraints=None)


async def _until_answered(act: Callable[[], Awaitable[None]]) -> None:
    """Do it again while the store refuses: transactions that wait for each other give up after a moment."""
    for _ in range(_MOST_TRIES):
        with suppress(StoreUnavailable):
            return await act()
    raise AssertionError("the store has refused too often")


def _racing(store: Store, payment: PaymentTask) -> list[Callable[[], Awaitable[None]]]:
    async def cast(one: Vote) -> None:
        with suppress(ApprovalClosed, VotedAlready):
            await payment.vote(one)

    async def cancel() -> None:
        await store.runs.cancel(payment.run.run_id, reason="not wanted", now=NOON + MINUTE)

    async def go_on() -> None:
        """Admit, take and report, as far as that is possible by then."""
        for _ in range(_GATE_READS):
            if (await payment.only()).status is not ApprovalStatus.WAITING:
                break
        if (await payment.only()).status is not ApprovalStatus.APPROVED:
            return
        made = admission(await payment.task(), schedule_uid=payment.run.schedule_uid, ruling=_PERMISSION)
        await store.tasks.admit([made], now=NOON + MINUTE)
        worker = f"worker of {payment.run.run_id}"
        taken = await store.attempts.take(worker, limit=1, lease_ms=MINUTE, now=NOON + MINUTE)
        for one in taken:
            definition = workflow(one.run.workflow_id)
            ended = completion_of(one, Result.SUCCEEDED, now=NOON + MINUTE + 1, definition=definition)
            await store.attempts.report([ended])

    async def reopen() -> None:
        await store.approval_upkeep.reopen(4, after=None, now=NOON + MINUTE, limit=1_000)

    votes = [vote("carl"), vote("dora"), vote("emil", REJECT)]
    return [*(partial(cast, one) for one in votes), cancel, go_on, go_on, reopen]


async def _checked_end(store: Store, payment: PaymentTask) -> TaskState:
    """The state of the task; its approval, its dead letters and its attempts must tell the same story."""
    await store.approval_upkeep.reopen(4, after=None, now=NOON + MINUTE, limit=1_000)
    task, one = await payment.task(), await payment.only()
    run = await store.executions.find_run(payment.run.run_id)
    attempts = await store.executions.attempts([task.task_id])
    letters = [
        letter for letter in await store.dead_letters.page("default", limit=1_000) if letter.task_id == task.task_id
    ]
    kinds = [cast.kind for cast in one.votes]
    assert run is not None
    assert run.over is (task.state in TERMINAL)
    assert len({cast.voter for cast in one.votes}) == len(kinds)
    match one.status:
        case ApprovalStatus.APPROVED:
            assert kinds == [APPROVE, APPROVE]
            assert len(attempts) <= 1
        case ApprovalStatus.REJECTED:
            assert kinds[-1] is REJECT
            assert (task.state, attempts, len(letters)) == (TaskState.DENIED, [], 1)
        case other:
            assert kinds.count(APPROVE) < 2
            assert REJECT not in kinds
            assert (other, task.state, attempts) == (ApprovalStatus.VOID, TaskState.CANCELLED, [])
    if task.state is not TaskState.DENIED:
        assert letters == []
    return task.state
