"""Events as lines that a person can read while the scheduler runs."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TextIO

from gnomon.ports.events import Events

#: So many lines a second can be read; what comes beyond that is counted.
_LINES_A_SECOND = 20
Facts = Mapping[str, object]


def _seconds(ms: object) -> str:
    spent = float(ms) if isinstance(ms, int | float) else 0.0
    return f"{spent:.0f} ms" if spent < 1000 else f"{spent / 1000:.1f} s"


def _took(facts: Facts) -> str:
    started, ended = facts.get("started_at"), facts.get("ended_at")
    return f" in {_seconds(ended - started)}" if isinstance(started, int) and isinstance(ended, int) else ""


def _first_line(text: object) -> str:
    return str(text or "").partition("\n")[0][:200]


def _waits(facts: Facts) -> str:
    until = facts.get("available_at")
    ended = facts.get("ended_at")
    later = f" again in {_seconds(until - ended)}" if isinstance(until, int) and isinstance(ended, int) else ""
    why = _first_line(facts.get("error"))
    return f"~ {facts['job']}: {facts['result']}{', ' + why if why else ''};{later}"


#: What each event says. Those that are not here are for logs.
LINES: Mapping[str, Callable[[Facts], str]] = {
    "task_succeeded": lambda f: f"+ {f['job']}{_took(f)}",
    "task_failed": lambda f: f"! {f['job']}: {f['result']}{_took(f)}: {_first_line(f.get('error'))}",
    "task_waits": _waits,
    "task_not_scheduled": lambda f: f"~ {f['run']}: {f['reason']}",
    "job.skipped": lambda f: f"- {f['job']}: skipped, {f['reason']}",
    "dead_letter": lambda f: f"! {f.get('job') or f['run']}: left a dead letter ({f['reason']})",
    "jobs_applied": lambda f: (
        f"* {f['file']}: {f['created']} created, {f['changed']} changed, {f['unchanged']} as before"
    ),
    "jobs_refused": lambda f: f"! {f['error']}",
    "standing_by": lambda f: f"* another process schedules on {f['database']}; standing by",
    "scheduling": lambda f: f"* scheduling on {f['database']}",
    "attempt_ended_by_reconciler": lambda f: f"~ {f['run']}: {f['result']}: {_first_line(f.get('error'))}",
    "store_unavailable": lambda f: f"! the store is away: {_first_line(f['error'])}",
    "step_failed": lambda f: f"! {f['step']}: {f['error']}",
    "schedule_broken": lambda f: f"! {f['schedule']} cannot be planned: {f['error']}",
    "clock_stepped": lambda f: f"* the clock was set by {_seconds(f['by_ms'])}",
    "tasks_replayed": lambda f: f"* {f['count']} tasks had been ready for long and are offered again",
}


class ConsoleEvents:
    """Writes a line for each event that has one, and counts what would scroll by too fast."""

    def __init__(self, stream: TextIO, *, beside: Events | None = None) -> None:
        self._stream = stream
        self._beside = beside
        self._second = 0
        self._lines = 0
        self._untold = 0

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        if self._beside is not None:
            self._beside.emit(name, **facts)
        say = LINES.get(name)
        if say is None:
            return
        second = int(time.monotonic())
        if second != self._second:
            self._tell_the_rest()
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > _LINES_A_SECOND:
            self._untold += 1
            return
        self._write(say(facts))

    def _tell_the_rest(self) -> None:
        if self._untold:
            self._write(f"… and {self._untold:,} more")
            self._untold = 0

    def _write(self, text: str) -> None:
        shown = "".join(letter if letter.isprintable() else "?" for letter in text)
        self._stream.write(f"{datetime.now().astimezone():%H:%M:%S}  {shown}\n")
        self._stream.flush()
