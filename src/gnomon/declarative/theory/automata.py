"""The three state machines of the specification, as a checker of the events that a scheduler publishes."""

from collections.abc import Iterable

from gnomon.declarative.theory.traces import TraceViolation

_SCHEDULER = {
    ("uninitialized", "SchedulerInitializationStarted"): "initializing",
    ("stopped", "SchedulerInitializationStarted"): "initializing",
    ("initializing", "SchedulerInitializationCompleted"): "running",
    ("initializing", "SchedulerInitializationFailed"): "uninitialized",
    ("running", "SchedulerStopRequested"): "stopping",
    ("stopping", "SchedulerStopped"): "stopped",
}
_POLLING = {
    ("inactive", "PollingStarted"): "active",
    ("active", "PollingStopRequested"): "stopping",
    ("stopping", "PollingStopped"): "inactive",
}
_TASK = {
    ("awaiting-run", "TaskRunStarted"): "running",
    ("preempted", "TaskRunStarted"): "running",
    ("running", "TaskRunCompleted"): "awaiting-run",
    ("running", "TaskRunFailed"): "awaiting-retry",
    ("awaiting-retry", "TaskRetryStarted"): "running",
    ("awaiting-retry", "TaskRetryPreempted"): "preempted",
}
#: The states of the scheduler in which an event of polling or of a task may occur.
_ALLOWED_DURING = {
    "PollingStarted": {"initializing"},
    "PollingStopRequested": {"stopping"},
    "PollingStopped": {"stopping"},
    "TaskRunStarted": {"running"},
    "TaskRetryStarted": {"running"},
    "TaskRetryPreempted": {"running"},
    "TaskRunCompleted": {"running", "stopping"},
    "TaskRunFailed": {"running", "stopping"},
}


class Automata:
    """Checks the events of all schedulers that use one state, one after the other."""

    def __init__(self) -> None:
        self.violations: list[TraceViolation] = []
        self._scheduler, self._polling = "uninitialized", "inactive"
        self._tasks: dict[str, str] = {}
        self._preempted: str | None = None

    def see(self, name: str, task: str | None, at: int) -> None:
        """Check the next event."""
        if self._scheduler not in _ALLOWED_DURING.get(name, {self._scheduler}):
            self._report(at, f"{name} while the scheduler is {self._scheduler}")
        if self._preempted is not None and (name, task) != ("TaskRunStarted", self._preempted):
            self._report(at, f"{name} between the preemption of {self._preempted} and its start")
        self._preempted = task if name == "TaskRetryPreempted" else None
        if task is not None:
            self._tasks[task] = self._moved(_TASK, self._tasks.get(task, "awaiting-run"), name, at)
        elif name.startswith("Polling"):
            self._polling = self._moved(_POLLING, self._polling, name, at)
        else:
            self._scheduler = self._moved(_SCHEDULER, self._scheduler, name, at)
            if name == "SchedulerStopped" and (self._polling != "inactive" or "running" in self._tasks.values()):
                self._report(at, "stopped while polling or a task is active")

    def crash(self, unwritten: Iterable[str] = ()) -> None:
        """Note that the scheduler died: tasks that were running will run again.

        `unwritten` names tasks whose end was published but not yet written: they will run again, too.
        """
        self._tasks |= dict.fromkeys(unwritten, "running")
        self._scheduler, self._polling, self._preempted = "uninitialized", "inactive", None
        self._tasks = {
            name: "awaiting-run" if state in ("running", "preempted") else state for name, state in self._tasks.items()
        }

    def registered(self, names: Iterable[str]) -> None:
        """Note the tasks that are registered now. The history of all others is deleted."""
        kept = set(names)
        self._tasks = {name: state for name, state in self._tasks.items() if name in kept}

    def _moved(self, table: dict[tuple[str, str], str], state: str, name: str, at: int) -> str:
        if (state, name) not in table:
            self._report(at, f"{name} while {state}")
            return next((after for (_, event), after in table.items() if event == name), state)
        return table[state, name]

    def _report(self, at: int, text: str) -> None:
        self.violations.append(TraceViolation("events", at, text))
