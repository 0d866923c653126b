"""Outputs that were too large to be read before they were stored are checked afterwards."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
import pytest
from msgspec.structs import replace

from gnomon.core.model import Result, RunStatus, TaskId
from gnomon.core.output_policy.ruling import HeldDecision, HeldStatus, OutputDecision, OutputPhase, OutputRuling
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import RetryPolicy, Step, Workflow
from gnomon.errors import StoreUnavailable, Unavailable
from gnomon.ports.output_policy import OutputJudge, StoredOutput
from gnomon.services.coordination import AlwaysHeldSingleton
from gnomon.services.execution.late_output_checker import LateOutputChecker
from support.checked_execution import TWO_STEPS, CheckedExecution, everything
from support.output_policies import CANARIES, HELD_KEY, HOLD_ALL, KEY, rule
from support.task_steps import workflow

pytestmark = pytest.mark.req("R-06")
LEAK = msgspec.json.encode(["x" * 200, KEY])


class NeverHeld(AlwaysHeldSingleton):
    """The singleton of a node that another node keeps from its work."""

    retry_seconds = 7.0

    async def ours(self) -> bool:
        return False


class Judge(OutputJudge):
    """Fails or hangs as the test says."""

    def __init__(self, *, error: Exception | None = None, hangs: bool = False) -> None:
        self.asked: list[StoredOutput] = []
        self._error, self._hangs = error, hangs

    async def judge(self, stored: StoredOutput) -> OutputRuling:
        self.asked.append(stored)
        if self._hangs:
            await asyncio.Event().wait()
        assert self._error is not None
        raise self._error


class LateExecution(CheckedExecution):
    """A dispatcher, a worker and the checker of stored outputs. Nothing above 100 bytes is read at once."""

    def __init__(self, *, judge: OutputJudge | None = None, timeout_ms: int = 30_000, **options: object) -> None:
        super().__init__(inline_bytes=100, **options)
        self.went_on = 0
        self.checker = self.new_checker(judge, timeout_ms)

    def new_checker(
        self,
        judge: OutputJudge | None = None,
        timeout_ms: int = 30_000,
        lease: AlwaysHeldSingleton | None = None,
    ) -> LateOutputChecker:
        return LateOutputChecker(
            self.store.late_checks,
            self.store.executions,
            self.workflow_cache,
            self.outputs.policy,
            judge or self.outputs.policy,
            self.clock,
            self.events,
            lease=lease or AlwaysHeldSingleton(),
            timeout_ms=timeout_ms,
            on_ready=self._went_on,
        )

    def _went_on(self) -> None:
        self.went_on += 1

    async def leaks(self, output: bytes = LEAK, definition: Workflow | None = None) -> TaskId:
        """Run a job whose first step returns this; return its task."""
        await self.ends(definition, output=output)
        tasks = await self.store.history.tasks([self.launched])
        return min(tasks, key=lambda one: one.created_at).task_id

    async def output_of(self, task: TaskId) -> bytes | None:
        found: Mapping[str, bytes] = await self.store.executions.payloads([task], "output")
        return found.get(task)


async def held_by(*rules: Mapping[str, object], **options: object) -> LateExecution:
    made = LateExecution(**options)  # type: ignore[arg-type]
    await made.outputs.apply(*(dict(one) for one in rules or HOLD_ALL))
    return made


@pytest.mark.parametrize("scanner", CANARIES)
async def test_a_large_output_is_stored_first_and_taken_away_by_its_check(scanner: str) -> None:
    execution = await held_by()
    text = CANARIES[scanner]
    task = await execution.leaks(msgspec.json.encode(["x" * 200, text]))
    assert await execution.task() == TaskState.SUCCEEDED

    assert await execution.checker.step() == 0.0

    ruling = await execution.store.output_rulings.of_task("default", task)
    run = await execution.now(execution.launched)
    assert (await execution.task(), run.status) == (TaskState.OUTPUT_QUARANTINED, RunStatus.COMPLETED)
    assert ruling is not None
    assert (ruling.phase, ruling.status, ruling.findings[0].scanner) == (OutputPhase.LATE, HeldStatus.HELD, scanner)
    assert text not in everything(execution.store)
    assert text not in repr(execution.events.seen)
    assert execution.went_on == 1


async def test_a_clean_output_stays_and_is_checked_once() -> None:
    execution = await held_by()
    task = await execution.leaks(clean := msgspec.json.encode("x" * 200))

    assert await execution.checker.step() == 0.0
    assert await execution.checker.step() > 0

    assert await execution.output_of(task) == clean
    assert await execution.task() == TaskState.SUCCEEDED
    assert await execution.store.output_rulings.of_task("default", task) is None
    assert execution.went_on == 0


async def test_a_small_output_is_checked_before_it_is_stored_and_not_again() -> None:
    execution = await held_by()
    await execution.leaks(b'"fine"')
    assert await execution.store.late_checks.oldest(10) == []


async def test_a_late_quarantine_names_the_step_that_has_read_the_output() -> None:
    execution = await held_by()
    task = await execution.leaks(LEAK, TWO_STEPS)
    [sent] = execution.runner.started.values()
    assert sent.input["got"][1] == KEY

    await execution.checker.step()

    ruling = await execution.store.output_rulings.of_task("default", task)
    assert ruling is not None
    assert ruling.readers == ("send",)


async def test_a_late_redaction_leaves_the_rest_of_the_output() -> None:
    execution = await held_by(rule("mask", "redact", scanners=["secret"]))
    task = await execution.leaks(LEAK)

    await execution.checker.step()

    assert await execution.output_of(task) == msgspec.json.encode(["x" * 200, "[REDACTED]"])
    assert await execution.task() == TaskState.SUCCEEDED
    assert KEY not in everything(execution.store)


async def test_an_output_that_is_taken_away_is_encrypted_for_its_task() -> None:
    execution = await held_by(keys=[HELD_KEY])
    task = await execution.leaks()

    await execution.checker.step()

    [(_, body)] = execution.outputs.store.state.held_outputs.items()
    assert execution.outputs.cipher is not None
    assert KEY.encode() not in body
    assert execution.outputs.cipher.unseal(f"held_output {task}", body) == LEAK


async def test_a_content_that_was_released_before_is_let_pass() -> None:
    execution = await held_by()
    task = await execution.leaks()
    [check] = await execution.store.late_checks.oldest(1)
    stored = StoredOutput(
        task_id=task,
        run=check.run,
        workflow=(workflow := await execution.workflow_cache.for_run(check.run)),  # type: ignore[arg-type]
        step=workflow.steps[0],  # type: ignore[union-attr]
        output=LEAK,
    )
    digest = (await execution.outputs.policy.judge(stored)).content_digest
    execution.outputs.store.state.output_exemptions["default", digest] = task

    await execution.checker.step()

    assert await execution.output_of(task) == LEAK


FAILURES: Sequence[tuple[str, Judge]] = [
    ("timeout", Judge(hangs=True)),
    ("unavailable", Judge(error=Unavailable("the judge is away"))),
    ("error", Judge(error=ValueError(KEY))),
]


@pytest.mark.req("R-05")
@pytest.mark.parametrize(("name", "judge"), FAILURES)
async def test_an_output_that_nothing_can_judge_stays_and_is_counted(name: str, judge: Judge) -> None:
    del name
    execution = await held_by(judge=judge, timeout_ms=20)
    task = await execution.leaks()

    await execution.checker.step()

    assert await execution.output_of(task) == LEAK
    assert await execution.task() == TaskState.SUCCEEDED
    assert await execution.store.late_checks.oldest(10) == []
    assert "output_unchecked" in [event for event, _ in execution.events.seen]
    assert KEY not in repr(execution.events.seen)


@pytest.mark.parametrize(("name", "judge"), FAILURES)
async def test_with_a_closed_policy_it_is_held_back(name: str, judge: Judge) -> None:
    del name
    execution = await held_by(judge=judge, timeout_ms=20, closed=True)
    task = await execution.leaks()

    await execution.checker.step()

    ruling = await execution.store.output_rulings.of_task("default", task)
    assert await execution.output_of(task) is None
    assert ruling is not None
    assert (ruling.decision, ruling.rule) == (OutputDecision.QUARANTINE, "unchecked")


async def test_while_the_store_is_away_nothing_is_decided_and_the_check_is_made_again() -> None:
    execution = await held_by(judge=Judge(error=StoreUnavailable("away")))
    await execution.leaks()

    assert await execution.checker.step() > 0

    assert len(await execution.store.late_checks.oldest(10)) == 1
    await execution.new_checker().step()
    assert await execution.task() == TaskState.OUTPUT_QUARANTINED


@pytest.mark.req("R-05")
async def test_an_output_that_could_not_be_checked_in_time_is_checked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    execution = LateExecution()

    async def away() -> int:
        raise StoreUnavailable("away")

    with monkeypatch.context() as outage:
        outage.setattr(execution.outputs.store.policies, "newest_number", away)
        task = await execution.leaks(b'["' + KEY.encode() + b'"]')
        assert await execution.task() == TaskState.SUCCEEDED

    await execution.checker.step()

    assert await execution.task() == TaskState.OUTPUT_QUARANTINED
    assert await execution.output_of(task) is None


async def test_a_hanging_judge_delays_no_other_output() -> None:
    judge = Judge(hangs=True)
    execution = await held_by(judge=judge, timeout_ms=50)
    await execution.leaks()
    job = await execution.job(workflow("other"), name="other", workflow_id="other")
    await execution.run(job, "x")
    await execution.run_until_idle()
    execution.runner.end_all(output=LEAK)
    for _ in range(20):
        await execution.run_until_idle()
        await asyncio.sleep(0.01)
    assert len(await execution.store.late_checks.oldest(10)) == 2

    await execution.checker.step()

    assert len(judge.asked) == 2
    assert await execution.store.late_checks.oldest(10) == []


async def test_a_node_without_the_lease_checks_nothing() -> None:
    execution = await held_by()
    await execution.leaks()
    assert await execution.new_checker(lease=NeverHeld()).step() == 7.0
    assert len(await execution.store.late_checks.oldest(10)) == 1


async def test_a_checker_that_died_in_the_middle_loses_no_check() -> None:
    execution = await held_by(judge=Judge(hangs=True))
    await execution.leaks()
    dying = asyncio.create_task(execution.checker.step())
    await asyncio.sleep(0)
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)

    await execution.new_checker().step()

    assert await execution.task() == TaskState.OUTPUT_QUARANTINED


#: The second step is tried three times.
TRIED_AGAIN = replace(
    TWO_STEPS, steps=(TWO_STEPS.steps[0], replace(TWO_STEPS.steps[1], retry=RetryPolicy(max_attempts=3)))
)
THREE_STEPS = Workflow(
    workflow_id="report",
    version=1,
    steps=(
        Step(name="read", function="reports.make"),
        Step(name="count", function="reports.make", depends_on=("read",)),
        Step(name="send", function="reports.make", depends_on=("count",), input={"got": "${steps.read.output}"}),
    ),
)


async def test_a_step_is_not_tried_again_without_an_output_that_was_taken_away() -> None:
    execution = await held_by()
    await execution.leaks(LEAK, TRIED_AGAIN)
    await execution.checker.step()
    assert KEY not in everything(execution.store)

    execution.runner.end_all(Result.FAILED)
    await execution.run_until_idle()
    execution.clock.advance(600_000)
    await execution.run_until_idle()

    assert execution.runner.started == {}
    _, sent = await execution.store.history.tasks([execution.launched])
    assert (sent.state, sent.note) == (
        TaskState.FAILED,
        "bad_input: it refers to the output of step read, which is held back",
    )
    assert KEY not in everything(execution.store)


async def test_it_is_tried_again_with_an_output_that_was_released_meanwhile() -> None:
    execution = await held_by()
    task = await execution.leaks(LEAK, TRIED_AGAIN)
    await execution.checker.step()
    execution.runner.end_all(Result.FAILED)
    await execution.run_until_idle()
    await execution.store.held_outputs.release("default", task, LEAK, HeldDecision(actor="ada", reason="ok", at=1))
    execution.clock.advance(600_000)
    await execution.run_until_idle()

    [sent] = execution.runner.started.values()
    assert (sent.task.fence, sent.input["got"][1]) == (2, KEY)


async def test_a_later_step_does_not_begin_without_an_output_that_was_taken_away() -> None:
    execution = await held_by()
    await execution.leaks(LEAK, THREE_STEPS)
    await execution.checker.step()

    execution.runner.end_all()
    await execution.run_until_idle()

    assert execution.runner.started == {}
    sent = (await execution.store.history.tasks([execution.launched]))[-1]
    assert (sent.step, sent.state) == ("send", TaskState.FAILED)
    assert (sent.note or "").endswith("which is held back")
