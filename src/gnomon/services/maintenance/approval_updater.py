"""The updater of approvals: denies tasks whose approval has expired, and has the gate ask again under a new policy.

One node does it, by a lease. Two may overlap while the lease passes from one to the other: every write is a
compare-and-set on the status of the approval, so a decision that came before stays.
"""

from collections.abc import Callable

from gnomon.core import component_names
from gnomon.core.model import TaskId
from gnomon.ports.approvals import ApprovalUpkeep, ReopenPosition
from gnomon.ports.policy import Policies
from gnomon.ports.runtime import Clock, Events
from gnomon.services.coordination import Singleton
from gnomon.services.loop import Backoff

#: How many approvals one transaction handles.
_BATCH = 200
#: Of how many tasks that wait is looked whether somebody is asked about them; before the first of them.
_PAGE, _FIRST = 500, TaskId("")
#: The longest time between two looks at expiries; between two looks for tasks that wait although they are approved.
_POLL_SECONDS, _STUCK_SECONDS = 5.0, 120.0
#: The longest time between two looks at approvals of an earlier version of the policy.
_LONGEST_PAUSE_SECONDS = 30.0


class ApprovalUpdater:
    """Ends approvals in time, and asks again after a change of the policy."""

    def __init__(
        self,
        approvals: ApprovalUpkeep,
        clock: Clock,
        events: Events,
        *,
        lease: Singleton,
        policies: Policies,
        on_ready: Callable[[], None],
        refresh_seconds: float,
    ) -> None:
        """`on_ready` wakes the dispatcher."""
        self._approvals = approvals
        self._clock, self._events = clock, events
        self._lease = lease
        self._policies = policies
        self._on_ready = on_ready
        self._refresh_seconds = refresh_seconds
        #: The version of the policy under which all waiting approvals were asked for; None before the first look.
        self._asked_under: int | None = None
        #: The version under which others are asked for again, when to look for them, and how long to wait after that.
        self._asking_under: int | None = None
        self._ask_at, self._pause_seconds = float("-inf"), refresh_seconds
        self._stuck_at, self._stuck_after = float("-inf"), _FIRST
        #: How many tasks were let go on that still waited although they were approved.
        self.resumed = 0
        self.backoff = Backoff(events, component_names.APPROVAL_UPDATER)

    async def step(self) -> float:
        """Handle what is due. Returns how many seconds to wait before the next step."""
        return await self.backoff.attempt(self._look)

    async def _look(self) -> float:
        if not await self._lease.ours():
            self._asked_under = None
            return _POLL_SECONDS
        await self._resume_stuck()
        due = await self._approvals.next_expiry()
        if due is None:
            return _POLL_SECONDS
        if due <= self._clock.now():
            await self._expire()
        await self._ask_again()
        return min(_POLL_SECONDS, self._refresh_seconds)

    async def _expire(self) -> None:
        while ended := await self._approvals.expire(now=self._clock.now(), limit=_BATCH):
            self._events.emit("approvals_expired", count=ended)
            self._on_ready()
            if ended < _BATCH:
                return

    async def _ask_again(self) -> None:
        """Ask again about everything that waits under an earlier version, until nothing does."""
        version, now = await self._policies.newest_number(), self._clock.elapsed()
        if version != self._asking_under:
            self._asking_under, self._ask_at, self._pause_seconds = version, now, self._refresh_seconds
        if version == self._asked_under or now < self._ask_at:
            return
        after: ReopenPosition | None = None
        left, more = 0, True
        while more:
            page = await self._approvals.reopen(version, after=after, now=self._clock.now(), limit=_BATCH)
            after, left, more = page.after, left + page.left, page.after is not None
            if page.tasks:
                self._events.emit("approvals_asked_again", count=page.tasks, policy=version)
                self._on_ready()
        # A server that does not know the new version yet asks by the old one.
        self._ask_at = now + self._pause_seconds
        self._pause_seconds = min(2 * self._pause_seconds, _LONGEST_PAUSE_SECONDS)
        self._asked_under = None if left else version

    async def _resume_stuck(self) -> None:
        now = self._clock.elapsed()
        if now < self._stuck_at + _STUCK_SECONDS:
            return
        self._stuck_at = now
        # One page at a time: thousands of tasks may wait for days, and that costs nothing.
        page = await self._approvals.resume(after=self._stuck_after, now=self._clock.now(), limit=_PAGE)
        self._stuck_after = page.after or _FIRST
        if page.tasks:
            self.resumed += page.tasks
            self._events.emit("approved_tasks_resumed", count=page.tasks)
            self._on_ready()
