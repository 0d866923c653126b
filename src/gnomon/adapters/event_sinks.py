"""Event sinks that write lines: readable ones for a console, JSON for a log, records for the log of a host program.

The first two write through a queue and a thread, because the reader of the stream may be slow or gone. Emitting an
event never fails and never waits; lines that cannot be written are counted.
"""

import atexit
import logging
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

#: How many lines may wait in the queue.
_MAX_PENDING_LINES = 1000
#: How long the exit of the program waits for the queue to drain.
_LAST_SECONDS = 1.0


class LineWriter:
    """Writes lines to a stream from a queue, in a thread of its own. Lines that cannot be written are counted."""

    def __init__(self, stream: TextIO, *, most: int = _MAX_PENDING_LINES) -> None:
        self._stream = stream
        self._pending: queue.Queue[str | threading.Event] = queue.Queue(most)
        self._writer: threading.Thread | None = None
        #: How many lines could not be written.
        self.lost = 0

    def add(self, line: str) -> bool:
        """Queue the line; False if the queue is full."""
        if self._writer is None:
            self._begin()
        try:
            self._pending.put_nowait(line)
        except queue.Full:
            return False
        return True

    def flush(self, seconds: float) -> bool:
        """Wait until all lines so far are written or lost; False if that takes longer than `seconds`."""
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
            entry = self._pending.get()
            if isinstance(entry, threading.Event):
                entry.set()
                continue
            try:
                self._write(entry)
            except (OSError, ValueError):  # the disk is full, the reader has left, the stream is closed
                self.lost += 1

    def _write(self, line: str) -> None:
        file = self._descriptor()
        if file is None:
            self._stream.write(line)
            self._stream.flush()
            return
        # Bypass the stream's buffer: data left in it would fail, or block, again when the program exits.
        rest = line.encode(self._stream.encoding, "replace")
        while rest:
            rest = rest[os.write(file, rest) :]

    def _descriptor(self) -> int | None:
        with suppress(OSError, AttributeError):  # a stream in memory
            return self._stream.fileno()
        return None


#: A person can read so many lines a second; the lines above that are only counted.
_LINES_A_SECOND = 20
#: Events that a person waits for: they are shown whatever the rate.
_ALWAYS = frozenset(
    {
        "up",
        "worker_up",
        "policy_serving",
        "policy_stopping",
        "local_access",
        "dashboard_ready",
        "database_gone",
        "stop_asked",
        "stopped",
    }
)
#: Events of lasting conditions, and how often the console repeats them.
_LASTING = frozenset(
    {"policy_fail_open", "store_unavailable", "bus_unavailable", "hints_lost", "keys_not_fetched", "clock_skew"}
)
_REMIND_SECONDS = 15
Facts = Mapping[str, object]


def _number_of(number: object, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _seconds(ms: object) -> str:
    spent = float(ms) if isinstance(ms, int | float) else 0.0
    return f"{spent:.0f} ms" if spent < 1000 else f"{spent / 1000:.1f} s"


def _skew_text(ms: object) -> str:
    skew = ms if isinstance(ms, int) else 0
    return f"{_seconds(abs(skew))} {'ahead of' if skew > 0 else 'behind'}"


def _took(facts: Facts) -> str:
    """The time from the start of the run to the end of the task; for a run of one task, its duration."""
    started, ended = facts.get("started_at"), facts.get("ended_at")
    if not isinstance(started, int) or not isinstance(ended, int):
        return ""
    return f" {'in' if _is_whole(facts) else 'after'} {_seconds(ended - started)}"


def _is_whole(facts: Facts) -> bool:
    return facts.get("step", ONLY_STEP) == ONLY_STEP


def _work(facts: Facts) -> str:
    """The name of the job, with the step if the job is a graph."""
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


def _others(facts: Facts) -> str:
    """How many like it were left out."""
    return f", and {facts['left_out']:,} more" if "left_out" in facts else ""


def _jobs(facts: Facts) -> str:
    return "1 job was" if facts["count"] == 1 else f"{facts['count']} jobs were"


def _names(facts: Facts) -> str:
    """The jobs that the event names, and a mark if there are more."""
    named = str(facts["jobs"])
    return named if named.count(",") + 1 == facts["count"] else f"{named}, …"


def _job_or_run(facts: Facts) -> str:
    return str(facts.get("job") or facts["run"])


def _reconciled(facts: Facts) -> str:
    mark = "!" if facts.get("state") in TERMINAL else "~"
    return f"{mark} {_job_or_run(facts)}: {facts['result']}{_why(facts, ': ')}"


def _counted(facts: Facts) -> str:
    return ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in facts.items())


#: The text for each invariant that is violated.
INVARIANT_MESSAGES = {
    Invariant.NEXT_FIRE.value: "had no next fire",
    Invariant.OWNERS.value: "attempts without a live worker are not ended",
    Invariant.MARKS.value: "ticks are due and no node decides them",
    Invariant.COUNTS.value: "its run counters were wrong",
}
#: The signs with which the lines of a console begin.
_SIGNS = "*+!~- "
#: The console line of each event. Events without one appear in logs only.
EVENT_FORMATS: Mapping[str, Callable[[Facts], str]] = {
    "task_succeeded": lambda f: f"+ {_work(f)}{_took(f)}",
    "task_failed": lambda f: f"! {_work(f)}: {f['result']}{_took(f)}{_why(f, ': ')}",
    "task_waits": _waits,
    "policy_in_force": lambda f: f"version {f['version']} of the policy is in force, by {f['author']}",
    "policy_unreadable": lambda f: f"! version {f['version']} of the policy cannot be read: {f['error']}",
    "task_not_scheduled": lambda f: f"~ {_job_or_run(f)}: {f['reason']}",
    "job.skipped": lambda f: f"- {f['job']}: skipped, {f['reason']}",
    "dead_letter": lambda f: f"! {_job_or_run(f)}: left a dead letter ({f['reason']})",
    "jobs_applied": lambda f: (
        f"* {f['file']}: {f['created']} created, {f['changed']} changed, {f['unchanged']} as before"
    ),
    "job_warning": lambda f: f"~ {f['job']}: {f['warning']}",
    "more_job_warnings": lambda f: f"~ there are {f['count']} more warnings: gnomon jobs validate shows them",
    "jobs_orphaned": lambda f: (
        f"! {_jobs(f)} declared in {f['origin']} before and not now: {_names(f)}; --prune deletes such jobs"
    ),
    "jobs_pruned": lambda f: f"* {_jobs(f)} no longer declared in {f['origin']} and deleted: {_names(f)}",
    "functions_unknown": lambda f: (
        f"! no worker here has the function {f['function']!r} of {f['jobs']}"
        + (f"; did you mean {f['meant']}?" if f["meant"] else "")
    ),
    "jobs_refused": lambda f: f"! {f['error']}",
    "standing_by": lambda f: f"* another process schedules on {f['database']}; standing by",
    "scheduling": lambda f: f"* scheduling on {f['database']}",
    "attempt_ended_by_reconciler": _reconciled,
    "store_unavailable": lambda f: f"! the store is unavailable: {_first_line(f['error'])}",
    "bus_unavailable": lambda f: f"! the message bus is unavailable: {_first_line(f['error'])}",
    "message_put_away": lambda f: f"! a message was moved to GNOMON_DEAD: {_first_line(f['reason'])}{_others(f)}",
    "degraded": lambda f: f"! {f['what']}: continuing without the shared service: {_first_line(f['error'])}",
    "degraded_no_more": lambda f: f"* {f['what']}: the shared service is back",
    "hints_lost": lambda f: f"~ hints cannot be sent, other processes poll instead: {_first_line(f['error'])}",
    "step_failed": lambda f: f"! {f['step']}: {f['error']}",
    "schedule_broken": lambda f: f"! {f['schedule']} cannot be planned: {f['error']}",
    "clock_skew": lambda f: f"! the clock of this machine is {_skew_text(f['skew_ms'])} that of the store",
    "clock_stepped": lambda f: f"* the clock was set by {_seconds(f['by_ms'])}",
    "mark_set_back": lambda f: (
        f"! {f['schedule']}: its ticks were decided {_seconds(f['by_ms'])} ahead of the clock; "
        f"{f['withdrawn']} decisions are withdrawn, {f['decided']} ran and stay"
    ),
    "clock_corrected": lambda f: (
        f"! the clock here was {_skew_text(f['wrong_ms'])} that of the store, and is corrected"
    ),
    "tasks_replayed": lambda f: f"* {f['count']} tasks had been ready for too long and are offered again",
    "run_mended": lambda f: f"* {f['run']} was stuck ({str(f['ailment']).replace('_', ' ')}) and continues",
    "vital_failed": lambda f: f"! {INVARIANT_MESSAGES[str(f['vital'])]}",
    "vital_repaired": lambda f: f"* {f['schedule']}: {INVARIANT_MESSAGES[str(f['vital'])]}; repaired",
    "vital_recovered": lambda f: f"* no longer: {INVARIANT_MESSAGES[str(f['vital'])]}",
    "ping_failed": lambda f: f"! {f['job']}: the ping to {f['url']} failed: {_first_line(f['error'])}",
    "announced": lambda f: f"* {f['job']}: announced to {f['channel']} ({f['moment']})",
    "announcement_delayed": lambda f: (
        f"~ {f['job']}: {f['channel']} did not take the announcement and is tried again: {_first_line(f['error'])}"
    ),
    "announcement_given_up": lambda f: (
        f"! {f.get('job', f['announcement'])}: not announced to {f['channel']}: {_first_line(f['error'])}"
    ),
    "history_cleaned": lambda f: f"* old history was archived and removed: {_counted(f)}",
    "sandbox_incomplete": lambda f: (
        f"! the kernel lacks parts of the sandbox of commands: {f['missing']} (shell.sandbox: {f['sandbox']})"
    ),
    "slots_overrun": lambda f: f"! {f['count']} of {f['slots']} slots are held by tasks that do not stop",
    "result_refused": lambda f: f"! {f['run']}: the result cannot be stored: {_first_line(f['error'])}",
    "foreign_result": lambda f: (
        f"! {f['worker']} reports {f['result']} of {f['task']}, which it does not hold: refused{_others(f)}"
    ),
    "request_refused": lambda f: f"! a request on {f['subject']} was refused: {_first_line(f['reason'])}{_others(f)}",
    "dedup_contradicted": lambda f: (
        f"! {f['processed']} reports marked as processed and {f['in_flight']} marked as in progress were not written:"
        " processing them"
    ),
    "database_gone": lambda f: f"! the database file {f['path']} was moved or deleted: stop and put it back",
    "metrics_shown": lambda f: f"* metrics and probes on http://{f['host']}:{f['port']}",
    "metrics_unavailable": lambda f: f"! {f['error']}",
    "answering": lambda f: f"* answering on {f['address']}",
    "open_to_everybody": lambda f: (
        f"! anyone who can reach {f['address']} may do everything: auth.verify_tokens is false"
    ),
    "closed_to_everybody": lambda f: f"! every request to {f['address']} is refused: auth names no issuer of tokens",
    "audit_broken": lambda f: f"! {f['reason']}: run gnomon audit verify",
    "audit_unsigned": lambda f: f"! the audit trail is not signed: {f['error']}",
    "audit_anchor_failed": lambda f: f"! the signed end of the audit trail cannot be kept: {f['error']}",
    "auth_failed": lambda f: f"! a caller at {f['address']} was not let in: {f['error']}{_others(f)}",
    "request_failed": lambda f: f"! a request failed: {_first_line(f['error'])}{_others(f)}",
    "http_request_refused": lambda f: f"! a request of {f['address']} was refused: {f['cause']}{_others(f)}",
    "handshake_failed": lambda f: f"! a TLS handshake with {f['address']} failed: {f['cause']}{_others(f)}",
    "accept_failed": lambda f: f"! a connection cannot be accepted: {f['cause']}{_others(f)}",
    "connection_limit_reached": lambda f: (
        f"! {f['open']} connections are open, as many as may be:"
        f" the {'new' if f['refused'] else 'longest idle'} one was closed{_others(f)}"
    ),
    "connections_limited": lambda f: (
        f"* at most {f['connections']} connections, not {f['configured']}: few files may be open (ulimit -n)"
    ),
    "up": lambda f: (
        f"gnomon {f['version']} on {f['database']} with {_number_of(f['functions'], 'function')}; Ctrl-C stops"
    ),
    "worker_up": lambda f: (
        f"gnomon {f['version']}: {f['worker']} in pool {f['pool']} on {f['place']}"
        f" with {_number_of(f['functions'], 'function')} and {_number_of(f['slots'], 'slot')}; Ctrl-C stops"
    ),
    "policy_file_read": lambda f: f"* {f['file']} has changed: its rules are in force",
    "policy_file_refused": lambda f: f"! {f['error']}; the last good file stays in force",
    "policy_stopping": lambda f: f"{f['signal']}: open questions are answered; once more to stop at once",
    "policy_serving": lambda f: (
        f"the rules in {f['file']} answer over {f['transport']} on port {f['port']}; Ctrl-C stops"
    ),
    "policy_fail_open": lambda f: (
        f"! tasks run without a ruling (fail-open): the policy kernel is unreachable: {_first_line(f['reason'])}"
    ),
    "nats_not_used": lambda f: (
        f"* tasks come from the database ({f['database']}), not over NATS ({f['origin']}): --nats URL changes that"
    ),
    "tasks_recalled": lambda f: f"* {f['count']} tasks waited for workers that are gone and are assigned again",
    "pools_read": lambda f: f"* {f['file']}: {f['topics']} topics go to {f['pools']} pools",
    "pools_refused": lambda f: f"! {f['error']}",
    "lease_given_up": lambda f: f"! the store was unavailable for too long: {f['count']} attempts are stopped",
    "dashboard_ready": lambda f: (
        f"* the dashboard, signed in once within a minute: {f['link']}"
        if f["link"]
        else f"* the dashboard is at {f['address']}; gnomon dashboard opens it signed in"
    ),
    "local_access": lambda f: f"* a token for the API is in {f['file']}: {f['hint']}",
    "keys_not_fetched": lambda f: f"! the keys of the tokens' issuer cannot be fetched: {_first_line(f['error'])}",
    "key_passed_over": lambda f: f"! a key of the tokens' issuer is not used: {f['kid']} {f['reason']}",
    "stop_asked": lambda f: f"{f['signal']}: running tasks may finish; once more to stop at once",
    "stopped": lambda _: "stopped",
}


class ConsoleEvents:
    """Writes a line for each event that has one; counts those that come too fast or are not read in time."""

    def __init__(self, stream: TextIO, *, beside: Events | None = None) -> None:
        self._lines = LineWriter(stream)
        self._next_sink = beside
        self._second = 0
        self._shown = 0
        self._suppressed = 0
        #: The errors shown in this second: several services may report the same one.
        self._recent_errors: set[str] = set()
        #: When each lasting condition was shown last: services report it again and again until it ends.
        self._lasting: dict[str, int] = {}

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        if self._next_sink is not None:
            self._next_sink.emit(name, **facts)
        formatter = EVENT_FORMATS.get(name)
        if formatter is None:
            return
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._shown = second, 0
            self._recent_errors.clear()
        text = _format_event(name, formatter, facts)
        if name in _LASTING and second - self._lasting.get(name, second - _REMIND_SECONDS) < _REMIND_SECONDS:
            return
        if name not in _ALWAYS and (self._shown >= _LINES_A_SECOND or text in self._recent_errors):
            self._suppressed += 1
            return
        if text.startswith("!"):
            self._recent_errors.add(text)
        if name in _LASTING:
            self._lasting[name] = second
        self._shown += 1
        self._show(text)

    def flush(self, seconds: float = 1.0) -> bool:
        """Wait until all lines so far are written or lost; False if that takes longer than `seconds`."""
        return self._lines.flush(seconds)

    def _show(self, text: str) -> None:
        if self._suppressed and self._lines.add(_stamped(f"… and {self._suppressed:,} more")):
            self._suppressed = 0
        if not self._lines.add(_stamped(text)):
            self._suppressed += 1


def _format_event(name: str, formatter: Callable[[Facts], str], facts: Facts) -> str:
    try:
        return formatter(facts)
    except (KeyError, TypeError, ValueError):
        # A poor line is better than none, and must not end the service that emitted the event.
        return f"? {name}"


def _stamped(text: str) -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}  {_printable(text)}\n"


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class LoggerEvents:
    """Logs each event to a logger of the standard library, so that the host program decides where it goes.

    A record has the readable line as its message, and `event` and `facts` as attributes.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        #: How many events could not be logged.
        self.lost = 0

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        level = logging.WARNING if name in WARNINGS else logging.INFO
        try:
            if self._logger.isEnabledFor(level):
                self._logger.log(level, "%s", _log_text(name, facts), extra={"event": name, "facts": facts})
        except Exception:  # noqa: BLE001 - a handler that fails, however it was configured, stops no scheduler
            self.lost += 1


def _log_text(name: str, facts: Facts) -> str:
    formatter = EVENT_FORMATS.get(name)
    if formatter is None:
        return _printable(" ".join([name, *(f"{fact}={value}" for fact, value in facts.items())]))
    # The sign at the start of a line is for a console; a record has a level.
    return _printable(_format_event(name, formatter, facts).lstrip(_SIGNS))


#: How many lines may wait in the queue. Every event is a line, and thousands of tasks may end in a second.
_MAX_PENDING_EVENTS = 10_000


class JsonEvents:
    """Writes a JSON line for each event, and counts the lines that the reader does not take in time."""

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
        """Wait until all lines so far are written or lost; False if that takes longer than `seconds`."""
        return self._lines.flush(seconds)


def _line(name: str, facts: dict[str, object]) -> str:
    header: dict[str, object] = {
        "time": instant_of(time.time_ns() // 1_000_000),
        "level": "warning" if name in WARNINGS else "info",
        "event": name,
    }
    try:
        return msgspec.json.encode({**header, **facts, **header}, enc_hook=str).decode() + "\n"
    except (TypeError, ValueError):  # a fact that cannot be encoded is shown by its repr
        plain = {fact: repr(value) for fact, value in facts.items()}
        return msgspec.json.encode({**header, **plain, **header}).decode("utf-8", "replace") + "\n"
