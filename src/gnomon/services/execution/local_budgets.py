"""The budgets of the policy in the store, for tasks on which a policy kernel rules: a kernel knows of no budgets."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gnomon.core.policy.ruling import Ruling
from gnomon.core.runs.admission import AdmissionRequest
from gnomon.errors import Unavailable
from gnomon.ports.runtime import Clock
from gnomon.services.execution.stored_policy import StoredPolicy

if TYPE_CHECKING:
    from gnomon.core.policy.compiled import CompiledPolicy, StepBudgets
    from gnomon.core.policy.facts import StepFacts

#: The steps whose budgets are remembered; when there are more, all are forgotten.
_MOST_STEPS = 10_000
_StepKey = tuple[str, str, str, int, str]


class LocalBudgets:
    """Adds the budgets that a task uses to the ruling of a kernel."""

    def __init__(self, stored: StoredPolicy, clock: Clock) -> None:
        self._stored, self._clock = stored, clock
        self._policy: CompiledPolicy | None = None
        self._steps: dict[_StepKey, StepBudgets | None] = {}

    @property
    def are_known(self) -> bool:
        """Whether the policy in force was read."""
        return self._stored.is_known

    async def read(self) -> None:
        """Read the policy in force, unless it is known; Unavailable if it cannot be read."""
        if not self._stored.is_known:
            await self._stored.refresh()
        if not self._stored.is_known:
            raise Unavailable(self._stored.unreadable)

    def with_budgets(self, ruling: Ruling, key: _StepKey, request: AdmissionRequest, step: "StepFacts") -> Ruling:
        """The ruling with the budgets that the task uses, if it may run. `key` names its step and version."""
        policy = self._stored.current
        if policy is None or not policy.document.budgets or not ruling.may_run:
            return ruling
        from gnomon.core.policy.facts import facts_of

        if policy is not self._policy or len(self._steps) >= _MOST_STEPS:
            self._policy, self._steps = policy, {}
        if key not in self._steps:
            self._steps[key] = policy.budgets_for_step(step, request.step)
        budgets = self._steps[key]
        if budgets is None:
            return ruling
        return replace(ruling, budgets=budgets.uses(facts_of(request, step, budgets.needed), self._clock.now()))
