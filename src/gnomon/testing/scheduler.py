"""A whole scheduler on virtual time, for tests of a user's own jobs: nothing waits, and nothing happens by chance."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from gnomon.adapters.files import read_jobs
from gnomon.adapters.memory import MemoryStore
from gnomon.core.cron import known_zone
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.errors import FieldError
from gnomon.runners.registry import FUNCTIONS, Function
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.events import EventService
from gnomon.services.operations.executions import ExecutionService
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.testing.assertions import SchedulerAssertions
from gnomon.testing.clock import CountedIds, Recorder, VirtualClock
from gnomon.testing.event_queue import EventQueue
from gnomon.testing.scripted_runner import ErrorSpec, ScriptedRunner, Span, command_script, function_script, span_ms
from gnomon.testing.virtual_process import SETTINGS, VirtualProcess

#: Where virtual time begins, if nobody says.
START = "2027-01-01T00:00"
_TESTER = "test"
#: An instant: aware, or as the clocks of the scheduler's zone show it.
When = str | datetime
JobData = Mapping[str, Any]


class Scheduler(SchedulerAssertions):
    """Load jobs, let time pass, look at what happened."""

    def __init__(
        self,
        start: When = START,
        *,
        timezone: str = "UTC",
        folder: Path | None = None,
        defaults: Defaults | None = None,
    ) -> None:
        known_zone(timezone)
        self.timezone = timezone
        self._folder = folder
        self._defaults = defaults or Defaults()
        self._clock = VirtualClock(self._at("start", start))
        self._queue = EventQueue(self._clock)
        self._store = store = MemoryStore(self._clock.now)
        ids, clock = CountedIds(), self._clock
        #: Everything that the services told.
        self.events = Recorder()
        self._runner = ScriptedRunner(clock, self._queue, SETTINGS)
        self._jobs = JobService(store.jobs, store.schedules, store.history, clock, ids)
        self._launcher = Launcher(store.runs, store.executions, store.jobs, store.schedules, clock, ids)
        self._executions = ExecutionService(store.runs, store.executions, store.history, store.jobs, clock)
        self._announcer = EventService(store.events, clock, ids)
        self._letters = DeadLetterService(store.dead_letters, store.executions, self._launcher, clock)
        self._started = 0
        self._process = self._new_process()
        super().__init__(store, self._runner, self._moment, self._at)

    def _new_process(self) -> VirtualProcess:
        self._started += 1
        name = f"process-{self._started}"
        return VirtualProcess(self._store, self._clock, self._queue, self._runner, self.events, name=name)

    # ---- setting the scene -------------------------------------------------------------------

    async def load(self, jobs: str | Path | JobData | Sequence[JobData]) -> None:
        """Make jobs stand as they are written in a jobs file, or as plain data. UsageError if one is wrong."""
        now = self._clock.now()
        if isinstance(jobs, str | Path):
            read = read_jobs(self._found(jobs), self._defaults, now=now)
        else:
            said = [jobs] if isinstance(jobs, Mapping) else jobs
            read = [read_job(one, self._defaults, now=now) for one in said]
        self._runner.add_known_functions(
            [step.function for job in read for step in job.workflow.steps if step.function]
        )
        await self._jobs.apply(read, actor=_TESTER)
        for job in read:
            standing = await self._store.schedules.find("default", job.name)
            known = self._identities.setdefault(job.name, {})
            if standing is not None:
                known[standing.uid] = None
        self._process.register_again()
        self._process.check_soon()

    def _found(self, path: str | Path) -> Path:
        """Beside the test, or from where the tests were started."""
        beside = None if self._folder is None else self._folder / path
        return beside if beside is not None and beside.exists() else Path(path)

    def function(
        self,
        name: str,
        body: Callable[..., Any] | None = None,
        *,
        returns: object = None,
        takes: Span | Sequence[Span] = 0,
        raises: ErrorSpec | Sequence[ErrorSpec | None] | None = None,
    ) -> None:
        """Say what the function does from now on: it pretends, or it is a real one, which is called.

        `takes` is how much virtual time passes until it has ended, `raises` what it fails with; of either there may be
        several, one for each call.
        """
        function = None if body is None else Function(name, body)
        self._runner.script_function(name, function_script(function, returns=returns, takes=takes, raises=raises))
        self._process.register_again()

    def command(
        self,
        command: str,
        *,
        stdout: str = "",
        takes: Span | Sequence[Span] = 0,
        status: int | Sequence[int] = 0,
    ) -> None:
        """Say what comes of a command, written as the jobs file has it, from now on: it is never run.

        Of `takes` and `status` there may be several, one for each call; after the last status it succeeds.
        """
        self._runner.script_command(command, command_script(stdout=stdout, takes=takes, status=status))

    def use_functions(self, *modules: str) -> None:
        """Call for real what was registered with `@gnomon.function` or `@gnomon.job`, also in these modules."""
        for module in modules:
            import_module(module)
        for name in FUNCTIONS:
            self.function(name, FUNCTIONS[name].body)

    def secret(self, name: str, value: str) -> None:
        """What `${secret:NAME}` is for real functions."""
        self._runner.secrets[name] = value

    # ---- time --------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """What time it is, on the clocks of the scheduler's zone."""
        return self._moment(self._clock.now())

    async def run_until(self, when: When, timezone: str | None = None) -> None:
        """Let everything happen up to and including that instant."""
        await self._queue.run_for(self._later(when, timezone) - self._clock.now())

    async def run_for(self, span: Span) -> None:
        """Let everything happen that happens in so much time."""
        await self._queue.run_for(span_ms("span", span))

    async def down_until(self, when: When, timezone: str | None = None) -> None:
        """The scheduler dies now, with all that it runs, and is started again at that instant."""
        until = self._later(when, timezone)
        await self._process.die()
        await self._queue.run_for(until - self._clock.now())
        self._process = self._new_process()
        await self._settle()

    async def kill(self) -> None:
        """The scheduler dies now, with all that it runs, and is started again at once."""
        await self._process.die()
        self._process = self._new_process()
        await self._settle()

    async def set_clock(self, by: timedelta) -> None:
        """The wall clock is set forth or back, as by a time server, or by a lid that was closed; no time passes."""
        self._clock.shift_wall_clock(by // timedelta(milliseconds=1))
        await self._acted()

    def _later(self, when: When, timezone: str | None) -> int:
        at = self._at("when", when, timezone)
        if at < self._clock.now():
            raise FieldError("when", str(when), f"is past: it is {self.now.isoformat()}")
        return at

    async def _settle(self) -> None:
        """Everything has happened that happens now."""
        await self._queue.run_for(0)

    # ---- what operators do -------------------------------------------------------------------

    async def trigger(
        self,
        job: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the word that job files and the API have for it
        *,
        key: str | None = None,
        force: bool = False,
    ) -> str:
        """Run a job now, paused or not; the id of its execution. Overlapping if its policy does not allow it."""
        done = await self._launcher.trigger(job, actor=_TESTER, input=input, key=key, force=force)
        await self._acted()
        return done.run_id

    async def pause(self, job: str) -> None:
        """Let no tick fire until it is resumed."""
        await self._jobs.pause(job, actor=_TESTER)
        await self._acted()

    async def resume(self, job: str) -> None:
        """Go on from now."""
        await self._jobs.resume(job, actor=_TESTER)
        await self._acted()

    async def delete(self, job: str) -> None:
        """End the job; its runs and ticks can still be looked at."""
        await self._jobs.delete(job, actor=_TESTER)
        await self._acted()

    async def cancel(self, execution_id: str) -> None:
        """What waits of it ends at once, what runs is asked to stop."""
        await self._executions.cancel(execution_id, actor=_TESTER)
        await self._acted()

    async def emit(self, event: str, body: object = None, *, key: str | None = None) -> None:
        """Say that something happened: every job that listens starts, as its `on` says."""
        await self._announcer.emit(event, body, actor=_TESTER, key=key)
        await self._acted()

    async def replay(self, dead_letter_id: str) -> None:
        """Run a dead letter again."""
        await self._letters.replay(dead_letter_id, actor=_TESTER)
        await self._acted()

    async def _acted(self) -> None:
        self._process.check_soon()
        await self._settle()

    # ---- instants ----------------------------------------------------------------------------

    def _at(self, field: str, when: When, timezone: str | None = None) -> int:
        if isinstance(when, str):
            try:
                when = datetime.fromisoformat(when)
            except ValueError:
                raise FieldError(field, when, "is no instant such as 2027-03-28T04:00") from None
        if not isinstance(when, datetime):
            raise FieldError(field, when, "is no instant such as 2027-03-28T04:00")
        if when.tzinfo is None:
            zone = timezone or self.timezone
            known_zone(zone)
            when = when.replace(tzinfo=ZoneInfo(zone))
        return ms_of(when)

    def _moment(self, at: int) -> datetime:
        return instant_of(at).astimezone(ZoneInfo(self.timezone))
