"""The theory of the declarative scheduler, as a checker of traces.

Safety: S1 every start is owed, S2 between two successes the task was due, S3 no task runs when `stop` returns, S4 an
invalid list never initialises, S5 a valid list fails only for a known cause, S6 no second initialisation without a stop
or a crash after the first. Liveness: L1 an owed start happens in time, L2 `initialize` ends, L3 `stop` ends once no
task runs. EA: the trace itself is impossible.

History is kept by task name, and occurrences are those of the schedule that is registered now. The checker shares no
code with the scheduler: it tests every minute itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gnomon.declarative.theory.due_times import first_due, is_valid, minute_matches
from gnomon.declarative.theory.traces import (
    ClockSet,
    Crash,
    End,
    Excused,
    InitCall,
    InitError,
    InitOk,
    RunError,
    RunOk,
    RunStart,
    Seen,
    StopCall,
    StopReturn,
    TracedTask,
    TraceViolation,
)

#: The real-time bounds of the specification: lateness of starts and duration of calls.
LATEST_MS, LATEST_MS_PER_TASK = 60_000, 6


def check(trace: Iterable[Seen], *, zone: str) -> list[TraceViolation]:
    """All violations of the theory in the trace."""
    checker = _TraceChecker(zone)
    for seen in trace:
        checker.see(seen)
    return checker.violations


@dataclass(slots=True)
class _TaskTimeline:
    """The history of a task name while it is registered."""

    known_since: int
    #: Whether the minute of its registration matched and it has not been started.
    boot: bool
    last_start: int | None = None
    last_success_start: int | None = None
    #: Whether it was due since then, by the schedule of that time.
    due_since_success: bool = False
    running: int | None = None
    retry_at: int | None = None
    orphan: bool = False
    free_since: int = 0


@dataclass(slots=True)
class _PendingCall:
    at: int
    tasks: tuple[TracedTask, ...] = ()
    #: Whether the state at the time of the call permits it to fail.
    excused: bool = False
    quiet_since: int | None = None


@dataclass
class _TraceChecker:
    zone: str
    violations: list[TraceViolation] = field(default_factory=list)
    tasks: dict[str, TracedTask] = field(default_factory=dict)
    timelines: dict[str, _TaskTimeline] = field(default_factory=dict)
    active: bool = False
    #: Whether it is initialised, and neither stopped nor crashed since.
    established: bool = False
    #: The instant from which on only the scheduler itself can delay a start.
    free_since: int = 0
    inits: dict[int, _PendingCall] = field(default_factory=dict)
    stops: dict[int, _PendingCall] = field(default_factory=dict)
    runs: dict[int, str] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)

    def see(self, seen: Seen) -> None:
        """Check the next element of the trace."""
        handlers: dict[type[Seen], Callable[[Any], None]] = {
            InitCall: self._init_call,
            InitOk: self._init_ok,
            InitError: self._init_error,
            StopCall: self._stop_call,
            StopReturn: self._stop_return,
            RunStart: self._run_start,
            RunOk: self._run_ok,
            RunError: self._run_error,
            Crash: self._crash,
            ClockSet: self._clock_set,
            Excused: self._excused,
            End: self._end,
        }
        handlers[type(seen)](seen)

    def _report(self, rule: str, at: int, text: str) -> None:
        self.violations.append(TraceViolation(rule, at, text))

    @property
    def _allowed_ms(self) -> int:
        return max(LATEST_MS, LATEST_MS_PER_TASK * len(self.tasks))

    # ---- calls -----------------------------------------------------------------------------------

    def _init_call(self, seen: InitCall) -> None:
        excused = bool(self.inits or self.stops or self.active or self.established)
        self.inits[seen.call] = _PendingCall(seen.at, seen.tasks, excused)

    def _init_ok(self, seen: InitOk) -> None:
        call = self._closed(self.inits, seen, "L2")
        if not _acceptable(call.tasks):
            self._report("S4", seen.at, "an invalid list was initialised")
        if self.established:
            self._report("S6", seen.at, "initialised a second time without a stop or a crash")
        self.tasks = {task.name: task for task in call.tasks}
        self.timelines = {task.name: self.timelines.get(task.name) or self._new(task, seen.at) for task in call.tasks}
        self.established, self.active, self.free_since = True, not self.stops, seen.at

    def _new(self, task: TracedTask, at: int) -> _TaskTimeline:
        return _TaskTimeline(at, is_valid(task.cron) and minute_matches(task.cron, self.zone, at))

    def _init_error(self, seen: InitError) -> None:
        call = self._closed(self.inits, seen, "L2")
        if _acceptable(call.tasks) and not (call.excused or seen.excused):
            self._report("S5", seen.at, "a valid list was refused for no reason")

    def _stop_call(self, seen: StopCall) -> None:
        self._check_unstarted(seen.at)
        self.active = False
        self.stops[seen.call] = _PendingCall(seen.at, quiet_since=None if self.runs or self.inits else seen.at)

    def _stop_return(self, seen: StopReturn) -> None:
        call = self.stops.pop(seen.call, None)
        if call is None:
            self._report("EA", seen.at, f"stop {seen.call} returns without a call")
            return
        if self.runs:
            self._report("S3", seen.at, f"stop returns while {sorted(self.runs.values())} run")
        if self.inits:
            self._report("S3", seen.at, "stop returns while an initialisation is under way")
        if call.quiet_since is not None and seen.at - call.quiet_since > self._allowed_ms:
            self._report("L3", seen.at, "stop took too long after everything had ended")
        self.established = self.active = False

    def _closed(self, calls: dict[int, _PendingCall], seen: InitOk | InitError, rule: str) -> _PendingCall:
        call = calls.pop(seen.call, None)
        if call is None:
            self._report("EA", seen.at, f"call {seen.call} ends without having begun")
            return _PendingCall(seen.at)
        if seen.at - call.at > self._allowed_ms:
            self._report(rule, seen.at, "the call took too long")
        self._note_quiet(seen.at)
        return call

    def _note_quiet(self, at: int) -> None:
        if not self.runs and not self.inits:
            for stop in self.stops.values():
                stop.quiet_since = at if stop.quiet_since is None else stop.quiet_since

    # ---- runs ------------------------------------------------------------------------------------

    def _run_start(self, seen: RunStart) -> None:
        timeline = self.timelines.get(seen.task)
        if timeline is None or not self.active:
            why = "is not registered" if timeline is None else "starts although the scheduler is not active"
            self._report("S1", seen.at, f"{seen.task} {why}")
            timeline = timeline or _TaskTimeline(seen.at, boot=False)
        elif timeline.running is not None:
            self._report("S1", seen.at, f"{seen.task} starts while it runs")
        elif (owed := self._owed_since(seen.task, timeline, seen.at)) is None:
            self._report("S1", seen.at, f"{seen.task} starts although nothing is owed to it")
        elif seen.at - owed > self._allowed_ms:
            self._report("L1", seen.at, f"{seen.task} starts {seen.at - owed} ms late")
        if timeline.last_success_start is not None and seen.task in self.tasks:
            cron, since = self.tasks[seen.task].cron, timeline.last_success_start
            timeline.due_since_success |= first_due(cron, self.zone, after=since, until=seen.at) is not None
        timeline.running, timeline.last_start = seen.run, seen.at
        timeline.retry_at, timeline.orphan, timeline.boot = None, False, False
        self.runs[seen.run], self.starts[seen.run] = seen.task, seen.at

    def _run_ok(self, seen: RunOk) -> None:
        ended = self._ended(seen)
        if ended is None:
            return
        task, timeline, began = ended
        if timeline.last_success_start is not None and not timeline.due_since_success:
            self._report("S2", seen.at, f"{task.name} succeeded twice and was not due in between")
        timeline.last_success_start, timeline.due_since_success = began, False

    def _run_error(self, seen: RunError) -> None:
        ended = self._ended(seen)
        if ended is not None:
            task, timeline, _ = ended
            timeline.retry_at = seen.at + task.retry_delay_ms

    def _ended(self, seen: RunOk | RunError) -> tuple[TracedTask, _TaskTimeline, int] | None:
        name = self.runs.pop(seen.run, None)
        began = self.starts.pop(seen.run, seen.at)
        if name is None:
            self._report("EA", seen.at, f"run {seen.run} ends without having begun")
            return None
        self._note_quiet(seen.at)
        timeline = self.timelines.get(name)
        if timeline is None:
            return None
        timeline.running, timeline.free_since = None, seen.at
        return self.tasks[name], timeline, began

    def _owed_since(self, name: str, timeline: _TaskTimeline, at: int) -> int | None:
        """The instant since which a start is owed, as of `at`; None if none is."""
        task = self.tasks[name]
        base = timeline.known_since if timeline.last_start is None else timeline.last_start
        due = first_due(task.cron, self.zone, after=base, until=at)
        retry = timeline.retry_at if timeline.retry_at is not None and timeline.retry_at <= at else None
        at_once = timeline.known_since if timeline.boot else self.free_since if timeline.orphan else None
        causes = [cause for cause in (due, retry, at_once) if cause is not None]
        return max(min(causes), timeline.free_since, self.free_since) if causes else None

    # ---- crashes, clock changes, the end ---------------------------------------------------------

    def _crash(self, seen: Crash) -> None:
        self._check_unstarted(seen.at)
        for name, timeline in self.timelines.items():
            if name in seen.unwritten:
                timeline.orphan, timeline.retry_at, timeline.last_success_start = True, None, None
            timeline.orphan = timeline.orphan or timeline.running is not None
            timeline.running = None
        self.runs, self.starts, self.inits, self.stops = {}, {}, {}, {}
        self.active = self.established = False

    def _clock_set(self, seen: ClockSet) -> None:
        self._check_unstarted(seen.at)
        # A start that setting the clock made late is no violation, and no run ended later than now.
        self.free_since = seen.to
        for timeline in self.timelines.values():
            timeline.free_since = min(timeline.free_since, seen.to)
        for call in (*self.inits.values(), *self.stops.values()):
            call.at = seen.to
            call.quiet_since = None if call.quiet_since is None else seen.to

    def _excused(self, seen: Excused) -> None:
        self.free_since = seen.at
        for call in (*self.inits.values(), *self.stops.values()):
            call.at = seen.at
            call.quiet_since = None if call.quiet_since is None else seen.at

    def _end(self, seen: End) -> None:
        self._check_unstarted(seen.at)
        for call in self.inits.values():
            if seen.at - call.at > self._allowed_ms:
                self._report("L2", seen.at, "an initialisation never ended")
        for call in self.stops.values():
            if call.quiet_since is not None and seen.at - call.quiet_since > self._allowed_ms:
                self._report("L3", seen.at, "a stop never ended")

    def _check_unstarted(self, at: int) -> None:
        """L1: report every start that has been owed for too long."""
        if not self.active:
            return
        for name, timeline in self.timelines.items():
            owed = None if timeline.running is not None else self._owed_since(name, timeline, at)
            if owed is not None and at - owed > self._allowed_ms:
                self._report("L1", at, f"{name} is owed a start since {owed} and was not started")


def _acceptable(tasks: tuple[TracedTask, ...]) -> bool:
    names = [task.name for task in tasks]
    return (
        len(set(names)) == len(names)
        and all(names)
        and all(is_valid(task.cron) and task.retry_delay_ms >= 0 for task in tasks)
    )
