"""Runs that wait in vain, in memory. No method awaits half-way, so each one is a transaction by itself."""

from collections.abc import Collection, Sequence

from gnomon.adapters.memory.keeping import MemoryKeeping
from gnomon.core.invariants import Ailment, Diagnosis, diagnosis, waits_for_run
from gnomon.core.model import Run, RunId, RunStatus, Task
from gnomon.core.runs.launch import sub_run_id
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.maintenance import Ailing, OpenPlace


class MemoryMending(MemoryKeeping):
    """The port Mending."""

    async def ailing(self, *, before_at: int, after: OpenPlace, limit: int) -> Ailing:
        """See Mending.ailing."""
        runs = [run for run in self._runs.values() if not run.over and run.created_at < before_at]
        found = sorted((run for run in runs if _place(run) > after), key=_place)
        last = _place(found[limit - 1]) if len(found) > limit else None
        page = found if last is None else [run for run in found if _place(run) <= last]
        told = {run.run_id: self._diagnosed(run) for run in page}
        return Ailing({name: one.ailment for name, one in told.items() if one is not None}, last)

    def _diagnosed(self, run: Run) -> Diagnosis | None:
        steps = [task for task in self._of_run(run.run_id) if task.parent is None]
        over = {name for name, one in self._runs.items() if one.over}
        return diagnosis(run, self._graph_of(run), steps, over)

    async def mend(self, run_ids: Collection[RunId], *, now: int) -> Sequence[RunId]:
        """See Mending.mend."""
        return [name for name in sorted(run_ids) if name in self._runs and self._mend(self._runs[name], now)]

    def _mend(self, run: Run, now: int) -> bool:
        told = self._diagnosed(run)
        if told is None:
            return False
        graph = self._graph_of(run)
        if graph is None:
            self._end_run(run, RunStatus.FAILED, "its workflow is gone", now)
        elif told.ailment is Ailment.STEP_NOT_ENDED:
            for task in told.steps:
                self._end_step(task, graph, now)
        else:
            self._advance(run, graph, now)
        return True

    def _end_step(self, task: Task, graph: Workflow, now: int) -> None:
        if waits_for_run(task, graph):
            self._sub_run_over(self._runs[sub_run_id(task)], now)
        else:
            self._end_items(task, self._items(task.task_id), graph, now)


def _place(run: Run) -> OpenPlace:
    return run.schedule_uid or "", run.planned_at
