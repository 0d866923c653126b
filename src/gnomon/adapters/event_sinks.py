"""Lines for a reader who may be slow, or gone: whoever writes them neither fails nor waits."""

import atexit
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TextIO

import msgspec

from gnomon.adapters.structured_log import WARNINGS
from gnomon.core.instants import instant_of
from gnomon.core.invariants import Invariant
from gnomon.core.runs.states import TERMINAL
from gnomon.core.runs.workflow import ONLY_STEP
from gnomon.ports.runtime import Events

#: How many lines may wait for the reader.
_MAX_PENDING_LINES = 1000
#: How long the end of the program waits for the reader.
_LAST_SECONDS = 1.0


class LineWriter:
    """A stream behind a queue and a thread of its own. What cannot be written is dropped and counted."""

    def __init__(self, stream: TextIO, *, most: int = _MAX_PENDING_LINES) -> None:
        self._stream = stream
        self._pending: queue.Queue[str | threading.Event] = queue.Queue(most)
        self._writer: threading.Thread | None = None
        #: How many lines could not be written.
        self.lost = 0

    def add(self, line: str) -> bool:
        """Whether the line will be written, or at least tried; False if too many wait already."""
        if self._writer is None:
            self._begin()
        try:
            self._pending.put_nowait(line)
        except queue.Full:
            return False
        return True

    def flush(self, seconds: float) -> bool:
        """Whether all lines so far were written, or lost; False if that would take longer."""
        if self._writer is None:
            return True
        reached = threading.Event()
        try:
            self._pending.put(reached, timeout=seconds)
        except queue.Full:
            return False
        return reached.wait(seconds)

    def _begin(self) -> None:
        self._writer = threading.Thread(target=self._writer_loop, name="gnomon-lines", daemon=True)
        self._writer.start()
        atexit.register(self.flush, _LAST_SECONDS)

    def _writer_loop(self) -> None:
        while True:
            next_one = self._pending.get()
            if isinstance(next_one, threading.Event):
                next_one.set()
                continue
            try:
                self._write(next_one)
            except (OSError, ValueError):  # the disk is full, the reader has left, the stream is closed
                self.lost += 1

    def _write(self, line: str) -> None:
        file = self._descriptor()
        if file is None:
            self._stream.write(line)
            self._stream.flush()
            return
        # Past the stream's buffer: what stays in there would fail, or wait, once more when the program ends.
        rest = line.encode(self._stream.encoding, "replace")
        while rest:
            rest = rest[os.write(file, rest) :]

    def _descriptor(self) -> int | None:
        with suppress(OSError, AttributeError):  # a stream in memory
            return self._stream.fileno()
        return None


#: So many lines a second can be read; what comes beyond that is counted.
_LINES_A_SECOND = 20
#: What a person waits for, however much else there is to read.
_ALWAYS = frozenset({"up", "worker_up", "local_access", "database_gone", "stop_asked", "stopped"})
#: What is not over when it is told, and how soon it is told again.
_LASTING = frozenset({"store_unavailable", "bus_unavailable", "hints_lost", "keys_not_fetched", "clock_skew"})
_REMIND_SECONDS = 15
Facts = Mapping[str, object]


def _seconds(ms: object) -> str:
    spent = float(ms) if isinstance(ms, int | float) else 0.0
    return f"{spent:.0f} ms" if spent < 1000 else f"{spent / 1000:.1f} s"


def _skew_text(ms: object) -> str:
    skew = ms if isinstance(ms, int) else 0
    return f"{_seconds(abs(skew))} {'ahead of' if skew > 0 else 'behind'}"


def _took(facts: Facts) -> str:
    """How long after the start of its run it ended: if it is all of the run, that is how long it took."""
    started, ended = facts.get("started_at"), facts.get("ended_at")
    if not isinstance(started, int) or not isinstance(ended, int):
        return ""
    return f" {'in' if _is_whole(facts) else 'after'} {_seconds(ended - started)}"


def _is_whole(facts: Facts) -> bool:
    return facts.get("step", ONLY_STEP) == ONLY_STEP


def _work(facts: Facts) -> str:
    """The job; of a graph, which step of it."""
    return str(facts["job"]) if _is_whole(facts) else f"{facts['job']}, step {facts['step']}"


def _first_line(text: object) -> str:
    return str(text or "").partition("\n")[0][:200]


def _waits(facts: Facts) -> str:
    until = facts.get("available_at")
    ended = facts.get("ended_at")
    later = f" again in {_seconds(until - ended)}" if isinstance(until, int) and isinstance(ended, int) else ""
    return f"~ {_work(facts)}: {facts['result']}{_why(facts, ', ')};{later}"


def _why(facts: Facts, before: str) -> str:
    why = _first_line(facts.get("error"))
    return before + why if why else ""


def _job_or_run(facts: Facts) -> str:
    return str(facts.get("job") or facts["run"])


def _reconciled(facts: Facts) -> str:
    mark = "!" if facts.get("state") in TERMINAL else "~"
    return f"{mark} {_job_or_run(facts)}: {facts['result']}{_why(facts, ': ')}"


def _counted(facts: Facts) -> str:
    return ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in facts.items())


#: What is wrong if one of these fails.
INVARIANT_MESSAGES = {
    Invariant.NEXT_FIRE.value: "had no next fire",
    Invariant.OWNERS.value: "attempts are in the hands of nobody, and nobody ends them",
    Invariant.MARKS.value: "ticks are due and nobody decides them",
    Invariant.COUNTS.value: "its runs were not counted as they are",
}
#: What each event says. Those that are not here are for logs.
EVENT_FORMATS: Mapping[str, Callable[[Facts], str]] = {
    "task_succeeded": lambda f: f"+ {_work(f)}{_took(f)}",
    "task_failed": lambda f: f"! {_work(f)}: {f['result']}{_took(f)}{_why(f, ': ')}",
    "task_waits": _waits,
    "task_not_scheduled": lambda f: f"~ {_job_or_run(f)}: {f['reason']}",
    "job.skipped": lambda f: f"- {f['job']}: skipped, {f['reason']}",
    "dead_letter": lambda f: f"! {_job_or_run(f)}: left a dead letter ({f['reason']})",
    "jobs_applied": lambda f: (
        f"* {f['file']}: {f['created']} created, {f['changed']} changed, {f['unchanged']} as before"
    ),
    "jobs_refused": lambda f: f"! {f['error']}",
    "standing_by": lambda f: f"* another process schedules on {f['database']}; standing by",
    "scheduling": lambda f: f"* scheduling on {f['database']}",
    "attempt_ended_by_reconciler": _reconciled,
    "store_unavailable": lambda f: f"! the store is away: {_first_line(f['error'])}",
    "bus_unavailable": lambda f: f"! the way to workers is away: {_first_line(f['error'])}",
    "message_put_away": lambda f: f"! a message is kept in GNOMON_DEAD: {_first_line(f['reason'])}",
    "degraded": lambda f: f"! {f['what']}: going on without what is shared: {_first_line(f['error'])}",
    "degraded_no_more": lambda f: f"* {f['what']}: shared again",
    "hints_lost": lambda f: f"~ others cannot be told, and look by themselves: {_first_line(f['error'])}",
    "step_failed": lambda f: f"! {f['step']}: {f['error']}",
    "schedule_broken": lambda f: f"! {f['schedule']} cannot be planned: {f['error']}",
    "clock_skew": lambda f: f"! the clock of this machine is {_skew_text(f['skew_ms'])} that of the store",
    "clock_stepped": lambda f: f"* the clock was set by {_seconds(f['by_ms'])}",
    "clock_corrected": lambda f: f"! the clock here is {_skew_text(f['wrong_ms'])} that of the others, which counts",
    "tasks_replayed": lambda f: f"* {f['count']} tasks had been ready for long and are offered again",
    "run_mended": lambda f: f"* {f['run']} waited in vain ({str(f['ailment']).replace('_', ' ')}) and goes on",
    "vital_failed": lambda f: f"! {INVARIANT_MESSAGES[str(f['vital'])]}",
    "vital_repaired": lambda f: f"* {f['schedule']}: {INVARIANT_MESSAGES[str(f['vital'])]}; mended",
    "vital_recovered": lambda f: f"* no longer: {INVARIANT_MESSAGES[str(f['vital'])]}",
    "ping_failed": lambda f: f"! {f['job']}: {f['url']} was called in vain: {_first_line(f['error'])}",
    "cleaning_off": lambda f: f"* old history is kept: {f['reason']}",
    "history_cleaned": lambda f: f"* old history was archived and removed: {_counted(f)}",
    "slots_overrun": lambda f: f"! {f['count']} of {f['slots']} slots are taken by what does not stop",
    "result_refused": lambda f: f"! {f['run']}: what came of it cannot be kept: {_first_line(f['error'])}",
    "database_gone": lambda f: f"! the database file {f['path']} was moved or deleted: stop and put it back",
    "metrics_shown": lambda f: f"* metrics and probes on http://{f['host']}:{f['port']}",
    "metrics_unavailable": lambda f: f"! {f['error']}",
    "answering": lambda f: f"* answering on {f['address']}",
    "open_to_everybody": lambda f: f"! whoever can reach {f['address']} may do everything: auth.verify_tokens is false",
    "closed_to_everybody": lambda f: f"! nobody is let in at {f['address']}: auth names nobody who issues tokens",
    "request_failed": lambda f: f"! a request failed: {_first_line(f['error'])}",
    "up": lambda f: f"gnomon {f['version']} on {f['database']} with {f['functions']} functions; Ctrl-C stops",
    "worker_up": lambda f: (
        f"gnomon {f['version']}: {f['worker']} in pool {f['pool']} on {f['place']}"
        f" with {f['functions']} functions and {f['slots']} slots; Ctrl-C stops"
    ),
    "nats_not_used": lambda f: (
        f"* tasks come from the database ({f['database']}), not over NATS ({f['origin']}): --nats URL changes that"
    ),
    "tasks_recalled": lambda f: f"* {f['count']} tasks waited for workers that are gone and are placed again",
    "pools_read": lambda f: f"* {f['file']}: {f['topics']} topics go to {f['pools']} pools",
    "pools_refused": lambda f: f"! {f['error']}",
    "lease_given_up": lambda f: f"! the store was away for too long: {f['count']} attempts are stopped",
    "local_access": lambda f: f"* a token for the API is in {f['file']}: {f['hint']}",
    "keys_not_fetched": lambda f: f"! the keys of the tokens' issuer cannot be had: {_first_line(f['error'])}",
    "key_passed_over": lambda f: f"! a key of the tokens' issuer is not used: {f['kid']} {f['reason']}",
    "stop_asked": lambda f: f"{f['signal']}: what runs may finish; once more to stop at once",
    "stopped": lambda _: "stopped",
}


class ConsoleEvents:
    """Writes a line for each event that has one, and counts what would scroll by too fast or is not read."""

    def __init__(self, stream: TextIO, *, beside: Events | None = None) -> None:
        self._lines = LineWriter(stream)
        self._next_sink = beside
        self._second = 0
        self._told = 0
        self._suppressed = 0
        #: What has gone wrong in this second: many may stumble over the same, and say the same of it.
        self._complaints: set[str] = set()
        #: What goes on, and when it was told last: it is told by each who stumbles over it until it ends.
        self._lasting: dict[str, int] = {}

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        if self._next_sink is not None:
            self._next_sink.emit(name, **facts)
        say = EVENT_FORMATS.get(name)
        if say is None:
            return
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._told = second, 0
            self._complaints.clear()
        text = _format_event(name, say, facts)
        if name in _LASTING and second - self._lasting.get(name, second - _REMIND_SECONDS) < _REMIND_SECONDS:
            return
        if name not in _ALWAYS and (self._told >= _LINES_A_SECOND or text in self._complaints):
            self._suppressed += 1
            return
        if text.startswith("!"):
            self._complaints.add(text)
        if name in _LASTING:
            self._lasting[name] = second
        self._told += 1
        self._tell(text)

    def flush(self, seconds: float = 1.0) -> bool:
        """Whether all that was said is written, or was lost; False if that would take longer."""
        return self._lines.flush(seconds)

    def _tell(self, text: str) -> None:
        if self._suppressed and self._lines.add(_stamped(f"… and {self._suppressed:,} more")):
            self._suppressed = 0
        if not self._lines.add(_stamped(text)):
            self._suppressed += 1


def _format_event(name: str, say: Callable[[Facts], str], facts: Facts) -> str:
    try:
        return say(facts)
    except (KeyError, TypeError, ValueError):
        # Told badly is better than not told, and much better than ending the service that told it.
        return f"? {name}"


def _stamped(text: str) -> str:
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return f"{datetime.now().astimezone():%H:%M:%S}  {shown}\n"


#: How many lines may wait to be written. Every event is one, and thousands of tasks may end in a second.
_MAX_PENDING_EVENTS = 10_000


class JsonEvents:
    """Writes a line for each event, and counts what is not taken in time: nobody is waited for."""

    def __init__(self, stream: TextIO, *, most: int = _MAX_PENDING_EVENTS) -> None:
        self._lines = LineWriter(stream, most=most)
        self._suppressed = 0

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        if self._suppressed and self._lines.add(_line("lines_lost", {"count": self._suppressed})):
            self._suppressed = 0
        if not self._lines.add(_line(name, facts)):
            self._suppressed += 1

    def flush(self, seconds: float = 1.0) -> bool:
        """Whether all that was said is written, or was lost; False if that would take longer."""
        return self._lines.flush(seconds)


def _line(name: str, facts: dict[str, object]) -> str:
    said: dict[str, object] = {
        "time": instant_of(time.time_ns() // 1_000_000),
        "level": "warning" if name in WARNINGS else "info",
        "event": name,
    }
    try:
        return msgspec.json.encode({**said, **facts, **said}, enc_hook=str).decode() + "\n"
    except (TypeError, ValueError):  # a fact that is no data at all is told as it looks
        plain = {fact: repr(value) for fact, value in facts.items()}
        return msgspec.json.encode({**said, **plain, **said}).decode("utf-8", "replace") + "\n"
