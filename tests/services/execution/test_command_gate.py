"""The gate decides about commands by the origin of their definition, and the budget of their tenant."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import HOUR, MINUTE, NOON, minutely
from gnomon.adapters.memory import MemoryStore
from gnomon.config.sections import SecuritySettings
from gnomon.core.approvals.commands import command_digest
from gnomon.core.approvals.model import Approval, ApprovalKind, Vote, VoteKind
from gnomon.core.commands.policy import ANY_NUMBER, Autonomy, SecurityProfile
from gnomon.core.commands.rules import CommandRules
from gnomon.core.model import Overlap, Result, Run, RunStatus, Task
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import ONLY_STEP, SHELL, RetryPolicy, Step, Workflow
from gnomon.core.triggers import OnDemand
from gnomon.ports.schedules import JobChangeset
from gnomon.services.execution.command_gate import CommandGate
from gnomon.testing.clock import VirtualClock
from support.execution import ExecutionHarness, FakeRunner

FILE = "file:/etc/gnomon/jobs.yaml"
REFUSED = "blocked by security policy: "
RATE, BUDGET = f"{REFUSED}rate limit exceeded", f"{REFUSED}action budget exhausted"


def command(text: str = "echo hello", *, origin: str = "api", version: int = 1, **step: Any) -> Workflow:  # noqa: ANN401 - fields of a step
    """A job with one command."""
    steps = (Step(name=ONLY_STEP, function=SHELL, command=text, **step),)
    return Workflow(workflow_id="report", version=version, steps=steps, origin=origin)


class CommandHarness(ExecutionHarness):
    """A dispatcher with the gate of commands, and a worker that offers commands."""

    def __init__(self, **security: Any) -> None:  # noqa: ANN401 - settings
        clock = VirtualClock(NOON)
        store = MemoryStore(clock.now)
        rules = CommandRules(SecuritySettings(**security), workspace="/srv/workspace")
        gate = CommandGate(rules, store.tasks, store.approvals, clock)
        super().__init__(gate=gate, store=store, clock=clock)
        self.runner = FakeRunner(SHELL, "reports.make")
        self.worker = self.new_worker("w1", self.runner)
        self._jobs = 0

    async def launched(self, definition: Workflow, given: bytes | None = None) -> Run:
        """Store the version, and launch a run of it."""
        self._jobs += 1
        job = minutely(
            f"job{self._jobs}", trigger=OnDemand(), overlap=Overlap.ALLOW, workflow_version=definition.version
        )
        await self.store.jobs.apply(JobChangeset(workflows=[definition]), now=self.clock.now(), actor="ada", tzdata="")
        await self.store.schedules.add([job], actor="ada", tzdata="")
        return await self.run(job, f"{self._jobs}", given=given)

    async def tried(self, definition: Workflow, given: bytes | None = None) -> Task:
        """Launch a run with that input, and return its task after the gate has decided."""
        run = await self.launched(definition, given)
        await self.run_until_idle()
        return await self.task(run)

    async def task(self, run: Run) -> Task:
        [task] = await self.store.history.tasks([run])
        return task

    async def approve(self, definition: Workflow) -> None:
        asked = Approval(
            approval_id=f"apr_{command_digest(definition)}",
            tenant="default",
            kind=ApprovalKind.COMMAND,
            subject="report",
            digest=command_digest(definition),
        )
        await self.store.approvals.ask(asked, actor="bob", now=NOON)
        cast = Vote(voter="ada", kind=VoteKind.APPROVE, at=NOON)
        await self.store.approvals.vote("default", asked.approval_id, cast, digest=asked.digest)


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("origin", ["api", "cron", "mcp", ""])
async def test_a_command_of_unknown_origin_is_under_the_policy(origin: str) -> None:
    harness = CommandHarness()

    run = await harness.launched(command("rm -rf x", origin=origin))
    await harness.run_until_idle()

    task, ended = await harness.task(run), await harness.now(run)
    [letter] = await harness.store.dead_letters.page("default")
    assert task.state is TaskState.DENIED
    assert (task.note or "").startswith(f"{REFUSED}command not allowed: rm -rf x")
    assert (ended.status, ended.error) == (RunStatus.FAILED, task.note)
    assert (letter.reason, letter.last_error) == ("safety_denied", task.note)
    assert not harness.runner.started


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("origin", [FILE, "import:app", "cli"])
async def test_a_command_of_the_machine_is_open_and_allowed_at_once(origin: str) -> None:
    harness = CommandHarness()

    task = await harness.tried(command("rm -rf x", origin=origin))

    assert task.state is TaskState.RUNNING
    assert await harness.store.tasks.actions_since("default", since=NOON - HOUR) == 0


async def test_open_commands_and_functions_are_decided_without_the_store() -> None:
    harness = CommandHarness()
    await harness.launched(command("rm -rf x", origin=FILE))
    [waiting] = await harness.store.tasks.waiting(NOON, limit=1)
    request = await harness.dispatcher._prepared(waiting, NOON)  # noqa: SLF001 - the request that the gate gets

    assert harness.gate.admit_now(request) is not None  # type: ignore[arg-type]


@pytest.mark.req("Z-04", "Z-06")
async def test_a_denied_task_is_never_retried_whatever_its_retries() -> None:
    harness = CommandHarness()

    task = await harness.tried(command("rm -rf x", retry=RetryPolicy(max_attempts=5)))
    harness.clock.advance(HOUR)
    await harness.run_until_idle()

    assert (task.state, task.attempts) == (TaskState.DENIED, 0)


@pytest.mark.req("Z-04")
@pytest.mark.parametrize(
    ("security", "text", "reason"),
    [
        ({"autonomy": Autonomy.READ_ONLY, "max_actions_per_hour": 0}, "rm /etc/x", "autonomy is read-only"),
        ({"max_actions_per_hour": 0}, "rm /etc/x", "rate limit exceeded"),
        ({}, "rm /etc/x", "command not allowed: rm /etc/x"),
        ({}, "cat /etc/passwd", "forbidden path argument: /etc/passwd"),
    ],
)
async def test_the_refusals_come_in_the_order_of_the_seed(security: dict[str, Any], text: str, reason: str) -> None:
    task = await CommandHarness(**security).tried(command(text))

    assert (task.note or "").startswith(REFUSED + reason)


@pytest.mark.req("Z-12")
async def test_the_twenty_first_guarded_command_within_an_hour_is_refused() -> None:
    harness = CommandHarness()
    for _ in range(20):
        assert (await harness.tried(command())).state is TaskState.RUNNING

    refused = await harness.tried(command())
    harness.clock.advance(HOUR)
    later = await harness.tried(command())

    assert (refused.state, refused.note) == (TaskState.DENIED, RATE)
    assert later.state is TaskState.RUNNING


@pytest.mark.req("Z-12")
async def test_tasks_that_are_admitted_together_share_what_is_left() -> None:
    harness = CommandHarness(max_actions_per_hour=2)
    runs = [await harness.launched(command()) for _ in range(4)]

    await harness.run_until_idle()

    tasks = [await harness.task(run) for run in runs]
    assert [task.state for task in tasks].count(TaskState.RUNNING) == 2
    assert [task.note for task in tasks].count(BUDGET) == 2
    assert [facts["reason"] for name, facts in harness.events.seen if name == "task_not_scheduled"] == [BUDGET] * 2


@pytest.mark.req("Z-12")
@pytest.mark.parametrize(
    ("security", "origin", "counted"),
    [
        ({}, "api", 1),
        ({}, FILE, 0),
        ({"max_actions_per_hour": 5}, FILE, 1),
        ({"max_actions_per_hour": ANY_NUMBER}, "api", 0),
        ({"profile": SecurityProfile.GUARDED}, FILE, 1),
        ({"profile": SecurityProfile.OPEN}, "api", 0),
    ],
)
async def test_open_commands_count_only_if_the_limit_is_set(
    security: dict[str, Any], origin: str, counted: int
) -> None:
    harness = CommandHarness(**security)

    assert (await harness.tried(command(origin=origin))).state is TaskState.RUNNING

    assert await harness.store.tasks.actions_since("default", since=NOON - HOUR) == counted


@pytest.mark.req("Z-12")
async def test_functions_are_never_counted() -> None:
    harness = CommandHarness(max_actions_per_hour=0)
    steps = (Step(name=ONLY_STEP, function="reports.make"),)

    task = await harness.tried(Workflow(workflow_id="report", version=1, steps=steps, origin="api"))

    assert task.state is TaskState.RUNNING


@pytest.mark.req("Z-12")
async def test_a_retry_that_is_refused_keeps_the_error_of_the_failure() -> None:
    harness = CommandHarness(max_actions_per_hour=1)
    retried = command(retry=RetryPolicy(max_attempts=3, initial_delay_ms=MINUTE, jitter=0))
    run = await harness.launched(retried)
    await harness.run_until_idle()
    harness.runner.end_all(Result.FAILED, error="exit status 7")
    await harness.run_until_idle()
    harness.clock.advance(MINUTE)
    await harness.run_until_idle()

    assert (await harness.task(run)).note == f"{RATE}; the attempt before had failed: exit status 7"
    assert (await harness.now(run)).error == f"{RATE}; the attempt before had failed: exit status 7"


@pytest.mark.req("Z-04")
async def test_medium_risk_needs_an_approval_and_the_reason_says_what_to_type() -> None:
    harness = CommandHarness()

    task = await harness.tried(command("git tag v1"))

    assert task.state is TaskState.DENIED
    assert "gnomon approvals ask report" in (task.note or "")


@pytest.mark.req("Z-04")
async def test_an_approved_command_runs_and_its_worker_knows_it() -> None:
    harness = CommandHarness()
    await harness.approve(command("git tag v1"))

    task = await harness.tried(command("git tag v1"))

    assert task.state is TaskState.RUNNING
    assert [one.approved for one in harness.runner.started.values()] == [True]


@pytest.mark.req("Z-04")
@pytest.mark.parametrize(
    "changed",
    [
        command("git tag v2", version=2),
        command("git tag v1", version=2, input={"env": {"JOB_X": "1"}}),
        command("git tag v1", version=2, input={"workdir": "other"}),
    ],
)
async def test_a_changed_command_has_no_approval(changed: Workflow) -> None:
    harness = CommandHarness()
    await harness.approve(command("git tag v1"))

    assert (await harness.tried(changed)).state is TaskState.DENIED


TAGGED = replace(command("git tag $TAG", input={"env": {"TAG": "${input.tag}"}}), input={"tag": "v1"})


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("given", [None, b'{"tag":"v1"}'])
async def test_an_approval_covers_the_input_of_the_definition(given: bytes | None) -> None:
    harness = CommandHarness()
    await harness.approve(TAGGED)

    assert (await harness.tried(TAGGED, given)).state is TaskState.RUNNING


@pytest.mark.req("Z-04")
async def test_an_approval_covers_no_other_input_than_that_of_the_definition() -> None:
    harness = CommandHarness()
    await harness.approve(TAGGED)

    task = await harness.tried(TAGGED, b'{"tag":"evil"}')

    assert task.state is TaskState.DENIED
    assert "its approval covers the input of the definition, and this run has another" in (task.note or "")


async def test_an_approval_of_a_command_without_data_covers_every_input() -> None:
    harness = CommandHarness()
    await harness.approve(command("git tag v1"))

    assert (await harness.tried(command("git tag v1"), b'{"tag":"evil"}')).state is TaskState.RUNNING


def test_a_changed_step_whose_output_a_command_gets_has_another_digest() -> None:
    def push(url: str) -> Workflow:
        fetch = Step(name="fetch", function="gnomon.http", input={"url": url})
        send = Step(
            name="send",
            function=SHELL,
            command="git push origin $B",
            input={"env": {"B": "${steps.fetch.output.body}"}},
            depends_on=("fetch",),
        )
        return Workflow(workflow_id="report", version=1, steps=(fetch, send), origin="api")

    assert command_digest(push("https://a.example/")) != command_digest(push("https://b.example/"))


async def test_a_change_of_when_and_how_often_a_command_runs_keeps_its_approval() -> None:
    harness = CommandHarness()
    await harness.approve(command("git tag v1"))

    again = command("git tag v1", version=2, retry=RetryPolicy(), timeout_ms=1000)

    assert (await harness.tried(again)).state is TaskState.RUNNING


@pytest.mark.req("Z-04")
async def test_a_revoked_approval_counts_no_more() -> None:
    harness = CommandHarness()
    await harness.approve(command("git tag v1"))
    name = f"apr_{command_digest(command('git tag v1'))}"
    await harness.store.approvals.revoke("default", name, actor="eve", now=NOON)

    assert (await harness.tried(command("git tag v1"))).state is TaskState.DENIED


async def test_an_approval_lifts_no_other_rule() -> None:
    harness = CommandHarness()
    await harness.approve(command("rm -rf x"))

    assert (await harness.tried(command("rm -rf x"))).state is TaskState.DENIED


@pytest.mark.req("Z-04")
async def test_a_command_that_its_worker_refuses_is_denied_and_costs_nothing() -> None:
    harness = CommandHarness()
    run = await harness.launched(command(retry=RetryPolicy(max_attempts=3)))
    await harness.run_until_idle()

    harness.runner.end_all(Result.DENIED, error=f"{REFUSED}forbidden path argument: link")
    await harness.run_until_idle()

    task, ended = await harness.task(run), await harness.now(run)
    [letter] = await harness.store.dead_letters.page("default")
    assert (task.state, task.attempts, ended.error) == (
        TaskState.DENIED,
        0,
        f"{REFUSED}forbidden path argument: link",
    )
    assert letter.reason == "safety_denied"
    assert await harness.store.tasks.actions_since("default", since=NOON - HOUR) == 0


@pytest.mark.parametrize(
    ("env", "state"),
    [
        ({"JOB_FILE": "${secret:WHERE}"}, TaskState.RUNNING),
        ({"JOB_FILE": "/etc/passwd"}, TaskState.DENIED),
        ({"JOB_FILE": "${input.file}"}, TaskState.DENIED),
    ],
)
async def test_variables_are_checked_as_far_as_they_are_known(env: dict[str, str], state: TaskState) -> None:
    harness = CommandHarness()
    steps = (Step(name=ONLY_STEP, function=SHELL, command='cat "$JOB_FILE"', input={"env": env}),)
    definition = Workflow(workflow_id="report", version=1, steps=steps, origin="api", input={"file": "/etc/passwd"})

    assert (await harness.tried(definition)).state is state
