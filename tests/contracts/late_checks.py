"""The contract of checks of stored outputs, for any store."""

import asyncio

import pytest
from msgspec.structs import replace

from contracts.output_rulings import DECIDED, RULING
from contracts.store import NOON, minutely
from gnomon.core.model import Result, Run, RunId, RunSource, RunStatus, TaskId
from gnomon.core.output_policy.late import LateResult
from gnomon.core.output_policy.ruling import HeldStatus, OutputCheck, OutputDecision, OutputPhase, OutputRuling
from gnomon.core.runs.launch import LaunchRequest, new_requested_run
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.ports.audit import AuditQuery
from gnomon.ports.schedules import JobChangeset
from gnomon.ports.store import Store
from support.task_steps import LEASE, admission, completion_of, take_task, workflow

LARGE = b'"a large output with a key"'
ALLOWED = OutputRuling(decision=OutputDecision.ALLOW, rule="default", version=3, content_digest="", size=len(LARGE))
LATE = OutputCheck(topic="reports.make", ruling=replace(ALLOWED, incomplete=True), late=True)
READING = {"got": "${steps.read.output}"}
CHAIN = Workflow(
    workflow_id="chain",
    version=1,
    steps=(
        Step(name="read", function="f"),
        Step(name="send", function="f", depends_on=("read",), input=READING),
        Step(name="count", function="f", depends_on=("read",)),
        Step(name="tell", function="f", depends_on=("send", "count")),
    ),
)


async def stored_output(store: Store, definition: Workflow | None = None) -> tuple[Run, TaskId]:
    """End the first step of a new run with an output that has to be checked."""
    definition = definition or workflow("late")
    schedule = minutely("late", workflow_id=definition.workflow_id)
    changes = JobChangeset(workflows=[definition], added=[schedule])
    await store.jobs.apply(changes, now=NOON, actor="ada", tzdata="")
    run = new_requested_run(RunId("run_late"), schedule, source=RunSource.API, now=NOON)
    await store.runs.launch([LaunchRequest(run=run, first_steps=(definition.steps[0].name,))], now=NOON)
    taken = await take_task(store, "worker", run, now=NOON)
    end = completion_of(taken, Result.SUCCEEDED, now=NOON + 1, definition=definition, output=LARGE, check=LATE)
    assert await store.attempts.report([end])
    return run, taken.task.task_id


def result(definition: Workflow, decision: OutputDecision = OutputDecision.QUARANTINE) -> LateResult:
    held = LARGE if decision is OutputDecision.QUARANTINE else None
    redacted = b'"[REDACTED]"' if decision is OutputDecision.REDACT else None
    ruling = replace(RULING, decision=decision, redacted=redacted)
    return LateResult(topic="reports.make", ruling=ruling, held=held, workflow=definition)


async def settle(store: Store, definition: Workflow, decision: OutputDecision = OutputDecision.QUARANTINE) -> bool:
    [check] = await store.late_checks.oldest(10)
    return await store.late_checks.settle(check, result(definition, decision), now=NOON + 5)


async def states(store: Store, run: Run) -> dict[str, TaskState]:
    return {one.step: one.state for one in await store.history.tasks([run])}


async def start(store: Store, run: Run, *steps: str, now: int) -> None:
    """Let a worker begin these steps."""
    tasks = [one for one in await store.history.tasks([run]) if one.step in steps]
    await store.tasks.admit([admission(one, schedule_uid=run.schedule_uid, graph=CHAIN) for one in tasks], now=now)
    assert len(await store.attempts.take("worker", limit=10, lease_ms=LEASE, now=now, begin=True)) == len(steps)


@pytest.mark.req("R-06")
class LateCheckContract:
    """Tests for any store. `store` is a fresh one."""

    async def test_a_stored_output_waits_for_its_check(self, store: Store) -> None:
        run, task_id = await stored_output(store)
        [check] = await store.late_checks.oldest(10)
        assert (check.task.task_id, check.task.state, check.added_at) == (task_id, TaskState.SUCCEEDED, NOON + 1)
        assert check.run.run_id == run.run_id
        assert await store.executions.payload(task_id, "output") == LARGE

    async def test_a_late_quarantine_takes_the_output_of_a_finished_run_away(self, store: Store) -> None:
        run, task_id = await stored_output(store)
        assert await settle(store, workflow("late"))
        [task] = await store.history.tasks([run])
        ended = await store.executions.find_run(run.run_id)
        held = await store.held_outputs.find("default", task_id)
        assert task.state is TaskState.OUTPUT_QUARANTINED
        assert (task.note or "").startswith("output_quarantined: no keys")
        assert ended is not None
        assert (ended.status, ended.error) == (RunStatus.COMPLETED, None)
        assert await store.executions.payload(task_id, "output") is None
        assert held is not None
        assert (held.body, held.ruling.phase, held.ruling.ruled_at) == (LARGE, OutputPhase.LATE, NOON + 5)
        assert await store.late_checks.oldest(10) == []

    async def test_it_leaves_a_dead_letter_and_an_audit_entry(self, store: Store) -> None:
        _, task_id = await stored_output(store)
        await settle(store, workflow("late"))
        [letter] = await store.dead_letters.page(
            "default", job=None, unresolved=True, oldest_first=False, after=None, limit=10
        )
        [entry] = await store.audit.page(AuditQuery(tenant="default", kind="output"))
        assert (letter.reason, letter.task_id, letter.created_at) == ("output_quarantined", task_id, NOON + 5)
        assert (entry.entry.action, entry.entry.name) == ("hold_back", task_id)
        assert '"late"' in entry.entry.details

    async def test_a_check_is_settled_once(self, store: Store) -> None:
        await stored_output(store)
        [check] = await store.late_checks.oldest(10)
        made = result(workflow("late"))
        settled = await asyncio.gather(
            *(store.late_checks.settle(check, made, now=NOON + 5 + number) for number in range(4))
        )
        assert sorted(settled) == [False, False, False, True]

    async def test_an_output_that_is_let_pass_stays(self, store: Store) -> None:
        run, task_id = await stored_output(store)
        assert await settle(store, workflow("late"), OutputDecision.ALLOW)
        assert await states(store, run) == {"main": TaskState.SUCCEEDED}
        assert await store.executions.payload(task_id, "output") == LARGE
        assert await store.output_rulings.of_task("default", task_id) is None
        assert await store.late_checks.oldest(10) == []

    async def test_a_late_redaction_replaces_the_output(self, store: Store) -> None:
        run, task_id = await stored_output(store)
        assert await settle(store, workflow("late"), OutputDecision.REDACT)
        ruling = await store.output_rulings.of_task("default", task_id)
        assert await states(store, run) == {"main": TaskState.SUCCEEDED}
        assert await store.executions.payload(task_id, "output") == b'"[REDACTED]"'
        assert ruling is not None
        assert (ruling.decision, ruling.phase, ruling.status) == (OutputDecision.REDACT, OutputPhase.LATE, None)

    async def test_steps_that_have_not_begun_do_not_run_without_the_output(self, store: Store) -> None:
        run, _ = await stored_output(store, CHAIN)
        assert await settle(store, CHAIN)
        ended = await store.executions.find_run(run.run_id)
        assert await states(store, run) == {
            "read": TaskState.OUTPUT_QUARANTINED,
            "send": TaskState.CANCELLED,
            "count": TaskState.CANCELLED,
            "tell": TaskState.CANCELLED,
        }
        assert ended is not None
        assert ended.status is RunStatus.FAILED
        schedule = await store.schedules.find("default", "late")
        assert schedule is not None
        assert schedule.active_runs == 0

    async def test_the_record_names_the_steps_that_have_read_the_output(self, store: Store) -> None:
        run, task_id = await stored_output(store, CHAIN)
        await start(store, run, "send", "count", now=NOON + 2)
        assert await settle(store, CHAIN)
        ruling = await store.output_rulings.of_task("default", task_id)
        assert ruling is not None
        assert ruling.readers == ("send",)
        assert await states(store, run) == {
            "read": TaskState.OUTPUT_QUARANTINED,
            "send": TaskState.RUNNING,
            "count": TaskState.RUNNING,
        }

    async def test_a_released_output_lets_an_open_run_go_on(self, store: Store) -> None:
        run, task_id = await stored_output(store, CHAIN)
        await settle(store, CHAIN)
        assert await store.held_outputs.release("default", task_id, LARGE, DECIDED)
        going = await store.executions.find_run(run.run_id)
        assert going is not None
        assert going.status is RunStatus.RUNNING
        assert await states(store, run) == {
            "read": TaskState.SUCCEEDED,
            "send": TaskState.PENDING,
            "count": TaskState.PENDING,
        }
        assert await store.executions.payload(task_id, "output") == LARGE

    async def test_a_released_output_leaves_a_run_that_had_ended_before(self, store: Store) -> None:
        run, task_id = await stored_output(store)
        await settle(store, workflow("late"))
        assert not await store.held_outputs.release("default", task_id, LARGE, DECIDED)
        ended = await store.executions.find_run(run.run_id)
        held = await store.held_outputs.find("default", task_id)
        assert ended is not None
        assert (ended.status, ended.completed_at) == (RunStatus.COMPLETED, NOON + 1)
        assert await states(store, run) == {"main": TaskState.SUCCEEDED}
        assert held is not None
        assert held.ruling.status is HeldStatus.RELEASED
