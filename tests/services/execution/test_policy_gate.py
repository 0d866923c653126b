"""The gate rules on each task by the policy in the store, and writes the ruling down before anything follows."""

import pytest

from contracts.store import MINUTE, NOON
from gnomon.core.model import Result
from gnomon.core.policy.facts import request_digest
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import RetryPolicy
from gnomon.errors import StoreUnavailable
from support.policy_harness import THROTTLE_MS, PolicyHarness, command, function
from support.rulings import rulings_of


@pytest.mark.req("R-02")
async def test_without_a_policy_everything_is_allowed_and_nothing_is_ruled() -> None:
    task, rulings = await PolicyHarness().tried(function())

    assert (task.state, rulings) == (TaskState.RUNNING, [])


@pytest.mark.req("R-02")
async def test_a_plain_permission_names_rule_version_and_digest() -> None:
    harness = PolicyHarness()
    await harness.apply("rules: [{id: reports, match: {topics: ['reports.*']}, decision: allow}]")

    task, [ruling] = await harness.tried(function(), b'{"day": 1}')

    assert task.state is TaskState.RUNNING
    assert (ruling.decision, ruling.rule, ruling.version, ruling.ruled_by) == ("allow", "reports", 1, "policy")
    [ready] = harness.runner.started.values()
    waiting = ReadyTask(task=ready.task, run=ready.run)
    request = AdmissionRequest(waiting=waiting, workflow=ready.workflow, step=ready.step, input={"day": 1})
    assert ruling.digest == request_digest(request)


@pytest.mark.req("R-02")
async def test_a_denial_is_final_and_leaves_a_dead_letter_with_its_code() -> None:
    harness = PolicyHarness()
    await harness.apply(
        "rules: [{id: never, match: {risk_tags: [money]}, decision: deny, reason: not at night,"
        " remediations: [{title: wait}]}]\ndefault_decision: allow"
    )

    task, [ruling] = await harness.tried(function(risk_tags=("money",)))

    [letter] = await harness.store.dead_letters.page("default")
    assert task.state is TaskState.DENIED
    assert task.note == "denied by rule never of policy 1 (not at night; instead: wait)"
    assert (letter.reason, letter.last_error) == ("safety_denied", task.note)
    assert (ruling.decision, ruling.code) == ("deny", "safety_denied")
    assert not harness.runner.started


@pytest.mark.req("R-02")
async def test_where_no_rule_matches_the_default_decides() -> None:
    harness = PolicyHarness()
    await harness.apply("rules: [{id: other, match: {topics: [x]}, decision: allow}]")

    task, [ruling] = await harness.tried(function())

    assert task.state is TaskState.DENIED
    assert task.note == "denied by the default decision of policy 1 (no rule allows it)"
    assert ruling.rule == "default"


@pytest.mark.req("R-02")
async def test_a_condition_that_cannot_be_decided_denies_with_a_code_of_its_own() -> None:
    harness = PolicyHarness()
    await harness.apply("rules: [{id: big, when: input.amount > 9, decision: allow}]\ndefault_decision: allow")

    task, _ = await harness.tried(function())

    [letter] = await harness.store.dead_letters.page("default")
    assert (task.state, letter.reason) == (TaskState.DENIED, "safety_unknown")


@pytest.mark.req("R-02", "R-04")
async def test_a_throttled_task_waits_is_asked_about_again_and_never_fails_for_it() -> None:
    harness = PolicyHarness()
    await harness.apply("rules: [{id: slow, decision: throttle, reason: too many}]")
    run = await harness.launched(function())

    for count in range(1, 60):
        await harness.run_until_idle()
        task = await harness.task(run)
        assert (task.state, task.wait_reason, task.routings) == (TaskState.PENDING, WaitReason.POLICY, 0)
        assert task.available_at == harness.clock.now() + THROTTLE_MS
        [ruling] = await rulings_of(harness.store, run.run_id)
        assert ruling.count == count
        harness.clock.advance(THROTTLE_MS)
    assert task.note == "rule slow of policy 1 puts it off (too many)"
    await harness.apply("default_decision: allow")
    await harness.run_until_idle()

    assert (await harness.task(run)).state is TaskState.RUNNING
    assert [one.decision for one in await rulings_of(harness.store, run.run_id)] == ["throttle", "allow"]


@pytest.mark.req("R-02")
async def test_constraints_come_with_the_task_and_tighten_its_step() -> None:
    harness = PolicyHarness()
    await harness.apply(
        "rules: [{id: boxed, decision: allow_with_constraints, constraints: {max_runtime: 1m, max_attempts: 1}}]"
    )

    task, [ruling] = await harness.tried(function(timeout_ms=10 * MINUTE))

    [started] = harness.runner.started.values()
    assert started.step.timeout_ms == MINUTE
    assert started.step.retry is not None
    assert started.step.retry.max_attempts == 1
    assert task.constraints == ruling.constraints
    assert (ruling.decision, ruling.rule) == ("allow_with_constraints", "boxed")


@pytest.mark.req("R-02")
async def test_the_stricter_of_both_policies_wins() -> None:
    harness = PolicyHarness()
    await harness.apply("rules: [{id: shell, match: {kinds: [command]}, decision: throttle}]\ndefault_decision: allow")

    denied, [by_commands] = await harness.tried(command("rm -rf x"))
    waits, [by_policy] = await harness.tried(command("echo hello"))
    await harness.apply("default_decision: deny")
    refused, [by_both] = await harness.tried(command("rm -rf x"))

    assert (denied.state, by_commands.ruled_by, by_commands.decision) == (TaskState.DENIED, "commands", "deny")
    assert (denied.note or "").startswith("blocked by security policy: command not allowed: rm -rf x")
    assert (waits.state, by_policy.rule) == (TaskState.PENDING, "shell")
    assert (refused.state, by_both.ruled_by, by_both.rule) == (TaskState.DENIED, "policy", "default")


async def test_the_budget_of_commands_counts_under_a_policy_too() -> None:
    harness = PolicyHarness(max_actions_per_hour=1)
    await harness.apply("default_decision: allow")

    first, _ = await harness.tried(command("echo hello"))
    second, [ruling] = await harness.tried(command("echo hello"))

    assert (first.state, second.state) == (TaskState.RUNNING, TaskState.DENIED)
    assert (ruling.decision, ruling.ruled_by) == ("deny", "commands")


@pytest.mark.req("R-02")
async def test_a_version_that_cannot_be_read_leaves_the_last_good_one_in_force() -> None:
    harness = PolicyHarness()
    await harness.apply("default_decision: deny")
    await harness.apply("default_decision: perhaps")

    task, [ruling] = await harness.tried(function())

    assert (task.state, ruling.version) == (TaskState.DENIED, 1)
    [event] = [fields for name, fields in harness.policy_events.seen if name == "policy_unreadable"]
    assert event["version"] == 2


@pytest.mark.req("R-02")
async def test_without_a_version_that_can_be_read_tasks_wait() -> None:
    harness = PolicyHarness()
    await harness.apply("default_decision: perhaps")
    run = await harness.launched(function())
    await harness.run_until_idle()

    task = await harness.task(run)

    assert (task.state, task.wait_reason) == (TaskState.PENDING, WaitReason.POLICY)
    assert "version 1 of the policy cannot be read" in (task.note or "")


async def test_until_the_policy_is_known_nothing_is_decided_at_once() -> None:
    harness = PolicyHarness()
    await harness.store.policies.add("default_decision: deny", author="ada", now=NOON)

    task, [ruling] = await harness.tried(function())

    assert (task.state, ruling.version) == (TaskState.DENIED, 1)


async def test_while_the_store_is_away_the_last_version_stays_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = PolicyHarness()
    await harness.apply("default_decision: deny")

    async def away() -> int:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(harness.store.policies, "newest_number", away)
    with pytest.raises(StoreUnavailable):
        await harness.stored.step()

    assert harness.stored.current is not None
    assert harness.stored.is_known


async def test_a_changed_step_is_ruled_on_anew() -> None:
    harness = PolicyHarness()
    await harness.apply(
        "rules: [{id: never, match: {capabilities: [db.drop]}, decision: deny}]\ndefault_decision: allow"
    )

    first, _ = await harness.tried(function())
    second, _ = await harness.tried(function(capability="db.drop"))

    assert (first.state, second.state) == (TaskState.RUNNING, TaskState.DENIED)


@pytest.mark.req("R-02")
async def test_a_permission_of_an_older_version_holds_for_its_attempt_and_a_retry_is_ruled_on_by_the_new_one() -> None:
    harness = PolicyHarness()
    await harness.apply("default_decision: allow")
    run = await harness.launched(function(retry=RetryPolicy(max_attempts=3, initial_delay_ms=1, jitter=0)))
    # The worker registers, and the dispatcher admits the task.
    await harness.worker.step()
    while not await harness.dispatcher.step():
        pass
    waiting = await harness.task(run)

    await harness.apply("default_decision: deny")
    await harness.run_until_idle()
    running = await harness.task(run)
    harness.runner.end_all(Result.FAILED, error="no")
    await harness.run_until_idle()
    harness.clock.advance(1)
    await harness.run_until_idle()

    ended = await harness.task(run)
    rulings = await rulings_of(harness.store, run.run_id)
    assert [waiting.state, running.state, ended.state] == [TaskState.SCHEDULED, TaskState.RUNNING, TaskState.DENIED]
    assert (ended.fence, harness.runner.started) == (1, {})
    assert sorted((one.decision, one.version) for one in rulings) == [("allow", 1), ("deny", 2)]
