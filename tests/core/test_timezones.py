"""Zones as spans: the same offsets as zoneinfo, and only names that mean one thing everywhere."""

import random
import struct
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from zoneinfo import TZPATH, ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon import Cron, CronError
from gnomon.core.instants import second_of
from gnomon.core.timezones import Zone, _closest, nearest_zone, zone, zone_of_place
from support.random_schedules import ODD_ZONES

NAMES = sorted(name for name in available_timezones() if zone(name))
seconds = st.integers(-(10**10), 10**10)


def offset(name: str, second: int) -> int:
    local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=second)).astimezone(ZoneInfo(name))
    return int((local.utcoffset() or timedelta()).total_seconds())


@given(st.sampled_from(NAMES), seconds)
def test_a_span_has_the_offset_of_its_zone(name: str, second: int) -> None:
    found = zone(name)
    assert found is not None
    span = found.span_at(second)

    assert span.start <= second < span.end
    assert {span.offset} == {offset(name, at) for at in (second, max(span.start, second - 10**7), span.end - 1)}


@given(st.sampled_from(NAMES), seconds)
def test_spans_meet_without_a_hole(name: str, second: int) -> None:
    found = zone(name)
    assert found is not None
    span = found.span_at(second)
    following = found.span_at(span.end)

    assert following.start <= span.end < following.end
    if following.start == span.end:
        assert following.skipped - following.repeated == following.offset - span.offset
    else:
        assert following.offset == span.offset


#: As long as the windows in which a zone looks up its changes.
WINDOW = 1 << 28


def suspects() -> list[tuple[str, int]]:
    """Zones and the ends of windows right before which they change, from 1850 to the calendar's end."""
    ends = range(-14 * WINDOW, int(datetime(9999, 1, 1, tzinfo=UTC).timestamp()), WINDOW)
    found = []
    for name in [*ODD_ZONES, *random.Random("windows").sample(NAMES, 20)]:
        found += [(name, end) for end in ends if offset(name, end - 2 * 86400) != offset(name, end)]
    return found


@pytest.mark.req("C-15")
def test_a_change_at_the_end_of_a_window_is_seen() -> None:
    found = suspects()

    assert len(found) > 50
    for name, end in found:
        seen = zone(name)
        assert seen is not None
        for second in (end - 1, end, end - 2 * 86400):
            assert seen.span_at(second).offset == offset(name, second), (name, second)


def test_the_schedule_of_a_far_future_keeps_to_the_clock() -> None:
    cron = Cron("0 6 * * *", "America/New_York")
    sunday = datetime(3552, 3, 8, 20, tzinfo=UTC)

    assert cron.next_after(sunday) == datetime(3552, 3, 9, 6, tzinfo=ZoneInfo("America/New_York"))


def recorded_changes(name: str) -> list[tuple[int, int]]:
    """The changes of offset in a zone's compiled file, read with the format's own description in hand."""
    data = _compiled(name)
    start = 0
    for width, time_format in ((4, "l"), (8, "q")):
        isut, isstd, leap, times, types, chars = struct.unpack(">6l", data[start + 20 : start + 44])
        body = start + 44
        instants = struct.unpack(f">{times}{time_format}", data[body : body + times * width])
        kinds = data[body + times * width : body + times * (width + 1)]
        table = body + times * (width + 1)
        offsets = [struct.unpack(">l", data[table + 6 * i : table + 6 * i + 4])[0] for i in range(types)]
        start = table + 6 * types + chars + leap * (width + 4) + isstd + isut
    pairs = [(at, offsets[kind]) for at, kind in zip(instants, kinds, strict=True)]
    first = offsets[0] if offsets else 0
    befores = [first, *(after for _, after in pairs)]
    return [(at, after) for (at, after), before in zip(pairs, befores, strict=False) if after != before]


def _compiled(name: str) -> bytes:
    for folder in TZPATH:
        file = Path(folder, name)
        if file.is_file():
            return file.read_bytes()
    return files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()


def test_no_zone_changes_twice_within_four_days() -> None:
    """Probing every other day relies on it."""
    for name in NAMES:
        instants = [at for at, _ in recorded_changes(name)]
        assert all(later - earlier >= 3.9 * 86400 for earlier, later in pairwise(instants)), name


def test_every_recorded_change_begins_a_span() -> None:
    for name in random.Random("changes").sample(NAMES, 60):
        found = zone(name)
        assert found is not None
        for at, after in recorded_changes(name):
            span = found.span_at(at)
            assert (span.start, span.offset) == (at, after), name


def test_every_span_with_a_change_is_recorded() -> None:
    name = "Africa/Casablanca"
    found = zone(name)
    assert found is not None
    changes = [at for at, _ in recorded_changes(name)]
    second = 0
    while second < changes[-1]:
        span = found.span_at(second)
        if span.skipped or span.repeated:
            assert changes[bisect_right(changes, span.start) - 1] == span.start
        second = span.end


@pytest.mark.req("C-15", "H-02")
@pytest.mark.parametrize(
    "name",
    [
        *"localtime posixrules Factory right/UTC posix/UTC ../../etc/passwd /etc/passwd utc Europe Europe/".split(),
        *"/Europe/Rome Europe//Rome Europe/Rome/ Europe/../Europe/Rome Europe\\Rome zone.tab tzdata.zi".split(),
        *"leapseconds Mars/Olympus PST +02:00".split(),
        *("", " ", "A" * 5000, "UTC\x00", "UTC\n", "Europe/Rome "),
        "Еurope/Rome",  # noqa: RUF001 - a Cyrillic letter
    ],
)
def test_an_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(CronError) as refused:
        Cron("* * * * *", timezone=name)

    assert refused.value.field == "timezone"


@pytest.mark.parametrize("value", [None, 5, ZoneInfo("UTC")])
def test_a_zone_that_is_no_text_is_refused(value: object) -> None:
    with pytest.raises(CronError) as refused:
        Cron("* * * * *", timezone=value)  # type: ignore[arg-type]

    assert refused.value.field == "timezone"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("utc", "UTC"),
        ("Europe/Romme", "Europe/Rome"),
        ("America/New York", "America/New_York"),
        ("US/Berlin", "Europe/Berlin"),
        ("Mars/Olympus", None),
    ],
)
def test_an_unknown_zone_suggests_the_nearest(said: str, meant: str | None) -> None:
    assert nearest_zone(said) == meant


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("new york", "America/New_York"),
        ("Berlin", "Europe/Berlin"),
        ("berln", "Europe/Berlin"),
        ("tokyo", "Asia/Tokyo"),
        ("japan", "Japan"),
        ("olympus", None),
    ],
)
def test_a_place_has_a_zone(said: str, meant: str | None) -> None:
    assert zone_of_place(said) == meant


@pytest.mark.parametrize("ratio", [0.75, 0.85])
@pytest.mark.parametrize("said", ["abc", "berln", "new_yrok", "los_angelos", "aukland", "x" * 64, "st_johns_wood", "o"])
def test_names_that_are_too_short_or_too_long_could_not_have_been_nearest(said: str, ratio: float) -> None:
    zones = sorted(name.lower() for name in available_timezones())
    names = sorted({name.rpartition("/")[2] for name in zones} | set(zones))

    assert _closest(said, names, ratio) == next(iter(get_close_matches(said, names, 1, ratio)), None)


@pytest.mark.parametrize("name", ["UTC", "Etc/GMT+5", "America/Argentina/Buenos_Aires", "EST5EDT", "US/Eastern"])
def test_every_iana_name_is_accepted(name: str) -> None:
    assert Cron("* * * * *", timezone=name).timezone == name


def test_questions_about_all_centuries_do_not_fill_the_memory() -> None:
    paris = Zone("Europe/Paris", ZoneInfo("Europe/Paris"))
    offsets = [paris.span_at(second_of(datetime(year, 7, 1, tzinfo=UTC))).offset for year in range(2000, 2900, 9)]

    assert offsets[-1] == 7200
    assert len(paris._windows) <= 64  # noqa: SLF001 - only its size shows that it forgets
