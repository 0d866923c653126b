"""The log lines of tasks: bounded, without secrets, and one log per attempt."""

import logging
import re
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from gnomon.core.model import LogLine
from gnomon.errors import truncate

LONGEST_LINE = 2_000
_LONGEST_LEVEL = 50
#: Characters that databases reject in text: NUL and lone surrogates.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
#: Removes secrets from a text.
Redact = Callable[[str], str]


def no_redaction(text: str) -> str:
    """The text unchanged, for tasks without secrets."""
    return text


class TaskLog:
    """The lines of one attempt. Lines that arrive after `take` are dropped."""

    __slots__ = ("_kept", "_limit", "_lines", "_lock", "_on_line", "_redact", "_taken")

    def __init__(self, limit: int, on_line: Callable[[LogLine], Any] | None = None) -> None:
        self._limit = limit
        self._on_line = on_line
        self._lines: list[LogLine] = []
        self._lock = threading.Lock()
        self._taken = self._kept = False
        self._redact: Redact = no_redaction

    @property
    def redact(self) -> Redact:
        """Replaces the secrets of the attempt in a text."""
        return self._redact

    def redact_with(self, redact: Redact) -> None:
        """Replace secrets in all lines from now on."""
        self._redact = redact

    def add(self, level: str, text: str, at: int | None = None) -> None:
        """Add a line, cut to the maximum length. Beyond the limit one last line says that lines are missing."""
        if self._taken or len(self._lines) > self._limit:
            return
        text = truncate(storable(self.redact(str(text))), LONGEST_LINE)
        level = truncate(storable(self.redact(str(level))), _LONGEST_LEVEL)
        line = LogLine(time.time_ns() // 1_000_000 if at is None else at, level, text)
        with self._lock:
            kept = len(self._lines)
            if self._taken or kept > self._limit:
                return
            if kept == self._limit:
                line = LogLine(line.at, "warning", f"[only the first {self._limit} lines are kept]")
            self._lines.append(line)
            if self._on_line is not None:
                self._on_line(line)

    @property
    def has_lines(self) -> bool:
        """Whether it has any line."""
        return bool(self._lines)

    @property
    def was_kept(self) -> bool:
        """Whether some lines were kept before it was closed."""
        return self._kept

    def lines_to_keep(self, place: int) -> tuple[LogLine, ...] | None:
        """The lines so far from this place on, which are kept while the attempt goes on; None once it is closed."""
        with self._lock:
            if self._taken:
                return None
            found = tuple(self._lines[place:])
            self._kept = self._kept or bool(found)
            return found

    def take(self) -> tuple[LogLine, ...]:
        """Return all lines and close the log."""
        with self._lock:
            self._taken = True
            return tuple(self._lines)


def storable(text: str) -> str:
    """The text with every character that cannot be stored written as an escape."""
    return _UNSTORABLE.sub(lambda found: ascii(found[0])[1:-1], text)


#: The log of the function that runs in this context; threads and tasks with a copy of the context share it.
CURRENT: ContextVar[TaskLog | None] = ContextVar("gnomon_task_log", default=None)


class _TaskLogHandler(logging.Handler):
    """Writes every record to one log."""

    def __init__(self, log: TaskLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        _add_record(self._log, record)


def _add_record(log: TaskLog, record: logging.LogRecord) -> None:
    try:
        text = _FORMATTER.format(record)
    except Exception as error:  # noqa: BLE001 - arguments that do not fit the message, or cannot be shown
        text = f"[a record that cannot be shown: {type(error).__name__}] {record.msg!r:.200}"
    log.add(record.levelname.lower(), text, int(record.created * 1000))


def _redact_record(log: TaskLog, record: logging.LogRecord) -> None:
    try:
        record.msg = log.redact(record.getMessage())
    except Exception:  # noqa: BLE001 - the same as above
        record.msg = "[a record that cannot be shown]"
    record.args = None
    if record.exc_info:
        record.exc_text = log.redact(_FORMATTER.formatException(record.exc_info))


_OWN_NAME = "gnomon.task"
_FORMATTER = logging.Formatter("%(message)s")


def logger_into(log: TaskLog) -> logging.Logger:
    """A logger outside of the logger tree of the host program."""
    logger = logging.Logger(_OWN_NAME, logging.DEBUG)  # noqa: LOG001 - one for each attempt, gone with it
    logger.addHandler(_TaskLogHandler(log))
    return logger


class LogCapture:
    """Copies records that functions log with the standard library to the logs of their tasks.

    It replaces the record factory. A handler of the root logger would miss records that do not propagate, would run
    after other handlers have written the secrets, and would turn `logging.basicConfig` into a no-op.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._made_by: Callable[..., logging.LogRecord] = logging.LogRecord

    def install(self) -> None:
        """Install the record factory for the first user."""
        with self._lock:
            self._users += 1
            if self._users == 1 and logging.getLogRecordFactory() != self._made:
                self._made_by = logging.getLogRecordFactory()
                logging.setLogRecordFactory(self._made)

    def remove(self) -> None:
        """Restore the previous record factory after the last user."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and logging.getLogRecordFactory() == self._made:
                logging.setLogRecordFactory(self._made_by)

    def _made(self, name: str | None, *arguments: Any, **named: Any) -> logging.LogRecord:  # noqa: ANN401 - a factory's
        record = self._made_by(name, *arguments, **named)
        log = CURRENT.get()
        # A record without a name is a copy (makeLogRecord); `ctx.logger` has a handler that adds its own records.
        if log is not None and name not in (None, _OWN_NAME):
            _add_record(log, record)
            if log.redact is not no_redaction:
                _redact_record(log, record)
        return record


#: The capture of this process: the record factory is global.
CAPTURE = LogCapture()
