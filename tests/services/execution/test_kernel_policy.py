"""A policy kernel that answers, hangs, fails or lies, on a virtual clock: only its own tasks wait, and say why."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from contracts.store import NOON, minutely
from gnomon.adapters.memory import MemoryStore
from gnomon.config.sections import SecuritySettings
from gnomon.core.commands.rules import CommandRules
from gnomon.core.model import Overlap, Run, Task
from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse
from gnomon.core.policy.ruling import PolicyDecision, Ruling, plain_permission
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.core.runs.workflow import ONLY_STEP, AlteredWorkflow, Step, Workflow
from gnomon.core.triggers import OnDemand
from gnomon.errors import KernelUnavailable, RulingUnavailable, StoreUnavailable
from gnomon.ports.schedules import JobChangeset
from gnomon.services.execution.command_gate import CommandGate
from gnomon.services.execution.composed_gate import ComposedGate
from gnomon.services.execution.kernel_policy import KernelPolicy
from gnomon.testing.clock import Recorder, VirtualClock
from support.execution import ExecutionHarness, FakeRunner
from support.policy_kernels import ScriptedKernel, hang, kernel_policy
from support.rulings import rulings_of
from support.tasks_to_admit import request_to_admit

Answer = Callable[[PolicyCheckRequest], Awaitable[PolicyCheckResponse]]
ALLOWED = PolicyCheckResponse(decision="allow", rule_id="r1", policy_snapshot="p1")


def says(answer: PolicyCheckResponse) -> Answer:
    async def check(request: PolicyCheckRequest) -> PolicyCheckResponse:
        del request
        return answer

    return check


def raises(error: Exception) -> Answer:
    async def check(request: PolicyCheckRequest) -> PolicyCheckResponse:
        del request
        raise error

    return check


allows, is_away = says(ALLOWED), raises(KernelUnavailable("it is away"))


async def outcome(policy: KernelPolicy, task: str = "task_1") -> str:
    """The decision about a task, or why there is none."""
    try:
        ruling = await policy.rule(request_to_admit(task))
    except RulingUnavailable as error:
        return str(error)
    assert ruling is not None
    return ruling.decision.value


# ---- the breaker -------------------------------------------------------------------------------------


@pytest.mark.req("R-12")
async def test_three_failures_open_the_breaker_for_thirty_seconds() -> None:
    clock, kernel = VirtualClock(NOON), ScriptedKernel(is_away)
    policy = kernel_policy(kernel, clock)

    found = [await outcome(policy, f"task_{number}") for number in range(10)]

    assert found[:3] == ["it is away"] * 3
    assert all("its circuit is open" in one for one in found[3:])
    assert kernel.asked == 3
    clock.advance(29_999)
    assert "its circuit is open" in await outcome(policy)
    clock.advance(1)
    kernel.answer = allows
    assert await outcome(policy) == "allow"


@pytest.mark.req("R-12")
async def test_three_probes_are_sent_at_once_and_two_successes_close_it() -> None:
    clock, kernel = VirtualClock(NOON), ScriptedKernel(is_away)
    policy = kernel_policy(kernel, clock)
    for _ in range(3):
        await outcome(policy)
    clock.advance(30_000)
    opened = asyncio.Event()

    async def waits(request: PolicyCheckRequest) -> PolicyCheckResponse:
        await opened.wait()
        return await allows(request)

    kernel.answer, kernel.asked = waits, 0
    tries = [asyncio.ensure_future(outcome(policy, f"task_{number}")) for number in range(10)]
    for _ in range(20):
        await asyncio.sleep(0)

    assert kernel.asked == 3
    opened.set()
    found = await asyncio.gather(*tries)
    assert found.count("allow") == 3
    assert [await outcome(policy, f"later_{number}") for number in range(10)] == ["allow"] * 10


@pytest.mark.req("R-12")
async def test_a_failed_probe_opens_it_again_from_that_failure() -> None:
    clock, kernel = VirtualClock(NOON), ScriptedKernel(is_away)
    policy = kernel_policy(kernel, clock)
    for _ in range(3):
        await outcome(policy)
    clock.advance(45_000)
    assert await outcome(policy) == "it is away"
    clock.advance(29_000)
    assert "its circuit is open" in await outcome(policy)
    clock.advance(1_000)
    assert await outcome(policy) == "it is away"


@pytest.mark.req("R-12")
async def test_processes_that_share_a_store_share_the_breaker() -> None:
    clock, store = VirtualClock(NOON), MemoryStore(lambda: NOON)
    first, second = ScriptedKernel(is_away), ScriptedKernel(is_away)
    policies = [kernel_policy(one, clock, breakers=store.breakers) for one in (first, second)]

    for number in range(10):
        clock.advance(600)
        await outcome(policies[number % 2], f"task_{number}")

    assert first.asked + second.asked == 3


@pytest.mark.req("R-12")
async def test_a_process_counts_alone_while_the_store_is_away() -> None:
    clock, kernel = VirtualClock(NOON), ScriptedKernel(is_away)

    class Away:
        def __getattr__(self, name: str) -> Callable[..., Awaitable[None]]:
            async def fail(*_: object, **__: object) -> None:
                raise StoreUnavailable(name)

            return fail

    policy = kernel_policy(kernel, clock, breakers=Away())  # type: ignore[arg-type]

    found = [await outcome(policy, f"task_{number}") for number in range(6)]

    assert kernel.asked == 3
    assert "its circuit is open" in found[-1]


@pytest.mark.req("R-12")
@pytest.mark.parametrize(
    "answer",
    [says(PolicyCheckResponse(decision="deny")), raises(ValueError("no answer"))],
    ids=["a denial", "no answer"],
)
async def test_a_denial_and_an_invalid_answer_are_no_failures(answer: Answer) -> None:
    kernel = ScriptedKernel(answer)
    policy = kernel_policy(kernel)

    assert [await outcome(policy) for _ in range(10)] == ["deny"] * 10
    assert kernel.asked == 10


async def test_a_call_that_is_given_up_counts_neither_way_and_is_no_longer_under_way() -> None:
    kernel = ScriptedKernel(hang)
    policy = kernel_policy(kernel, parallel=2)
    for _ in range(10):
        calls = [asyncio.ensure_future(outcome(policy)) for _ in range(2)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    kernel.answer = allows
    assert await outcome(policy) == "allow"
    assert kernel.under_way == 0


# ---- parallelism and memory --------------------------------------------------------------------------


async def test_a_definition_that_was_changed_in_the_store_is_denied_without_a_question() -> None:
    kernel, request = ScriptedKernel(allows), request_to_admit()
    policy = kernel_policy(kernel)

    altered = AlteredWorkflow(**{name: getattr(request.workflow, name) for name in Workflow.__struct_fields__})
    ruling = await policy.rule(replace(request, workflow=altered))

    assert ruling is not None
    assert (ruling.decision, ruling.rule) == (PolicyDecision.DENY, "altered_definition")
    assert kernel.asked == 0


async def test_only_so_many_questions_are_under_way_at_once() -> None:
    kernel, opened = ScriptedKernel(hang), asyncio.Event()

    async def waits(request: PolicyCheckRequest) -> PolicyCheckResponse:
        await opened.wait()
        return await allows(request)

    kernel.answer = waits
    policy = kernel_policy(kernel, parallel=3)
    tries = [asyncio.ensure_future(outcome(policy, f"task_{number}")) for number in range(20)]
    for _ in range(20):
        await asyncio.sleep(0)
    opened.set()

    assert await asyncio.gather(*tries) == ["allow"] * 20
    assert kernel.most == 3


async def test_a_remembered_answer_rules_at_once_on_other_tasks_with_the_same_facts() -> None:
    clock, kernel = VirtualClock(NOON), ScriptedKernel(allows)
    policy = kernel_policy(kernel, clock, cache_ms=10_000)
    first = await policy.rule(request_to_admit("task_1", {"n": 1}))

    second = policy.rule_now(request_to_admit("task_2", {"n": 1}))

    assert first is not None
    assert second is not None
    assert replace(second, digest=first.digest) == first
    assert second.digest != first.digest
    assert policy.rule_now(request_to_admit("task_2", {"n": 2})) is None
    assert policy.rule_now(request_to_admit("task_2", {"n": 1}, name="other")) is None
    clock.advance(10_000)
    assert policy.rule_now(request_to_admit("task_2", {"n": 1})) is None


async def test_a_question_that_waited_until_its_answer_was_known_is_not_asked() -> None:
    kernel = ScriptedKernel(allows)
    policy = kernel_policy(kernel, cache_ms=10_000)

    assert [await outcome(policy, f"task_{number}") for number in range(5)] == ["allow"] * 5
    assert kernel.asked == 1


@pytest.mark.parametrize(
    "answer",
    [
        PolicyCheckResponse(decision="allow", varies=True),
        PolicyCheckResponse(decision="throttle"),
        PolicyCheckResponse(decision="require_approval"),
    ],
    ids=["one that varies", "a throttle", "an approval"],
)
async def test_an_answer_that_may_be_another_one_next_time_is_not_remembered(answer: PolicyCheckResponse) -> None:
    policy = kernel_policy(ScriptedKernel(says(answer)), cache_ms=10_000)
    await policy.rule(request_to_admit())

    assert policy.rule_now(request_to_admit()) is None


async def test_an_answer_of_another_policy_ends_all_that_was_remembered() -> None:
    kernel = ScriptedKernel(allows)
    policy = kernel_policy(kernel, cache_ms=10_000)
    await policy.rule(request_to_admit(given={"n": 1}))
    kernel.answer = says(replace(ALLOWED, policy_snapshot="p2"))
    await policy.rule(request_to_admit(given={"n": 2}))

    assert policy.rule_now(request_to_admit(given={"n": 1})) is None
    assert policy.rule_now(request_to_admit(given={"n": 2})) is not None


async def test_nothing_is_remembered_unless_it_was_asked_for() -> None:
    policy = kernel_policy(ScriptedKernel(allows))
    await policy.rule(request_to_admit())

    assert policy.rule_now(request_to_admit()) is None


# ---- tasks -------------------------------------------------------------------------------------------


class KernelHarness(ExecutionHarness):
    """A dispatcher whose gate asks a kernel, and a worker."""

    def __init__(self, answer: Answer, *, opens: bool = False) -> None:
        clock = VirtualClock(NOON)
        store = MemoryStore(clock.now)
        self.kernel, self.policy_events = ScriptedKernel(answer), Recorder()
        policy = kernel_policy(self.kernel, clock, events=self.policy_events, breakers=store.breakers, opens=opens)
        rules = CommandRules(SecuritySettings(), workspace="/srv/workspace")
        commands = CommandGate(rules, store.tasks, store.approvals, clock)
        super().__init__(gate=ComposedGate(commands, policy, store.approvals), store=store, clock=clock)
        self.runner = FakeRunner("reports.make")
        self.worker = self.new_worker("w1", self.runner)

    async def tried(self, name: str = "a") -> Run:
        definition = Workflow(
            workflow_id=f"report-{name}", version=1, steps=(Step(name=ONLY_STEP, function="reports.make"),)
        )
        await self.store.jobs.apply(JobChangeset(workflows=[definition]), now=self.clock.now(), actor="ada", tzdata="")
        job = minutely(f"job-{name}", trigger=OnDemand(), overlap=Overlap.ALLOW, workflow_id=definition.workflow_id)
        await self.store.schedules.add([job], actor="ada", tzdata="")
        run = await self.run(job, name)
        await self.settled()
        return run

    async def settled(self) -> None:
        """Run the services until the calls that can end have ended, and their answers are written."""
        for _ in range(5):
            await self.run_until_idle()
            for _ in range(10):
                await asyncio.sleep(0)

    async def task(self, run: Run) -> Task:
        [task] = await self.store.history.tasks([run])
        return task


@pytest.mark.req("R-13")
async def test_by_default_a_task_waits_for_the_kernel_and_says_so() -> None:
    harness = KernelHarness(is_away)

    run = await harness.tried()
    task = await harness.task(run)

    assert (task.state, task.wait_reason) == (TaskState.PENDING, WaitReason.POLICY)
    assert (task.note, task.available_at) == ("it is away", NOON + 5_000)
    assert task.routings == 0
    assert await harness.store.dead_letters.page("default") == []
    assert await rulings_of(harness.store, run.run_id) == []


@pytest.mark.req("R-13", "R-12")
async def test_a_task_waits_for_the_kernel_as_long_as_it_takes_and_then_runs() -> None:
    harness = KernelHarness(is_away)
    run = await harness.tried()
    for _ in range(100):
        harness.clock.advance(5_000)
        await harness.settled()
    task = await harness.task(run)
    assert (task.state, task.routings) == (TaskState.PENDING, 0)

    harness.kernel.answer = allows
    for _ in range(8):
        harness.clock.advance(5_000)
        await harness.settled()

    assert (await harness.task(run)).state is TaskState.RUNNING
    [ruling] = await rulings_of(harness.store, run.run_id)
    assert (ruling.decision, ruling.rule, ruling.ruled_by) == ("allow", "r1", "kernel:p1")


@pytest.mark.req("R-13")
async def test_with_the_fail_mode_open_a_task_runs_by_a_ruling_that_says_so() -> None:
    harness = KernelHarness(is_away, opens=True)

    run = await harness.tried()

    assert (await harness.task(run)).state is TaskState.RUNNING
    [ruling] = await rulings_of(harness.store, run.run_id)
    assert (ruling.decision, ruling.rule, ruling.ruled_by) == ("allow", "fail_open", "fail_open")
    assert ruling.reason == "fail-open: it is away"
    assert "policy_fail_open" in harness.policy_events.names()


@pytest.mark.req("R-09")
async def test_a_compensation_goes_on_without_the_kernel_in_both_modes() -> None:
    policy = kernel_policy(ScriptedKernel(is_away), VirtualClock(NOON))

    with pytest.raises(RulingUnavailable):
        await policy.rule(request_to_admit())
    ruling = await policy.rule(request_to_admit(name="compensate:hotel"))

    assert ruling is not None
    assert (ruling.decision, ruling.ruled_by) == ("allow", "fail_open")


@pytest.mark.req("R-09")
async def test_a_compensation_that_the_kernel_denies_does_not_go_on() -> None:
    policy = kernel_policy(ScriptedKernel(says(replace(ALLOWED, decision="deny"))), VirtualClock(NOON))
    ruling = await policy.rule(request_to_admit(name="compensate:hotel"))
    assert ruling is not None
    assert ruling.decision == "deny"


@pytest.mark.req("R-02", "R-13")
@pytest.mark.parametrize("opens", [False, True])
async def test_an_invalid_answer_denies_the_task_in_both_modes(*, opens: bool) -> None:
    harness = KernelHarness(raises(ValueError("it ends within a field")), opens=opens)

    task = await harness.task(await harness.tried())

    [letter] = await harness.store.dead_letters.page("default")
    assert (task.state, letter.reason) == (TaskState.DENIED, "safety_unknown")
    assert "the policy kernel has given no valid answer: it ends within a field" in (task.note or "")


async def test_a_kernel_that_hangs_for_one_workflow_delays_no_other() -> None:
    async def hangs_for_one(request: PolicyCheckRequest) -> PolicyCheckResponse:
        return await (hang if request.workflow == "report-stuck" else allows)(request)

    harness = KernelHarness(hangs_for_one)

    stuck, other = await harness.tried("stuck"), await harness.tried("other")

    assert (await harness.task(other)).state is TaskState.RUNNING
    assert (await harness.task(stuck)).state is TaskState.PENDING


async def test_a_ruling_of_a_kernel_is_read_back() -> None:
    harness = KernelHarness(says(PolicyCheckResponse(decision="deny", rule_id="no/thing", policy_snapshot="p1")))

    run = await harness.tried()

    [ruling] = await rulings_of(harness.store, run.run_id)
    assert (ruling.rule, ruling.ruled_by, ruling.code) == ("no/thing", "kernel:p1", "safety_denied")
    assert (await harness.task(run)).note == "denied by rule no/thing of policy p1 of the kernel"


def test_a_ruling_that_is_kept_in_columns_only_is_read_back() -> None:
    made = Ruling(decision=PolicyDecision.ALLOW, rule="a/b", version=0, digest=b"d", ruled_by="kernel:p1")

    found = plain_permission("task_1", "run_1", made.rule_text, b"d", [], at=1)

    assert found is not None
    assert (found.rule, found.version, found.ruled_by) == ("a/b", 0, "kernel:p1")
