"""The topics of steps, for metrics: commits know the name of a step, and its definition knows the topic."""

from collections.abc import Collection, Mapping

from gnomon.core.metrics import CountedStep
from gnomon.core.runs.workflow import Workflow
from gnomon.errors import Unavailable
from gnomon.ports.schedules import Jobs
from gnomon.services.execution.workflow_cache import WorkflowCache, WorkflowKey

#: How many topics are remembered; when there are more, all are forgotten.
_MOST_TOPICS = 20_000
#: How many definitions are read at once and kept.
_BATCH, _MOST_WORKFLOWS = 200, 500


class StepTopics:
    """Reads the definition of each step once: a version never changes."""

    def __init__(self, jobs: Jobs) -> None:
        self._workflows = WorkflowCache(jobs, most=_MOST_WORKFLOWS)
        self._topics: dict[CountedStep, str] = {}

    def known(self, steps: Collection[CountedStep]) -> dict[CountedStep, str]:
        """The topics of those steps whose definitions were read before."""
        return {step: self._topics[step] for step in steps if step in self._topics}

    async def find(self, steps: Collection[CountedStep]) -> Mapping[CountedStep, str]:
        """The topic of each step; empty if its definition is gone, or if it calls nothing."""
        found = self.known(steps)
        missing = sorted(step for step in steps if step not in found)
        for start in range(0, len(missing), _BATCH):
            some = missing[start : start + _BATCH]
            workflows = await self._read({step[:3] for step in some})
            for step in some:
                found[step] = self._remembered(step, workflows.get(step[:3]))
        return found

    async def _read(self, keys: Collection[WorkflowKey]) -> Mapping[WorkflowKey, Workflow]:
        """The definitions that exist and can be read."""
        try:
            return await self._workflows.get_many(keys)
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - one definition that cannot be read must not hide all metrics
            found = {}
        for key in keys:
            try:
                workflow = await self._workflows.get(key)
            except Unavailable:
                raise
            except Exception:  # noqa: BLE001, S112 - the dispatcher reports it
                continue
            if workflow is not None:
                found[key] = workflow
        return found

    def _remembered(self, counted: CountedStep, workflow: Workflow | None) -> str:
        if workflow is None:
            return ""
        step = workflow.step(counted.step) if counted.step else workflow.steps[0]
        if len(self._topics) >= _MOST_TOPICS:
            self._topics.clear()
        topic = self._topics[counted] = "" if step is None else step.topic
        return topic
