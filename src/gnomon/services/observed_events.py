"""Decorators of events, and the events of attempts."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gnomon.core.runs.outcomes import Assignment, TaskCompletion
from gnomon.core.runs.states import TaskState
from gnomon.ports.runtime import Clock, Events

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


class ThrottledEvents:
    """Passes on one event per second of each name and `cause`, and counts the others: no client can fill the log.

    The next event, or `flush`, says how many were left out.
    """

    def __init__(self, inner: Events, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._kinds: dict[tuple[str, object], _EventKind] = {}

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        now = self._clock.elapsed()
        kind = self._kinds.get((name, facts.get("cause")))
        if kind is not None and now - kind.passed_on < _THROTTLE_SECONDS:
            self._kinds[name, facts.get("cause")] = _EventKind(kind.passed_on, kind.left_out + 1, facts)
            return
        if len(self._kinds) >= _MAX_EVENT_KINDS:
            self.flush()
            self._kinds.clear()
        self._kinds[name, facts.get("cause")] = _EventKind(now, 0, facts)
        self._inner.emit(name, **facts, **_left_out(0 if kind is None else kind.left_out))

    def flush(self) -> None:
        """Pass on the last of the events that were left out more than a second ago, with their number."""
        now = self._clock.elapsed()
        for (name, cause), kind in list(self._kinds.items()):
            if now - kind.passed_on < _THROTTLE_SECONDS:
                continue
            del self._kinds[name, cause]
            if kind.left_out:
                self._kinds[name, cause] = _EventKind(now, 0, kind.facts)
                self._inner.emit(name, **kind.facts, **_left_out(kind.left_out - 1))


class _EventKind(NamedTuple):
    """The events of one name and cause: when one was passed on, how many were left out since, and the last of them."""

    passed_on: float
    left_out: int
    facts: Mapping[str, object]


#: How often an event of one kind is passed on, and how many kinds are distinguished.
_THROTTLE_SECONDS = 1.0
_MAX_EVENT_KINDS = 200


def _left_out(count: int) -> Mapping[str, object]:
    return {"left_out": count} if count else {}


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
