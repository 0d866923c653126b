"""Spans: what people write and what it means."""

import random

import pytest

from gnomon.core.durations import LONGEST_MS, duration_ms, duration_text
from gnomon.errors import FieldError

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


@pytest.mark.req("H-04")
@pytest.mark.parametrize(
    ("written", "span"),
    [
        ("30s", 30 * SECOND),
        ("5m", 5 * MINUTE),
        ("1h30m", 90 * MINUTE),
        ("250ms", 250),
        ("2d", 2 * DAY),
        ("1d2h3m4s5ms", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + 5),
        ("1m5ms", MINUTE + 5),
        ("90m", 90 * MINUTE),
        ("0s", 0),
        (30, 30 * SECOND),
        (0.25, 250),
        (0, 0),
    ],
)
def test_a_duration_is_read(written: object, span: int) -> None:
    assert duration_ms("timeout", written) == span


@pytest.mark.parametrize(
    "written",
    [
        "", "30", "s", "5 m", "5M", "m5", "1m1h", "1s1s", "-5s", "+5s", "1.5h", "1e3s", "5min", "5mss", "\u0663s",
        "5s\n", "1:30", "9999999999999s", "99999999d", None, True, [], {}, float("nan"), float("inf"), -1, -0.5, 0.0001,
        10**400, pytest.param(10**5000, id="a number too long to be shown"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_its_field(written: object) -> None:
    with pytest.raises(FieldError) as refused:
        duration_ms("retry.max_delay", written)

    assert refused.value.field == "retry.max_delay"


def test_a_number_without_a_unit_is_refused_with_a_suggestion() -> None:
    with pytest.raises(FieldError, match="did you mean 30s"):
        duration_ms("timeout", "30")


@pytest.mark.parametrize("written", ["9s", "11s", 9, 11])
def test_bounds_are_kept_and_named(written: object) -> None:
    with pytest.raises(FieldError, match="must be from 10s to 10s500ms"):
        duration_ms("timeout", written, low=10 * SECOND, high=10 * SECOND + 500)


def test_a_formatted_duration_is_read_back() -> None:
    rng = random.Random(4)
    spans = [rng.randrange(10 ** rng.randrange(1, 13)) for _ in range(2000)]

    assert [duration_ms("span", duration_text(span)) for span in [*spans, 0, LONGEST_MS]] == [*spans, 0, LONGEST_MS]


def test_the_largest_units_are_shown() -> None:
    assert [duration_text(span) for span in (0, 250, 90 * MINUTE, 2 * DAY)] == ["0s", "250ms", "1h30m", "2d"]
