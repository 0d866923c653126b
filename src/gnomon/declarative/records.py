"""What is kept of a task, how a run changes it, and how it is read back.

A record is what the state file holds, field by field, under the names of the specification. Instants are milliseconds
since 1970, UTC. That a task is running is said by `schedulerIdentifier`, never inferred from times: clocks may be set.
"""

from collections.abc import Iterable
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

#: Beyond any instant or span that a datetime or timedelta can say, and within what the file can hold.
_LARGEST = 1 << 62


class TaskRecord(Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True):
    """One task as it is kept."""

    name: str
    cron_expression: str
    retry_delay_ms: int
    #: When its name was registered first. Occurrences before that are no business of the scheduler.
    registered_at: int
    #: The minute of its registration matched, and it has not been started yet.
    due_at_registration: bool = False
    last_attempt_at: int | None = None
    last_success_at: int | None = None
    last_failure_at: int | None = None
    #: The task has failed and waits for this.
    pending_retry_until: int | None = None
    #: The task is running, under the scheduler of this identifier.
    scheduler_identifier: str | None = None

    @property
    def settled_at(self) -> int:
        """Occurrences later than this have not been answered by a start."""
        return self.registered_at if self.last_attempt_at is None else self.last_attempt_at


def started(record: TaskRecord, *, at: int, identifier: str) -> TaskRecord:
    """The task is invoked: whatever it was waiting for is answered."""
    return replace(
        record,
        due_at_registration=False,
        last_attempt_at=at,
        pending_retry_until=None,
        scheduler_identifier=identifier,
    )


def succeeded(record: TaskRecord, *, at: int) -> TaskRecord:
    """The callback returned."""
    return replace(record, last_success_at=at, pending_retry_until=None, scheduler_identifier=None)


def failed(record: TaskRecord, *, at: int) -> TaskRecord:
    """The callback raised."""
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
    """The record that was kept, or the TaskTryDeserializeError that says what is wrong with it."""
    try:
        record = _decoder.decode(text)  # type: ignore[arg-type]  # whatever the file holds: the next lines look at it
    except (msgspec.DecodeError, TypeError, UnicodeError, RecursionError):
        record = None
    # A field that says null was not written by us: what is not known is left out.
    if record is None or not isinstance(text, str) or "null" in text or not _is_consistent(record):
        _raise_decode_error(text)
    if record is None:
        raise TaskInvalidStructureError(text, "it is not what was written")
    return record


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
    """Find the first thing wrong, in the order of the fields."""
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


def _read(text: object) -> Any:  # noqa: ANN401 - whatever somebody put there
    try:
        return msgspec.json.decode(text)  # type: ignore[call-overload]  # it may be anything, which is the question
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


def read_records(rows: Iterable[tuple[int, object]]) -> dict[str, StoredRecord]:
    """Every kept task by its name, or the TaskTryDeserializeError of the first that cannot be believed."""
    found: dict[str, StoredRecord] = {}
    expressions: set[str] = set()
    for index, (number, text) in enumerate(rows):
        try:
            record = decode(text)
            if record.name in found:
                raise TaskInvalidValueError("name", record.name, "another record has the same")
            if record.cron_expression not in expressions:
                _check_expression(record.cron_expression)
                expressions.add(record.cron_expression)
        except TaskTryDeserializeError as error:
            error.record_index = index
            error.add_note(f"in record {index} of the state")
            raise
        found[record.name] = StoredRecord(number, record)
    return found


def _check_expression(expression: str) -> None:
    try:
        parse(expression)
    except InvalidCronExpressionError as error:
        reason = f"{error.details['field']} field {error.details['reason']}"
        raise TaskInvalidValueError("cronExpression", expression, reason) from error
