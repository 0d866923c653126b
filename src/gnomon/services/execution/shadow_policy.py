"""Judges tasks by a shadow of the policy, beside the decisions that count.

The gate only notes each decision; the judgement follows in a loop of its own. A shadow that fails, or is slow, neither
delays nor changes a task: at most it judges fewer of them, and says how many.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gnomon.core.model import TaskId
from gnomon.core.policy.past_tasks import PastDecision, decision_of_policy
from gnomon.core.policy.ruling import BY_COMMANDS, PolicyDecision, Ruling
from gnomon.core.policy.shadow import PolicyShadow, ShadowCounts, ShadowDifference
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict, OutputRelease
from gnomon.core.runs.outcomes import Assignment
from gnomon.errors import Unavailable, UsageError
from gnomon.ports.execution import Gate
from gnomon.ports.policy import PolicyShadows
from gnomon.ports.runtime import Clock, Events

if TYPE_CHECKING:
    from gnomon.core.policy.step_rules import StepRulesCache

#: How many decisions wait to be judged, and how many tasks are remembered that were.
_MOST_NOTED, _MOST_REMEMBERED = 5_000, 10_000
#: After how many judgements other coroutines run.
_BATCH = 50
#: How often is looked for a shadow while none runs; how often one that runs judges.
_IDLE_SECONDS, _RUNNING_SECONDS = 5.0, 0.5


class _Noted(NamedTuple):
    """A decision of the gate that is to be judged."""

    request: AdmissionRequest
    ruling: Ruling | None
    at: int


class ShadowPolicy:
    """Follows the shadow in the store, and judges by it what the gate of this process has decided."""

    def __init__(
        self,
        shadows: PolicyShadows,
        clock: Clock,
        events: Events,
        *,
        compile_shadow: "Callable[[PolicyShadow], StepRulesCache]",
    ) -> None:
        """`compile_shadow` raises UsageError for a file that it cannot read."""
        self._shadows, self._clock, self._events = shadows, clock, events
        self._compile = compile_shadow
        self._number = 0
        self._rules: StepRulesCache | None = None
        self._noted: deque[_Noted] = deque()
        self._seen: OrderedDict[tuple[TaskId, int], str] = OrderedDict()
        self._counts = ShadowCounts()

    @property
    def running(self) -> bool:
        """Whether there is a shadow that this process can judge by."""
        return self._rules is not None

    def note(self, request: AdmissionRequest, decision: GateDecision) -> None:
        """Note a decision of the gate. A refusal of the policy of commands would follow from any policy of tasks."""
        ruling = decision.ruling
        by_commands = decision.verdict is not GateVerdict.ALLOW if ruling is None else ruling.ruled_by == BY_COMMANDS
        if by_commands:
            return
        if len(self._noted) >= _MOST_NOTED:
            self._counts.skip()
        else:
            self._noted.append(_Noted(request, ruling, self._clock.now()))

    async def step(self) -> float:
        """Judge what was noted, and store the counts; return how many seconds to wait until the next step."""
        try:
            await self._judge_all()
            if self._counts and not await self._shadows.count(self._number, self._counts):
                self._forget()
            self._emit()
            await self._refresh()
        except Unavailable:
            return _IDLE_SECONDS
        return _RUNNING_SECONDS if self.running else _IDLE_SECONDS

    async def _refresh(self) -> None:
        number = await self._shadows.running_number()
        if number == self._number:
            return
        newest = await self._shadows.newest() if number else None
        self._forget()
        self._number = number
        if newest is None or newest.number != number:
            self._number = 0
            return
        try:
            # In a thread: a long file takes too long to compile on the event loop, which the ticker shares.
            self._rules = await asyncio.to_thread(self._compile, newest)
        except UsageError as error:
            self._events.emit("policy_shadow_unreadable", shadow=number, error=str(error))

    def _forget(self) -> None:
        self._rules, self._counts = None, ShadowCounts()
        self._noted.clear()
        self._seen.clear()

    def _emit(self) -> None:
        counts, self._counts = self._counts, ShadowCounts()
        if counts:
            with suppress(Exception):  # a faulty event sink must not stop the shadow
                self._events.emit(
                    "policy_shadow_judged",
                    same=counts.same,
                    different=counts.different,
                    not_judged=counts.not_judged,
                )

    async def _judge_all(self) -> None:
        rules = self._rules
        while rules is not None and self._noted:
            for _ in range(min(_BATCH, len(self._noted))):
                self._judge(rules, self._noted.popleft())
            await asyncio.sleep(0)

    def _judge(self, rules: "StepRulesCache", noted: _Noted) -> None:
        try:
            before = _decision_before(noted.ruling)
            if self._is_repeated(noted, before):
                return
            after = _decision_after(rules, noted)
        except Exception:  # noqa: BLE001 - an error of the shadow costs nothing but its own judgement
            self._counts.skip()
            return
        task, run = noted.request.waiting.task, noted.request.waiting.run
        self._counts.count(
            before,
            after,
            ShadowDifference(
                tenant=run.tenant,
                job=run.schedule_id or run.workflow_id,
                before=before.decision,
                before_rule=before.rule,
                after=after.decision,
                after_rule=after.rule,
                count=1,
                first_at=noted.at,
                last_at=noted.at,
                run_id=run.run_id,
                step=task.step,
            ),
        )

    def _is_repeated(self, noted: _Noted, before: PastDecision) -> bool:
        """Whether the last decision about the task was the same: a throttled task is asked about again and again."""
        task = noted.request.waiting.task
        key, decided = (task.task_id, task.fence), f"{before.decision} {before.rule}"
        if self._seen.get(key) == decided:
            return True
        self._seen[key] = decided
        if len(self._seen) > _MOST_REMEMBERED:
            self._seen.popitem(last=False)
        return False


class ShadowedGate(Gate):
    """A gate whose decisions are noted for the shadow."""

    def __init__(self, gate: Gate, shadow: ShadowPolicy) -> None:
        self._gate, self._shadow = gate, shadow

    def admit_now(self, request: AdmissionRequest) -> GateDecision | None:
        """See Gate.admit_now."""
        decision = self._gate.admit_now(request)
        if decision is not None and self._shadow.running:
            self._shadow.note(request, decision)
        return decision

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        """See Gate.admit."""
        decision = await self._gate.admit(request)
        if self._shadow.running and request.fan_out is None:
            self._shadow.note(request, decision)
        return decision

    def asks_about_items(self, request: AdmissionRequest) -> bool:
        """See Gate.asks_about_items."""
        return self._gate.asks_about_items(request)

    def release_now(self, finished: Assignment, output: bytes | None) -> OutputRelease | None:
        """See Gate.release_now."""
        return self._gate.release_now(finished, output)

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        """See Gate.release."""
        return await self._gate.release(finished, output)


def _decision_before(ruling: Ruling | None) -> PastDecision:
    """The decision of the policy in force; a permission by votes followed from a question."""
    if ruling is None:
        return PastDecision(decision=PolicyDecision.ALLOW)
    decision = decision_of_policy(ruling.decision, ruling.ruled_by)
    return PastDecision(decision=decision, rule=ruling.rule, constraints=ruling.constraints)


def _decision_after(rules: "StepRulesCache", noted: _Noted) -> PastDecision:
    from gnomon.core.policy.facts import facts_of

    request = noted.request
    about, found = rules.of(request.waiting.run, request.workflow, request.step)
    ruling = found.fixed or found.ruling(facts_of(request, about, found.needed), noted.at)
    return PastDecision(decision=ruling.decision, rule=ruling.rule, constraints=ruling.constraints)
