"""The pinger: calls the addresses of jobs when their runs start and end, and that of the scheduler while it decides.

A ping is sent after its cause is in the store, and again until it is answered, for as long as this process lives and
its tries last. Nothing waits for pings: they have a loop of their own, few are under way at once, and each has a
timeout. Tenants take turns, and the ping of the scheduler waits for none of theirs: addresses that never answer delay
only the pings of their own tenant.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence

from gnomon.config.sections import WatchdogSettings
from gnomon.core import component_names
from gnomon.core.model import Run, RunId, RunStatus
from gnomon.core.pings import Ping, PingMoment, ping_retry_delay_ms, redacted_url
from gnomon.core.runs.fair_share import TenantQueue
from gnomon.core.runs.outcomes import Assignment
from gnomon.errors import AddressRefused, FieldError, PingFailed, Unavailable
from gnomon.ports.runs import Executions
from gnomon.ports.runtime import Clock, Events, PingSender
from gnomon.services.execution.workflow_cache import WorkflowCache
from gnomon.services.loop import Backoff

#: Events of runs that may have ended without a worker here: they are rare, so that each run is read.
_RARE = frozenset(("attempt_ended_by_reconciler", "dead_letter", "task_not_scheduled", "result_refused", "run_mended"))
_MOMENTS: Mapping[RunStatus, PingMoment] = {
    RunStatus.COMPLETED: PingMoment.SUCCESS,
    RunStatus.FAILED: PingMoment.FAILURE,
}
#: How many pings of a tenant may wait: further ones are dropped, since they would come too late.
_MOST_WAITING = 10_000
_MOST_WATCHED = 100_000
_IDLE_SECONDS = 60.0
#: How often to check whether this process decides ticks, while it does not.
_STANDBY_SECONDS = 1.0
_LONGEST_DRAIN = 5.0


class _PendingPing:
    """A ping that is to be sent."""

    __slots__ = ("after", "configured", "failures", "job", "tenant", "tries", "url")

    def __init__(self, tenant: str, job: str, url: str, tries: int, *, configured: bool = False) -> None:
        self.tenant, self.job, self.url, self.tries = tenant, job, url, tries
        #: The administrator has chosen the URL, and not a job.
        self.configured = configured
        self.failures = 0
        self.after = 0.0


#: Fills the secrets of a tenant's job into an address.
FillSecrets = Callable[[str, str, str], str]


class Pinger:
    """Watches runs whose jobs have pings, and calls their addresses."""

    def __init__(  # noqa: PLR0913 - all of its collaborators
        self,
        executions: Executions,
        workflow_cache: WorkflowCache,
        sender: PingSender,
        clock: Clock,
        events: Events,
        settings: WatchdogSettings,
        *,
        deciding: Callable[[], bool],
        secrets: FillSecrets = lambda url, _tenant, _job: url,
    ) -> None:
        """`deciding` says whether this process decides ticks; `secrets` fills secrets into an address."""
        self._executions = executions
        self._workflow_cache = workflow_cache
        self._sender = sender
        self._clock = clock
        self._events = events
        self._settings = settings
        self._secrets = secrets
        #: Runs that were started here and whose jobs have pings.
        self._watched: dict[RunId, Ping] = {}
        #: Runs that may be over.
        self._heard: dict[RunId, None] = {}
        self._ready = TenantQueue[_PendingPing]()
        #: Pings that failed and are tried again later.
        self._later: list[_PendingPing] = []
        #: How many pings of each tenant wait.
        self._waiting = Counter[str]()
        self._under_way: set[asyncio.Task[None]] = set()
        #: How many of those under way are of jobs.
        self._calls = 0
        self._own_at = float("-inf")
        self._deciding = deciding
        #: Set when there is something to do.
        self.wake = asyncio.Event()
        #: How many pings were answered, were given up, and were dropped because too many waited.
        self.sent = self.failed = self.dropped = 0
        self.backoff = Backoff(events, component_names.PINGER)

    # ---- events ------------------------------------------------------------------------------

    def started(self, assignments: Sequence[Assignment]) -> None:
        """Watch the runs of assignments that have started, and ping their start."""
        for one in assignments:
            ping = one.workflow.ping
            if ping is not None and one.run.run_id not in self._watched:
                self._watched[one.run.run_id] = ping
                if len(self._watched) > _MOST_WATCHED:
                    # It was lost to another process, which pings its end.
                    self._watched.pop(next(iter(self._watched)))
                # A run starts once, however often and wherever it is attempted.
                if one.task.fence == 1 and one.step.name == one.workflow.first_steps[0]:
                    self._enqueue(one.run, ping, PingMoment.START)

    def heard(self, name: str, facts: Mapping[str, object]) -> None:
        """Remember the run of an event that may be its end."""
        run = facts.get("run")
        if isinstance(run, str) and (run in self._watched or name in _RARE):
            self._heard[RunId(run)] = None
            self.wake.set()

    # ---- calling -----------------------------------------------------------------------------

    async def step(self) -> float:
        """Read runs that may have ended, and send due pings. Returns how many seconds to wait before the next step."""
        try:
            await self._look()
        except Unavailable as error:
            self._call()
            return self.backoff.failed(error)
        self.backoff.worked()
        return self._call()

    async def _look(self) -> None:
        for run_id in list(self._heard):
            # An event during the read may be newer than what is read; the run is then read again.
            del self._heard[run_id]
            try:
                await self._look_at(run_id)
            except Unavailable:
                self._heard[run_id] = None
                raise

    async def _look_at(self, run_id: RunId) -> None:
        run = await self._executions.find_run(run_id)
        if run is not None and not run.over:
            return
        if run is not None and run.status in _MOMENTS:
            ping = self._watched.get(run_id) or await self._ping_of(run)
            if ping is not None:
                self._enqueue(run, ping, _MOMENTS[run.status])
        self._watched.pop(run_id, None)
        self._heard.pop(run_id, None)

    async def _ping_of(self, run: Run) -> Ping | None:
        workflow = await self._workflow_cache.for_run(run)
        return None if workflow is None else workflow.ping

    def _enqueue(self, run: Run, ping: Ping, moment: PingMoment) -> None:
        url = ping.at(moment)
        if url is not None:
            self._add(_PendingPing(run.tenant, run.schedule_id or run.workflow_id, url, self._settings.ping_tries))

    def _add(self, due: _PendingPing) -> None:
        if self._waiting[due.tenant] >= _MOST_WAITING:
            self.dropped += 1
            return
        self._waiting[due.tenant] += 1
        self._ready.add(due.tenant, due)
        self.wake.set()

    def _call(self) -> float:
        """Send what is due; return how many seconds to wait before the next call."""
        now = self._clock.elapsed()
        self._call_own(now)
        due = [one for one in self._later if one.after <= now]
        self._later = [one for one in self._later if one.after > now]
        for one in due:
            self._ready.add(one.tenant, one)
        while self._ready and self._calls < self._settings.ping_parallel:
            self._start_call(*self._ready.pop())
        return min([self._until_own(now), *(one.after - now for one in self._later)])

    def _call_own(self, now: float) -> None:
        """Call the scheduler's own address while this process decides ticks; the monitor notices silence."""
        settings = self._settings
        if settings.ping_url and now - self._own_at >= settings.ping_every_ms / 1000 and self._deciding():
            self._own_at = now
            own = _PendingPing("default", "the scheduler", settings.ping_url, 1, configured=True)
            self._start(self._send(own))

    def _start_call(self, tenant: str, due: _PendingPing) -> None:
        self._waiting[tenant] -= 1
        self._calls += 1

        def ended(_: asyncio.Task[None]) -> None:
            self._calls -= 1
            self._ready.ended(tenant)

        self._start(self._send(due)).add_done_callback(ended)

    def _start(self, sending: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(sending)
        self._under_way.add(task)
        task.add_done_callback(self._done)
        return task

    def _until_own(self, now: float) -> float:
        if not self._settings.ping_url:
            return _IDLE_SECONDS
        every = self._settings.ping_every_ms / 1000
        return max(0.0, self._own_at + every - now) if self._deciding() else min(every, _STANDBY_SECONDS)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self.wake.set()

    async def _send(self, due: _PendingPing) -> None:
        try:
            url = self._secrets(due.url, due.tenant, due.job)
            await self._sender.send(url, timeout_ms=self._settings.ping_timeout_ms, configured=due.configured)
        except PingFailed as error:
            due.failures += 1
            if due.failures >= due.tries:
                self._given_up(due, str(error))
            else:
                due.after = self._clock.elapsed() + ping_retry_delay_ms(due.failures) / 1000
                self._waiting[due.tenant] += 1
                self._later.append(due)
        except (FieldError, AddressRefused) as error:
            self._given_up(due, str(error))
        else:
            self.sent += 1

    def _given_up(self, due: _PendingPing, error: str) -> None:
        self.failed += 1
        self._events.emit("ping_failed", job=due.job, url=redacted_url(due.url), error=error, tries=due.failures)

    async def drain(self) -> None:
        """Send the remaining pings once, within a short time: this process is about to end."""
        try:
            async with asyncio.timeout(min(_LONGEST_DRAIN, self._settings.ping_timeout_ms / 1000)):
                await self._look()
                while self._ready or self._later or self._under_way:
                    for due in (*self._ready, *self._later):
                        due.after = 0.0
                        due.tries = due.failures + 1
                    self._call()
                    await asyncio.wait(self._under_way)
        except (TimeoutError, Unavailable):
            pass
        for task in self._under_way:
            task.cancel()
