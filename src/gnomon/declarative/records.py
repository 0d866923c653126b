"""The persisted record of a task: its fields, how a run changes them, and how they are encoded and validated.

The fields have the names of the specification. Instants are milliseconds since 1970, UTC. A task is running if it has a
`schedulerIdentifier`; this is never inferred from times, since clocks may be set.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.declarative.cron import parse
from gnomon.declarative.errors import (
    InvalidCronExpressionError,
    TaskInvalidStructureError,
    TaskInvalidTypeError,
    TaskInvalidValueError,
    TaskMissingFieldError,
    TaskTryDeserializeError,
)

#: Larger than any datetime or timedelta in milliseconds, and small enough for a SQLite integer.
_LARGEST = 1 << 62


class TaskRecord(Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True):
    """The persisted state of one task."""

    name: str
    cron_expression: str
    retry_delay_ms: int
    #: When its name was first registered. Earlier occurrences are ignored.
    registered_at: int
    #: Whether the minute of its registration matched and it has not been started yet.
    due_at_registration: bool = False
    last_attempt_at: int | None = None
    last_success_at: int | None = None
    last_failure_at: int | None = None
    #: The instant of the retry after a failure.
    pending_retry_until: int | None = None
    #: The scheduler that runs the task; None if it is not running.
    scheduler_identifier: str | None = None

    @property
    def settled_at(self) -> int:
        """The last start, or else the registration. Only later occurrences are still owed.

        Another program may have written an end without a start: then the task started when it ended.
        """
        if self.last_attempt_at is not None:
            return self.last_attempt_at
        ends = [at for at in (self.last_success_at, self.last_failure_at) if at is not None]
        return max(ends, default=self.registered_at)


def started(record: TaskRecord, *, at: int, identifier: str) -> TaskRecord:
    """The record at the start of a run, which settles every earlier occurrence and retry."""
    return replace(
        record,
        due_at_registration=False,
        last_attempt_at=at,
        pending_retry_until=None,
        scheduler_identifier=identifier,
    )


def succeeded(record: TaskRecord, *, at: int) -> TaskRecord:
    """The record after the callback returned."""
    return replace(record, last_success_at=at, pending_retry_until=None, scheduler_identifier=None)


def failed(record: TaskRecord, *, at: int) -> TaskRecord:
    """The record after the callback raised."""
    retry_at = at + record.retry_delay_ms
    return replace(record, last_failure_at=at, pending_retry_until=retry_at, scheduler_identifier=None)


# ---- to and from bytes ---------------------------------------------------------------------------

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(TaskRecord)
_REQUIRED = {"name": "string", "cronExpression": "string", "retryDelayMs": "integer", "registeredAt": "integer"}
_OPTIONAL = {
    "dueAtRegistration": "boolean",
    "lastAttemptAt": "integer",
    "lastSuccessAt": "integer",
    "lastFailureAt": "integer",
    "pendingRetryUntil": "integer",
    "schedulerIdentifier": "string",
}
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def encode(record: TaskRecord) -> str:
    """The record as JSON."""
    return _encoder.encode(record).decode()


def decode(text: object) -> TaskRecord:
    """The record; a TaskTryDeserializeError says what is wrong with an invalid one."""
    try:
        record = _decoder.decode(text)  # type: ignore[arg-type]  # the column may hold any type: checked below
    except (msgspec.DecodeError, TypeError, UnicodeError, RecursionError):
        record = None
    # Gnomon omits unknown fields and never writes null: a record with null needs the slow check.
    if record is None or not isinstance(text, str) or "null" in text or not _is_consistent(record):
        _raise_decode_error(text)
    if record is None:
        raise TaskInvalidStructureError(text, "it does not match what was written")
    return record


def text_of(stored: object) -> str:
    """The text of a readable record as it is stored: another program may have written its bytes."""
    return stored.decode() if isinstance(stored, bytes) else str(stored)


def _is_consistent(record: TaskRecord) -> bool:
    times = (
        record.registered_at,
        record.last_attempt_at,
        record.last_success_at,
        record.last_failure_at,
        record.pending_retry_until,
    )
    if any(at is not None and not -_LARGEST < at < _LARGEST for at in times):
        return False
    if record.scheduler_identifier is not None and record.last_attempt_at is None:
        return False
    return bool(record.name) and 0 <= record.retry_delay_ms < _LARGEST


def _raise_decode_error(text: object) -> None:
    """Raise the error of the first invalid field, in the order of the fields."""
    value = _read(text)
    if not isinstance(value, dict):
        raise TaskInvalidStructureError(value, f"an object was expected, not {_type_of(value)}")
    for field, expected in _REQUIRED.items():
        if field not in value:
            raise TaskMissingFieldError(field)
        _check_type(field, value[field], expected)
        _check_value(field, value[field])
    for field, expected in _OPTIONAL.items():
        if field in value:
            _check_type(field, value[field], expected)
            _check_value(field, value[field])
    if "schedulerIdentifier" in value and "lastAttemptAt" not in value:
        raise TaskMissingFieldError("lastAttemptAt")


def _read(text: object) -> Any:  # noqa: ANN401 - any JSON
    try:
        return msgspec.json.decode(text)  # type: ignore[call-overload]  # a text is not certain: TypeError is caught
    except (msgspec.DecodeError, TypeError, UnicodeError, RecursionError):
        raise TaskInvalidStructureError(text, "it is not JSON") from None


def _check_type(field: str, value: object, expected: str) -> None:
    actual = _type_of(value)
    if actual != expected:
        raise TaskInvalidTypeError(field, value, expected, actual)


def _check_value(field: str, value: object) -> None:
    if value == "" and field == "name":
        raise TaskInvalidValueError(field, value, "must not be empty")
    if field == "retryDelayMs" and isinstance(value, int) and value < 0:
        raise TaskInvalidValueError(field, value, "must be non-negative")
    if isinstance(value, int) and not -_LARGEST < value < _LARGEST:
        raise TaskInvalidValueError(field, value, "is beyond the calendar")


def _type_of(value: object) -> str:
    return "null" if value is None else _TYPES.get(type(value), type(value).__name__)


class StoredRecord(NamedTuple):
    """A record and the number of its row."""

    number: int
    record: TaskRecord


class RecordReader:
    """Reads the rows of a state one after another. No two records have the same name."""

    def __init__(self) -> None:
        self.found: dict[str, StoredRecord] = {}
        self._expressions: set[str] = set()

    def read(self, index: int, number: int, text: object) -> None:
        """Add the record of a row to those found; raise its TaskTryDeserializeError if it is invalid."""
        try:
            record = decode(text)
            if record.name in self.found:
                raise TaskInvalidValueError("name", record.name, "another record has the same")
            if record.cron_expression not in self._expressions:
                _check_expression(record.cron_expression)
                self._expressions.add(record.cron_expression)
        except TaskTryDeserializeError as error:
            error.record_index = index
            error.add_note(f"in record {index} of the state")
            raise
        self.found[record.name] = StoredRecord(number, record)


def read_records(rows: Iterable[tuple[int, object]]) -> dict[str, StoredRecord]:
    """All persisted tasks by name; raises the TaskTryDeserializeError of the first invalid record."""
    reader = RecordReader()
    for index, (number, text) in enumerate(rows):
        reader.read(index, number, text)
    return reader.found


def check_records(rows: Iterable[tuple[int, object]]) -> Iterator[tuple[int, int, object, TaskTryDeserializeError]]:
    """The index, number, text and error of every invalid record."""
    reader = RecordReader()
    for index, (number, text) in enumerate(rows):
        try:
            reader.read(index, number, text)
        except TaskTryDeserializeError as error:
            yield index, number, text, error


def _check_expression(expression: str) -> None:
    try:
        parse(expression)
    except InvalidCronExpressionError as error:
        reason = f"{error.details['field']} field {error.details['reason']}"
        raise TaskInvalidValueError("cronExpression", expression, reason) from error
