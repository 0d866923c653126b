"""The bounds of lists, as people write them: instants, days, and spans before now."""

from datetime import datetime

import pytest

from gnomon.core.instants import instant_of, ms_of
from gnomon.core.time_expressions import parse_bound
from gnomon.errors import FieldError

#: Monday, 13:00 in Berlin.
NOW = ms_of(datetime.fromisoformat("2026-03-02T12:00:00+00:00"))


@pytest.mark.parametrize(
    ("text", "since", "until"),
    [
        ("2026-02-28", "2026-02-27T23:00:00+00:00", "2026-02-28T23:00:00+00:00"),
        ("yesterday", "2026-02-28T23:00:00+00:00", "2026-03-01T23:00:00+00:00"),
        ("Today", "2026-03-01T23:00:00+00:00", "2026-03-02T23:00:00+00:00"),
        ("sun", "2026-02-28T23:00:00+00:00", "2026-03-01T23:00:00+00:00"),
        ("monday", "2026-03-01T23:00:00+00:00", "2026-03-02T23:00:00+00:00"),
        ("2026-03-29", "2026-03-28T23:00:00+00:00", "2026-03-29T22:00:00+00:00"),
    ],
)
def test_a_day_begins_and_ends_on_the_clocks_of_the_reader(text: str, since: str, until: str) -> None:
    found = [instant_of(parse_bound("since", text, "Europe/Berlin", now=NOW, ends=ends)) for ends in (False, True)]

    assert [at.isoformat() for at in found] == [since, until]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", "2026-03-02T11:00:00+00:00"),
        ("1h30m", "2026-03-02T10:30:00+00:00"),
        ("2d ago", "2026-02-28T12:00:00+00:00"),
        ("1772452800000", "2026-03-02T12:00:00+00:00"),
        ("now", "2026-03-02T12:00:00+00:00"),
        ("09:00", "2026-03-02T08:00:00+00:00"),
        ("yesterday 14:30", "2026-03-01T13:30:00+00:00"),
        ("2026-03-01T14:30", "2026-03-01T13:30:00+00:00"),
        ("2026-03-01 14:30:15.5", "2026-03-01T13:30:15.500000+00:00"),
        ("2026-03-01T14:30:00Z", "2026-03-01T14:30:00+00:00"),
        ("2026-03-01T14:30:00.123456+05:30", "2026-03-01T09:00:00.123000+00:00"),
    ],
)
def test_an_instant_is_the_same_from_both_sides(text: str, expected: str) -> None:
    found = {parse_bound("until", text, "Europe/Berlin", now=NOW, ends=ends) for ends in (False, True)}

    assert [instant_of(at).isoformat() for at in found] == [expected]


@pytest.mark.parametrize(
    "text", ["", "soon", "12", "1 h", "2026-02-30", "25:00", "-1h", "1x", "9999-12-31", "someday 09:00"]
)
def test_anything_else_is_refused_with_examples(text: str) -> None:
    with pytest.raises(FieldError, match=r"--since: .* (is no time such as|lies outside)"):
        parse_bound("--since", text, "UTC", now=NOW, ends=True)
