"""The rules of a policy for each step, remembered."""

from gnomon.core.model import Run
from gnomon.core.policy.compiled import CompiledPolicy, StepRules
from gnomon.core.policy.facts import StepFacts, step_facts
from gnomon.core.runs.workflow import Step, Workflow

#: The steps whose rules are remembered; when there are more, all are forgotten.
_MOST_STEPS = 10_000


class StepRulesCache:
    """Finds the rules of a step once, and not for each of its tasks."""

    def __init__(self, policy: CompiledPolicy) -> None:
        self._policy = policy
        self._steps: dict[tuple[str, str, str, int, str], tuple[StepFacts, StepRules]] = {}

    def of(self, run: Run, workflow: Workflow, step: Step) -> tuple[StepFacts, StepRules]:
        """The facts about the step, and its rules."""
        job = run.schedule_id or run.workflow_id
        key = (run.tenant, job, run.workflow_id, workflow.version, step.name)
        found = self._steps.get(key)
        if found is None:
            if len(self._steps) >= _MOST_STEPS:
                self._steps.clear()
            about = step_facts(run.tenant, job, workflow, step)
            found = self._steps[key] = about, self._policy.for_step(about, step)
        return found
