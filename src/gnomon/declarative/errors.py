"""Every error of the declarative scheduler: the names, messages and details that its specification lists.

SchedulerError
├── InvalidArgumentError                          an argument of a Scheduler is invalid
├── RegistrationsNotArrayError, RegistrationShapeError, InvalidRegistrationError
├── ScheduleDuplicateTaskError, NegativeRetryDelayError, CronExpressionInvalidError
├── SchedulerAlreadyActiveError
├── InvalidCronExpressionError, FieldParseError   an expression cannot be parsed
├── CronCalculationError                          an expression has no further occurrence
├── TaskTryDeserializeError                       a persisted record is invalid
│   ├── TaskMissingFieldError, TaskInvalidTypeError
│   └── TaskInvalidValueError, TaskInvalidStructureError
├── StopWithinTaskError                           a task waits for its own end
├── StateInUseError                               another scheduler uses the state
├── StateForeignError                             the file belongs to another program or a newer version
└── StateUnavailableError                         the state cannot be read or written

A message never contains a path or the text of a foreign error: the path of the state file is in `details["file"]`,
and the wrapped error in `details["cause"]`.
"""

from datetime import datetime
from typing import Any

from gnomon.errors import GnomonError

#: Longer texts are cut in messages.
_LONGEST = 1000


class SchedulerError(GnomonError):
    """Base of all errors of the declarative scheduler. `details` has the values in the message."""

    code = "declarative"

    def __init__(self, message: str, **details: Any) -> None:  # noqa: ANN401 - each class says which
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = details

    @property
    def name(self) -> str:
        """The name of the error, which is stable across versions."""
        return type(self).__name__


class InvalidArgumentError(SchedulerError):
    """An argument of a Scheduler or of `repair_state` is invalid."""

    def __init__(self, argument: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid argument: {argument} {reason}", argument=argument, value=value, reason=reason)


# ---- registrations -------------------------------------------------------------------------------


class RegistrationsNotArrayError(SchedulerError):
    """The registrations are neither a list nor a tuple."""

    def __init__(self) -> None:
        super().__init__("Registrations must be an array")


class RegistrationShapeError(SchedulerError):
    """A registration has the wrong length or an element of the wrong type."""

    def __init__(self, index: int, received: object) -> None:
        message = "Invalid registration shape: expected [string, string, function, Duration]"
        super().__init__(message, registrationIndex=index, received=received)


class InvalidRegistrationError(SchedulerError):
    """A registration has the right shape and an invalid value."""

    def __init__(self, field: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid registration: {field} {reason}", field=field, value=value, reason=reason)


class ScheduleDuplicateTaskError(SchedulerError):
    """Two registrations have the same name."""

    def __init__(self, task_name: str) -> None:
        super().__init__(f'Task with name "{printable_excerpt(task_name)}" is already scheduled', taskName=task_name)


class NegativeRetryDelayError(SchedulerError):
    """The retry delay of a registration is negative."""

    def __init__(self, retry_delay_ms: float) -> None:
        super().__init__("Retry delay must be non-negative", retryDelayMs=retry_delay_ms)


class SchedulerAlreadyActiveError(SchedulerError):
    """`initialize` was called on an active scheduler. Nothing was done."""

    def __init__(self, current_state: str) -> None:
        message = f"Cannot initialize scheduler: scheduler is already {current_state}"
        super().__init__(message, currentState=current_state)


# ---- cron ----------------------------------------------------------------------------------------


class _RefusedExpression(SchedulerError):
    def __init__(self, expression: str, field: str, reason: str) -> None:
        message = (
            f'Invalid cron expression "{printable_excerpt(expression)}": {field} field {printable_excerpt(reason)}'
        )
        super().__init__(message, expression=expression, field=field, reason=reason)


class CronExpressionInvalidError(_RefusedExpression):
    """The cron expression of a registration was refused."""


class InvalidCronExpressionError(_RefusedExpression):
    """The parser refused a cron expression."""


class FieldParseError(SchedulerError):
    """The parser refused one field of a cron expression."""

    def __init__(self, field_value: str, field_name: str, reason: str) -> None:
        super().__init__(
            f"{field_name} field {printable_excerpt(reason)}", fieldValue=field_value, fieldName=field_name
        )


class CronCalculationError(SchedulerError):
    """An expression has no occurrence in the requested direction."""

    def __init__(self, expression: str, current_time: datetime, cause: Exception) -> None:
        message = f"Failed to calculate next occurrence: {cause}"
        super().__init__(message, expression=expression, currentTime=current_time.isoformat(), cause=cause)


# ---- persisted records ---------------------------------------------------------------------------


class TaskTryDeserializeError(SchedulerError):
    """A persisted record is invalid. Nothing was written."""

    #: The index of the record, counted from 0 in the order of the state.
    record_index: int | None = None


class TaskMissingFieldError(TaskTryDeserializeError):
    """A record lacks a field."""

    def __init__(self, field: str) -> None:
        super().__init__(f"Missing required field: {field}", field=field)


class TaskInvalidTypeError(TaskTryDeserializeError):
    """A field of a record has the wrong type."""

    def __init__(self, field: str, value: object, expected_type: str, actual_type: str) -> None:
        message = f"Invalid type for field '{field}': expected {expected_type}, got {actual_type}"
        super().__init__(message, field=field, value=value, expectedType=expected_type, actualType=actual_type)


class TaskInvalidValueError(TaskTryDeserializeError):
    """A field of a record has an invalid value."""

    def __init__(self, field: str, value: object, reason: str) -> None:
        message = f"Invalid value for field '{field}': {printable_excerpt(reason)}"
        super().__init__(message, field=field, value=value, reason=reason)


class TaskInvalidStructureError(TaskTryDeserializeError):
    """A record is not a JSON object."""

    def __init__(self, value: object, reason: str) -> None:
        super().__init__(f"Invalid task record: {reason}", value=value)


# ---- the rest ------------------------------------------------------------------------------------


class StopWithinTaskError(SchedulerError):
    """A running task waits for `stop()`, which waits for that task.

    Nothing was stopped if the task itself called `stop()`. If a task that it started did, the scheduler stops as soon
    as the running task ends.
    """

    def __init__(self) -> None:
        super().__init__("Cannot stop scheduler: stop() waits for running tasks, and a running task waits for stop()")


class StateInUseError(SchedulerError):
    """Another scheduler, in this process or another, uses the state. Nothing was read or written."""

    def __init__(self, file: str | None = None) -> None:
        super().__init__("Cannot initialize scheduler: another scheduler is using this state file", file=file)


class StateForeignError(SchedulerError):
    """The file is not a state file, or a newer scheduler made it. Nothing was written."""

    def __init__(self, reason: str, file: str | None = None) -> None:
        super().__init__(f"Cannot initialize scheduler: the state file {reason}", reason=reason, file=file)


class StateUnavailableError(SchedulerError):
    """Reading or writing the state failed. The state is unchanged."""

    def __init__(self, action: str, cause: BaseException, file: str | None = None) -> None:
        name = getattr(cause, "sqlite_errorname", None) or type(cause).__name__
        super().__init__(f"Cannot {action}: {name}", cause=cause, file=file)


def printable_excerpt(text: str) -> str:
    """The text on one line, without control characters, and cut if it is long."""
    cut = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in cut)
