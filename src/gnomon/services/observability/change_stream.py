"""The hub: tells those who listen what changes, as it changes. Nobody is waited for."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import Struct

from gnomon.core.ids import run_id
from gnomon.core.instants import instant_of
from gnomon.core.model import Run, RunStatus, Verdict
from gnomon.core.runs.admission import Waiting
from gnomon.core.runs.outcomes import Ending
from gnomon.errors import Unavailable
from gnomon.ports.commit_observer import Finish
from gnomon.ports.runtime import Clock, Events

#: How far a listener may be behind before it is let go of.
_MOST_BEHIND = 4000
#: What becomes of a task, and how the stream calls it.
_TASKS = {"task_succeeded": "succeeded", "task_failed": "failed", "task_waits": "waits"}


class Change(Struct, frozen=True, kw_only=True):
    """Something that changed."""

    #: `tick`, `execution`, `task` or `dead_letter`.
    kind: str
    number: int
    tenant: str
    facts: dict[str, Any]


class Listener:
    """Hears every change from now on, until it is too far behind."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.dropped = False
        self._waiting: deque[Change] = deque()
        self._wake = asyncio.Event()

    def tell(self, change: Change) -> None:
        """One more change to hear of."""
        if len(self._waiting) >= _MOST_BEHIND:
            self.dropped = True
        else:
            self._waiting.append(change)
        self._wake.set()

    def close(self) -> None:
        """There is nothing more to hear."""
        self.dropped = True
        self._wake.set()

    async def changes(self, quiet_seconds: float) -> AsyncIterator[Change | None]:
        """Each change; None whenever nothing has changed for so long, so that a connection can be kept alive."""
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


class Hub:
    """An announcer that passes everything on and tells its listeners what concerns them."""

    def __init__(self, clock: Clock, beside: Events, *, most: int = 100) -> None:
        self._clock = clock
        self._beside = beside
        self._most = most
        self._listeners: set[Listener] = set()
        self._number = 0

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        self._beside.emit(name, **facts)
        tenant = facts.get("tenant")
        if not self._listeners or not isinstance(tenant, str):
            # What is not known to be somebody's is told to nobody.
            return
        if name in _TASKS:
            told = {word: facts.get(word) for word in ("job", "step", "attempt", "error")}
            self._tell("task", tenant, told | {"execution_id": facts.get("run"), "became": _TASKS[name]})
        elif name == "dead_letter":
            told = {"job": facts.get("job"), "execution_id": facts.get("run"), "reason": facts.get("reason")}
            self._tell("dead_letter", tenant, told)

    def decided(self, verdicts: Sequence[Verdict]) -> None:
        """Ticks were decided."""
        if not self._listeners:
            return
        for verdict in verdicts:
            for one in verdict.decisions:
                made = run_id(verdict.schedule.uid, one.planned_at) if one.starts_a_run else None
                told = {
                    "job": verdict.schedule.schedule_id,
                    "kind": one.kind.value,
                    "reason": one.reason.value,
                    "planned_at": instant_of(one.planned_at),
                    "count": one.count,
                    "execution_id": made,
                }
                self._tell("tick", verdict.schedule.tenant, told)

    def run_changed(self, run: Run, status: RunStatus, error: str | None = None) -> None:
        """A run has come so far."""
        if not self._listeners:
            return
        told = {
            "job": run.schedule_id or run.workflow_id,
            "execution_id": run.run_id,
            "status": status.value,
            "trigger": run.source.value,
            "error": error,
        }
        self._tell("execution", run.tenant, told)

    def _tell(self, kind: str, tenant: str, facts: dict[str, Any]) -> None:
        self._number += 1
        facts = {"at": instant_of(self._clock.now()), **facts}
        change = Change(kind=kind, number=self._number, tenant=tenant, facts=facts)
        for listener in [one for one in self._listeners if one.tenant == tenant]:
            listener.tell(change)
            if listener.dropped:
                self._listeners.discard(listener)

    def listen(self, tenant: str) -> Listener:
        """Someone who hears what changes from now on."""
        self.refuse_if_full()
        made = Listener(tenant)
        self._listeners.add(made)
        return made

    def refuse_if_full(self) -> None:
        """Unavailable, if nobody else may listen now."""
        if len(self._listeners) >= self._most:
            raise Unavailable("as many follow the stream as may: try again later")

    def forget(self, listener: Listener) -> None:
        """It listens no longer."""
        self._listeners.discard(listener)

    def close(self) -> None:
        """Everybody is told that there is nothing more to hear."""
        for listener in list(self._listeners):
            listener.close()
        self._listeners.clear()


class RunNews:
    """A tally that counts nothing, and tells the hub which runs were asked for, have begun or are over."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def launched(self, runs: Sequence[Run]) -> None:
        """See Tally.launched."""
        for run in runs:
            self._hub.run_changed(run, RunStatus.PENDING)

    def started(self, runs: Sequence[Run], now: int) -> None:
        """See Tally.started."""
        del now
        for run in runs:
            self._hub.run_changed(run, RunStatus.RUNNING)

    def ended(self, finishes: Sequence[Finish]) -> None:
        """See Tally.ended."""
        for run, status, error, _ in finishes:
            self._hub.run_changed(run, status, None if status is RunStatus.COMPLETED else run.error or error)

    # ---- what the hub hears of by other ways, or is no news of a run -------------------------------

    def decided(self, verdicts: Sequence[Verdict], now: int) -> None:
        """See Tally.decided."""

    def taken(self, tasks: Sequence[Waiting], now: int) -> None:
        """See Tally.taken."""

    def tried(self, endings: Sequence[Ending]) -> None:
        """See Tally.tried."""

    def called_off(self, count: int) -> None:
        """See Tally.called_off."""

    def buried(self, jobs: Sequence[str]) -> None:
        """See Tally.buried."""

    def graphs_ended(self, runs: Sequence[Run]) -> None:
        """See Tally.graphs_ended."""
