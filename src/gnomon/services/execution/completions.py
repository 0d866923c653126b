"""The common part of workers and result consumers: assignments, writing completions, and draining a runner."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from gnomon.config.sections import WorkerSettings
from gnomon.core.model import Result
from gnomon.core.policy.constraints import constrained_step
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome, GiveUpLimits, TaskCompletion, complete_attempt
from gnomon.core.runs.workflow import Step, Workflow
from gnomon.errors import Unavailable
from gnomon.ports.execution import Runner
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.tasks import AttemptRef, Attempts
from gnomon.services.execution.admission_cache import AdmissionCache
from gnomon.services.execution.workflow_cache import WorkflowCache, admission_request
from gnomon.services.loop import yield_between_batches
from gnomon.services.observed_events import emit_attempt_ended

#: After how many announcements other coroutines run.
_YIELD_EVERY = 25
#: How often a worker that drains looks for attempts that have ended, and how often it tries to report the last ones.
_DRAIN_POLL_SECONDS = 0.05
_LAST_TRIES = 40


# ---- assignments ---------------------------------------------------------------------------------


async def load_assignment(
    workflow_cache: WorkflowCache, waiting: ReadyTask, admitted: AdmissionCache | None = None
) -> Assignment | None:
    """The assignment of a task that was taken; None if its workflow definition does not exist."""
    task = waiting.task
    request = None if admitted is None else admitted.taken(task.task_id, task.fence)
    request = request or await admission_request(workflow_cache, waiting)
    return None if request is None else _assignment(waiting, request)


def _assignment(waiting: ReadyTask, request: AdmissionRequest) -> Assignment:
    return Assignment(
        task=waiting.task,
        run=waiting.run,
        workflow=request.workflow,
        step=request.step
        if waiting.task.constraints is None
        else constrained_step(request.step, waiting.task.constraints),
        input=request.input,
        given=waiting.input,
    )


def placeholder_assignment(waiting: ReadyTask) -> Assignment:
    """An assignment of a task whose definition does not exist: enough to write how the attempt ended."""
    step = Step(name=waiting.task.step, function="")
    run = waiting.run
    workflow = Workflow(workflow_id=run.workflow_id, version=run.workflow_version, steps=(step,))
    return Assignment(task=waiting.task, run=run, workflow=workflow, step=step, input={})


# ---- completions ---------------------------------------------------------------------------------


class CompletionWriter:
    """Writes how attempts ended, and announces it.

    A completion counts only under the fencing token of its attempt: the store ignores one that comes too late.
    """

    def __init__(self, attempts: Attempts, events: Events, limits: GiveUpLimits) -> None:
        self._attempts = attempts
        self._events = events
        self._limits = limits

    async def write(
        self, completions: Sequence[TaskCompletion], assignments: Mapping[AttemptRef, Assignment]
    ) -> frozenset[AttemptRef]:
        """Write them in one transaction, and return the attempts that counted.

        If the store refuses them, each is written by itself: one that cannot be stored must not hold up the others.
        """
        try:
            return await self._attempts.report(completions)
        except Unavailable:
            raise
        except Exception:  # noqa: BLE001 - the store may refuse a value for any reason
            counted = [await self._write_alone(one, assignments.get((one.task_id, one.fence))) for one in completions]
            return frozenset[AttemptRef]().union(*counted)

    async def _write_alone(self, one: TaskCompletion, assignment: Assignment | None) -> frozenset[AttemptRef]:
        """Write the completion, or, if the store refuses it, that the attempt was given up."""
        try:
            return await self._attempts.report([one])
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - for any reason, the task must not stay as it is
            self._events.emit("result_refused", task=one.task_id, run=one.run_id, error=repr(error))
            if assignment is None:
                return frozenset()
            reason = f"the result cannot be stored: {type(error).__name__}"
            outcome = AttemptOutcome(result=Result.GAVE_UP, error=reason, reported_by=one.reported_by)
            return await self._attempts.report(
                [complete_attempt(assignment, outcome, now=one.ended_at, limits=self._limits)]
            )

    async def announce(
        self,
        completions: Sequence[TaskCompletion],
        counted: frozenset[AttemptRef],
        assignments: Mapping[AttemptRef, Assignment],
    ) -> None:
        """Emit an event for each completion: how the attempt ended, or that its result came too late."""
        async for one in yield_between_batches(completions, _YIELD_EVERY):
            attempt = one.task_id, one.fence
            if attempt in counted:
                emit_attempt_ended(self._events, one, assignments.get(attempt))
            else:
                self.announce_late(attempt, one.result)

    def announce_late(self, attempt: AttemptRef, result: Result) -> None:
        """Emit the event of a result whose attempt is no longer open."""
        self._events.emit("late_result", task=attempt[0], fence=attempt[1], result=result)


# ---- draining ------------------------------------------------------------------------------------


async def drain_runner(
    runner: Runner,
    settings: WorkerSettings,
    clock: Clock,
    step: Callable[[], Awaitable[object]],
    *,
    reported: Callable[[], bool],
    waiting: Callable[[], bool] = lambda: False,
) -> None:
    """Close the runner, and step the worker meanwhile and afterwards until it has reported all attempts.

    After the runner is closed the worker has a few tries; steps in which it is `waiting` for an answer do not count.
    """
    closing = asyncio.ensure_future(runner.close(drain_ms=settings.drain_ms, grace_ms=settings.kill_grace_ms))
    while not closing.done():
        await step()
        await asyncio.wait([closing], timeout=_DRAIN_POLL_SECONDS)
    await closing
    tries = 0
    while tries < _LAST_TRIES:
        await step()
        if reported():
            return
        tries += not waiting()
        await clock.sleep(_DRAIN_POLL_SECONDS)
