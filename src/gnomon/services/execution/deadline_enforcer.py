"""The deadline enforcer: ends tasks that have passed their deadlines, in whichever state they are.

A task without an open attempt ends at once, also if it waits for an approval. A worker ends its own attempt at the
deadline; the enforcer does it a grace period later, if the worker has not.
"""

from collections.abc import Callable, Sequence

from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.model import Run, TaskId
from gnomon.core.policy.constraints import constrained_step
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.deadlines import OverdueEnd, OverdueTask, overdue_end
from gnomon.core.runs.outcomes import Assignment, TaskCompletion, complete_attempt
from gnomon.core.runs.reconcile import overdue_attempt_outcome
from gnomon.core.runs.states import ASSIGNED
from gnomon.errors import ClockAhead
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import ExecutionStore
from gnomon.ports.tasks import QueuePosition
from gnomon.services.coordination import Singleton
from gnomon.services.execution.completions import placeholder_assignment
from gnomon.services.execution.dispatcher import give_up_limits
from gnomon.services.execution.task_writes import write_each
from gnomon.services.execution.workflow_cache import WorkflowCache, step_of
from gnomon.services.loop import Backoff

#: A position before every task with a deadline.
_FIRST: QueuePosition = (-(2**62), "")
#: In seconds: the wait after a look that was early by the clock of the store, or that could end nothing.
_PAUSE_SECONDS = 0.05


class DeadlineEnforcer:
    """Ends tasks that have passed their deadlines, and wakes when the next one does."""

    def __init__(
        self,
        work: ExecutionStore,
        workflow_cache: WorkflowCache,
        clock: Clock,
        events: Events,
        settings: Settings,
        *,
        lease: Singleton,
        on_ready: Callable[[], None],
    ) -> None:
        """`on_ready` is called when tasks may have become ready."""
        self._work = work
        self._workflow_cache = workflow_cache
        self._clock = clock
        self._events = events
        self._settings = settings.reconciler
        self._limits = give_up_limits(settings.execution)
        self._lease, self._on_ready = lease, on_ready
        self.backoff = Backoff(events, component_names.DEADLINES)

    async def step(self) -> float:
        """End the tasks whose deadlines have passed. Returns how many seconds to wait before the next step."""
        return await self.backoff.attempt(self._look)

    async def _look(self) -> float:
        if not await self._lease.ours():
            return self._lease.retry_seconds
        poll_seconds = self._settings.deadline_poll_ms / 1000
        next_at = await self._work.deadlines.next_end_at(grace_ms=self._settings.grace_ms)
        left = poll_seconds if next_at is None else self._clock.until(next_at)
        if left > 0:
            return min(left, poll_seconds)
        try:
            ended = await self._end_overdue()
        except ClockAhead:
            return _PAUSE_SECONDS
        # The end of a task may create another one with the same deadline.
        return 0.0 if ended else min(poll_seconds, 1.0)

    async def _end_overdue(self) -> int:
        """End what is past its deadline, for at most a number of batches; return how many tasks were ended."""
        ended, after, now = 0, _FIRST, self._clock.now()
        for _ in range(self._settings.max_iterations):
            page = await self._work.deadlines.overdue(
                now, grace_ms=self._settings.grace_ms, after=after, limit=self._settings.batch
            )
            if not page:
                break
            last = page[-1].task
            after = last.deadline_at or 0, last.task_id
            ended += await self._end_page(page, now)
        if ended:
            self._on_ready()
        return ended

    async def _end_page(self, page: Sequence[OverdueTask], now: int) -> int:
        waiting: list[OverdueEnd] = []
        held: list[TaskCompletion] = []
        for found in page:
            workflow = await self._workflow_cache.for_run(found.run)
            if found.task.state in ASSIGNED:
                held.append(await self._completion(found, now))
            else:
                waiting.append(overdue_end(found, workflow))
        runs = {one.task.task_id: one.run for one in page}
        tries = self._settings.max_retries + 1

        async def end(ends: Sequence[OverdueEnd]) -> frozenset[TaskId]:
            return await self._work.deadlines.end_overdue(ends, now=now)

        ended = await write_each(waiting, end, self._events, tries=tries)
        for one in waiting:
            if one.task_id in ended:
                self._announce(runs[one.task_id], one.task_id, one.note, one.dead_letter)
        counted = await write_each(held, self._work.attempts.report, self._events, tries=tries)
        for completion in held:
            if (completion.task_id, completion.fence) in counted:
                self._announce(
                    runs[completion.task_id], completion.task_id, completion.error or "", completion.dead_letter
                )
        return len(ended) + len(counted)

    async def _completion(self, found: OverdueTask, now: int) -> TaskCompletion:
        waiting = ReadyTask(task=found.task, run=found.run)
        workflow = await self._workflow_cache.for_run(found.run)
        step = None if workflow is None else step_of(workflow, waiting)
        if workflow is None or step is None:
            assignment = placeholder_assignment(waiting)
        else:
            limited = constrained_step(step, found.task.constraints)
            assignment = Assignment(task=found.task, run=found.run, workflow=workflow, step=limited, input={})
        return complete_attempt(assignment, overdue_attempt_outcome(found), now=now, limits=self._limits)

    def _announce(self, run: Run, task: TaskId, why: str, dead_letter: str | None) -> None:
        job = run.schedule_id or run.workflow_id
        self._events.emit("deadline_passed", job=job, task=task, run=run.run_id, reason=why)
        if dead_letter is not None:
            self._events.emit("dead_letter", job=job, run=run.run_id, task=task, reason=dead_letter)
