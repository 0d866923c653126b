"""The contract of the actions that count towards the budget of a tenant, and of their approvals, for any store."""

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.approvals.model import Approval, ApprovalKind, ApprovalStatus, Vote, VoteKind
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, RunStatus, Schedule, Task
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import RetryPolicy
from gnomon.errors import ApprovalClosed, NotFound
from gnomon.ports.audit import AuditQuery
from gnomon.ports.store import Store
from gnomon.ports.tasks import WorkerInfo
from support.task_steps import LEASE, admission, completion_of, take_task, workflow

RETRIED = workflow(retry=RetryPolicy(max_attempts=3, initial_delay_ms=1, jitter=0))
COMMAND = ApprovalKind.COMMAND


def approval(number: int = 1, **changes: object) -> Approval:
    made = Approval(
        approval_id=f"apr_{number}",
        tenant="default",
        kind=COMMAND,
        subject="report",
        digest="d1",
        reason="it only pushes",
    )
    return replace(made, **changes)


class ActionContract:
    """Tests for any store. `store` is a fresh one."""

    @pytest.fixture
    async def owner_of_actions(self, store: Store) -> Schedule:
        made = minutely("actions", overlap=Overlap.ALLOW)
        await store.schedules.add([made], actor="ada", tzdata="")
        return made

    async def launched_tasks(self, store: Store, schedule: Schedule, count: int) -> list[tuple[Run, Task]]:
        made = [
            new_requested_run(RunId(f"run_{number:03}"), schedule, source=RunSource.API, now=NOON)
            for number in range(count)
        ]
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",)) for run in made], now=NOON)
        return [(run, (await store.history.tasks([run]))[0]) for run in made]

    async def admitted(
        self, store: Store, tasks: Sequence[Task], *, limit: int, now: int = NOON, tenant: str = "default"
    ) -> list[TaskState]:
        """Admit the tasks with an action limit; return the states that they got."""
        asked = [
            admission(task, schedule_uid=minutely("actions").uid, fence=task.fence, action_limit=(tenant, limit))
            for task in tasks
        ]
        done = await store.tasks.admit(asked, now=now)
        return [done[task.task_id].state for task in tasks]

    async def spent(self, store: Store, *, now: int = NOON, tenant: str = "default") -> int:
        return await store.tasks.actions_since(tenant, since=now - HOUR)

    @pytest.mark.req("Z-12")
    async def test_the_action_beyond_the_budget_is_denied_with_a_dead_letter(
        self, store: Store, owner_of_actions: Schedule
    ) -> None:
        found = await self.launched_tasks(store, owner_of_actions, 3)

        states = await self.admitted(store, [task for _, task in found], limit=2)

        assert states == [TaskState.SCHEDULED, TaskState.SCHEDULED, TaskState.DENIED]
        assert await self.spent(store) == 2
        run, _ = found[2]
        [denied] = await store.history.tasks([run])
        ended = await store.executions.find_run(run.run_id)
        [letter] = await store.dead_letters.page("default")
        assert ended is not None
        text = "blocked by security policy: action budget exhausted"
        assert (denied.state, denied.note, ended.status, ended.error) == (
            TaskState.DENIED,
            text,
            RunStatus.FAILED,
            text,
        )
        assert (letter.run_id, letter.reason, letter.last_error) == (run.run_id, "safety_denied", text)

    @pytest.mark.req("Z-12")
    async def test_an_action_counts_for_an_hour(self, store: Store, owner_of_actions: Schedule) -> None:
        tasks = [task for _, task in await self.launched_tasks(store, owner_of_actions, 3)]
        await self.admitted(store, tasks[:1], limit=1)

        assert await self.admitted(store, tasks[1:2], limit=1, now=NOON + HOUR - 1) == [TaskState.DENIED]
        assert await self.admitted(store, tasks[2:], limit=1, now=NOON + HOUR) == [TaskState.SCHEDULED]

    @pytest.mark.req("Z-12")
    async def test_a_limit_of_nothing_lets_nothing_run(self, store: Store, owner_of_actions: Schedule) -> None:
        [(_, task)] = await self.launched_tasks(store, owner_of_actions, 1)

        assert await self.admitted(store, [task], limit=0) == [TaskState.DENIED]
        assert await self.spent(store) == 0

    async def test_tasks_without_a_limit_are_not_counted(self, store: Store, owner_of_actions: Schedule) -> None:
        [(_, task)] = await self.launched_tasks(store, owner_of_actions, 1)

        await store.tasks.admit([admission(task, schedule_uid=owner_of_actions.uid)], now=NOON)

        assert await self.spent(store) == 0

    async def test_each_tenant_has_its_own_budget(self, store: Store, owner_of_actions: Schedule) -> None:
        tasks = [task for _, task in await self.launched_tasks(store, owner_of_actions, 2)]

        await self.admitted(store, tasks[:1], limit=1)

        assert await self.admitted(store, tasks[1:], limit=1, tenant="acme") == [TaskState.SCHEDULED]
        assert (await self.spent(store), await self.spent(store, tenant="acme")) == (1, 1)

    @pytest.mark.req("Z-12")
    @pytest.mark.parametrize("result", [Result.NEVER_STARTED, Result.DENIED])
    async def test_an_attempt_that_never_started_costs_nothing(
        self, store: Store, owner_of_actions: Schedule, result: Result
    ) -> None:
        [(_, task)] = await self.launched_tasks(store, owner_of_actions, 1)
        await self.admitted(store, [task], limit=1)
        [taken] = await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON)

        await store.attempts.report([completion_of(taken, result, now=NOON)])

        assert await self.spent(store) == 0

    @pytest.mark.req("Z-12")
    @pytest.mark.parametrize("result", [Result.SUCCEEDED, Result.FAILED, Result.TIMED_OUT, Result.CANCELLED])
    async def test_an_attempt_that_started_costs_one_however_it_ends(
        self, store: Store, owner_of_actions: Schedule, result: Result
    ) -> None:
        [(_, task)] = await self.launched_tasks(store, owner_of_actions, 1)
        await self.admitted(store, [task], limit=1)
        [taken] = await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON)

        await store.attempts.report([completion_of(taken, result, now=NOON)])

        assert await self.spent(store) == 1

    @pytest.mark.req("Z-12")
    @pytest.mark.parametrize("begun", [False, True], ids=["at a remote worker", "waiting for a process"])
    async def test_an_attempt_that_is_cancelled_before_it_begins_costs_nothing(
        self, store: Store, owner_of_actions: Schedule, *, begun: bool
    ) -> None:
        [(_, task)] = await self.launched_tasks(store, owner_of_actions, 1)
        await self.admitted(store, [task], limit=1)
        [taken] = await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON, begin=begun)

        await store.attempts.report([completion_of(taken, Result.CANCELLED, now=NOON, never_began=begun)])

        assert await self.spent(store) == 0

    @pytest.mark.req("Z-12")
    async def test_a_task_that_is_cancelled_before_a_worker_takes_it_costs_nothing(
        self, store: Store, owner_of_actions: Schedule
    ) -> None:
        [(run, task)] = await self.launched_tasks(store, owner_of_actions, 1)
        await self.admitted(store, [task], limit=1)

        await store.runs.cancel(run.run_id, reason="no", now=NOON)

        assert await self.spent(store) == 0

    @pytest.mark.req("Z-12")
    async def test_changes_of_models_and_commands_share_a_budget(
        self, store: Store, owner_of_actions: Schedule
    ) -> None:
        tasks = [task for _, task in await self.launched_tasks(store, owner_of_actions, 2)]

        assert await store.actions.count("act_1", "default", limit=2, now=NOON)
        assert await self.admitted(store, tasks[:1], limit=2) == [TaskState.SCHEDULED]
        assert not await store.actions.count("act_2", "default", limit=2, now=NOON)
        assert await self.admitted(store, tasks[1:], limit=2) == [TaskState.DENIED]
        assert await store.actions.count("act_3", "acme", limit=1, now=NOON)
        assert (await self.spent(store), await self.spent(store, tenant="acme")) == (2, 1)
        await store.actions.give_back("act_1")
        await store.actions.give_back("act_9")
        assert await store.actions.count("act_4", "default", limit=2, now=NOON)
        assert await store.actions.count("act_5", "default", limit=2, now=NOON + HOUR)

    @pytest.mark.req("Z-12")
    async def test_changes_at_the_same_time_do_not_exceed_the_budget(self, store: Store) -> None:
        counted = await asyncio.gather(
            *(store.actions.count(f"act_{number}", "default", limit=3, now=NOON) for number in range(12))
        )

        assert sum(counted) == await self.spent(store) == 3

    async def test_each_attempt_is_an_action(self, store: Store, owner_of_actions: Schedule) -> None:
        [(run, task)] = await self.launched_tasks(store, owner_of_actions, 1)
        await self.admitted(store, [task], limit=2)
        [taken] = await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON)
        await store.attempts.report([completion_of(taken, Result.FAILED, now=NOON, definition=RETRIED)])
        [again] = await store.history.tasks([run])

        assert await self.admitted(store, [again], limit=2, now=NOON + MINUTE) == [TaskState.SCHEDULED]
        assert await self.spent(store, now=NOON + MINUTE) == 2
        besides = (again.task_id, again.fence + 1)
        assert await store.tasks.actions_since("default", since=NOON - HOUR, besides=besides) == 1

    async def test_a_task_that_is_recalled_and_admitted_again_counts_once(
        self, store: Store, owner_of_actions: Schedule
    ) -> None:
        [(run, task)] = await self.launched_tasks(store, owner_of_actions, 1)
        await self.admitted(store, [task], limit=1)
        # A worker that lacks the function sends all tasks back that any worker could take.
        for name, functions in (("w1", ("f", "g")), ("w2", ("f",))):
            card = WorkerInfo(worker=name, functions=functions, slots=1, started_at=NOON)
            await store.workers.register(card, ttl_ms=LEASE)
        [again] = await store.history.tasks([run])
        assert again.state is TaskState.PENDING

        assert await self.admitted(store, [again], limit=1, now=NOON + MINUTE) == [TaskState.SCHEDULED]
        assert await self.spent(store, now=NOON + MINUTE) == 1

    @pytest.mark.req("Z-12")
    async def test_a_refusal_keeps_the_error_of_the_attempt_that_failed_before(
        self, store: Store, owner_of_actions: Schedule
    ) -> None:
        [(run, task)] = await self.launched_tasks(store, owner_of_actions, 1)
        await self.admitted(store, [task], limit=1)
        [taken] = await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON)
        failed = completion_of(taken, Result.FAILED, now=NOON, definition=RETRIED, error="exit 3: no route")
        await store.attempts.report([failed])
        [again] = await store.history.tasks([run])
        # A wait for a route has another note since.
        waits = {"state": TaskState.PENDING, "wait_reason": WaitReason.ROUTE, "note": "no_workers: none"}
        await store.tasks.admit([admission(again, schedule_uid=owner_of_actions.uid, **waits)], now=NOON)

        assert await self.admitted(store, [again], limit=1, now=NOON + MINUTE) == [TaskState.DENIED]

        [denied] = await store.history.tasks([run])
        ended = await store.executions.find_run(run.run_id)
        assert ended is not None
        assert denied.note == (
            "blocked by security policy: action budget exhausted; the attempt before had failed: exit 3: no route"
        )
        assert ended.error == denied.note

    async def test_the_refusal_of_a_worker_keeps_the_error_of_the_attempt_before(
        self, store: Store, owner_of_actions: Schedule
    ) -> None:
        [(run, _)] = await self.launched_tasks(store, owner_of_actions, 1)
        first = await take_task(store, "w1", run, now=NOON)
        await store.attempts.report(
            [completion_of(first, Result.FAILED, now=NOON, definition=RETRIED, error="exit status 3")]
        )
        second = await take_task(store, "w1", run, now=NOON + MINUTE)

        refusal = "blocked by security policy: command not allowed: rm x"
        await store.attempts.report([completion_of(second, Result.DENIED, now=NOON + MINUTE, error=refusal)])

        [denied] = await store.history.tasks([run])
        [letter] = await store.dead_letters.page("default")
        assert denied.state is TaskState.DENIED
        assert denied.note == f"{refusal}; the attempt before had failed: exit status 3"
        assert (letter.reason, letter.last_error) == ("safety_denied", denied.note)

    @pytest.mark.req("Z-12")
    async def test_many_who_admit_at_once_keep_to_the_budget(self, store: Store, owner_of_actions: Schedule) -> None:
        tasks = [task for _, task in await self.launched_tasks(store, owner_of_actions, 24)]

        states = await asyncio.gather(
            *(self.admitted(store, tasks[at : at + 3], limit=10) for at in range(0, len(tasks), 3))
        )

        assert [state for some in states for state in some].count(TaskState.SCHEDULED) == 10
        assert await self.spent(store) == 10


class ApprovalContract:
    """Tests for any store. `store` is a fresh one."""

    async def ask(self, store: Store, one: Approval) -> str:
        """Ask for the approval; return the id of that which there is then."""
        return (await store.approvals.ask(one, actor="bob", now=NOON)).approval_id

    async def vote(self, store: Store, one: Approval, kind: VoteKind = VoteKind.APPROVE) -> Approval:
        cast = Vote(voter="ada", kind=kind, at=NOON + 1, reason="seen")
        return await store.approvals.vote(one.tenant, one.approval_id, cast, digest=one.digest)

    async def standing(self, store: Store, *subjects: str, tenant: str = "default") -> list[str]:
        return [one.approval_id for one in await store.approvals.standing(tenant, subjects or ["report"])]

    async def approval_entries(self, store: Store) -> list[tuple[str, str, str]]:
        found = await store.audit.page(AuditQuery(kind="approval"))
        return [(one.entry.actor, one.entry.action, one.entry.name) for one in reversed(found)]

    @pytest.mark.req("Z-04")
    async def test_commands_are_asked_about_once_and_count_with_a_vote(self, store: Store) -> None:
        asked = [await self.ask(store, one) for one in (approval(1), approval(2))]
        waiting = await self.standing(store)
        approved = await self.vote(store, approval(1))

        assert (asked, waiting) == (["apr_1", "apr_1"], [])
        assert (approved.status, approved.decided_by) == (ApprovalStatus.APPROVED, "ada")
        assert await store.approvals.find("default", "apr_1") == approved
        assert await self.standing(store) == ["apr_1"]
        assert await self.approval_entries(store) == [("bob", "ask", "apr_1"), ("ada", "approve", "apr_1")]

    @pytest.mark.req("Z-04")
    async def test_rejected_commands_do_not_count_and_may_be_asked_about_again(self, store: Store) -> None:
        await self.ask(store, approval(1))
        rejected = await self.vote(store, approval(1), VoteKind.REJECT)

        assert (rejected.status, await self.standing(store)) == (ApprovalStatus.REJECTED, [])
        assert await self.ask(store, approval(2)) == "apr_2"

    async def test_a_question_about_commands_that_have_changed_is_void(self, store: Store) -> None:
        await self.ask(store, approval(1))
        await self.vote(store, approval(1))
        await self.ask(store, approval(2, digest="d2"))

        await self.ask(store, approval(3, digest="d3"))

        found = [await store.approvals.find("default", f"apr_{number}") for number in (1, 2, 3)]
        assert [one.status for one in found if one] == ["approved", "void", "waiting"]
        assert await self.standing(store) == ["apr_1"]
        with pytest.raises(ApprovalClosed):
            await self.vote(store, approval(2, digest="d2"))

    async def test_approvals_are_found_by_tenant_and_subject(self, store: Store) -> None:
        for one in (approval(1), approval(2, subject="other"), approval(3, tenant="acme")):
            await self.ask(store, one)
            await self.vote(store, one)

        assert await self.standing(store, "other", "report", "unknown") == ["apr_1", "apr_2"]
        assert await self.standing(store, tenant="acme") == ["apr_3"]

    @pytest.mark.req("Z-04")
    async def test_a_revoked_approval_counts_no_more_and_can_be_asked_for_again(self, store: Store) -> None:
        await self.ask(store, approval(1))
        with pytest.raises(ApprovalClosed):
            await store.approvals.revoke("default", "apr_1", actor="eve", now=NOON + HOUR)
        await self.vote(store, approval(1))

        revoked = await store.approvals.revoke("default", "apr_1", actor="eve", now=NOON + HOUR)

        assert (revoked.status, revoked.revoked_by, await self.standing(store)) == ("revoked", "eve", [])
        assert (await self.approval_entries(store))[-1] == ("eve", "revoke", "apr_1")
        assert await self.ask(store, approval(4)) == "apr_4"
        for tenant, name in (("default", "apr_none"), ("acme", "apr_1")):
            with pytest.raises(NotFound):
                await store.approvals.revoke(tenant, name, actor="eve", now=NOON + HOUR)

    async def test_of_many_who_ask_at_once_one_does(self, store: Store) -> None:
        done = await asyncio.gather(*(self.ask(store, approval(number)) for number in range(8)))

        assert len(set(done)) == 1
        assert len(await self.approval_entries(store)) == 1

    async def test_of_many_admins_who_vote_at_once_one_does(self, store: Store) -> None:
        await self.ask(store, approval(1))

        done = await asyncio.gather(*(self.vote(store, approval(1)) for _ in range(8)), return_exceptions=True)

        assert sum(isinstance(one, Approval) for one in done) == 1
        assert all(isinstance(one, Approval | ApprovalClosed) for one in done)
