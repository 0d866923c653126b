"""Decorators of events, and the events of attempts."""

from collections.abc import Callable, Mapping, Sequence

from gnomon.core.runs.outcomes import Assignment, TaskCompletion
from gnomon.core.runs.states import TaskState
from gnomon.ports.runtime import Events

#: Called with the name and the facts of each event. It neither fails nor waits.
EventListener = Callable[[str, Mapping[str, object]], None]


class ObservedEvents:
    """Events that listeners hear before they are passed on."""

    def __init__(self, inner: Events, listeners: Sequence[EventListener]) -> None:
        self._inner = inner
        self._listeners = tuple(listeners)

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        for listen in self._listeners:
            listen(name, facts)
        self._inner.emit(name, **facts)


class NullEvents:
    """Discards all events: for commands whose output says everything, and for dry runs."""

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""


def emit_attempt_ended(events: Events, ended: TaskCompletion, assignment: Assignment | None) -> None:
    """Emit how the attempt of a task ended."""
    if assignment is None:
        return
    run = assignment.run
    facts: dict[str, object] = {
        "tenant": run.tenant,
        "job": run.schedule_id or run.workflow_id,
        "run": run.run_id,
        "step": assignment.step.name,
        "result": ended.result,
        "attempt": assignment.attempt,
        "started_at": run.started_at,
        "ended_at": ended.ended_at,
    }
    if ended.state is TaskState.SUCCEEDED:
        events.emit("task_succeeded", **facts)
        return
    facts |= {"error": ended.error, "available_at": None if ended.over else ended.available_at}
    events.emit("task_failed" if ended.over else "task_waits", **facts)
    if ended.dead_letter is not None:
        job, reason = facts["job"], ended.dead_letter
        events.emit("dead_letter", tenant=run.tenant, job=job, run=run.run_id, reason=reason)
