"""The syntax of cron: every refusal names the field, the reason and the place."""

import pickle
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import Cron, CronError, Dst, Every
from gnomon.core.cron import Dialect
from support.processor_time import is_done_within


def refusal(expression: str, dialect: Dialect = "standard") -> CronError:
    with pytest.raises(CronError) as refused:
        Cron(expression, dialect=dialect)
    return refused.value


@pytest.mark.req("H-02", "Z-14")
@pytest.mark.parametrize(
    ("expression", "field", "reason"),
    [
        ("", "expression", "is empty"),
        (" \t ", "expression", "is empty"),
        ("* * * *", "expression", "must have 5 fields, or 6 with seconds first; it has 4"),
        ("* * * * * * *", "expression", "must have 5 fields, or 6 with seconds first; it has 7"),
        ("60 * * * *", "minute", "has 60, which is out of range 0-59"),
        ("0 24 * * *", "hour", "has 24, which is out of range 0-23"),
        ("0 0 0 * *", "day", "has 0, which is out of range 1-31"),
        ("0 0 * 13 *", "month", "has 13, which is out of range 1-12"),
        ("0 0 * * 8", "weekday", "has 8, which is out of range 0-7"),
        ("60 0 0 * * *", "second", "has 60, which is out of range 0-59"),
        ("0 0 * * 1-9", "weekday", "has 9, which is out of range 0-7"),
        ("*/0 * * * *", "minute", 'has the step "0", which is not a number from 1'),
        ("*/ * * * *", "minute", 'has the step "", which is not a number from 1'),
        ("*/-5 * * * *", "minute", 'has the step "-5", which is not a number from 1'),
        ("5-1 * * * *", "minute", 'has the range "5-1", whose start is after its end'),
        ("1,,2 * * * *", "minute", "has an empty element"),
        ("1,2, * * * *", "minute", "has an empty element"),
        ("-5 * * * *", "minute", 'has "-5", which is not a number of this field'),
        ("1-2-3 * * * *", "minute", 'has "1-2-3", which is not a number of this field'),
        ("** * * * *", "minute", 'has "**", which is not a number of this field'),
        ("1.5 * * * *", "minute", 'has "1.5", which is not a number of this field'),
        ("1e1 * * * *", "minute", 'has "1e1", which is not a number of this field'),
        ("0x5 * * * *", "minute", 'has "0x5", which is not a number of this field'),
        ("+5 * * * *", "minute", 'has "+5", which is not a number of this field'),
        ("٣ * * * *", "minute", 'has "٣", which is not a number of this field'),
        ("０ * * * *", "minute", 'has "０", which is not a number of this field'),  # noqa: RUF001 - fullwidth
        ("² * * * *", "minute", 'has "²", which is not a number of this field'),
        ("MON * * * *", "minute", 'has "MON", which is not a number of this field'),
        ("0 0 * * FOO", "weekday", 'has "FOO", which is neither a number nor a name of this field'),
        ("0 0 * MON *", "month", 'has "MON", which is neither a number nor a name of this field'),
        ("0 0 ? * *", "day", 'has "?", which this cron does not know'),
        ("0 0 15W * *", "day", 'has "15W", which is not a number of this field'),
        ("0 0 * * MON#6", "weekday", 'has "MON#6", but after # comes a number 1-5'),
        ("0 0 * * MON#", "weekday", 'has "MON#", but after # comes a number 1-5'),
        ("0 0 * * 9L", "weekday", "has 9, which is out of range 0-7"),
        ("0 0 * * L", "weekday", 'has "L", which is neither a number nor a name of this field'),
        ("L * * * *", "minute", 'has "L", which is not a number of this field'),
        ("@dayly", "expression", 'has the unknown macro "@dayly"'),
        ("@reboot", "expression", "names the start of a machine, which is no time"),
        ("0 9 * * 1\n", "weekday", 'has "1\n", which is neither a number nor a name of this field'),
        ("0\u00a09 * * * *", "minute", 'has "0\u00a09", which is not a number of this field'),
        ("0 9 * * \x00", "weekday", 'has "\x00", which is neither a number nor a name of this field'),
        (f"{'9' * 400} * * * *", "minute", "has a number of 400 digits, which is out of range 0-59"),
    ],
)
def test_standard_cron_refuses_invalid_expressions(expression: str, field: str, reason: str) -> None:
    error = refusal(expression)

    assert (error.field, error.reason) == (field, reason)


@pytest.mark.req("D-09")
@pytest.mark.parametrize(
    ("expression", "field", "reason"),
    [
        ("", "expression", "is empty"),
        ("* * * *", "expression", "must have exactly 5 fields; it has 4"),
        ("0 * * * * *", "expression", "must have exactly 5 fields; it has 6"),
        ("*/15 * * * *", "minute", 'has the step "*/15", which POSIX cron lacks'),
        ("0 1-5/2 * * *", "hour", 'has the step "1-5/2", which POSIX cron lacks'),
        ("0 0 * jan *", "month", 'has the name "jan"; POSIX cron takes numbers only'),
        ("0 0 * * mon", "weekday", 'has the name "mon"; POSIX cron takes numbers only'),
        ("0 0 * * sunday", "weekday", 'has the name "sunday"; POSIX cron takes numbers only'),
        ("@daily", "expression", 'has the macro "@daily", which POSIX cron lacks'),
        ("@hourly", "expression", 'has the macro "@hourly", which POSIX cron lacks'),
        ("0 0 ? * *", "day", 'has the token "?", which POSIX cron lacks'),
        ("0 0 L * *", "day", 'has the token "L", which POSIX cron lacks'),
        ("0 0 15W * *", "day", 'has the token "W", which POSIX cron lacks'),
        ("0 0 * * 1#2", "weekday", 'has the token "#", which POSIX cron lacks'),
        ("0 0 * * 7", "weekday", "has 7, which is out of range 0-6 (Sunday is 0)"),
        ("0 0 * * 5-7", "weekday", "has 7, which is out of range 0-6 (Sunday is 0)"),
        ("0 22-2 * * *", "hour", 'has the range "22-2", whose start is after its end'),
        ("60 * * * *", "minute", "has 60, which is out of range 0-59"),
        ("0 24 * * *", "hour", "has 24, which is out of range 0-23"),
        ("0 0 0 * *", "day", "has 0, which is out of range 1-31"),
        ("0 0 32 * *", "day", "has 32, which is out of range 1-31"),
        ("0 0 * 0 *", "month", "has 0, which is out of range 1-12"),
        ("0 0 * * 8", "weekday", "has 8, which is out of range 0-6"),
        ("1e1 * * * *", "minute", 'has "1e1", which is neither a decimal number nor a range of two'),
        ("0x1 * * * *", "minute", 'has "0x1", which is neither a decimal number nor a range of two'),
        ("+1 * * * *", "minute", 'has "+1", which is neither a decimal number nor a range of two'),
        ("-1 * * * *", "minute", 'has "-1", which is neither a decimal number nor a range of two'),
        ("1.5 * * * *", "minute", 'has "1.5", which is neither a decimal number nor a range of two'),
        ("1- * * * *", "minute", 'has "1-", which is neither a decimal number nor a range of two'),
        ("1-2-3 * * * *", "minute", 'has "1-2-3", which is neither a decimal number nor a range of two'),
        ("٣ * * * *", "minute", 'has "٣", which is neither a decimal number nor a range of two'),
        ("*,5 * * * *", "minute", 'has "*" beside something else'),
        ("5,, * * * *", "minute", "has an empty element"),
        ("0 0 * *\u00a0*", "expression", "must have exactly 5 fields; it has 4"),
        ("0 0 * * *\n", "weekday", 'has "*" beside something else'),
        ("0 0 31 2 *", "expression", "never fires: no such day exists in its months"),
    ],
)
def test_posix_cron_refuses_extensions(expression: str, field: str, reason: str) -> None:
    error = refusal(expression, "posix")

    assert (error.field, error.reason) == (field, reason)


@pytest.mark.req("D-09")
@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("0 0 * * *", id="daily at midnight"),
        pytest.param("15 3 * * 1-5", id="a range"),
        pytest.param("0,30 * * * *", id="a list"),
        pytest.param("0 12 14 2 *", id="a day of a month"),
        pytest.param(" \t0  0\t*\t*  * ", id="blanks and tabs around and between"),
        pytest.param("007 01 * * *", id="leading zeros"),
        pytest.param("5,1,3,1 5-5 * * *", id="unsorted, doubled, a range of one"),
        pytest.param("0 0 31 4 1", id="a day that April lacks, or a Monday"),
    ],
)
def test_posix_cron_accepts_its_syntax(expression: str) -> None:
    assert Cron(expression, dialect="posix").expression == expression


@pytest.mark.parametrize(
    ("expression", "dialect", "suggestion"),
    [
        ("0 0 * * FRI-MON", "standard", "0 0 * * 0,1,5,6"),
        ("0 22-2 * * *", "standard", "0 0-2,22,23 * * *"),
        ("0 22-6/2 * * *", "standard", "0 0,2,4,6,22 * * *"),
        ("0 0 * * SAT-MON/2", "standard", "0 0 * * 1,6"),
        ("0 0 * * FRIL", "standard", "0 0 * * 5L"),
        ("0 22-2 ? * FRIL", "standard", "0 0-2,22,23 * * 5L"),
        ("0 0 * * MOM", "standard", "0 0 * * MON"),
        ("0 0 ? * *", "standard", "0 0 * * *"),
        ("@dayly", "standard", "@daily"),
        ("*/15 * * * *", "posix", "0,15,30,45 * * * *"),
        ("0 9-17/4 * * *", "posix", "0 9,13,17 * * *"),
        ("0 0 * * mon", "posix", "0 0 * * 1"),
        ("0 0 * * 7", "posix", "0 0 * * 0"),
        ("@daily", "posix", "0 0 * * *"),
    ],
)
def test_a_refusal_suggests_what_would_be_accepted(expression: str, dialect: Dialect, suggestion: str) -> None:
    error = refusal(expression, dialect)

    assert error.suggestion == suggestion
    assert Cron(suggestion, dialect=dialect).expression == suggestion


@pytest.mark.parametrize(
    ("expression", "marked"),
    [
        ("61 * * * *", "61"),
        ("0 0 1,2,99,4 * *", "99"),
        ("0 0 * * 1,FRI-MON", "FRI-MON"),
        ("  x * * * *", "x"),
    ],
)
def test_a_refusal_marks_the_element(expression: str, marked: str) -> None:
    place = refusal(expression).position

    assert place is not None
    assert expression[place.start : place.end] == marked


@pytest.mark.parametrize(
    "expression",
    ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6 *", "0 0 */14 */2 mon#2", "0 0 LW * */6", "0 0 31 2,4,6,9,11 *"],
)
def test_an_expression_that_can_never_fire_is_refused(expression: str) -> None:
    assert refusal(expression).reason.startswith("never fires")


@pytest.mark.parametrize(
    "expression", ["0 0 29 2 *", "0 0 31 2 1", "0 0 L 2 *", "0 0 29 2 */7", "0 0 */7 2 1#5", "0 0 31 1,2 *"]
)
def test_an_expression_that_fires_however_rarely_is_accepted(expression: str) -> None:
    assert Cron(expression).expression == expression


def test_the_message_names_expression_field_and_reason() -> None:
    assert str(refusal("61 * * * *")) == (
        'Invalid cron expression "61 * * * *": minute field has 61, which is out of range 0-59'
    )


@pytest.mark.parametrize(
    ("refuse", "message"),
    [
        pytest.param(
            lambda: Cron("@daily", "Mars/Phobos"),
            'Invalid timezone "Mars/Phobos": it is not an IANA time zone',
            id="a zone",
        ),
        pytest.param(
            lambda: Dst(gap="never"),  # type: ignore[arg-type]
            'Invalid dst.gap "never": it must be next or skip; did you mean "next"?',
            id="a choice",
        ),
        pytest.param(
            lambda: Every(timedelta(milliseconds=5)),
            'Invalid period "0:00:00.005000": it must be from 0.1 s to 36525 days',
            id="a period",
        ),
        pytest.param(
            lambda: Cron("@daily", dialect="quartz"),  # type: ignore[arg-type]
            'Invalid dialect "quartz": it must be standard or posix',
            id="a dialect",
        ),
    ],
)
def test_the_message_begins_with_what_was_refused(refuse: Callable[[], object], message: str) -> None:
    with pytest.raises(CronError) as refused:
        refuse()

    assert str(refused.value) == message


def test_a_message_is_one_line_that_no_log_can_mistake() -> None:
    error = refusal("* * * * \x1b[31m\nERROR")

    assert str(error) == (
        'Invalid cron expression "* * * * \\x1b[31m\\nERROR": '
        'weekday field has "\\x1b[31m\\nERROR", which is neither a number nor a name of this field'
    )
    assert error.expression == "* * * * \x1b[31m\nERROR"


def test_no_traceback_of_the_parser_leaks() -> None:
    error = refusal("61 * * * *")

    assert error.__cause__ is None
    assert error.__suppress_context__


def test_an_error_survives_pickling() -> None:
    error = refusal("0 0 * * MOM")

    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (str(copy), copy.__dict__) == (str(error), error.__dict__)


@pytest.mark.parametrize("value", [None, 5, ["*"], b"* * * * *"])
def test_a_value_that_is_not_text_is_refused(value: object) -> None:
    with pytest.raises(CronError, match="must be a text"):
        Cron(value)  # type: ignore[arg-type]


@pytest.mark.parametrize("dialect", ["quartz", None, ["standard"], {}])
def test_an_unknown_dialect_is_refused(dialect: object) -> None:
    with pytest.raises(CronError, match="standard or posix") as refused:
        Cron("* * * * *", dialect=dialect)  # type: ignore[arg-type]

    assert refused.value.field == "dialect"


@pytest.mark.parametrize("dst", ["skip", None, {"gap": "skip"}])
def test_an_invalid_dst_policy_is_refused(dst: object) -> None:
    with pytest.raises(CronError) as refused:
        Cron("* * * * *", dst=dst)  # type: ignore[arg-type]

    assert refused.value.field == "dst"


@pytest.mark.parametrize(("choice", "field"), [({"gap": "shift"}, "dst.gap"), ({"fold": "last"}, "dst.fold")])
def test_an_unknown_choice_about_clock_changes_is_refused(choice: dict[str, str], field: str) -> None:
    with pytest.raises(CronError) as refused:
        Dst(**choice)  # type: ignore[arg-type]

    assert refused.value.field == field


HOSTILE = [
    "9" * 10_000,
    "* " * 5_000,
    "*/" * 500,
    "1," * 499 + "x",
    "1-" * 490,
    "@" * 900,
    "-" * 999,
    "\x00" * 999,
]


@pytest.mark.parametrize("expression", HOSTILE, ids=[text[:4] for text in HOSTILE])
@pytest.mark.parametrize("dialect", ["standard", "posix"])
def test_hostile_text_is_refused_in_no_time(expression: str, dialect: Dialect) -> None:
    # A hundred times what it takes: this guards against catastrophic matching.
    assert is_done_within(1, lambda: refusal(expression, dialect))


@given(st.text(), st.sampled_from(["standard", "posix"]))
def test_any_text_is_a_cron_or_a_cron_error(text: str, dialect: Dialect) -> None:
    try:
        Cron(text, dialect=dialect)
    except CronError as error:
        assert error.expression == text  # noqa: PT017 - either outcome is fine


@given(st.text(alphabet="0123456789*/,-#LW?MONJAN@ ", max_size=30), st.sampled_from(["standard", "posix"]))
def test_anything_that_looks_like_cron_is_one_or_a_cron_error(text: str, dialect: Dialect) -> None:
    try:
        accepted = Cron(text, dialect=dialect)
    except CronError:
        return
    assert Cron(accepted.canonical).canonical == accepted.canonical
