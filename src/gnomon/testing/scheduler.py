"""A whole scheduler on virtual time, for tests of a user's own jobs: it never waits, and it is deterministic."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from gnomon.adapters.files import read_jobs
from gnomon.adapters.memory import MemoryStore
from gnomon.core.cron import known_zone
from gnomon.core.instants import instant_of, ms_of
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.errors import FieldError
from gnomon.runners.registry import FUNCTIONS, Function, Span
from gnomon.services.operations.dead_letters import DeadLetterService
from gnomon.services.operations.events import EventService
from gnomon.services.operations.executions import ExecutionService
from gnomon.services.operations.jobs import JobService
from gnomon.services.operations.launcher import Launcher
from gnomon.testing.assertions import SchedulerAssertions
from gnomon.testing.clock import CountedIds, Recorder, VirtualClock
from gnomon.testing.event_queue import EventQueue
from gnomon.testing.scripted_runner import ErrorSpec, ScriptedRunner, command_script, function_script, span_ms
from gnomon.testing.virtual_process import SETTINGS, VirtualProcess

#: The default start of virtual time.
START = "2027-01-01T00:00"
_TESTER = "test"
#: An instant: timezone-aware, or local time in the scheduler's zone.
When = str | datetime
JobData = Mapping[str, Any]


class VirtualScheduler(SchedulerAssertions):
    """Load jobs, advance the time, inspect runs, ticks and calls."""

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
        #: All events that the services emitted.
        self.events = Recorder()
        self._runner = ScriptedRunner(clock, self._queue, SETTINGS, on_finished=self._wake_worker)
        self._jobs = JobService(store.jobs, store.schedules, store.history, clock, ids)
        self._launcher = Launcher(store.runs, store.executions, store.jobs, store.schedules, clock, ids)
        self._executions = ExecutionService(
            store.runs, store.executions, store.run_tasks, store.jobs, clock, announcements=store.announcements
        )
        self._announcer = EventService(store.events, clock, ids)
        self._letters = DeadLetterService(store.dead_letters, store.executions, self._launcher, clock)
        self._started = 0
        self._process = self._new_process()
        super().__init__(store, self._runner, self._moment, self._at)

    def _new_process(self) -> VirtualProcess:
        self._started += 1
        name = f"process-{self._started}"
        return VirtualProcess(self._store, self._clock, self._queue, self._runner, self.events, name=name)

    def _wake_worker(self) -> None:
        self._process.wake("worker")

    # ---- jobs and functions ------------------------------------------------------------------

    async def load(self, jobs: str | Path | JobData | Sequence[JobData]) -> None:
        """Create or update jobs from a jobs file or from plain data; UsageError if one is invalid."""
        now = self._clock.now()
        if isinstance(jobs, str | Path):
            read = read_jobs(self._found(jobs), self._defaults, now=now)
        else:
            definitions = [jobs] if isinstance(jobs, Mapping) else jobs
            read = [read_job(one, self._defaults, now=now) for one in definitions]
        # There are no channels here, and no run waits for one.
        read = [replace(job, workflow=replace(job.workflow, announce=())) for job in read]
        self._runner.add_known_functions(
            [step.function for job in read for step in job.workflow.all_steps if step.function]
        )
        await self._jobs.apply(read, actor=_TESTER)
        for job in read:
            schedule = await self._store.schedules.find("default", job.name)
            known = self._identities.setdefault(job.name, {})
            if schedule is not None:
                known[schedule.uid] = None
        self._process.register_again()
        self._process.check_soon()

    def _found(self, path: str | Path) -> Path:
        """The file next to the test; if there is none, relative to the working directory."""
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
        """Script a function from now on, or call the real one if `body` is given.

        `takes` is its duration in virtual time and `raises` its error. Each may be a list with one element per call.
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
        """Script a command, as written in the jobs file, from now on. Commands are never run.

        `takes` and `status` may be lists with one element per call; after the last status the command succeeds.
        """
        self._runner.script_command(command, command_script(stdout=stdout, takes=takes, status=status))

    def use_functions(self, *modules: str) -> None:
        """Import `modules`, then call the real functions of `@gnomon.function` and `@gnomon.job` from now on."""
        for module in modules:
            import_module(module)
        for name in FUNCTIONS:
            self.function(name, FUNCTIONS[name].body)

    def secret(self, name: str, value: str) -> None:
        """Set the value of `${secret:NAME}` for real functions."""
        self._runner.secrets[name] = value

    # ---- time --------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The virtual time, in the scheduler's zone."""
        return self._moment(self._clock.now())

    async def run_until(self, when: When, timezone: str | None = None) -> None:
        """Advance the time to that instant, and run everything due up to and including it."""
        await self._queue.run_for(self._later(when, timezone) - self._clock.now())

    async def run_for(self, span: Span) -> None:
        """Advance the time by this span, and run everything due in it."""
        await self._queue.run_for(span_ms("span", span))

    async def down_until(self, when: When, timezone: str | None = None) -> None:
        """Kill the scheduler with all that it runs, and start it again at that instant."""
        until = self._later(when, timezone)
        await self._process.die()
        await self._queue.run_for(until - self._clock.now())
        self._process = self._new_process()
        await self._settle()

    async def kill(self) -> None:
        """Kill the scheduler with all that it runs, and start it again at once."""
        await self._process.die()
        self._process = self._new_process()
        await self._settle()

    async def set_clock(self, by: timedelta) -> None:
        """Set the wall clock forward or back, as a time server or a suspended machine does; no time passes."""
        self._clock.shift_wall_clock(by // timedelta(milliseconds=1))
        await self._acted()

    def _later(self, when: When, timezone: str | None) -> int:
        at = self._at("when", when, timezone)
        if at < self._clock.now():
            raise FieldError("when", str(when), f"is past: it is {self.now.isoformat()}")
        return at

    async def _settle(self) -> None:
        """Run everything that is due now."""
        await self._queue.run_for(0)

    # ---- operations --------------------------------------------------------------------------

    async def trigger(
        self,
        job: str,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - its name in jobs files and in the API
        *,
        key: str | None = None,
        force: bool = False,
        deadline: Span | None = None,
    ) -> str:
        """Run a job now, even if it is paused, and return the execution id; Overlapping if its policy forbids it."""
        limit = None if deadline is None else span_ms("deadline", deadline)
        done = await self._launcher.trigger(job, actor=_TESTER, input=input, key=key, force=force, deadline_ms=limit)
        await self._acted()
        return done.run_id

    async def pause(self, job: str) -> None:
        """Pause the job: no tick fires until it is resumed."""
        await self._jobs.pause(job, actor=_TESTER)
        await self._acted()

    async def resume(self, job: str) -> None:
        """Resume the job from now on."""
        await self._jobs.resume(job, actor=_TESTER)
        await self._acted()

    async def delete(self, job: str) -> None:
        """Delete the job; its runs and ticks can still be inspected."""
        await self._jobs.delete(job, actor=_TESTER)
        await self._acted()

    async def cancel(self, execution_id: str) -> None:
        """Cancel an execution: waiting tasks end at once, running ones are asked to stop."""
        await self._executions.cancel(execution_id, actor=_TESTER)
        await self._acted()

    async def emit(self, event: str, body: object = None, *, key: str | None = None) -> None:
        """Emit an event, which starts the jobs whose `on` matches it."""
        await self._announcer.emit(event, body, actor=_TESTER, key=key)
        await self._acted()

    async def replay(self, dead_letter_id: str) -> None:
        """Replay a dead letter."""
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
                raise FieldError(field, when, "is not an instant such as 2027-03-28T04:00") from None
        if not isinstance(when, datetime):
            raise FieldError(field, when, "is not an instant such as 2027-03-28T04:00")
        if when.tzinfo is None:
            zone = timezone or self.timezone
            known_zone(zone)
            when = when.replace(tzinfo=ZoneInfo(zone))
        return ms_of(when)

    def _moment(self, at: int) -> datetime:
        return instant_of(at).astimezone(ZoneInfo(self.timezone))
