"""Outputs are checked before they are stored: no step, API, log or announcement sees what is held back."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from gnomon.adapters.gate import OpenGate
from gnomon.core.model import LogLine, Result, RunStatus
from gnomon.core.output_policy.ruling import RELEASED_RULE, HeldStatus, OutputCheck, OutputDecision
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import RetryPolicy
from gnomon.errors import StoreUnavailable
from gnomon.ports.execution import Finished
from gnomon.services.execution.gate_client import OutputGate
from gnomon.testing.clock import Recorder
from support.checked_execution import TWO_STEPS, CheckedExecution, everything
from support.fleet_harness import FleetHarness
from support.output_policies import CANARIES, CARD, HELD_KEY, HOLD_ALL, KEY, OutputPolicies, rule
from support.task_steps import workflow

pytestmark = pytest.mark.req("R-05")
LEAK = msgspec.json.encode({"found": KEY})


@pytest.fixture
async def execution() -> CheckedExecution:
    made = CheckedExecution()
    await made.outputs.apply(*HOLD_ALL)
    return made


@pytest.mark.parametrize("scanner", CANARIES)
async def test_no_step_sees_an_output_that_is_held_back(execution: CheckedExecution, scanner: str) -> None:
    output = msgspec.json.encode({"text": f"before {CANARIES[scanner]} after"})

    ruling = await execution.ends(TWO_STEPS, output=output)

    run = await execution.now(execution.launched)
    assert ruling is not None
    assert (ruling.status, ruling.findings[0].scanner) == (HeldStatus.HELD, scanner)
    assert (run.status, execution.runner.started) == (RunStatus.FAILED, {})
    assert CANARIES[scanner] not in everything(execution.store)
    assert CANARIES[scanner] not in repr(execution.events.seen)
    assert execution.outputs.store.state.held_outputs[ruling.task_id, ruling.number] == output


async def test_a_clean_output_reaches_the_next_step(execution: CheckedExecution) -> None:
    assert await execution.ends(TWO_STEPS, output=b'"fine"') is None
    [sent] = execution.runner.started.values()
    assert (sent.step.name, sent.input["got"]) == ("send", "fine")


async def test_the_next_step_gets_the_redacted_output() -> None:
    execution = CheckedExecution()
    await execution.outputs.apply(rule("mask", "redact", scanners=["pii"]))

    ruling = await execution.ends(TWO_STEPS, output=msgspec.json.encode({"card": CARD, "n": 1}))

    [sent] = execution.runner.started.values()
    assert sent.input["got"] == {"card": "[REDACTED]", "n": 1}
    assert ruling is not None
    assert (ruling.decision, ruling.status) == (OutputDecision.REDACT, None)
    assert CARD not in everything(execution.store)


async def test_without_rules_in_the_policy_secrets_are_held_back() -> None:
    execution = CheckedExecution()
    await execution.outputs.stored.refresh()

    assert await execution.ends(output=LEAK) is not None
    assert await execution.task() == TaskState.OUTPUT_QUARANTINED


@pytest.mark.parametrize("result", [Result.SUCCEEDED, Result.FAILED, Result.GAVE_UP, Result.TIMED_OUT])
async def test_logs_and_errors_of_every_attempt_lose_what_is_found(execution: CheckedExecution, result: Result) -> None:
    lines = (LogLine(1, "info", "begin"), LogLine(2, "info", f"key={KEY}"))
    error = None if result is Result.SUCCEEDED else f"ValueError: {KEY}"

    await execution.ends(result=result, logs=lines, error=error)

    [task] = await execution.store.history.tasks([execution.launched])
    kept = await execution.store.executions.log_lines(task.task_id)
    assert [one.text for one in kept] == ["begin", "key=[REDACTED]"]
    assert KEY not in everything(execution.store)
    assert KEY not in repr(execution.events.seen)


async def test_the_output_of_a_failed_command_is_dropped_and_the_attempt_is_retried(
    execution: CheckedExecution,
) -> None:
    ruling = await execution.ends(
        workflow(retry=RetryPolicy(max_attempts=2)), Result.FAILED, error="exit status 1", output=LEAK
    )

    assert ruling is not None
    assert (ruling.decision, ruling.status) == (OutputDecision.QUARANTINE, None)
    assert await execution.task() == TaskState.PENDING
    assert KEY not in everything(execution.store)
    assert execution.outputs.store.state.held_outputs == {}


async def test_a_large_output_is_checked_beside_the_event_loop(
    execution: CheckedExecution, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    to_thread = asyncio.to_thread

    async def noted(function: Callable[..., object], *given: object) -> object:
        threads.append(function.__name__)
        return await to_thread(function, *given)

    monkeypatch.setattr(asyncio, "to_thread", noted)
    ruling = await execution.ends(output=msgspec.json.encode(["x" * 5000, KEY]))

    assert ruling is not None
    assert threads == ["_judged"]


async def test_a_larger_output_than_the_limit_is_stored_unread() -> None:
    execution = CheckedExecution(inline_bytes=100)
    await execution.outputs.apply(*HOLD_ALL)

    assert await execution.ends(output=msgspec.json.encode(["x" * 100, KEY])) is None
    assert await execution.task() == TaskState.SUCCEEDED


async def test_a_held_output_is_encrypted_for_its_task() -> None:
    execution = CheckedExecution(keys=[HELD_KEY])
    await execution.outputs.apply(*HOLD_ALL)

    ruling = await execution.ends(output=LEAK)

    assert ruling is not None
    body = execution.outputs.store.state.held_outputs[ruling.task_id, ruling.number]
    cipher = execution.outputs.cipher
    assert cipher is not None
    assert KEY.encode() not in body
    assert cipher.unseal(f"held_output {ruling.task_id}", body) == LEAK
    assert cipher.unseal("held_output other", body) == body


async def test_the_messages_of_an_agent_lose_what_is_found(execution: CheckedExecution) -> None:
    finished = await finished_attempt(execution, AttemptOutcome(result=Result.SUCCEEDED, turn=LEAK))
    [checked] = [await execution.outputs.policy.check(finished)]
    assert checked.turn == b'{"found":"[REDACTED]"}'
    held = replace(finished.outcome, output=LEAK)
    assert (await execution.outputs.policy.check(Finished(finished.assignment, held))).turn is None


async def test_the_lines_of_an_attempt_that_goes_on_lose_what_is_found(execution: CheckedExecution) -> None:
    lines = await execution.outputs.policy.clean_lines((LogLine(1, "info", KEY), LogLine(2, "info", "fine")))
    assert [one.text for one in lines] == ["[REDACTED]", "fine"]


async def test_a_content_that_was_released_before_is_let_pass(execution: CheckedExecution) -> None:
    first = await execution.ends(output=LEAK)
    assert first is not None
    execution.outputs.store.state.output_exemptions["default", first.content_digest] = first.task_id

    finished = await finished_attempt(execution, AttemptOutcome(result=Result.SUCCEEDED, output=LEAK))
    released = await execution.outputs.policy.check(finished)

    assert (released.output, released.quarantine) == (LEAK, None)
    assert released.check is not None
    assert released.check.ruling is not None
    assert released.check.ruling.rule == RELEASED_RULE


async def test_an_output_is_held_back_while_it_is_not_known_whether_it_was_released(
    execution: CheckedExecution, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> bool:
        raise StoreUnavailable("away")

    monkeypatch.setattr(execution.store.output_rulings, "is_exempt", away)
    finished = await finished_attempt(execution, AttemptOutcome(result=Result.SUCCEEDED, output=LEAK))

    assert (await execution.outputs.policy.check(finished)).quarantine is not None


async def finished_attempt(execution: CheckedExecution, outcome: AttemptOutcome) -> Finished:
    run = await execution.run(await execution.job(workflow("other"), name="other", workflow_id="other"), "x")
    await execution.run_until_idle()
    [held] = [one for one in execution.runner.started.values() if one.run.run_id == run.run_id]
    return Finished(held, outcome)


# ---- nothing can check -----------------------------------------------------------------------------


def gate_of(outputs: OutputPolicies) -> OutputGate:
    return OutputGate(
        OpenGate(), outputs.clock, Recorder(), timeout_ms=1000, on_answer=lambda: None, policy=outputs.policy
    )


async def answer(gate: OutputGate, finished: Finished) -> AttemptOutcome:
    assert gate.release_now(finished) is None
    gate.ask(finished)
    [(_, outcome)] = await gate.collect()
    return outcome


async def unreadable(outputs: OutputPolicies, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away() -> int:
        raise StoreUnavailable("away")

    monkeypatch.setattr(outputs.store.policies, "newest_number", away)


async def test_an_output_that_nothing_can_check_is_stored_and_counted_and_checked_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    execution = CheckedExecution()
    await unreadable(execution.outputs, monkeypatch)
    outcome = AttemptOutcome(result=Result.SUCCEEDED, output=LEAK)

    stored = await answer(gate_of(execution.outputs), await finished_attempt(execution, outcome))

    assert (stored.output, stored.quarantine) == (LEAK, None)
    assert stored.check == OutputCheck(topic="reports.make", ruling=None, late=True)
    assert "unchecked" in stored.logs[-1].text


async def test_with_a_closed_policy_it_is_held_back_with_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = CheckedExecution(closed=True)
    await unreadable(execution.outputs, monkeypatch)
    line = LogLine(1, "info", KEY)
    outcome = AttemptOutcome(result=Result.SUCCEEDED, output=LEAK, logs=(line,))
    finished = await finished_attempt(execution, outcome)

    stored = await answer(gate_of(execution.outputs), finished)
    failed = execution.outputs.policy.unchecked(
        Finished(finished.assignment, replace(outcome, result=Result.FAILED, output=None, error=KEY)), "late"
    )

    assert (stored.output, stored.logs, stored.check and stored.check.held) == (None, (), LEAK)
    assert stored.quarantine is not None
    assert "could not be checked" in stored.quarantine
    assert KEY not in f"{failed}"


# ---- results of remote workers -----------------------------------------------------------------------


async def test_the_output_of_a_remote_worker_is_checked_at_the_server() -> None:
    outputs = OutputPolicies()
    fleet = FleetHarness(clock=outputs.clock, store=outputs.store, output_policy=outputs.policy)
    await fleet.open()
    await outputs.apply(*HOLD_ALL)
    run = await fleet.run(await fleet.job())
    await fleet.run_cycle()
    fleet.remote_runner.end_all(output=LEAK, logs=(LogLine(1, "info", CARD),))
    await fleet.remote_worker.step()
    await fleet.collect_reports()

    [task] = await fleet.store.history.tasks([run])
    [line] = await fleet.store.executions.log_lines(task.task_id)
    assert (task.state, line.text) == (TaskState.OUTPUT_QUARANTINED, "[REDACTED]")
    assert await fleet.store.output_rulings.of_task("default", task.task_id) is not None
    assert not any(text in everything(fleet.store) for text in (KEY, CARD))
    assert not any(text in repr(fleet.events.seen) for text in (KEY, CARD))
    assert not fleet.bus.reports.messages
