"""The change stream: sends changes to subscribers as they happen, and waits for none of them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import Struct

from gnomon.core.ids import run_id
from gnomon.core.instants import instant_of
from gnomon.core.model import Run, RunStatus, Verdict
from gnomon.errors import Unavailable
from gnomon.ports.commit_observer import FinishedRun
from gnomon.ports.runtime import Clock, Events

#: How far a subscriber may be behind before it is dropped.
_MAX_BACKLOG = 4000
#: Events of tasks, and their names in the stream.
_TASK_EVENTS = {"task_succeeded": "succeeded", "task_failed": "failed", "task_waits": "waits"}


class StreamedChange(Struct, frozen=True, kw_only=True):
    """One change."""

    #: `tick`, `execution`, `task` or `dead_letter`.
    kind: str
    number: int
    tenant: str
    facts: dict[str, Any]


class Subscriber:
    """Receives every change of its tenant, until it is too far behind."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.dropped = False
        self._waiting: deque[StreamedChange] = deque()
        self._wake = asyncio.Event()

    def push(self, change: StreamedChange) -> None:
        """Queue a change, or drop the subscriber if its queue is full."""
        if len(self._waiting) >= _MAX_BACKLOG:
            self.dropped = True
        else:
            self._waiting.append(change)
        self._wake.set()

    def close(self) -> None:
        """End the subscription."""
        self.dropped = True
        self._wake.set()

    async def changes(self, quiet_seconds: float) -> AsyncIterator[StreamedChange | None]:
        """Each change; None after so many seconds without one, so that a connection can be kept alive."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self.dropped:
                return
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), quiet_seconds)
            except TimeoutError:
                yield None


class ChangeStream:
    """Events that are passed on, and sent to the subscribers of their tenant."""

    def __init__(self, clock: Clock, inner: Events, *, most: int = 100) -> None:
        self._clock = clock
        self._inner = inner
        self._most = most
        self._subscribers: set[Subscriber] = set()
        self._number = 0

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        self._inner.emit(name, **facts)
        tenant = facts.get("tenant")
        if not self._subscribers or not isinstance(tenant, str):
            # An event without a tenant is sent to no subscriber.
            return
        if name in _TASK_EVENTS:
            fields = {word: facts.get(word) for word in ("job", "step", "attempt", "error")}
            self._publish("task", tenant, fields | {"execution_id": facts.get("run"), "became": _TASK_EVENTS[name]})
        elif name == "dead_letter":
            fields = {"job": facts.get("job"), "execution_id": facts.get("run"), "reason": facts.get("reason")}
            self._publish("dead_letter", tenant, fields)

    def decided(self, verdicts: Sequence[Verdict]) -> None:
        """Send decided ticks to subscribers."""
        if not self._subscribers:
            return
        for verdict in verdicts:
            for one in verdict.decisions:
                made = run_id(verdict.schedule.uid, one.planned_at) if one.starts_run else None
                fields = {
                    "job": verdict.schedule.schedule_id,
                    "kind": one.kind.value,
                    "reason": one.reason.value,
                    "planned_at": instant_of(one.planned_at),
                    "count": one.count,
                    "execution_id": made,
                }
                self._publish("tick", verdict.schedule.tenant, fields)

    def run_changed(self, run: Run, status: RunStatus, error: str | None = None) -> None:
        """Send the new status of a run to subscribers."""
        if not self._subscribers:
            return
        fields = {
            "job": run.schedule_id or run.workflow_id,
            "execution_id": run.run_id,
            "status": status.value,
            "trigger": run.source.value,
            "error": error,
        }
        self._publish("execution", run.tenant, fields)

    def _publish(self, kind: str, tenant: str, facts: dict[str, Any]) -> None:
        self._number += 1
        facts = {"at": instant_of(self._clock.now()), **facts}
        change = StreamedChange(kind=kind, number=self._number, tenant=tenant, facts=facts)
        for listener in [one for one in self._subscribers if one.tenant == tenant]:
            listener.push(change)
            if listener.dropped:
                self._subscribers.discard(listener)

    def subscribe(self, tenant: str) -> Subscriber:
        """A new subscriber, which receives the changes from now on; Unavailable if there are too many."""
        self.reject_if_full()
        made = Subscriber(tenant)
        self._subscribers.add(made)
        return made

    def reject_if_full(self) -> None:
        """Raise Unavailable if there are too many subscribers."""
        if len(self._subscribers) >= self._most:
            raise Unavailable("as many follow the stream as may: try again later")

    def unsubscribe(self, listener: Subscriber) -> None:
        """Remove a subscriber."""
        self._subscribers.discard(listener)

    def close(self) -> None:
        """End all subscriptions."""
        for listener in list(self._subscribers):
            listener.close()
        self._subscribers.clear()


class RunChangeObserver:
    """Implements RunObserver: sends every launched, started and ended run to the change stream."""

    def __init__(self, stream: ChangeStream) -> None:
        self._stream = stream

    def launched(self, runs: Sequence[Run]) -> None:
        """See RunObserver.launched."""
        for run in runs:
            self._stream.run_changed(run, RunStatus.PENDING)

    def started(self, runs: Sequence[Run], now: int) -> None:
        """See RunObserver.started."""
        del now
        for run in runs:
            self._stream.run_changed(run, RunStatus.RUNNING)

    def ended(self, finishes: Sequence[FinishedRun]) -> None:
        """See RunObserver.ended."""
        for run, status, error, _ in finishes:
            self._stream.run_changed(run, status, None if status is RunStatus.COMPLETED else run.error or error)
