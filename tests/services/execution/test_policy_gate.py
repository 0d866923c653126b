"""The gate rules on each task by the policy in the store, and writes the ruling down before anything follows."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import MINUTE, NOON, minutely
from gnomon.adapters.memory import MemoryStore
from gnomon.adapters.policy_file import parse_policy
from gnomon.config.sections import SecuritySettings
from gnomon.core.commands.rules import CommandRules
from gnomon.core.model import Overlap, Run, Task
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.facts import request_digest
from gnomon.core.policy.ruling import StoredRuling
from gnomon.core.policy.version import PolicyVersion
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import ONLY_STEP, SHELL, Step, Workflow
from gnomon.core.triggers import OnDemand
from gnomon.errors import StoreUnavailable
from gnomon.ports.schedules import JobChangeset
from gnomon.services.execution.command_gate import CommandGate
from gnomon.services.execution.composed_gate import ComposedGate
from gnomon.services.execution.policy_gate import PolicyGate
from gnomon.services.execution.stored_policy import StoredPolicy
from gnomon.testing.clock import Recorder, VirtualClock
from support.execution import ExecutionHarness, FakeRunner
from support.rulings import rulings_of

THROTTLE_MS = 5_000


def compiled(version: PolicyVersion) -> CompiledPolicy:
    return CompiledPolicy(parse_policy(version.body), version.version, throttle_ms=THROTTLE_MS)


class PolicyHarness(ExecutionHarness):
    """A dispatcher whose gate rules by the policy in its store, and a worker."""

    def __init__(self, **security: Any) -> None:  # noqa: ANN401 - settings
        clock = VirtualClock(NOON)
        store = MemoryStore(clock.now)
        self.policy_events = Recorder()
        self.stored = StoredPolicy(store.policies, self.policy_events, compile_version=compiled, refresh_seconds=1)
        rules = CommandRules(SecuritySettings(**security), workspace="/srv/workspace")
        self.commands = CommandGate(rules, store.tasks, store.approvals, clock)
        self.gate = ComposedGate(self.commands, PolicyGate(self.stored, clock))
        super().__init__(gate=self.gate, store=store, clock=clock)
        self.runner = FakeRunner(SHELL, "reports.make")
        self.worker = self.new_worker("w1", self.runner)
        self._jobs = 0

    async def apply(self, body: str) -> PolicyVersion:
        made = await self.store.policies.add(body, author="ada", now=self.clock.now())
        await self.stored.refresh()
        return made

    async def launched(self, definition: Workflow, given: bytes | None = None) -> Run:
        self._jobs += 1
        definition = replace(definition, version=self._jobs)
        job = minutely(f"job{self._jobs}", trigger=OnDemand(), overlap=Overlap.ALLOW, workflow_version=self._jobs)
        await self.store.jobs.apply(JobChangeset(workflows=[definition]), now=self.clock.now(), actor="ada", tzdata="")
        await self.store.schedules.add([job], actor="ada", tzdata="")
        return await self.run(job, f"{self._jobs}", given=given)

    async def tried(self, definition: Workflow, given: bytes | None = None) -> tuple[Task, list[StoredRuling]]:
        """Launch a run, and return its task and the rulings about it after the gate has decided."""
        run = await self.launched(definition, given)
        await self.run_until_idle()
        return await self.task(run), await rulings_of(self.store, run.run_id)

    async def task(self, run: Run) -> Task:
        [task] = await self.store.history.tasks([run])
        return task


def function(**step: Any) -> Workflow:  # noqa: ANN401 - fields of a step
    return Workflow(workflow_id="report", version=1, steps=(Step(name=ONLY_STEP, function="reports.make", **step),))


def command(text: str) -> Workflow:
    steps = (Step(name=ONLY_STEP, function=SHELL, command=text),)
    return Workflow(workflow_id="report", version=1, steps=steps, origin="api")


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
