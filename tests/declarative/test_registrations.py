"""Registrations: shapes, names, callbacks, expressions, delays, and their errors."""

import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gnomon.core.cron import known_zone
from gnomon.declarative import errors
from gnomon.declarative.cron import Occurrences, parse
from gnomon.declarative.registrations import read_registrations
from gnomon.errors import GnomonError
from support.declarative_world import DeclarativeWorld

NewWorld = Callable[..., DeclarativeWorld]
SHAPE = "Invalid registration shape: expected [string, string, function, Duration]"


async def nothing() -> None: ...


def sync() -> None: ...


class Callable_:  # noqa: N801 - beside the one of typing
    async def __call__(self) -> None: ...


HOUR = timedelta(hours=1)
GOOD = ("a", "* * * * *", nothing, HOUR)


def refused(registrations: Any) -> errors.SchedulerError:  # noqa: ANN401 - anything
    with pytest.raises(errors.SchedulerError) as caught:
        read_registrations(registrations)
    return caught.value


@pytest.mark.req("D-11")
@pytest.mark.parametrize("value", [None, "abc", {"a": 1}, iter([]), 5])
def test_registrations_that_are_no_list_are_refused(value: object) -> None:
    error = refused(value)

    assert (error.name, str(error), error.details) == (
        "RegistrationsNotArrayError",
        "Registrations must be an array",
        {},
    )


@pytest.mark.req("D-11")
@pytest.mark.parametrize(
    "registration",
    [
        None,
        "abcd",
        (),
        GOOD[:3],
        (*GOOD, 1),
        (1, *GOOD[1:]),
        ("a", 5, nothing, HOUR),
        ("a", "* * * * *", "nothing", HOUR),
        ("a", "* * * * *", nothing, 60),
        ("a", "* * * * *", nothing, None),
    ],
)
def test_a_registration_of_another_shape_is_refused_with_its_index(registration: object) -> None:
    error = refused([GOOD, registration])

    assert (error.name, str(error)) == ("RegistrationShapeError", SHAPE)
    assert error.details == {"registrationIndex": 1, "received": registration}
    assert error.__notes__[0].startswith("in registration 1")


@pytest.mark.req("D-11")
@pytest.mark.parametrize(
    ("registration", "field"),
    [
        (("", *GOOD[1:]), "name"),
        (("x" * 1001, *GOOD[1:]), "name"),
        (("\ud800", *GOOD[1:]), "name"),
        (("a", "* * * * *", sync, HOUR), "callback"),
        (("a", "* * * * *", dict, HOUR), "callback"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_field(registration: tuple[Any, ...], field: str) -> None:
    error = refused([registration])

    assert error.name == "InvalidRegistrationError"
    assert error.details["field"] == field
    assert set(error.details) == {"field", "value", "reason"}
    assert str(error) == f"Invalid registration: {field} {error.details['reason']}"


@pytest.mark.req("D-11")
def test_a_name_that_is_taken_is_refused() -> None:
    error = refused([GOOD, GOOD])

    assert (error.name, str(error)) == ("ScheduleDuplicateTaskError", 'Task with name "a" is already scheduled')
    assert error.details == {"taskName": "a"}


@pytest.mark.req("D-11")
def test_a_negative_delay_is_refused() -> None:
    error = refused([("a", "* * * * *", nothing, timedelta(milliseconds=-1.5))])

    assert (error.name, str(error)) == ("NegativeRetryDelayError", "Retry delay must be non-negative")
    assert error.details == {"retryDelayMs": -1.5}


@pytest.mark.req("D-01")
@pytest.mark.parametrize("callback", [nothing, functools.partial(nothing), Callable_(), Callable_().__call__])
def test_every_callable_that_returns_an_awaitable_is_a_callback(callback: object) -> None:
    assert read_registrations([["a", "* * * * *", callback, HOUR]])["a"].callback is callback


@pytest.mark.req("D-01")
def test_names_are_taken_as_they_are() -> None:
    names = ["a", "A", " a", "a\n", "ä", "🕰"]

    assert list(read_registrations([(name, *GOOD[1:]) for name in names])) == names


@pytest.mark.req("D-01")
def test_a_delay_is_rounded_up_to_milliseconds_so_that_no_retry_is_early() -> None:
    read = read_registrations([("a", "* * * * *", nothing, timedelta(microseconds=1001))])

    assert read["a"].retry_delay_ms == 2


@pytest.mark.req("D-12")
def test_within_a_registration_the_order_of_errors_is_fixed() -> None:
    names = []
    wrong: list[Any] = ["", "x", sync, timedelta(-1), None]
    for right in ([], [4], [0], [2], [1], [3]):
        for index in right:
            wrong[index : index + 1] = [] if index == 4 else [GOOD[index]]
        try:
            read_registrations([tuple(wrong)])
        except errors.SchedulerError as error:
            names.append(f"{error.name} {error.details.get('field', '')}".strip())

    assert names == [
        "RegistrationShapeError",
        "InvalidRegistrationError name",
        "InvalidRegistrationError callback",
        "CronExpressionInvalidError expression",
        "NegativeRetryDelayError",
    ]


@pytest.mark.req("D-12")
def test_a_name_that_is_taken_is_said_before_its_expression_is_looked_at() -> None:
    assert refused([GOOD, ("a", "x", nothing, timedelta(-1))]).name == "ScheduleDuplicateTaskError"


@pytest.mark.req("D-12")
async def test_nothing_is_opened_written_or_scheduled_if_a_registration_is_wrong(world: DeclarativeWorld) -> None:
    world.state.is_open = True  # opening it now fails otherwise
    process = world.process()

    with pytest.raises(errors.CronExpressionInvalidError):
        await process.initialize([world.task("a"), world.task("b", "x")])

    assert (world.writes, world.ran) == (0, [])
    assert world.event_names() == ["SchedulerInitializationStarted", "SchedulerInitializationFailed"]


@pytest.mark.req("D-12")
async def test_after_a_refusal_the_scheduler_is_as_good_as_new(world: DeclarativeWorld) -> None:
    process = world.process()
    with pytest.raises(errors.RegistrationsNotArrayError):
        await process.initialize(None)

    await process.initialize([world.task("a")])
    await world.clock.settle()

    assert world.ran == ["a 02 12:00:00"]


@pytest.mark.req("D-12")
async def test_a_foreign_error_is_wrapped_and_its_text_is_not_shown(world: DeclarativeWorld) -> None:
    world.faults = ["fail"]
    process = world.process()
    process.watched.excused = True

    with pytest.raises(errors.StateUnavailableError) as caught:
        await process.initialize([world.task("a")])

    assert str(caught.value) == "Cannot initialize scheduler: OSError"
    assert isinstance(caught.value.details["cause"], OSError)
    assert caught.value.__cause__ is caught.value.details["cause"]


@pytest.mark.req("D-11")
def test_every_error_has_one_root() -> None:
    listed = (
        "RegistrationsNotArrayError RegistrationShapeError InvalidRegistrationError ScheduleDuplicateTaskError "
        "SchedulerAlreadyActiveError CronExpressionInvalidError NegativeRetryDelayError InvalidCronExpressionError "
        "FieldParseError CronCalculationError TaskTryDeserializeError TaskMissingFieldError TaskInvalidTypeError "
        "TaskInvalidValueError TaskInvalidStructureError"
    ).split()

    assert set(listed) <= set(dir(errors))
    ours = [getattr(errors, name) for name in dir(errors) if name.endswith("Error") and name != "GnomonError"]
    assert all(issubclass(error, errors.SchedulerError) and issubclass(error, GnomonError) for error in ours)


# ---- the cron language ---------------------------------------------------------------------------

REFUSED = [
    ("", "expression", "is empty"),
    ("* * * *", "expression", "must have exactly 5 fields; it has 4"),
    ("* * * * * *", "expression", "must have exactly 5 fields; it has 6"),
    ("*/15 * * * *", "minute", 'has the step "*/15", which POSIX cron lacks'),
    ("0 0 * jan *", "month", 'has the name "jan"; POSIX cron takes numbers only'),
    ("0 0 * * mon", "weekday", 'has the name "mon"; POSIX cron takes numbers only'),
    ("0 0 * * sunday", "weekday", 'has the name "sunday"; POSIX cron takes numbers only'),
    ("@daily", "expression", 'has the macro "@daily", which POSIX cron lacks'),
    ("0 0 ? * *", "day", 'has the token "?", which POSIX cron lacks'),
    ("0 0 L * *", "day", 'has the token "L", which POSIX cron lacks'),
    ("0 0 15W * *", "day", 'has the token "W", which POSIX cron lacks'),
    ("0 0 * * 1#2", "weekday", 'has the token "#", which POSIX cron lacks'),
    ("0 0 * * 7", "weekday", "has 7, which is out of range 0-6 (Sunday is 0)"),
    ("30-10 * * * *", "minute", 'has the range "30-10", whose start is after its end'),
    ("60 * * * *", "minute", "has 60, which is out of range 0-59"),
    ("* 24 * * *", "hour", "has 24, which is out of range 0-23"),
    ("* * 0 * *", "day", "has 0, which is out of range 1-31"),
    ("* * * 13 *", "month", "has 13, which is out of range 1-12"),
    ("1e1 * * * *", "minute", 'has "1e1", which is neither a decimal number nor a range of two'),
    ("0x1 * * * *", "minute", 'has "0x1", which is neither a decimal number nor a range of two'),
    ("-1 * * * *", "minute", 'has "-1", which is neither a decimal number nor a range of two'),
    ("+1 * * * *", "minute", 'has "+1", which is neither a decimal number nor a range of two'),
    ("1.5 * * * *", "minute", 'has "1.5", which is neither a decimal number nor a range of two'),
    ("٣ * * * *", "minute", 'has "٣", which is neither a decimal number nor a range of two'),
    ("*,5 * * * *", "minute", 'has "*" beside something else'),
    ("1,,2 * * * *", "minute", "has an empty element"),
    ("0 0 30 2 *", "expression", "never fires: no such day exists in its months"),
]


@pytest.mark.req("D-09", "D-11")
@pytest.mark.parametrize(("expression", "field", "reason"), REFUSED, ids=[row[0] for row in REFUSED])
def test_an_expression_outside_the_language_is_refused_with_field_and_reason(
    expression: str, field: str, reason: str
) -> None:
    error = refused([("a", expression, nothing, HOUR)])

    assert error.name == "CronExpressionInvalidError"
    assert str(error) == f'Invalid cron expression "{expression}": {field} field {reason}'
    assert error.details == {"expression": expression, "field": field, "reason": reason}


@pytest.mark.req("D-11")
def test_behind_a_refused_expression_stand_who_read_it_and_the_field() -> None:
    error = refused([("a", "0 61 * * *", nothing, HOUR)])

    reading = error.__cause__
    assert isinstance(reading, errors.InvalidCronExpressionError)
    assert reading.details == error.details
    field = reading.__cause__
    assert isinstance(field, errors.FieldParseError)
    assert str(field) == "hour field has 61, which is out of range 0-23"
    assert field.details == {"fieldValue": "61", "fieldName": "hour"}


@pytest.mark.req("D-11")
def test_a_note_names_the_registration() -> None:
    error = refused([GOOD, ("b\n", "0 61 * * *", nothing, HOUR)])

    assert error.__notes__ == ['in registration 1, task "b\\n"']


@pytest.mark.req("D-09")
def test_a_number_of_a_thousand_digits_is_out_of_the_range_of_its_field() -> None:
    error = refused([("a", f"0 {'1' * 1000} * * *", nothing, HOUR)])

    assert (error.details["field"], error.details["reason"]) == (
        "hour",
        "has a number of 1000 digits, which is out of range 0-23",
    )


@pytest.mark.req("D-09")
@pytest.mark.parametrize("field", [",".join(["0"] * 4996), "0" * 9992], ids=["a list", "leading zeros"])
def test_an_expression_of_ten_thousand_characters_is_accepted_and_a_longer_one_is_refused(field: str) -> None:
    longest = f"{field} * * * *".ljust(10_000)

    assert parse(longest) == parse("0 * * * *")
    assert refused([("a", longest + " ", nothing, HOUR)]).details["field"] == "expression"


@pytest.mark.req("D-12")
def test_no_expression_can_forge_a_line_of_a_log() -> None:
    error = refused([("a", "* * * * *\nall is well", nothing, HOUR)])

    assert "\n" not in str(error)
    assert error.details["expression"] == "* * * * *\nall is well"


@pytest.mark.req("D-09")
@pytest.mark.parametrize(
    "expression",
    [
        "0 0 * * *",
        "15 3 * * 1-5",
        "0,30 * * * *",
        "0 12 14 2 *",
        "  5\t4  * * * ",
        "007 * * * *",
        "5,1,3,1 5-5 * * 0-6",
        "0 0 31 4 1",
    ],
)
def test_an_expression_of_the_language_is_accepted(expression: str) -> None:
    assert parse(expression) is not None


def days_of(expression: str) -> list[int]:
    """The days of March 2026, which begins on a Sunday, on which it is due."""
    occurrences = Occurrences(expression, known_zone("UTC"))
    at, found = datetime(2026, 2, 28, 23, 59, tzinfo=UTC), []
    while (at := occurrences.next_after(at)).month == 3:
        found.append(at.day)
    return found


@pytest.mark.req("D-10")
@pytest.mark.parametrize(
    ("expression", "days"),
    [
        ("0 0 * * *", list(range(1, 32))),
        ("0 0 * * 1", [2, 9, 16, 23, 30]),
        ("0 0 15 * *", [15]),
        ("0 0 1,15 * 1", [1, 2, 9, 15, 16, 23, 30]),
        # Only the star is no restriction: a range that names every day is one.
        ("0 0 1-31 * 1", list(range(1, 32))),
        ("0 0 15 * 0-6", list(range(1, 32))),
    ],
)
def test_two_restricted_day_fields_mean_either(expression: str, days: list[int]) -> None:
    assert days_of(expression) == days


@pytest.mark.req("D-03")
def test_a_repeated_minute_of_a_yearly_expression_is_found_from_within_the_repeated_hour() -> None:
    yearly = Occurrences("30 1 1 11 *", known_zone("America/New_York"))
    first, second = (datetime(2026, 11, 1, hour, 30, tzinfo=UTC) for hour in (5, 6))

    assert yearly.next_after(first + timedelta(minutes=20)) == second
    assert yearly.previous_until(second - timedelta(minutes=20)) == first


@pytest.mark.req("D-11")
def test_an_occurrence_that_does_not_exist_is_a_calculation_error() -> None:
    occurrences = Occurrences("0 0 1 1 *", known_zone("UTC"))
    end = datetime(9999, 6, 1, tzinfo=UTC)

    with pytest.raises(errors.CronCalculationError) as caught:
        occurrences.next_after(end)

    error = caught.value
    assert str(error) == "Failed to calculate next occurrence: no future occurrence"
    assert error.details["expression"] == "0 0 1 1 *"
    assert error.details["currentTime"] == end.isoformat()
    assert isinstance(error.details["cause"], LookupError)
    with pytest.raises(errors.CronCalculationError):
        Occurrences("0 0 2 1 *", known_zone("UTC")).previous_until(datetime(1, 1, 1, tzinfo=UTC))


@pytest.mark.req("D-11")
async def test_a_task_that_the_calendar_has_no_place_for_is_scheduled_and_never_due(new_world: NewWorld) -> None:
    world = new_world("9999-12-31T23:00:00")
    process = await world.started(world.task("a", "0 0 1 1 *"))

    await process.stop()

    assert world.ran == []
