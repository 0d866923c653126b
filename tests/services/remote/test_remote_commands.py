"""Commands at remote workers: they know where a command comes from and whether it is approved, and may refuse it."""

import pytest

from contracts.store import HOUR, NOON
from gnomon.adapters.memory import MemoryStore
from gnomon.config.sections import SecuritySettings
from gnomon.core.approvals.commands import command_digest
from gnomon.core.approvals.model import Approval, ApprovalKind, Vote, VoteKind
from gnomon.core.commands.rules import CommandRules
from gnomon.core.model import Result, Run, Task
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import ONLY_STEP, SHELL, RetryPolicy, Step, Workflow
from gnomon.ports.tasks import AttemptRef
from gnomon.services.execution.command_gate import CommandGate
from support.fleet_harness import FleetHarness

REFUSAL = "blocked by security policy: forbidden path argument: link"


def command(text: str = "echo hello", origin: str = "api") -> Workflow:
    retry = RetryPolicy(max_attempts=3, initial_delay_ms=1, jitter=0)
    return Workflow(
        workflow_id="report",
        version=1,
        steps=(Step(name=ONLY_STEP, function=SHELL, command=text, retry=retry),),
        origin=origin,
    )


async def opened() -> FleetHarness:
    """A fleet whose worker offers commands, and whose servers ask the policy."""
    fleet = FleetHarness()
    store = fleet.store
    assert isinstance(store, MemoryStore)
    fleet.gate = CommandGate(CommandRules(SecuritySettings()), store.tasks, store.approvals, fleet.clock)
    fleet.dispatcher = fleet.new_dispatcher()
    fleet.remote_runner.functions = frozenset({SHELL})
    await fleet.open()
    return fleet


async def started(fleet: FleetHarness, definition: Workflow) -> Run:
    """A run of the command that the worker has started."""
    run = await fleet.run(await fleet.job(definition))
    for _ in range(3):
        await fleet.run_cycle()
    assert len(fleet.remote_runner.started) == 1
    return run


async def task_of(fleet: FleetHarness, run: Run) -> Task:
    [task] = await fleet.store.history.tasks([run])
    return task


def held_by(fleet: FleetHarness) -> AttemptRef:
    [held] = fleet.remote_runner.started
    return held


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("origin", ["api", "file:/etc/gnomon/jobs.yaml", ""])
async def test_a_worker_knows_where_a_command_comes_from(origin: str) -> None:
    fleet = await opened()

    await started(fleet, command(origin=origin))

    assigned = fleet.remote_runner.started[held_by(fleet)]
    assert (assigned.workflow.origin, assigned.approved) == (origin, False)


@pytest.mark.req("Z-04")
async def test_a_worker_knows_that_a_command_is_approved() -> None:
    fleet, definition = await opened(), command("git tag v1")
    asked = Approval(
        approval_id="apr_1",
        tenant="default",
        kind=ApprovalKind.COMMAND,
        subject="report",
        digest=command_digest(definition),
    )
    await fleet.store.approvals.ask(asked, actor="bob", now=NOON)
    cast = Vote(voter="ada", kind=VoteKind.APPROVE, at=NOON)
    await fleet.store.approvals.vote("default", asked.approval_id, cast, digest=asked.digest)

    await started(fleet, definition)

    assert fleet.remote_runner.started[held_by(fleet)].approved


@pytest.mark.req("Z-04")
async def test_a_command_that_a_remote_worker_refuses_is_denied_never_tried_again_and_costs_nothing() -> None:
    fleet = await opened()
    run = await started(fleet, command())

    fleet.remote_runner.end(held_by(fleet), Result.DENIED, error=REFUSAL)
    fleet.clock.advance(HOUR // 2)
    for _ in range(3):
        await fleet.run_cycle()

    task, ended = await task_of(fleet, run), await fleet.now(run)
    [letter] = await fleet.store.dead_letters.page("default")
    assert (task.state, task.note, task.attempts) == (TaskState.DENIED, REFUSAL, 0)
    assert (ended.error, letter.reason) == (REFUSAL, "safety_denied")
    assert not fleet.remote_runner.started
    assert await fleet.store.tasks.actions_since("default", since=NOON - HOUR) == 0
