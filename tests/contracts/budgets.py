"""The contract of the budgets of the policy, for any store: never more than the limit within a window."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, NOON, minutely
from gnomon.core.approvals.model import Approval, ApprovalStatus, Vote, VoteKind
from gnomon.core.approvals.terms import ApprovalTerms
from gnomon.core.breakers import BreakerLimits
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, Task, TaskId
from gnomon.core.named_breakers import BreakerKey, BreakerUse, RequestOutcome
from gnomon.core.policy.budgets import BudgetKey, BudgetUse, BudgetWindow, OverBudget, scope_text
from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.runs.admission import Admission, ReadyTask
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.ports.maintenance import HeldTasks
from gnomon.ports.store import Store
from support.rulings import rulings_of
from support.task_steps import LEASE, admission, completion_of

ALLOWED = Ruling(decision=PolicyDecision.ALLOW, rule="rest", version=3, digest=b"\x01" * 32)
TWO = BudgetUse(budget="two-an-hour", scope="job pay", meter="tasks", limit=2, per_ms=HOUR, amount=1)
ASKING = replace(TWO, over=OverBudget.REQUIRE_APPROVAL, digest="content", approval=ApprovalTerms(groups=("treasury",)))
MAILS = BudgetUse(budget="mails", scope="", meter="mails", limit=10, per_ms=HOUR, amount=6)
SCHEDULED, PENDING, APPROVAL_REQUIRED = TaskState.SCHEDULED, TaskState.PENDING, TaskState.APPROVAL_REQUIRED


class BudgetContract:
    """Tests for any store. `store` is a fresh one."""

    @pytest.mark.req("R-02")
    async def test_tasks_beyond_the_limit_wait_for_the_next_window(self, store: Store) -> None:
        tasks = await launched(store, 3)

        done = await admit(store, tasks, TWO, now=NOON + 60_000)

        assert [done[one.task_id].state for one in tasks] == [SCHEDULED, SCHEDULED, PENDING]
        waits = done[tasks[2].task_id]
        assert (waits.wait_reason, waits.available_at, waits.routings) == (WaitReason.POLICY, NOON + HOUR, 0)
        [row] = await rulings_of(store, tasks[2].run_id)
        assert (row.decision, row.rule, row.version, row.ruled_by) == ("throttle", "two-an-hour", 3, "budgets")
        assert row.reason == "2 tasks per 1h are spent or reserved (job pay)"
        again = await admit(store, tasks[2:], TWO, now=NOON + HOUR)
        assert again[tasks[2].task_id].state is SCHEDULED

    async def test_each_scope_has_a_limit_of_its_own(self, store: Store) -> None:
        tasks = await launched(store, 4)
        other = replace(TWO, scope="job refund")

        first = await admit(store, tasks[:2], TWO)
        second = await admit(store, tasks[2:], other)

        assert {one.state for one in (*first.values(), *second.values())} == {SCHEDULED}

    async def test_the_longest_scope_is_a_key(self, store: Store) -> None:
        [task] = await launched(store, 1)
        scope = scope_text([(BudgetKey.ACTOR, "".join(map(chr, range(0x4E00, 0x5200))))])

        assert (await admit(store, [task], replace(TWO, scope=scope)))[task.task_id].state is SCHEDULED

    async def test_a_task_that_uses_two_budgets_reserves_both_or_none(self, store: Store) -> None:
        tasks = await launched(store, 4)
        narrow = replace(TWO, budget="one-a-day", limit=1, per_ms=24 * HOUR)
        await admit(store, tasks[:1], TWO, narrow)

        refused = await admit(store, tasks[1:2], TWO, narrow)
        after = await admit(store, tasks[2:], TWO)

        assert refused[tasks[1].task_id].available_at == NOON + 12 * HOUR
        assert sorted(one.state for one in after.values()) == [PENDING, SCHEDULED]

    async def test_an_attempt_that_never_ran_gives_its_reservation_back(self, store: Store) -> None:
        tasks = await launched(store, 3)
        await admit(store, tasks[:2], TWO)
        taken = await take(store, begin=False)
        await store.attempts.report([completion_of(taken[0], Result.NEVER_STARTED, now=NOON + 1)])

        assert (await admit(store, tasks[2:], TWO, now=NOON + 2))[tasks[2].task_id].state is SCHEDULED

    @pytest.mark.parametrize("result", [Result.SUCCEEDED, Result.FAILED, Result.LOST, Result.INTERRUPTED])
    async def test_an_attempt_that_ran_has_spent_its_reservation(self, store: Store, result: Result) -> None:
        tasks = await launched(store, 3)
        await admit(store, tasks[:2], TWO)
        taken = await take(store)
        await store.attempts.report([completion_of(one, result, now=NOON + 1) for one in taken])

        assert (await admit(store, tasks[2:], TWO, now=NOON + 2))[tasks[2].task_id].state is PENDING

    async def test_a_task_that_is_cancelled_before_a_worker_takes_it_gives_back(self, store: Store) -> None:
        tasks = await launched(store, 3)
        await admit(store, tasks[:2], TWO)
        await store.runs.cancel(tasks[0].run_id, reason="enough", now=NOON + 1)

        assert (await admit(store, tasks[2:], TWO, now=NOON + 2))[tasks[2].task_id].state is SCHEDULED

    async def test_over_it_a_task_is_denied_if_the_budget_says_so(self, store: Store) -> None:
        tasks = await launched(store, 3)

        done = await admit(store, tasks, replace(TWO, over=OverBudget.DENY))

        denied = done[tasks[2].task_id]
        assert (denied.state, denied.dead_letter) == (TaskState.DENIED, "safety_denied")
        [run] = [one for one in [await store.executions.find_run(tasks[2].run_id)] if one]
        assert run.status.value == "failed"
        assert run.error == "denied by budget two-an-hour of policy 3 (2 tasks per 1h are spent or reserved (job pay))"

    @pytest.mark.req("R-03")
    async def test_over_it_people_are_asked_if_the_budget_says_so_and_let_one_task_exceed_it(
        self, store: Store
    ) -> None:
        tasks = await launched(store, 4)
        asked = (await admit(store, tasks[:3], ASKING))[tasks[2].task_id]
        approval = await voted(store, tasks[2], VoteKind.APPROVE)

        done = await admit(store, tasks[2:], ASKING, now=NOON + 2)

        assert (asked.state, approval.reason) == (APPROVAL_REQUIRED, "2 tasks per 1h are spent or reserved (job pay)")
        assert approval.request is not None
        assert (approval.request.rule, approval.request.terms.groups) == ("budget two-an-hour", ("treasury",))
        assert {task_id: one.state for task_id, one in done.items()} == {
            tasks[2].task_id: SCHEDULED,
            tasks[3].task_id: APPROVAL_REQUIRED,
        }
        first, last = await rulings_of(store, tasks[2].run_id)
        assert (first.decision, first.rule, first.ruled_by) == ("require_approval", "two-an-hour", "budgets")
        assert (last.decision, last.rule, last.ruled_by) == ("allow", "rest", "policy")
        assert last.reason == "approved by bob, beyond budget two-an-hour"

    async def test_a_rejection_ends_a_task_that_would_exceed_a_budget(self, store: Store) -> None:
        tasks = await launched(store, 3)
        await admit(store, tasks, ASKING)
        await voted(store, tasks[2], VoteKind.REJECT)

        [task] = [one for one in await tasks_of(store, tasks) if one.task_id == tasks[2].task_id]
        [letter] = await store.dead_letters.page("default")
        assert (task.state, letter.reason) == (TaskState.DENIED, "approval_rejected")

    async def test_votes_for_another_request_let_no_task_exceed_a_budget(self, store: Store) -> None:
        tasks = await launched(store, 3)
        await admit(store, tasks, ASKING)
        await voted(store, tasks[2], VoteKind.APPROVE)

        other = await admit(store, tasks[2:], ASKING, now=NOON + 2, digest=b"\x02" * 32)
        assert other[tasks[2].task_id].state is APPROVAL_REQUIRED

    async def test_an_approved_task_exceeds_the_budget_that_asked_and_no_other(self, store: Store) -> None:
        tasks = await launched(store, 3)
        narrow = replace(TWO, budget="three-a-day", limit=2, per_ms=24 * HOUR)
        await admit(store, tasks, ASKING, narrow)
        await voted(store, tasks[2], VoteKind.APPROVE)

        done = await admit(store, tasks[2:], ASKING, narrow, now=NOON + 2)
        assert (done[tasks[2].task_id].state, done[tasks[2].task_id].available_at) == (PENDING, NOON + 12 * HOUR)

    async def test_in_the_next_window_nobody_is_asked(self, store: Store) -> None:
        tasks = await launched(store, 3)
        await admit(store, tasks[:2], ASKING)

        done = await admit(store, tasks[2:], ASKING, now=NOON + HOUR)
        assert done[tasks[2].task_id].state is SCHEDULED

    async def test_the_tasks_that_are_held_back_are_counted_with_the_breakers_that_are_not_closed(
        self, store: Store
    ) -> None:
        assert await store.stats.held_tasks() == HeldTasks()
        tasks = await launched(store, 6)
        await admit(store, tasks[:3], TWO)
        await admit(store, tasks[3:5], replace(ASKING, budget="asking", limit=0))
        key = BreakerKey("default", "stripe")
        use = BreakerUse(key=key, limits=BreakerLimits(failures=1), request="task_x/1")
        await store.breakers.record(use, RequestOutcome.FAILED, now=NOON)

        assert await store.stats.held_tasks() == HeldTasks(
            to_approve=2,
            put_off=1,
            reason="budget two-an-hour of policy 3 puts it off (2 tasks per 1h are spent or reserved (job pay))",
            breakers=("stripe",),
        )

    async def test_the_windows_that_have_not_ended_are_listed_by_their_names(self, store: Store) -> None:
        tasks = await launched(store, 4)
        await admit(store, tasks[:1], TWO)
        await admit(store, tasks[1:3], replace(TWO, scope="job refund"))
        await admit(store, tasks[3:], replace(MAILS, per_ms=24 * HOUR))
        windows = store.budget_windows

        first = await windows.page(now=NOON, limit=2)
        rest = await windows.page(now=NOON, after=first[-1].window_id, limit=2)
        used = await windows.used(now=NOON)
        later = await windows.page(now=NOON + HOUR, limit=10)

        assert [(one.budget, one.scope, one.starts_at, one.ends_at, one.window) for one in (*first, *rest)] == [
            ("mails", "", NOON - 12 * HOUR, NOON + 12 * HOUR, BudgetWindow(reserved=6)),
            ("two-an-hour", "job pay", NOON, NOON + HOUR, BudgetWindow(reserved=1)),
            ("two-an-hour", "job refund", NOON, NOON + HOUR, BudgetWindow(reserved=2)),
        ]
        assert used == {("mails", NOON - 12 * HOUR), ("two-an-hour", NOON)}
        assert [one.budget for one in later] == ["mails"]
        assert await windows.used(now=NOON + HOUR) == {("mails", NOON - 12 * HOUR)}

    async def test_of_other_meters_the_part_that_was_not_spent_comes_back(self, store: Store) -> None:
        tasks = await launched(store, 3)
        [first] = (await admit(store, tasks[:1], MAILS)).values()
        refused = await admit(store, tasks[1:2], MAILS, now=NOON + 1)
        [taken] = await take(store)
        await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON + 2, spent={"mails": 4})])
        after = await admit(store, tasks[1:2], MAILS, now=NOON + 3)

        assert first.state is SCHEDULED
        assert taken.task.constraints is not None
        assert taken.task.constraints.as_data() == {"spend": {"mails": 6}}
        assert refused[tasks[1].task_id].available_at == NOON + 1 + MAILS.retry_ms
        assert after[tasks[1].task_id].state is SCHEDULED
        last = await admit(store, tasks[2:], MAILS, now=NOON + 4)
        assert last[tasks[2].task_id].state is PENDING

    @pytest.mark.req("R-02")
    async def test_tasks_that_are_admitted_at_the_same_time_share_one_limit(self, store: Store) -> None:
        tasks = await launched(store, 8)

        done = await asyncio.gather(*(admit(store, [one], TWO) for one in tasks))

        assert sum(one.state is SCHEDULED for found in done for one in found.values()) == 2

    @pytest.mark.parametrize("seed", range(3))
    async def test_in_no_history_a_window_has_more_than_its_limit(self, store: Store, seed: int) -> None:
        random_budget_history = RandomBudgetHistory(store, await launched(store, 30), seed)

        await random_budget_history.happen(120)

        assert random_budget_history.most_in_a_window() <= TWO.limit
        assert random_budget_history.denied_though_there_was_room == []


class RandomBudgetHistory:
    """Tasks that are admitted, taken, ended and cancelled in any order, and an account of them of its own.

    The account knows nothing of reservations: it counts the attempts that ran, or may still run, by the hour in which
    they were admitted.
    """

    def __init__(self, store: Store, tasks: Sequence[Task], seed: int) -> None:
        self._store, self._random, self._now = store, random.Random(seed), NOON
        self._waiting = {task.task_id: task for task in tasks}
        self._admitted: dict[str, tuple[Task, int]] = {}
        self._held: dict[str, tuple[ReadyTask, int, bool]] = {}
        self._counted = Counter[int]()
        self._most = 0
        self.denied_though_there_was_room: list[int] = []

    def most_in_a_window(self) -> int:
        """The largest number of attempts that counted in an hour at the same moment."""
        return self._most

    async def happen(self, times: int) -> None:
        """Let so many things happen."""
        acts: Mapping[Callable[[], object], int] = {self._admit: 5, self._take: 3, self._end: 3, self._cancel: 1}
        for _ in range(times):
            self._now += self._random.choice((1, 1000, 5 * 60_000))
            [act] = self._random.choices(list(acts), list(acts.values()))
            await act()  # type: ignore[misc]
            self._most = max([self._most, *self._counted.values()])

    def _hour(self) -> int:
        return self._now // HOUR

    async def _admit(self) -> None:
        if not self._waiting:
            return
        wanted = self._random.sample(sorted(self._waiting), k=min(len(self._waiting), self._random.randint(1, 4)))
        done = await admit(self._store, [self._waiting[name] for name in wanted], TWO, now=self._now)
        for one in done.values():
            if one.state is SCHEDULED:
                self._counted[self._hour()] += 1
                self._admitted[one.task_id] = self._waiting.pop(one.task_id), self._hour()
            elif self._counted[self._hour()] < TWO.limit:
                self.denied_though_there_was_room.append(self._now)

    async def _take(self) -> None:
        begin = self._random.random() < 0.5
        for one in await take(self._store, now=self._now, begin=begin, limit=2):
            _, hour = self._admitted.pop(one.task.task_id)
            self._held[one.task.task_id] = one, hour, begin

    async def _end(self) -> None:
        if not self._held:
            return
        name = self._random.choice(sorted(self._held))
        taken, hour, began = self._held.pop(name)
        ran = (Result.SUCCEEDED, Result.FAILED, Result.LOST)
        result = self._random.choice(ran if began else (Result.NEVER_STARTED, Result.CANCELLED))
        ended = completion_of(taken, result, now=self._now)
        await self._store.attempts.report([ended])
        if not began:
            self._counted[hour] -= 1
        if not ended.over:
            self._waiting[taken.task.task_id] = taken.task

    async def _cancel(self) -> None:
        if self._admitted:
            task, hour = self._admitted.pop(self._random.choice(sorted(self._admitted)))
            await self._store.runs.cancel(task.run_id, reason="enough", now=self._now)
            self._counted[hour] -= 1


async def launched(store: Store, count: int) -> list[Task]:
    schedule = minutely("pay", overlap=Overlap.ALLOW)
    await store.schedules.add([schedule], actor="ada", tzdata="")
    runs: list[Run] = [
        new_requested_run(RunId(f"run_{number:02}"), schedule, source=RunSource.API, now=NOON)
        for number in range(count)
    ]
    await store.runs.launch([LaunchRequest(run=run, first_steps=("main",)) for run in runs], now=NOON)
    found = {task.run_id: task for task in await store.history.tasks(runs)}
    return [found[run.run_id] for run in runs]


async def admit(
    store: Store, tasks: Sequence[Task], *uses: BudgetUse, now: int = NOON, digest: bytes = ALLOWED.digest
) -> Mapping[TaskId, Admission]:
    """Admit the tasks, as a policy would whose budgets they use."""
    ruling = replace(ALLOWED, budgets=uses, retry_after_ms=5_000, digest=digest)
    made = []
    for task in tasks:
        run = await store.executions.find_run(task.run_id)
        assert run is not None
        made.append(admission(task, ruling=ruling, available_at=now, waiting=ReadyTask(task=task, run=run)))
    return await store.tasks.admit(made, now=now)


async def voted(store: Store, task: Task, kind: VoteKind) -> Approval:
    """Let bob vote on the approval for which the task waits."""
    [waiting] = [one for one in await store.approvals.of_task(task.task_id) if one.status is ApprovalStatus.WAITING]
    vote = Vote(voter="bob", kind=kind, at=NOON + 1)
    return await store.approvals.vote("default", waiting.approval_id, vote, digest=waiting.digest)


async def tasks_of(store: Store, tasks: Sequence[Task]) -> Sequence[Task]:
    runs = [run for task in tasks if (run := await store.executions.find_run(task.run_id)) is not None]
    return await store.history.tasks(runs)


async def take(store: Store, *, now: int = NOON, begin: bool = True, limit: int = 100) -> Sequence[ReadyTask]:
    return await store.attempts.take("w1", limit=limit, lease_ms=LEASE, now=now, begin=begin)
