"""The change stream: sends changes to subscribers as they happen, and waits for none of them."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Any

from msgspec import Struct

from gnomon.core.approvals.model import Approval
from gnomon.core.model import DeadLetter, Run, TickVerdict
from gnomon.core.named_breakers import BreakerChange
from gnomon.core.output_policy.late import LateResult
from gnomon.core.runs.admission import ReadyTask
from gnomon.core.runs.outcomes import TaskCompletion
from gnomon.errors import TooMany, Unavailable
from gnomon.ports.auth import Caller
from gnomon.ports.change_log import LOG_CHANGE, Change
from gnomon.ports.commit_observer import DeniedTask, FinishedRun, LoggedLines, TaskRuling
from gnomon.ports.runtime import Clock
from gnomon.services.observability.changes import CommitChanges
from gnomon.services.observability.log_changes import LogChanges

#: How far a subscriber may be behind before it is dropped.
_MAX_BACKLOG = 4000
#: One caller may have one of so many places, and all callers of a tenant together one of so many.
_CALLER_PART, _TENANT_PART = 4, 2
#: How soon a caller that has all its places may try again.
_RETRY_SECONDS = 5
#: How long a new subscriber waits until the changes of other processes are published.
_COMPLETE_SECONDS = 5.0
#: How long changes are counted after a page was shown, so that its stream can tell whether there were any since.
_COUNTED_SECONDS = 30.0


class StreamedChange(Struct, frozen=True, kw_only=True):
    """One change."""

    #: `tick`, `execution`, `task`, `log`, `dead_letter`, `approval`, `ruling` or `breaker`.
    kind: str
    #: Counts the changes of the tenant while any of its callers follows the stream: it tells nothing about others.
    number: int
    facts: dict[str, Any]


class Subscriber:
    """Receives every change of its tenant, until it is too far behind."""

    def __init__(self, caller: Caller, count: str, number: int) -> None:
        self.tenant = caller.tenant
        self.subject = caller.subject
        #: The count of changes of the tenant, and the last number of it that it does not receive.
        self.count, self.number = count, number
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

    async def changes(self, quiet_seconds: Callable[[], float]) -> AsyncIterator[StreamedChange | None]:
        """Each change; None after so many seconds without one, so that a connection can be kept alive."""
        while True:
            while self._waiting:
                yield self._waiting.popleft()
            if self.dropped:
                return
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), quiet_seconds())
            except TimeoutError:
                yield None


class _TenantSubscribers:
    """The subscribers of one tenant, and the number of changes that were sent to them."""

    def __init__(self) -> None:
        self.subscribers: set[Subscriber] = set()
        #: The name of this count: another one begins anew.
        self.count, self.number = token_hex(8), 0
        self._forget: asyncio.TimerHandle | None = None

    @property
    def needed(self) -> bool:
        """Whether anybody follows, or may soon."""
        return bool(self.subscribers) or self._forget is not None

    def keep(self, seconds: float, forget: Callable[[], None]) -> None:
        """Go on counting for so many seconds without subscribers, and call `forget` then."""

        def end() -> None:
            self._forget = None
            forget()

        if self._forget is not None:
            self._forget.cancel()
        self._forget = asyncio.get_running_loop().call_later(seconds, end)

    def push(self, kind: str, facts: dict[str, Any]) -> None:
        """Send a change to all of them."""
        self.number += 1
        change = StreamedChange(kind=kind, number=self.number, facts=facts)
        for one in list(self.subscribers):
            one.push(change)
            if one.dropped:
                self.subscribers.discard(one)


class ChangeStream:
    """Sends changes to the subscribers of their tenant."""

    def __init__(self, *, most: int = 100, reads_log: bool = False) -> None:
        """`most` may follow at a time. With `reads_log`, a `ChangeReader` publishes the commits of other processes."""
        self._most = most
        self._tenants: dict[str, _TenantSubscribers] = {}
        self._reads_log = reads_log
        self._log_changes = LogChanges(self._push)
        #: Set when the first caller follows.
        self.wake = asyncio.Event()
        self._complete = asyncio.Event()
        if not reads_log:
            self._complete.set()

    @property
    def followed(self) -> bool:
        """Whether any caller follows, or was shown a page and may follow soon."""
        return bool(self._tenants)

    def publish(self, changes: Iterable[Change]) -> None:
        """Send these changes to the subscribers of their tenants."""
        for change in changes:
            if change.tenant not in self._tenants:
                continue
            if change.kind == LOG_CHANGE:
                self._log_changes.add(change)
            else:
                self._push(change)

    def _push(self, change: Change) -> None:
        followers = self._tenants.get(change.tenant)
        if followers is not None:
            followers.push(change.kind, {"at": change.at, **change.facts})

    def set_complete(self) -> None:
        """From now on, the changes of all processes are published."""
        if self.followed:
            self._complete.set()

    async def complete(self, seconds: float = _COMPLETE_SECONDS) -> None:
        """Wait until the changes of all processes are published; give up after so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._complete.wait(), seconds)

    def subscribe(self, caller: Caller) -> Subscriber:
        """A new subscriber, which receives the changes of the caller's tenant from now on; `unsubscribe` must follow.

        TooMany if the caller or its tenant has its share of the places, Unavailable if all are taken.
        """
        self._refuse_beyond_shares(caller)
        followers = self._followers(caller.tenant)
        made = Subscriber(caller, followers.count, followers.number)
        followers.subscribers.add(made)
        return made

    def count_for(self, caller: Caller) -> tuple[str, int]:
        """The count of the changes of the caller's tenant, and its number now, before a page is made.

        It goes on for a while without subscribers, so that the stream of the page can tell whether anything has changed
        since. Its name is empty where changes of other processes are not counted yet.
        """
        followers = self._followers(caller.tenant)
        followers.keep(_COUNTED_SECONDS, lambda: self._drop(caller.tenant))
        return (followers.count, followers.number) if self._complete.is_set() else ("", 0)

    def _followers(self, tenant: str) -> _TenantSubscribers:
        if not self.followed:
            self.wake.set()
        return self._tenants.setdefault(tenant, _TenantSubscribers())

    def _refuse_beyond_shares(self, caller: Caller) -> None:
        followers = self._tenants[caller.tenant].subscribers if caller.tenant in self._tenants else frozenset()
        of_caller = sum(one.subject == caller.subject for one in followers)
        if self._most and of_caller >= max(1, self._most // _CALLER_PART):
            raise _too_many(f"the caller follows {of_caller} streams: as many as one caller may")
        if self._most and len(followers) >= max(1, self._most // _TENANT_PART):
            raise _too_many(f"the callers of the tenant follow {len(followers)} streams: as many as one tenant may")
        if sum(len(one.subscribers) for one in self._tenants.values()) >= self._most:
            raise Unavailable("as many follow the stream as may: try again later")

    def unsubscribe(self, listener: Subscriber) -> None:
        """Remove a subscriber."""
        followers = self._tenants.get(listener.tenant)
        if followers is not None:
            followers.subscribers.discard(listener)
            self._drop(listener.tenant)

    def _drop(self, tenant: str) -> None:
        """Forget a tenant that nobody follows."""
        followers = self._tenants.get(tenant)
        if followers is not None and not followers.needed:
            del self._tenants[tenant]
            if not self.followed and self._reads_log:
                self._complete.clear()

    def close(self) -> None:
        """End all subscriptions."""
        for followers in list(self._tenants.values()):
            for listener in followers.subscribers:
                listener.close()


def _too_many(reason: str) -> TooMany:
    return TooMany(reason, seconds=_RETRY_SECONDS)


class ChangeObserver:
    """Observes the commits of this process, and tells the stream of them at once."""

    def __init__(self, stream: ChangeStream, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock

    def launched(self, runs: Sequence[Run]) -> None:
        """See RunObserver.launched."""
        self._publish(lambda changes: changes.launched(runs))

    def started(self, runs: Sequence[Run], now: int) -> None:
        """See RunObserver.started."""
        self._publish(lambda changes: changes.started(runs, now))

    def ended(self, finishes: Sequence[FinishedRun]) -> None:
        """See RunObserver.ended."""
        self._publish(lambda changes: changes.ended(finishes))

    def decided(self, verdicts: Sequence[TickVerdict], now: int) -> None:
        """See ActivityObserver.decided."""
        self._publish(lambda changes: changes.decided(verdicts, now))

    def tried(self, endings: Sequence[TaskCompletion]) -> None:
        """See ActivityObserver.tried."""
        self._publish(lambda changes: changes.tried(endings))

    def logged(self, lines: Sequence[LoggedLines]) -> None:
        """See LogObserver.logged."""
        self._publish(lambda changes: changes.logged(lines))

    def letters_written(self, letters: Sequence[DeadLetter]) -> None:
        """See LetterObserver.letters_written."""
        self._publish(lambda changes: changes.letters_written(letters))

    def approvals_changed(self, approvals: Sequence[Approval]) -> None:
        """See RunObserver.approvals_changed."""
        self._publish(lambda collected: collected.approvals_changed(approvals))

    def ruled(self, rulings: Sequence[TaskRuling]) -> None:
        """See RunObserver.ruled."""
        self._publish(lambda collected: collected.ruled(rulings))

    def breakers_changed(self, changes: Sequence[BreakerChange], now: int) -> None:
        """See ActivityObserver.breakers_changed."""
        self._publish(lambda collected: collected.breakers_changed(changes, now))

    def taken(self, tasks: Sequence[ReadyTask], now: int) -> None:
        """See ActivityObserver.taken."""

    def checked_late(self, results: Sequence[LateResult]) -> None:
        """See RunObserver.checked_late."""

    def attempts_cancelled(self, count: int) -> None:
        """See ActivityObserver.attempts_cancelled."""

    def denied(self, denials: Sequence[DeniedTask]) -> None:
        """See ActivityObserver.denied."""

    def dead_lettered(self, jobs: Sequence[str]) -> None:
        """See ActivityObserver.dead_lettered."""

    def rolled_back(self, runs: int, unreadable: int, ended_ms: Sequence[int]) -> None:
        """See RunObserver.rolled_back."""

    def graph_runs_ended(self, runs: Sequence[Run]) -> None:
        """See ActivityObserver.graph_runs_ended."""

    def _publish(self, collect: Callable[[CommitChanges], None]) -> None:
        # Nothing is built while nobody follows.
        if self._stream.followed:
            changes = CommitChanges(self._clock.now())
            collect(changes)
            self._stream.publish(changes.collected())
