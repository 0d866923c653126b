"""The reconciler: ends attempts of lost workers, and dispatches stuck tasks again."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping

from gnomon.config.settings import Settings
from gnomon.core import component_names
from gnomon.core.model import ENGINE, Result, TaskId
from gnomon.core.policy.constraints import constrained_step
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome, TaskCompletion, complete_attempt
from gnomon.core.runs.reconcile import OpenAttempt, ReconcileTimeouts, overdue_outcome
from gnomon.core.runs.states import WaitReason
from gnomon.errors import Unavailable
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import ExecutionStore
from gnomon.services.coordination import Singleton
from gnomon.services.execution.completions import placeholder_assignment
from gnomon.services.execution.dispatcher import give_up_limits
from gnomon.services.execution.task_writes import write_each
from gnomon.services.execution.workflow_cache import WorkflowCache, step_of
from gnomon.services.loop import Backoff

_FIRST = TaskId("")
#: How long workers have to report after an outage of the store, before their attempts count as lost.
_REPORT_GRACE_SECONDS = 3.0


class Reconciler:
    """Ends attempts whose workers are gone or silent, and dispatches tasks again that no worker started."""

    def __init__(  # noqa: PLR0913 - the collaborators of every verdict
        self,
        work: ExecutionStore,
        workflow_cache: WorkflowCache,
        clock: Clock,
        events: Events,
        settings: Settings,
        *,
        lease: Singleton,
        on_ready: Callable[[], None],
        own_worker: str | None = None,
        await_reports: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`on_ready` is called when tasks may have become ready.

        `own_worker` is the worker in this process. It is alive because this process is, even if its leases have ended
        while the machine was suspended, and its runner ends what takes too long. `await_reports` is awaited before any
        attempt counts as lost: it returns once the reports that workers had sent are written.
        """
        self._work = work
        self._workflow_cache = workflow_cache
        self._clock = clock
        self._events = events
        self._settings = settings.reconciler
        self._patience = ReconcileTimeouts(
            # Until its lease ends, the worker that was given the task may start it.
            dispatch_ms=max(settings.reconciler.dispatch_timeout_ms, settings.worker.lease_ms),
            running_ms=settings.reconciler.running_timeout_ms,
            grace_ms=settings.reconciler.grace_ms,
            default_timeout_ms=settings.execution.default_timeout_ms,
        )
        self._limits = give_up_limits(settings.execution)
        self._lease, self._on_ready = lease, on_ready
        self._own_worker, self._reports_written = own_worker, await_reports
        #: The last task whose attempt was looked at; the next batch begins behind it.
        self._after = _FIRST
        self.backoff = Backoff(events, component_names.RECONCILER)

    async def step(self) -> float:
        """Look at all open attempts once. Returns how many seconds to wait before the next step."""
        poll_seconds = self._settings.poll_ms / 1000
        wait = await self.backoff.retry(self._look, self._clock, tries=self._settings.max_retries + 1)
        return poll_seconds if wait is None else wait

    async def _look(self) -> float:
        if not await self._lease.ours():
            return self._lease.retry_seconds
        await self._wait_for_workers()
        await self._reconcile()
        if self._after != _FIRST:
            # More attempts than one pass covers: the next one continues at once where this one stopped.
            return 0.0
        await self._replay()
        await self._recall()
        return self._settings.poll_ms / 1000

    async def _wait_for_workers(self) -> None:
        """After an outage of the store, give workers time to report attempts that ended meanwhile."""
        if self.backoff.failing:
            await self._work.attempts.open_attempts(after=_FIRST, limit=1)
            await self._clock.sleep(_REPORT_GRACE_SECONDS)

    async def _await_reports(self) -> None:
        """Wait until the reports of workers are written, or until that takes too long or cannot be known."""
        if self._reports_written is None:
            return
        for _ in range(self._settings.max_retries + 1):
            try:
                await self._reports_written()
            except Unavailable:
                # Dead workers must be found even if the bus is unavailable.
                continue
            return

    async def recover(self, *, alive: Collection[str]) -> None:
        """End every attempt of any other worker: for a caller that knows that only these are alive."""
        while True:
            try:
                await self._reconcile(frozenset(alive))
                while self._after != _FIRST:
                    await self._reconcile(frozenset(alive))
            except Unavailable as error:
                await self._clock.sleep(self.backoff.failed(error))
            else:
                return

    async def _reconcile(self, alive: frozenset[str] = frozenset()) -> None:
        """Look at the attempts behind the last one that was looked at, for at most a number of batches."""
        reports_awaited = bool(alive)
        for _ in range(self._settings.max_iterations):
            page = await self._work.attempts.open_attempts(after=self._after, limit=self._settings.batch)
            if not page.attempts:
                self._after = _FIRST
                return
            self._after = page.attempts[-1].task.task_id
            found = [await self._judged(one, page.now, alive) for one in page.attempts]
            endings = [one for one in found if one is not None]
            if not reports_awaited and any(one.lease_until is not None for one in endings):
                # Attempts that are reported now have ended, and the fence keeps them from ending once more.
                reports_awaited = True
                await self._await_reports()
            if endings:
                runs = {one.task.task_id: one.run for one in page.attempts}
                jobs = {name: run.schedule_id or run.workflow_id for name, run in runs.items()}
                await self._end(endings, jobs)

    async def _judged(self, found: OpenAttempt, now: int, alive: frozenset[str]) -> TaskCompletion | None:
        if found.attempt.worker == self._own_worker:
            return None
        waiting = ReadyTask(task=found.task, run=found.run)
        workflow = await self._workflow_cache.for_run(found.run)
        if alive and found.attempt.worker not in {*alive, ENGINE}:
            outcome: AttemptOutcome | None = _orphaned_outcome(found)
        else:
            outcome = overdue_outcome(found, workflow, now=now, timeouts=self._patience)
        if outcome is None:
            return None
        step = None if workflow is None else step_of(workflow, waiting)
        if workflow is None or step is None:
            held = placeholder_assignment(waiting)
        else:
            limited = constrained_step(step, found.task.constraints)
            held = Assignment(task=found.task, run=found.run, workflow=workflow, step=limited, input={})
        return complete_attempt(held, outcome, now=self._clock.now(), limits=self._limits)

    async def _end(self, endings: list[TaskCompletion], jobs: Mapping[TaskId, str]) -> None:
        counted = await write_each(
            endings, self._work.attempts.report, self._events, tries=self._settings.max_retries + 1
        )
        for one in endings:
            if (one.task_id, one.fence) in counted:
                self._events.emit(
                    "attempt_ended_by_reconciler",
                    job=jobs[one.task_id],
                    task=one.task_id,
                    run=one.run_id,
                    result=one.result,
                    state=one.state,
                    error=one.error,
                )
                if one.dead_letter is not None:
                    job, reason = jobs[one.task_id], one.dead_letter
                    self._events.emit("dead_letter", job=job, run=one.run_id, task=one.task_id, reason=reason)
        if counted:
            self._on_ready()

    async def _replay(self) -> None:
        """Wake the dispatcher for tasks that have been ready for too long."""
        long_ago = self._clock.now() - self._settings.pending_ms
        stuck = await self._work.tasks.waiting(long_ago, limit=self._settings.batch)
        topics = Counter([await self._topic(one) for one in stuck if one.task.wait_reason is WaitReason.READY])
        for topic, count in sorted(topics.items()):
            self._events.emit("tasks_replayed", count=count, topic=topic)
        if topics:
            self._on_ready()

    async def _topic(self, waiting: ReadyTask) -> str:
        """The topic of the step of a task; empty if its definition is unknown, or if it calls nothing."""
        workflow = await self._workflow_cache.for_run(waiting.run)
        step = None if workflow is None else step_of(workflow, waiting)
        return "" if step is None else step.topic

    async def _recall(self) -> None:
        """Place tasks again that wait for a worker that is gone."""
        recalled = await self._work.placement.recall_stranded()
        if recalled:
            self._events.emit("tasks_recalled", count=len(recalled))
            self._on_ready()


def _orphaned_outcome(found: OpenAttempt) -> AttemptOutcome:
    if found.attempt.started_at is None:
        return AttemptOutcome(result=Result.NEVER_STARTED, error=f"{found.attempt.worker} is gone and never started it")
    return AttemptOutcome(result=Result.LOST, error=f"worker_lost: {found.attempt.worker} is gone")
