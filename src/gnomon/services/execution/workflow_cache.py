"""A cache of workflow definitions. A version never changes, so that an entry is valid for ever."""

from collections import OrderedDict
from collections.abc import Collection, Iterable

from gnomon.core.model import Run
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask, merged_input
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.ports.schedules import Jobs

_MAX_ENTRIES = 20_000
_BATCH = 250
#: Tenant, workflow id and version.
WorkflowKey = tuple[str, str, int]


class WorkflowCache:
    """Reads each version once, and forgets the least recently used."""

    def __init__(self, jobs: Jobs, *, most: int = _MAX_ENTRIES, read_at_once: int = _BATCH) -> None:
        self._jobs = jobs
        self._most, self._read_at_once = most, read_at_once
        self._entries: OrderedDict[WorkflowKey, Workflow] = OrderedDict()

    async def for_run(self, run: Run) -> Workflow | None:
        """The definition that the run started with; None if there is none."""
        return await self.get(_key(run))

    async def get(self, key: WorkflowKey) -> Workflow | None:
        """The definition of that name and version; None if there is none."""
        kept = self._entries.get(key)
        if kept is not None:
            self._entries.move_to_end(key)
            return kept
        found = await self._jobs.workflow(*key)
        if found is not None:
            self._keep(found)
        return found

    async def preload(self, runs: Iterable[Run]) -> None:
        """Read the definitions of these runs that are in their newest version, in few queries."""
        await self._load_missing({_key(run) for run in runs})

    async def get_many(self, keys: Collection[WorkflowKey]) -> dict[WorkflowKey, Workflow]:
        """The definitions that exist, by key."""
        others = await self._load_missing(keys)
        found = {key: self._entries.get(key) or (await self.get(key) if key[:2] in others else None) for key in keys}
        return {key: one for key, one in found.items() if one is not None}

    async def _load_missing(self, keys: Collection[WorkflowKey]) -> set[tuple[str, str]]:
        """Read the missing definitions that are in their newest version; return the workflows that may have others."""
        missing: dict[str, set[str]] = {}
        for key in keys:
            if key not in self._entries:
                missing.setdefault(key[0], set()).add(key[1])
        others: set[tuple[str, str]] = set()
        for tenant, names in missing.items():
            if len(names) == 1:
                others.update((tenant, name) for name in names)
                continue
            in_order = sorted(names)
            # In batches, because reading one blocks the event loop.
            for start in range(0, len(in_order), self._read_at_once):
                names_of_batch = in_order[start : start + self._read_at_once]
                for found in await self._jobs.newest_workflows(tenant, names_of_batch):
                    self._keep(found)
                    others.add((tenant, found.workflow_id))
        return others

    def _keep(self, found: Workflow) -> None:
        self._entries[found.tenant, found.workflow_id, found.version] = found
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    async def newest(self, tenant: str, workflow_id: str) -> Workflow | None:
        """The newest version of a workflow."""
        return await self._jobs.workflow(tenant, workflow_id)


def _key(run: Run) -> WorkflowKey:
    return run.tenant, run.workflow_id, run.workflow_version


def step_of(workflow: Workflow, waiting: ReadyTask) -> Step | None:
    """The step of a task; None if the workflow has no such step."""
    first = workflow.steps[0]
    return first if first.name == waiting.task.step else workflow.step(waiting.task.step)


async def admission_request(workflow_cache: WorkflowCache, waiting: ReadyTask) -> AdmissionRequest | None:
    """The request of a task, built again; None if its definition does not exist."""
    workflow = await workflow_cache.for_run(waiting.run)
    step = None if workflow is None else step_of(workflow, waiting)
    if workflow is None or step is None:
        return None
    return AdmissionRequest(waiting=waiting, workflow=workflow, step=step, input=merged_input(workflow, step, waiting))
