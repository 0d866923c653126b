"""What tasks say while they run: bounded, without secrets, and each in its own log."""

import logging
import re
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from gnomon.core.model import LogLine

LONGEST_LINE = 2_000
_LONGEST_LEVEL = 50
#: What no database keeps as text: the end mark of some, and halves of characters.
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
#: Makes a text fit to leave the runner.
Redact = Callable[[str], str]


def no_redaction(text: str) -> str:
    """The text of a task that was given no secrets."""
    return text


class TaskLog:
    """The lines of one attempt. What is said after it was taken is dropped."""

    __slots__ = ("_limit", "_lines", "_lock", "_on_line", "_taken", "redact")

    def __init__(self, limit: int, hear: Callable[[LogLine], Any] | None = None) -> None:
        self._limit = limit
        self._on_line = hear
        self._lines: list[LogLine] = []
        self._lock = threading.Lock()
        self._taken = False
        self.redact: Redact = no_redaction

    def add(self, level: str, text: str, at: int | None = None) -> None:
        """Keep the line, cut where it is too long; a last line says that there were more."""
        if self._taken or len(self._lines) > self._limit:
            return
        text = shortened(storable(self.redact(str(text))), LONGEST_LINE)
        level = shortened(storable(self.redact(str(level))), _LONGEST_LEVEL)
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

    def take(self) -> tuple[LogLine, ...]:
        """All lines, for good."""
        with self._lock:
            self._taken = True
            return tuple(self._lines)


def storable(text: str) -> str:
    """The text with every character that cannot be stored written as an escape."""
    return _UNSTORABLE.sub(lambda found: ascii(found[0])[1:-1], text)


def shortened(text: str, limit: int) -> str:
    """The text with a mark at its end if it had to be cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


#: The log of the body that runs here; what it starts inherits it.
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
    """A logger that is no part of the host's tree."""
    logger = logging.Logger(_OWN_NAME, logging.DEBUG)  # noqa: LOG001 - one for each attempt, gone with it
    logger.addHandler(_TaskLogHandler(log))
    return logger


class LogCapture:
    """Copies what bodies log with the standard library to the logs of their tasks.

    It stands where records are made: a handler of the root logger would miss what does not get there, would come after
    others have written the secrets down, and would keep `logging.basicConfig` from doing anything.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._made_by: Callable[..., logging.LogRecord] = logging.LogRecord

    def install(self) -> None:
        """Begin, unless someone else has."""
        with self._lock:
            self._users += 1
            if self._users == 1 and logging.getLogRecordFactory() != self._made:
                self._made_by = logging.getLogRecordFactory()
                logging.setLogRecordFactory(self._made)

    def remove(self) -> None:
        """Stop, unless someone else still needs it."""
        with self._lock:
            self._users -= 1
            if self._users == 0 and logging.getLogRecordFactory() == self._made:
                logging.setLogRecordFactory(self._made_by)

    def _made(self, name: str | None, *arguments: Any, **named: Any) -> logging.LogRecord:  # noqa: ANN401 - a factory's
        record = self._made_by(name, *arguments, **named)
        log = CURRENT.get()
        # Without a name it is the copy of a record from elsewhere; under ours it is kept by its handler.
        if log is not None and name not in (None, _OWN_NAME):
            _add_record(log, record)
            if log.redact is not no_redaction:
                _redact_record(log, record)
        return record


#: The one of this process.
CAPTURE = LogCapture()
