"""The shelf: workflow definitions at hand. A version never changes, so what was read once is good for ever."""

from collections import OrderedDict
from collections.abc import Iterable

from gnomon.core.gating import Request, Waiting, merged_input
from gnomon.core.model import Run
from gnomon.core.workflow import Step, Workflow
from gnomon.ports.jobs import Jobs

_MOST = 20_000


class Shelf:
    """Reads each version once, and forgets those that nobody has asked for in a while."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._kept: OrderedDict[tuple[str, str, int], Workflow] = OrderedDict()

    async def of(self, run: Run) -> Workflow | None:
        """The definition that the run started with; None if there is none."""
        key = run.tenant, run.workflow_id, run.workflow_version
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            return kept
        found = await self._jobs.workflow(*key)
        if found is not None:
            self._keep(found)
        return found

    async def fetch(self, runs: Iterable[Run]) -> None:
        """The definitions of most of these runs are at hand: those in their newest version, read all at once."""
        missing: dict[str, set[str]] = {}
        for run in runs:
            if (run.tenant, run.workflow_id, run.workflow_version) not in self._kept:
                missing.setdefault(run.tenant, set()).add(run.workflow_id)
        for tenant, names in missing.items():
            if len(names) > 1:
                for found in await self._jobs.newest_workflows(tenant, sorted(names)):
                    self._keep(found)

    def _keep(self, found: Workflow) -> None:
        self._kept[found.tenant, found.workflow_id, found.version] = found
        if len(self._kept) > _MOST:
            self._kept.popitem(last=False)

    async def newest(self, tenant: str, workflow_id: str) -> Workflow | None:
        """The newest version of a workflow."""
        return await self._jobs.workflow(tenant, workflow_id)


def step_of(workflow: Workflow, waiting: Waiting) -> Step | None:
    """The step that a task is of."""
    first = workflow.steps[0]
    return first if first.name == waiting.task.step else workflow.step(waiting.task.step)


async def requested(shelf: Shelf, waiting: Waiting) -> Request | None:
    """What was asked for, worked out again; None if its definition cannot be had."""
    workflow = await shelf.of(waiting.run)
    step = None if workflow is None else step_of(workflow, waiting)
    if workflow is None or step is None:
        return None
    return Request(waiting=waiting, workflow=workflow, step=step, input=merged_input(workflow, step, waiting))
