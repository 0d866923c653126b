"""Rules on tasks by asking a policy kernel: a service in another process, which may be slow, wrong or absent.

A kernel that gives no answer rules on nothing: by the fail mode its task waits (closed), or runs by a ruling of its own
that says so (open). An answer that is none, or cannot be carried out exactly, denies the task.

Answers may be remembered for a while. The key is everything that a rule can look at but the run itself; a kernel marks
an answer that depends on the run or on the time. All answers are forgotten when one comes from another policy.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.policy.facts import NeededFacts, RequestFacts, StepDigest, StepFacts, facts_of, input_json, step_facts
from gnomon.core.policy.kernel_messages import (
    PolicyCheckRequest,
    PolicyCheckResponse,
    check_request,
    fail_open_ruling,
    invalid_ruling,
    kernel_ruling,
)
from gnomon.core.policy.ruling import PolicyDecision, Ruling, altered_definition_ruling
from gnomon.core.runs.admission import AdmissionRequest
from gnomon.core.runs.rollback import is_compensation
from gnomon.core.runs.workflow import AlteredWorkflow
from gnomon.errors import KernelUnavailable, RulingUnavailable
from gnomon.ports.policy import PolicyKernel, TaskPolicy
from gnomon.ports.runtime import Clock, Events
from gnomon.services.execution.local_budgets import LocalBudgets
from gnomon.services.execution.shared_breaker import SharedBreaker

#: The steps whose facts are remembered, and the answers; of more, the oldest are forgotten.
_MOST_STEPS, _MOST_ANSWERS = 10_000, 10_000
#: Decisions that may be remembered: of the others, the next answer may be a different one.
_LASTING = (PolicyDecision.ALLOW, PolicyDecision.ALLOW_WITH_CONSTRAINTS, PolicyDecision.DENY)
#: The number of the policy of a kernel: it has none.
_NO_VERSION = 0
#: The facts of a key besides step and input.
_CALLER = NeededFacts(input=False, secrets=False, run=False)
_StepKey = tuple[str, str, str, int, str]
_FactsKey = tuple[_StepKey, str, tuple[str, ...], str, bytes]


class KernelLimits(Struct, frozen=True, kw_only=True):
    """How the kernel is asked."""

    #: How many questions may be under way at once.
    parallel: int
    #: How long an answer is remembered; 0: not at all.
    cache_ms: int
    #: How long a task waits about which the kernel gave no answer.
    retry_ms: int
    #: How long a throttled task waits if the kernel does not say.
    throttle_ms: int


class _AskedStep(NamedTuple):
    """The parts of questions that all tasks of a step have in common."""

    facts: StepFacts
    digest: StepDigest


class _KnownRuling(NamedTuple):
    """A ruling without its digest, and until when it counts."""

    ruling: Ruling
    until: int


_REFUSAL = "the policy kernel has failed too often and is not asked now (its circuit is open)"


class KernelPolicy(TaskPolicy):
    """Asks a kernel about each task, unless a remembered answer rules on it."""

    def __init__(
        self,
        kernel: PolicyKernel,
        breaker: SharedBreaker,
        clock: Clock,
        events: Events,
        limits: KernelLimits,
        *,
        fails_open: Callable[[], bool],
        budgets: LocalBudgets | None = None,
    ) -> None:
        """`fails_open` says whether tasks run about which the kernel cannot be asked; `budgets` count beside it."""
        self._kernel, self._breaker = kernel, breaker
        self._clock, self._events, self._limits = clock, events, limits
        self._fails_open, self._budgets = fails_open, budgets
        self._free = asyncio.Semaphore(limits.parallel)
        self._steps: OrderedDict[_StepKey, _AskedStep] = OrderedDict()
        self._known: OrderedDict[_FactsKey, _KnownRuling] = OrderedDict()
        #: The policy that the remembered rulings come from.
        self._snapshot = ""

    @property
    def active(self) -> bool:
        """See TaskPolicy.active."""
        return True

    def rule_now(self, request: AdmissionRequest) -> Ruling | None:
        """See TaskPolicy.rule_now."""
        workflow = request.workflow
        if isinstance(workflow, AlteredWorkflow):
            # A kernel knows only what it is told, and this is not what was registered.
            made = altered_definition_ruling(workflow.workflow_id, workflow.version, version=_NO_VERSION)
            return _with_digest(made, request, self._step(request))
        if not self._known or not (self._budgets is None or self._budgets.are_known):
            return None
        step = self._step(request)
        known = self._known.get(_facts_key(request, facts_of(request, step.facts, _CALLER)))
        if known is None or known.until <= self._clock.now():
            return None
        return self._complete(known.ruling, request, step)

    async def rule(self, request: AdmissionRequest) -> Ruling | None:
        """See TaskPolicy.rule."""
        if self._budgets is not None:
            await self._budgets.read()
        # An answer may have come while the request waited for its turn.
        known = self.rule_now(request)
        if known is not None:
            return known
        step = self._step(request)
        facts = facts_of(request, step.facts)
        try:
            answer = await self._answer(check_request(request, facts))
        except KernelUnavailable as error:
            return self._complete(self._ruling_without_kernel(request, step, str(error)), request, step)
        except ValueError as error:
            return _with_digest(invalid_ruling(str(error)), request, step)
        ruling = kernel_ruling(answer, request.step, throttle_ms=self._limits.throttle_ms)
        self._remember(_facts_key(request, facts), answer, ruling)
        return self._complete(ruling, request, step)

    def _complete(self, ruling: Ruling, request: AdmissionRequest, step: _AskedStep) -> Ruling:
        """The ruling with the digest of what was asked, and the budgets that the task uses."""
        made = _with_digest(ruling, request, step)
        if self._budgets is None:
            return made
        return self._budgets.with_budgets(made, _step_key(request), request, step.facts)

    async def _answer(self, check: PolicyCheckRequest) -> PolicyCheckResponse:
        async with self._free:
            return await self._breaker.guarded(check.job_id, lambda: self._kernel.check(check), refusal=_REFUSAL)

    def _ruling_without_kernel(self, request: AdmissionRequest, step: _AskedStep, reason: str) -> Ruling:
        task, topic = request.waiting.task.task_id, step.facts.topic
        self._events.emit("kernel_unavailable", task=task, topic=topic, reason=reason)
        # A compensation is checked softly: effects are undone also while nobody can rule on that.
        if not self._fails_open() and not is_compensation(request.step.name):
            raise RulingUnavailable(reason, after_ms=self._limits.retry_ms)
        self._events.emit("policy_fail_open", task=task, topic=topic, reason=reason)
        return fail_open_ruling(reason)

    def _remember(self, key: _FactsKey, answer: PolicyCheckResponse, ruling: Ruling) -> None:
        if answer.policy_snapshot != self._snapshot:
            self._snapshot = answer.policy_snapshot
            self._known.clear()
        if not self._limits.cache_ms or answer.varies or ruling.decision not in _LASTING:
            return
        self._known[key] = _KnownRuling(ruling, self._clock.now() + self._limits.cache_ms)
        self._known.move_to_end(key)
        if len(self._known) > _MOST_ANSWERS:
            self._known.popitem(last=False)

    def _step(self, request: AdmissionRequest) -> _AskedStep:
        key = _step_key(request)
        known = self._steps.get(key)
        if known is None:
            facts = step_facts(key[0], key[1], request.workflow, request.step)
            known = self._steps[key] = _AskedStep(facts, StepDigest(key[0], request.workflow, request.step))
            if len(self._steps) > _MOST_STEPS:
                self._steps.popitem(last=False)
        return known


def _step_key(request: AdmissionRequest) -> _StepKey:
    run = request.waiting.run
    job = run.schedule_id or run.workflow_id
    return run.tenant, job, run.workflow_id, request.workflow.version, request.step.name


def _facts_key(request: AdmissionRequest, facts: RequestFacts) -> _FactsKey:
    """Everything that a rule can look at, but the run itself."""
    return _step_key(request), facts.actor, facts.groups, facts.source, input_json(request)


def _with_digest(ruling: Ruling, request: AdmissionRequest, step: _AskedStep) -> Ruling:
    return replace(ruling, digest=step.digest.of(request, ruling.constraints))
