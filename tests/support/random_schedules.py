"""Random but repeatable schedules and moments, chosen where clocks change."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

from support.effort import EFFORT

ODD_ZONES = """
    Africa/Casablanca Africa/Cairo Africa/Monrovia America/Asuncion America/Caracas America/Goose_Bay
    America/Havana America/Los_Angeles America/New_York America/Nuuk America/Santiago America/Sao_Paulo
    America/Scoresbysund America/St_Johns Antarctica/Troll Asia/Amman Asia/Beirut Asia/Gaza
    Asia/Kathmandu Asia/Pyongyang Asia/Tehran Australia/Lord_Howe Australia/Sydney Europe/Amsterdam
    Europe/Berlin Europe/Chisinau Europe/Dublin Europe/London Europe/Moscow Europe/Rome Pacific/Apia
    Pacific/Chatham Pacific/Easter Pacific/Kwajalein Pacific/Norfolk Pacific/Tongatapu
""".split()

_NUMBERS = {
    "second": (0, 59),
    "minute": (0, 59),
    "hour": (0, 23),
    "day": (1, 31),
    "month": (1, 12),
    "weekday": (0, 7),
}
_MONTHS = "JAN feb Mar APR MAY jun JUL AUG SEP OCT NOV DEC".split()
_WEEKDAYS = "SUN mon Tue WED THU fri SAT".split()


def random_zones(rng: random.Random, count: int) -> list[str]:
    """The odd zones and some others, `count` in all."""
    others = sorted(name for name in available_timezones() if "/" in name and name not in ODD_ZONES)
    return [*ODD_ZONES, *rng.sample(others, count - len(ODD_ZONES))]


def clock_changes(zone: str, first_year: int, last_year: int) -> list[datetime]:
    """The whole hours right before the zone's offset changes."""
    rules = ZoneInfo(zone)
    found = []
    start, last = datetime(first_year, 1, 1, tzinfo=UTC), datetime(last_year, 12, 31, tzinfo=UTC)
    # No zone has changed twice within five days since 1940.
    pace = timedelta(days=5)
    offset = start.astimezone(rules).utcoffset()
    while start < last:
        following = (start + pace).astimezone(rules).utcoffset()
        if following != offset:
            hours = (start + timedelta(hours=hour) for hour in range(24 * pace.days))
            found.append(max(hour for hour in hours if hour.astimezone(rules).utcoffset() == offset))
        start, offset = start + pace, following
    return found


def random_cron(rng: random.Random, *, seconds: bool = False, times: bool = False) -> str:
    """A cron expression of the whole standard language; with `times`, mostly in the small hours."""
    words = [field(rng, "minute"), field(rng, "hour"), *days(rng)]
    if times:
        words[:2] = rng.choice(
            [
                [str(rng.randrange(60)), str(rng.randrange(5))],
                [f"{rng.randrange(30)}-59", f"{rng.randrange(4)}-{rng.randrange(4, 7)}"],
                [f"*/{rng.choice((5, 7, 30, 45))}", str(rng.randrange(4))],
                [str(rng.randrange(60)), f"*/{rng.randrange(1, 5)}"],
                ["0,30", "0-4"],
                ["*", "*"],
            ]
        )
    if seconds:
        words.insert(0, rng.choice(["0", "0", "30", "*/20", "5,35"]))
    return " ".join(words)


def days(rng: random.Random) -> list[str]:
    """Day, month and weekday: mostly every day."""
    if rng.random() < 0.5:
        return ["*", "*", "*"]
    day = rng.choice(["*", "*/2", "*/5", "1,15", "L", "LW", "13", "8-14", "28-31", field(rng, "day")])
    month = rng.choice(["*", "*", "*/2", "MAR-nov", field(rng, "month")])
    weekday = rng.choice(["*", "*", "*/2", "1-5", "SUN", "7", "5L", "mon#2", "0#1,3#4", field(rng, "weekday")])
    return [day, month, weekday]


def field(rng: random.Random, name: str) -> str:
    """One field: a list of values, ranges and steps, with names where there are any."""
    low, high = _NUMBERS[name]
    names = {"month": _MONTHS, "weekday": _WEEKDAYS}.get(name)

    def number() -> int:
        return rng.randint(low, high)

    def element() -> str:
        first, last = sorted((number(), number()))
        if names and rng.random() < 0.3:
            return rng.choice(names)
        # cronsim reads "5-5/2" as "5/2"; Debian's cron does not.
        step = f"{first}-{last}/{rng.randint(1, 9)}" if first < last else str(first)
        return rng.choice([str(number()), f"{first}-{last}", step, f"{number()}/7"])

    if rng.random() < 0.4:
        return rng.choice(["*", "*", f"*/{rng.randint(1, high)}"])
    return ",".join(element() for _ in range(rng.choice((1, 1, 1, 2, 3))))


def seeded_rounds(seed: object, count: int) -> Iterator[random.Random]:
    """Random generators for `count` rounds, times the configured effort; the same ones in every run."""
    for number in range(count * EFFORT):
        yield random.Random(f"{seed}:{number}")
