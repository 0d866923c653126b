"""Validate registrations, in the order of the list and in a fixed order of checks. The first error is raised."""

import inspect
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, NamedTuple

from gnomon.declarative.cron import parse
from gnomon.declarative.errors import (
    CronExpressionInvalidError,
    InvalidCronExpressionError,
    InvalidRegistrationError,
    NegativeRetryDelayError,
    RegistrationShapeError,
    RegistrationsNotArrayError,
    ScheduleDuplicateTaskError,
    SchedulerError,
    printable_excerpt,
)

Callback = Callable[[], Awaitable[object]]
#: Task name, cron expression, callback, retry delay.
Registration = tuple[str, str, Callback, timedelta]
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_NAME = 1000


class ParsedRegistration(NamedTuple):
    """A valid registration."""

    name: str
    cron_expression: str
    callback: Callback
    retry_delay_ms: int


def read_registrations(registrations: object) -> dict[str, ParsedRegistration]:
    """All tasks by name, in the order of the list; raises the error of the first invalid registration."""
    if not isinstance(registrations, list | tuple):
        raise RegistrationsNotArrayError
    found: dict[str, ParsedRegistration] = {}
    for index, received in enumerate(registrations):
        try:
            registered = _read(index, received, found)
        except SchedulerError as error:
            error.add_note(f"in registration {index}{_named(received)}")
            raise
        found[registered.name] = registered
    return found


def _read(index: int, received: object, before: dict[str, ParsedRegistration]) -> ParsedRegistration:
    name, cron, callback, delay = _check_shape(index, received)
    _check_name(name)
    if not is_async(callback):
        raise InvalidRegistrationError("callback", callback, "must be an async function")
    if name in before:
        raise ScheduleDuplicateTaskError(name)
    try:
        parse(cron)
    except InvalidCronExpressionError as error:
        raise CronExpressionInvalidError(**error.details) from error
    if delay < timedelta():
        raise NegativeRetryDelayError(delay / _MILLISECOND)
    return ParsedRegistration(name, cron, callback, _rounded_up(delay))


def _named(received: object) -> str:
    """The name of the task in a note, as far as the registration has one."""
    match received:
        case (str() as name, *_) if name:
            return f', task "{printable_excerpt(name)}"'
    return ""


def _rounded_up(delay: timedelta) -> int:
    """The delay in milliseconds, rounded up: a retry may be late but never early."""
    return (delay.days * 86_400 + delay.seconds) * 1000 - -delay.microseconds // 1000


def _check_shape(index: int, received: object) -> tuple[str, str, Callback, timedelta]:
    match received:
        case (str() as name, str() as cron, callback, timedelta() as delay) if callable(callback):
            return name, cron, callback, delay
    raise RegistrationShapeError(index, received)


def _check_name(name: str) -> None:
    if not name:
        raise InvalidRegistrationError("name", name, "must not be empty")
    if len(name) > _LONGEST_NAME:
        raise InvalidRegistrationError("name", name, f"must not be longer than {_LONGEST_NAME} characters")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidRegistrationError("name", name, "must be a text that UTF-8 can write") from None


def is_async(callback: Any) -> bool:  # noqa: ANN401 - any callable
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004 - an object may have an async __call__
