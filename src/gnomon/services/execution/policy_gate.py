"""Rules on tasks by the policy in the store, in this process."""

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gnomon.core.policy.ruling import Ruling, altered_definition_ruling
from gnomon.core.runs.admission import AdmissionRequest
from gnomon.core.runs.workflow import AlteredWorkflow, Workflow
from gnomon.errors import Unavailable
from gnomon.ports.policy import TaskPolicy
from gnomon.ports.runtime import Clock
from gnomon.services.execution.stored_policy import StoredPolicy

if TYPE_CHECKING:
    from gnomon.core.policy.compiled import CompiledPolicy, StepBudgets, StepRules
    from gnomon.core.policy.facts import StepDigest, StepFacts

#: The steps whose rules are remembered; when there are more, all are forgotten.
_MOST_STEPS = 10_000
_StepKey = tuple[str, str, str, int, str]


class _RuledStep(NamedTuple):
    """The parts of rulings that all tasks of a step have in common."""

    workflow: Workflow
    rules: "StepRules"
    digest: "StepDigest"
    facts: "StepFacts"
    #: None if it uses none.
    budgets: "StepBudgets | None"


class PolicyGate(TaskPolicy):
    """Rules at once, by the version that this process knows to be in force."""

    def __init__(self, stored: StoredPolicy, clock: Clock) -> None:
        self._stored, self._clock = stored, clock
        self._policy: CompiledPolicy | None = None
        self._steps: dict[_StepKey, _RuledStep] = {}

    @property
    def active(self) -> bool:
        """See TaskPolicy.active."""
        return self._stored.current is not None or not self._stored.is_known

    def rule_now(self, request: AdmissionRequest) -> Ruling | None:
        """See TaskPolicy.rule_now."""
        policy = self._stored.current
        if policy is None:
            return None
        step = self._ruled_step(request, policy)
        found = step.rules.fixed
        if found is None:
            from gnomon.core.policy.facts import facts_of

            found = step.rules.ruling(facts_of(request, step.facts, step.rules.needed), self._clock.now())
        ruling = replace(found, digest=step.digest.of(request, found.constraints))
        return ruling if step.budgets is None else self._with_budgets(ruling, step.budgets, request, step.facts)

    def may_ask(self, request: AdmissionRequest) -> bool:
        """See TaskPolicy.may_ask."""
        policy = self._stored.current
        return policy is None or self._ruled_step(request, policy).rules.may_ask

    def rules_alike(self, request: AdmissionRequest) -> bool:
        """See TaskPolicy.rules_alike."""
        policy = self._stored.current
        return policy is not None and self._ruled_step(request, policy).rules.fixed is not None

    def _ruled_step(self, request: AdmissionRequest, policy: "CompiledPolicy") -> _RuledStep:
        if policy is not self._policy:
            self._policy, self._steps = policy, {}
        run = request.waiting.run
        key = (
            run.tenant,
            run.schedule_id or run.workflow_id,
            run.workflow_id,
            request.workflow.version,
            request.step.name,
        )
        step = self._steps.get(key)
        if step is None or step.workflow is not request.workflow:
            step = self._remember(key, request, policy)
        return step

    def _with_budgets(
        self, ruling: Ruling, budgets: "StepBudgets", request: AdmissionRequest, step: "StepFacts"
    ) -> Ruling:
        from gnomon.core.policy.facts import facts_of

        facts = facts_of(request, step, budgets.needed)
        return replace(ruling, budgets=budgets.uses(facts, self._clock.now()))

    def _remember(self, key: _StepKey, request: AdmissionRequest, policy: "CompiledPolicy") -> _RuledStep:
        from gnomon.core.policy.facts import StepDigest, step_facts

        if len(self._steps) >= _MOST_STEPS:
            self._steps.clear()
        facts = step_facts(key[0], key[1], request.workflow, request.step)
        digest = StepDigest(key[0], request.workflow, request.step)
        made = self._steps[key] = _RuledStep(
            request.workflow,
            _rules_of(request, facts, policy),
            digest,
            facts,
            policy.budgets_for_step(facts, request.step),
        )
        return made

    async def rule(self, request: AdmissionRequest) -> Ruling | None:
        """See TaskPolicy.rule."""
        if not self._stored.is_known:
            await self._stored.refresh()
        if not self._stored.is_known:
            raise Unavailable(self._stored.unreadable)
        return self.rule_now(request)


def _rules_of(request: AdmissionRequest, facts: "StepFacts", policy: "CompiledPolicy") -> "StepRules":
    workflow = request.workflow
    if not isinstance(workflow, AlteredWorkflow):
        return policy.for_step(facts, request.step)
    from gnomon.core.policy.compiled import StepRules

    return StepRules((), altered_definition_ruling(workflow.workflow_id, workflow.version, version=policy.version))
