"""Another service judges outputs after they are stored. The stricter of it and the own rules wins."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from gnomon.core.breakers import BreakerLimits, BreakerState
from gnomon.core.named_breakers import NO_TENANT, BreakerKey
from gnomon.core.output_policy.kernel_messages import JudgedFinding, OutputCheckRequest, OutputCheckResponse
from gnomon.core.output_policy.ruling import OutputDecision, OutputPhase
from gnomon.core.runs.states import TaskState
from gnomon.errors import KernelUnavailable
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.execution.late_output_checker import LateOutputChecker
from gnomon.services.execution.output_judge import RemoteOutputJudge
from gnomon.services.execution.shared_breaker import SharedBreaker
from support.checked_execution import CheckedExecution, everything
from support.output_kernels import (
    OutputAnswers,
    ScriptedOutputKernel,
    always,
    connected_output_kernel,
    hangs,
    raises,
    served_outputs,
)
from support.output_policies import HOLD_ALL, KEY, policy_text, rule

pytestmark = pytest.mark.req("R-14")
SECRET = "the plan of " + "the harbour"
OUTPUT = msgspec.json.encode({"text": SECRET})
AWAY = KernelUnavailable("the output policy service is away")
Answered = Callable[[OutputCheckRequest], Awaitable[OutputCheckResponse]]


class JudgedExecution(CheckedExecution):
    """A worker, and the checker of stored outputs, which asks a service."""

    def __init__(self, answer: Answered, *, closed: bool = False, parallel: int = 8) -> None:
        super().__init__(judges_all=True, closed=closed)
        self.kernel = ScriptedOutputKernel(answer)
        key = BreakerKey(NO_TENANT, "output")
        self.breaker = SharedBreaker(self.store.breakers, key, BreakerLimits(), self.clock, self.events)
        judge = RemoteOutputJudge(self.outputs.policy, self.kernel, self.breaker, parallel=parallel)
        self.checker = LateOutputChecker(
            self.store.late_checks,
            self.store.executions,
            self.workflow_cache,
            self.outputs.policy,
            judge,
            self.clock,
            self.events,
            lease=AlwaysHeldSingleton(),
            timeout_ms=30_000,
            on_ready=lambda: None,
        )

    async def result_of(self, output: bytes = OUTPUT) -> bytes | None:
        """Run a job with this output, and check it; return what is stored then."""
        await self.ends(output=output)
        await self.checker.step()
        [task] = await self.store.history.tasks([self.launched])
        return (await self.store.executions.payloads([task.task_id], "output")).get(task.task_id)

    async def ruling(self) -> tuple[OutputDecision, str, OutputPhase] | None:
        [task] = await self.store.history.tasks([self.launched])
        found = await self.store.output_rulings.of_task("default", task.task_id)
        return None if found is None else (found.decision, found.rule, found.phase)


async def judged(answer: Answered, **options: Any) -> JudgedExecution:  # noqa: ANN401 - those of the execution
    made = JudgedExecution(answer, **options)
    await made.outputs.apply(*HOLD_ALL)
    return made


def finding(text: str = SECRET, output: bytes = OUTPUT) -> JudgedFinding:
    return JudgedFinding(type="plan", severity="high", offset=output.index(text.encode()), length=len(text))


@pytest.mark.req("R-06")
@pytest.mark.parametrize("word", ["quarantine", "deny"])
async def test_an_output_that_the_service_refuses_is_taken_away(word: str) -> None:
    answer = OutputCheckResponse(
        decision=word, rule_id="plans", reason=f"it has {SECRET}", findings=(finding(),), policy_snapshot="s"
    )
    execution = await judged(always(answer))

    assert await execution.result_of() is None

    assert await execution.task() == TaskState.OUTPUT_QUARANTINED
    assert await execution.ruling() == (OutputDecision.QUARANTINE, "plans", OutputPhase.LATE)
    assert SECRET not in everything(execution.store)
    assert SECRET not in repr(execution.events.seen)


async def test_the_service_is_told_what_its_rules_may_look_at() -> None:
    execution = await judged(always(OutputCheckResponse(decision="allow")))
    assert await execution.result_of() == OUTPUT

    [asked] = execution.kernel.asked
    [task] = await execution.store.history.tasks([execution.launched])
    assert (asked.job_id, asked.run_id, asked.tenant) == (task.task_id, task.run_id, "default")
    assert (asked.topic, asked.function, asked.step_id, asked.kind) == (
        "reports.make",
        "reports.make",
        "main",
        "function",
    )
    assert (bytes(asked.output_content), asked.output_size_bytes) == (OUTPUT, len(OUTPUT))
    assert asked.content_hash.startswith("sha256:")


async def test_an_output_that_the_own_rules_hold_back_is_never_sent() -> None:
    execution = await judged(always(OutputCheckResponse(decision="allow")))
    await execution.ends(output=msgspec.json.encode(KEY))
    await execution.checker.step()
    assert await execution.task() == TaskState.OUTPUT_QUARANTINED
    assert execution.kernel.asked == []


async def test_a_redaction_of_the_service_is_stored() -> None:
    made = OutputCheckResponse(decision="redact", redacted_content=Raw(b'{"text":"-"}'))
    assert await (await judged(always(made))).result_of() == b'{"text":"-"}'


async def test_without_a_redacted_output_the_findings_are_replaced() -> None:
    made = OutputCheckResponse(decision="redact", findings=(finding(),))
    assert await (await judged(always(made))).result_of() == b'{"text":"[REDACTED]"}'


@pytest.mark.parametrize(
    "answer",
    [
        OutputCheckResponse(decision="redact"),
        OutputCheckResponse(decision="redact", findings=(JudgedFinding(offset=0, length=3),)),
        OutputCheckResponse(decision="redact", findings=(JudgedFinding(offset=0, length=10_000),)),
        OutputCheckResponse(decision="redact", findings=(JudgedFinding(offset=-1, length=5),)),
        OutputCheckResponse(decision="redact", redacted_content=Raw(b"no json")),
    ],
)
async def test_a_redaction_that_leaves_no_json_holds_the_output_back(answer: OutputCheckResponse) -> None:
    execution = await judged(always(answer))
    assert await execution.result_of() is None
    assert await execution.task() == TaskState.OUTPUT_QUARANTINED


@pytest.mark.req("R-05")
@pytest.mark.parametrize(
    "answer",
    [raises(AWAY), raises(ValueError("no message")), always(OutputCheckResponse(decision="maybe")),
     always(OutputCheckResponse())],
    ids=["away", "no message", "unknown word", "no word"],
)  # fmt: skip
async def test_without_a_valid_answer_the_output_stays_or_is_held_back_by_the_setting(answer: Answered) -> None:
    execution = await judged(answer)
    assert await execution.result_of() == OUTPUT
    assert await execution.task() == TaskState.SUCCEEDED
    closed = await judged(answer, closed=True)
    assert await closed.result_of() is None
    assert await closed.ruling() == (OutputDecision.QUARANTINE, "unchecked", OutputPhase.LATE)


async def test_while_the_service_is_away_the_own_rules_count() -> None:
    execution = JudgedExecution(raises(AWAY))
    await execution.outputs.apply(rule("mask", "redact", scanners=["secret"]))
    assert await execution.result_of(msgspec.json.encode(["x" * 70_000, KEY])) == msgspec.json.encode(
        ["x" * 70_000, "[REDACTED]"]
    )


async def test_a_content_that_was_released_before_is_let_pass() -> None:
    execution = await judged(always(OutputCheckResponse(decision="quarantine")))
    digest = execution.outputs.policy.digest_of(OUTPUT)
    execution.outputs.store.state.output_exemptions["default", digest] = "task_before"  # type: ignore[assignment]
    assert await execution.result_of() == OUTPUT


@pytest.mark.req("R-12")
async def test_three_failures_open_a_breaker_of_its_own_and_outputs_pass_unasked() -> None:
    execution = await judged(raises(AWAY))
    await execution.result_of()
    for number in range(2):
        await _another(execution, f"more{number}")
    assert (len(execution.kernel.asked), execution.breaker.known.state(execution.clock.now())) == (
        3,
        BreakerState.OPEN,
    )

    await _another(execution, "refused")
    assert len(execution.kernel.asked) == 3

    execution.clock.advance(30_000)
    execution.kernel.answer = always(OutputCheckResponse(decision="allow"))
    for number in range(2):
        await _another(execution, f"probe{number}")
    assert execution.breaker.known.state(execution.clock.now()) is BreakerState.CLOSED
    assert len(execution.kernel.asked) == 5


async def _another(execution: JudgedExecution, name: str) -> None:
    """Another run of the job with an output, and its check."""
    job = await execution.store.schedules.find("default", execution.launched.schedule_id or "")
    assert job is not None
    await execution.run(job, name)
    await execution.run_until_idle()
    execution.runner.end_all(output=OUTPUT)
    await execution.run_until_idle()
    await execution.checker.step()


async def test_a_hanging_service_is_asked_a_bounded_number_of_times_at_once() -> None:
    execution = await judged(hangs, parallel=2)
    await execution.ends(output=OUTPUT)
    job = await execution.store.schedules.find("default", execution.launched.schedule_id or "")
    assert job is not None
    for number in range(5):
        await execution.run(job, f"r{number}")
    await execution.run_until_idle()
    execution.runner.end_all(output=OUTPUT)
    await execution.run_until_idle()
    step = asyncio.create_task(execution.checker.step())
    for _ in range(50):
        await asyncio.sleep(0)
    most = execution.kernel.most
    step.cancel()
    await asyncio.gather(step, return_exceptions=True)
    assert most == 2


@pytest.mark.parametrize("transport", ["grpc", "http"])
async def test_a_real_service_judges(transport: str) -> None:
    answers = OutputAnswers(policy_text(rule("plans", keywords=[SECRET])))
    async with served_outputs(transport, answers) as port, connected_output_kernel(transport, port) as kernel:
        execution = await judged(kernel.check_output)
        assert await execution.result_of() is None
    assert await execution.ruling() == (OutputDecision.QUARANTINE, "plans", OutputPhase.LATE)
