"""The contract of the versions of the policy, and of rulings about tasks, for any store."""

import asyncio

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.core.model import Overlap, Result, Run, RunId, RunSource, Schedule, Task
from gnomon.core.policy.constraints import Constraints
from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.policy.shadow import MOST_DIFFERENCES, ShadowCounts, ShadowDifference
from gnomon.core.policy.version import body_digest
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import RetryPolicy, Step, Workflow
from gnomon.errors import NotFound, Stale
from gnomon.ports.audit import AuditQuery
from gnomon.ports.store import Store
from support.rulings import rulings_of
from support.task_steps import LEASE, admission, completion_of

FILE, OTHER = "default_decision: allow\n", "default_decision: deny\n"
ALLOWED = Ruling(decision=PolicyDecision.ALLOW, rule="rest", version=3, digest=b"\x01" * 32)
THROTTLED = replace(ALLOWED, decision=PolicyDecision.THROTTLE, rule="slow", reason="too many")
LIMITS = Constraints(max_runtime_ms=MINUTE, network=False)


class PolicyContract:
    """Tests for any store. `store` is a fresh one."""

    @pytest.fixture
    async def ruled(self, store: Store) -> tuple[Run, Task]:
        schedule: Schedule = minutely("ruled")
        await store.schedules.add([schedule], actor="ada", tzdata="")
        run = new_requested_run(RunId("run_ruled"), schedule, source=RunSource.API, now=NOON)
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",))], now=NOON)
        return run, (await store.history.tasks([run]))[0]

    async def test_without_a_policy_there_is_no_version(self, store: Store) -> None:
        assert (await store.policies.newest(), await store.policies.newest_number()) == (None, 0)
        assert await store.policies.find(1) is None
        assert list(await store.policies.page(before=None, limit=10)) == []

    @pytest.mark.req("R-02")
    async def test_every_file_becomes_a_numbered_version_with_digest_author_and_date(self, store: Store) -> None:
        first = await store.policies.add(FILE, author="ada", now=NOON)
        second = await store.policies.add(OTHER, author="bob", now=NOON + HOUR)

        assert (first.version, first.digest, first.author, first.created_at) == (1, body_digest(FILE), "ada", NOON)
        assert (await store.policies.newest(), await store.policies.newest_number()) == (second, 2)
        assert await store.policies.find(1) == first
        assert list(await store.policies.page(before=None, limit=10)) == [second, first]
        assert list(await store.policies.page(before=2, limit=10)) == [first]
        entries = await store.audit.page(AuditQuery(tenant="default", kind="policy"))
        assert [(one.entry.actor, one.entry.action, one.entry.before, one.entry.after) for one in entries] == [
            ("bob", "update", first.digest, second.digest),
            ("ada", "register", None, first.digest),
        ]

    async def test_the_same_file_again_is_no_new_version(self, store: Store) -> None:
        first = await store.policies.add(FILE, author="ada", now=NOON)

        assert await store.policies.add(FILE, author="bob", now=NOON + HOUR) == first
        assert await store.policies.newest_number() == 1

    async def test_a_file_that_was_compared_with_an_older_version_is_refused(self, store: Store) -> None:
        await store.policies.add(FILE, author="ada", now=NOON)

        with pytest.raises(Stale):
            await store.policies.add(OTHER, author="bob", now=NOON, expected=0)
        assert await store.policies.newest_number() == 1

    async def test_versions_that_are_applied_at_the_same_time_get_different_numbers(self, store: Store) -> None:
        made = await asyncio.gather(
            *(store.policies.add(f"# {number}\n{FILE}", author="ada", now=NOON) for number in range(5))
        )

        assert sorted(one.version for one in made) == [1, 2, 3, 4, 5]

    async def test_a_shadow_counts_its_rulings_until_it_is_stopped(self, store: Store) -> None:
        shadows = store.policy_shadows
        assert (await shadows.newest(), await shadows.running_number()) == (None, 0)
        first = await shadows.start(FILE, author="ada", now=NOON)
        assert await shadows.start(FILE, author="bob", now=NOON + 1) == first

        counted = [
            await shadows.count(1, ShadowCounts(same=5)),
            await shadows.count(1, _counts("a", 1)),
            await shadows.count(1, _counts("b", 3, not_judged=2)),
            await shadows.count(1, _counts("a", 4)),
            await shadows.count(2, _counts("a", 4)),
        ]
        ended = await shadows.stop(actor="bob", now=NOON + HOUR)
        late = await shadows.count(1, ShadowCounts(same=1))

        assert (counted, late) == ([True] * 4 + [False], False)
        assert (ended.ended_at, await shadows.running_number()) == (NOON + HOUR, 0)
        kept = await shadows.newest()
        assert kept is not None
        assert (kept.same, kept.different, kept.not_judged, kept.left_out) == (5, 8, 2, 0)
        found = await shadows.differences(limit=10)
        assert [(one.job, one.count, one.first_at, one.last_at) for one in found] == [
            ("a", 5, NOON, NOON + 4),
            ("b", 3, NOON, NOON + 3),
        ]
        assert list(await shadows.differences(limit=1)) == found[:1]
        with pytest.raises(NotFound):
            await shadows.stop(actor="bob", now=NOON + HOUR)

    async def test_another_shadow_replaces_the_last_one_and_its_counts(self, store: Store) -> None:
        await store.policy_shadows.start(FILE, author="ada", now=NOON)
        await store.policy_shadows.count(1, _counts("a", 1))
        second = await store.policy_shadows.start(OTHER, author="ada", now=NOON + 1)

        assert (second.number, second.different) == (2, 0)
        assert list(await store.policy_shadows.differences(limit=10)) == []
        entries = await store.audit.page(AuditQuery(tenant="default", kind="policy"))
        assert [(one.entry.action, one.entry.name) for one in entries] == [
            ("register", "shadow-2"),
            ("register", "shadow-1"),
        ]

    async def test_a_shadow_is_promoted_to_the_version_in_force(self, store: Store) -> None:
        with pytest.raises(NotFound):
            await store.policy_shadows.promote(actor="ada", now=NOON)
        await store.policies.add(FILE, author="ada", now=NOON)
        await store.policy_shadows.start(OTHER, author="ada", now=NOON)

        with pytest.raises(Stale):
            await store.policy_shadows.promote(actor="bob", now=NOON, expected=0)
        assert await store.policy_shadows.running_number() == 1
        made = await store.policy_shadows.promote(actor="bob", now=NOON + 1, expected=1)

        assert (made.version, made.body, made.author) == (2, OTHER, "bob")
        assert await store.policy_shadows.running_number() == 0

    async def test_no_more_differences_are_kept_than_there_is_room_for(self, store: Store) -> None:
        await store.policy_shadows.start(FILE, author="ada", now=NOON)
        for start in range(0, MOST_DIFFERENCES + 500, 500):
            many = ShadowCounts(different=500)
            for number in range(start, start + 500):
                one = _difference(f"job{number:05}", 1)
                many.differences[one.key] = one
            await store.policy_shadows.count(1, many)

        shadow = await store.policy_shadows.newest()

        assert shadow is not None
        assert (shadow.different, shadow.left_out) == (MOST_DIFFERENCES + 500, 500)
        assert len(await store.policy_shadows.differences(limit=10_000)) == MOST_DIFFERENCES

    @pytest.mark.req("R-02")
    async def test_a_plain_permission_is_kept_with_rule_version_and_digest(
        self, store: Store, ruled: tuple[Run, Task]
    ) -> None:
        run, task = ruled
        await store.tasks.admit([admission(task, schedule_uid=run.schedule_uid, ruling=ALLOWED)], now=NOON)

        [kept] = await rulings_of(store, run.run_id)

        assert (kept.task_id, kept.decision, kept.rule, kept.version) == (task.task_id, "allow", "rest", 3)
        assert (kept.digest, kept.ruled_by) == (ALLOWED.digest, "policy")

    async def test_a_run_with_a_ruling_is_told_from_those_without(self, store: Store, ruled: tuple[Run, Task]) -> None:
        run, task = ruled
        assert await store.rulings.ruled_runs([run.run_id, RunId("run_other")]) == set()

        await store.tasks.admit([admission(task, schedule_uid=run.schedule_uid, ruling=ALLOWED)], now=NOON)

        assert await store.rulings.ruled_runs([run.run_id, RunId("run_other")]) == {run.run_id}
        assert await store.rulings.ruled_runs([]) == set()

    @pytest.mark.req("R-02", "R-14")
    async def test_a_permission_of_a_kernel_is_kept_with_its_author(
        self, store: Store, ruled: tuple[Run, Task]
    ) -> None:
        run, task = ruled
        made = replace(ALLOWED, rule="a/b", version=0, ruled_by="kernel:0123")
        await store.tasks.admit([admission(task, schedule_uid=run.schedule_uid, ruling=made)], now=NOON)

        [kept] = await rulings_of(store, run.run_id)

        assert (kept.decision, kept.rule, kept.version, kept.ruled_by) == ("allow", "a/b", 0, "kernel:0123")

    @pytest.mark.req("R-13")
    async def test_a_permission_by_the_fail_mode_is_a_row(self, store: Store, ruled: tuple[Run, Task]) -> None:
        run, task = ruled
        made = replace(ALLOWED, rule="fail_open", version=0, ruled_by="fail_open", reason="fail-open: it is away")
        await store.tasks.admit([admission(task, schedule_uid=run.schedule_uid, ruling=made)], now=NOON)

        [kept] = await rulings_of(store, run.run_id)

        assert (kept.rule, kept.ruled_by, kept.reason, kept.at) == ("fail_open", "fail_open", made.reason, NOON)

    @pytest.mark.req("R-02")
    async def test_a_ruling_with_constraints_is_a_row_and_the_task_has_them(
        self, store: Store, ruled: tuple[Run, Task]
    ) -> None:
        run, task = ruled
        boxed = replace(ALLOWED, decision=PolicyDecision.ALLOW_WITH_CONSTRAINTS, constraints=LIMITS, reason="boxed")
        await store.tasks.admit([admission(task, schedule_uid=run.schedule_uid, ruling=boxed)], now=NOON)

        [taken] = await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON)

        [kept] = await rulings_of(store, run.run_id)
        assert taken.task.constraints == LIMITS
        assert (kept.decision, kept.constraints, kept.reason, kept.at, kept.count) == (
            "allow_with_constraints",
            LIMITS,
            "boxed",
            NOON,
            1,
        )

    async def test_a_later_plain_permission_lifts_the_constraints(self, store: Store, ruled: tuple[Run, Task]) -> None:
        run, task = ruled
        boxed = replace(THROTTLED, constraints=LIMITS)
        waits = admission(
            task,
            schedule_uid=run.schedule_uid,
            state=TaskState.PENDING,
            wait_reason=WaitReason.POLICY,
            ruling=replace(boxed, decision=PolicyDecision.ALLOW_WITH_CONSTRAINTS),
        )
        await store.tasks.admit([waits], now=NOON)
        await store.tasks.admit([admission(task, schedule_uid=run.schedule_uid, ruling=ALLOWED)], now=NOON)

        assert (await store.history.tasks([run]))[0].constraints is None
        assert [one.decision for one in await rulings_of(store, run.run_id)] == ["allow_with_constraints", "allow"]

    async def test_a_ruling_that_is_repeated_is_one_row_with_a_count(
        self, store: Store, ruled: tuple[Run, Task]
    ) -> None:
        run, task = ruled
        waits = admission(
            task,
            schedule_uid=run.schedule_uid,
            state=TaskState.PENDING,
            wait_reason=WaitReason.POLICY,
            ruling=THROTTLED,
        )
        for number in range(3):
            await store.tasks.admit([waits], now=NOON + number * MINUTE)

        [kept] = await rulings_of(store, run.run_id)

        assert (kept.decision, kept.at, kept.last_at, kept.count) == ("throttle", NOON, NOON + 2 * MINUTE, 3)

    async def test_another_ruling_is_another_row(self, store: Store, ruled: tuple[Run, Task]) -> None:
        run, task = ruled
        denied = replace(ALLOWED, decision=PolicyDecision.DENY, rule="no", reason="never")
        for number, ruling in enumerate((THROTTLED, replace(THROTTLED, version=4), denied)):
            over = ruling is denied
            one = admission(
                task,
                schedule_uid=run.schedule_uid,
                state=TaskState.DENIED if over else TaskState.PENDING,
                wait_reason=WaitReason.POLICY,
                dead_letter="safety_denied" if over else None,
                note="denied" if over else None,
                ruling=ruling,
            )
            await store.tasks.admit([one], now=NOON + number)

        kept = await rulings_of(store, run.run_id)

        assert [(one.number, one.rule, one.version, one.code) for one in kept] == [
            (1, "slow", 3, ""),
            (2, "slow", 4, ""),
            (3, "no", 3, "safety_denied"),
        ]

    async def test_the_tasks_of_the_history_are_read_with_what_was_decided_about_them(self, store: Store) -> None:
        tasks = await self._launched(store, 3)
        limits = replace(ALLOWED, decision=PolicyDecision.ALLOW_WITH_CONSTRAINTS, constraints=LIMITS)
        waits = admission(tasks[1], state=TaskState.PENDING, wait_reason=WaitReason.POLICY, ruling=THROTTLED)
        await store.tasks.admit([admission(tasks[0], ruling=limits), waits], now=NOON)
        await store.tasks.admit([admission(tasks[1], ruling=ALLOWED), admission(tasks[2])], now=NOON + 1)
        await store.attempts.take("w1", limit=3, lease_ms=LEASE, now=NOON + 2)

        found = [*await store.rulings.past_tasks(limit=2)]
        found += await store.rulings.past_tasks(after=found[-1].ready.task.task_id, limit=10)

        assert [one.ready.task.task_id for one in found] == sorted(one.task_id for one in tasks)
        by_task = {one.ready.task.task_id: one for one in found}
        boxed, later, free, waiting = (by_task[one.task_id] for one in tasks)
        assert (boxed.permission, boxed.ready.task.constraints, boxed.dispatched_at) == ("3/rest", LIMITS, NOON + 2)
        assert (later.permission, later.ruling and later.ruling.decision) == ("3/rest", "throttle")
        assert (free.permission, free.ruling, free.dispatched_at) == (None, None, NOON + 2)
        assert (waiting.dispatched_at, waiting.has_input) == (None, False)
        assert [one.ready.run.run_id for one in found] == [f"run_{number}" for number in range(4)]

    @pytest.mark.req("R-02")
    async def test_a_retry_that_is_refused_comes_after_the_permission_of_the_first_attempt(
        self, store: Store, ruled: tuple[Run, Task]
    ) -> None:
        run, task = ruled
        await store.tasks.admit([admission(task, schedule_uid=run.schedule_uid, ruling=ALLOWED)], now=NOON)
        [taken] = await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON)
        step = Step(name="main", function="f", retry=RetryPolicy(max_attempts=3))
        retried = Workflow(workflow_id="ruled", version=1, steps=(step,))
        failed = completion_of(taken, Result.FAILED, now=NOON + 1, definition=retried, error="planted")
        await store.attempts.report([failed])
        waits = admission(
            taken.task,
            schedule_uid=run.schedule_uid,
            state=TaskState.PENDING,
            wait_reason=WaitReason.POLICY,
            ruling=THROTTLED,
        )
        await store.tasks.admit([waits], now=NOON + MINUTE)

        assert [one.decision for one in await rulings_of(store, run.run_id)] == ["allow", "throttle"]

    async def test_a_void_admission_writes_no_ruling(self, store: Store, ruled: tuple[Run, Task]) -> None:
        run, task = ruled
        void = admission(task, schedule_uid=run.schedule_uid, fence=task.fence + 1, ruling=THROTTLED)

        await store.tasks.admit([void], now=NOON)

        assert await rulings_of(store, run.run_id) == []

    @pytest.mark.req("R-02")
    async def test_no_more_tasks_of_a_rule_are_in_flight_than_it_allows(self, store: Store) -> None:
        tasks = await self._launched(store, 3)
        boxed = _boxed("boxed", 2)
        other = _boxed("other", 1)

        done = await store.tasks.admit([admission(tasks[0], ruling=boxed), admission(tasks[1], ruling=other)], now=NOON)
        more = await store.tasks.admit(
            [admission(tasks[2], ruling=boxed), admission(tasks[3], ruling=replace(boxed, version=4))], now=NOON
        )

        assert {one.state for one in done.values()} == {TaskState.SCHEDULED}
        assert more[tasks[2].task_id].state is TaskState.SCHEDULED
        put_off = more[tasks[3].task_id]
        assert (put_off.state, put_off.wait_reason) == (TaskState.PENDING, WaitReason.POLICY)
        assert put_off.available_at == NOON + 5_000
        [row] = await rulings_of(store, tasks[3].run_id)
        assert (row.decision, row.rule, row.version) == ("throttle", "boxed", 4)
        assert "2 tasks of this rule may be in flight at once" in row.reason

    async def test_a_task_that_has_ended_leaves_its_place_to_the_next(self, store: Store) -> None:
        first, second = (await self._launched(store, 1))[:2]
        boxed = _boxed("boxed", 1)
        await store.tasks.admit([admission(first, ruling=boxed)], now=NOON)
        refused = await store.tasks.admit([admission(second, ruling=boxed)], now=NOON)
        [taken] = await store.attempts.take("w1", limit=1, lease_ms=LEASE, now=NOON)
        await store.attempts.report([completion_of(taken, Result.SUCCEEDED, now=NOON + 1)])

        admitted = await store.tasks.admit([admission(second, ruling=boxed)], now=NOON + 2)

        assert refused[second.task_id].state is TaskState.PENDING
        assert admitted[second.task_id].state is TaskState.SCHEDULED

    async def _launched(self, store: Store, count: int) -> list[Task]:
        schedule = minutely("many", overlap=Overlap.ALLOW)
        await store.schedules.add([schedule], actor="ada", tzdata="")
        runs = [
            new_requested_run(RunId(f"run_{number}"), schedule, source=RunSource.API, now=NOON)
            for number in range(count + 1)
        ]
        await store.runs.launch([LaunchRequest(run=run, first_steps=("main",)) for run in runs], now=NOON)
        return [(await store.history.tasks([run]))[0] for run in runs]


def _boxed(rule: str, most: int) -> Ruling:
    return replace(
        ALLOWED,
        decision=PolicyDecision.ALLOW_WITH_CONSTRAINTS,
        rule=rule,
        constraints=Constraints(max_concurrent=most),
        retry_after_ms=5_000,
    )


def _difference(job: str, count: int) -> ShadowDifference:
    return ShadowDifference(
        tenant="default",
        job=job,
        before="allow",
        before_rule="rest",
        after="deny",
        after_rule="default",
        count=count,
        first_at=NOON,
        last_at=NOON + count,
        run_id="run_1",
        step="main",
    )


def _counts(job: str, count: int, *, not_judged: int = 0) -> ShadowCounts:
    one = _difference(job, count)
    return ShadowCounts(different=count, not_judged=not_judged, differences={one.key: one})
