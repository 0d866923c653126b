"""English as schedules: what is read, what is refused, and that nothing else can happen."""

import logging
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gnomon import parse_schedule
from gnomon.core.english import CronResult, IntervalResult, parse_sentence
from gnomon.core.english.diagnostics import FALLBACK_EXAMPLE, KNOWN_MISTAKES
from gnomon.errors import Position, SentenceError
from support.counted_calls import counted_calls
from support.processor_time import is_done_within

EXAMPLES = settings(max_examples=3 * settings().max_examples)
INSTANT = "2026-12-01T09:00:00+00:00"


def table(rows: Mapping[str, object]) -> list[object]:
    """Parameters whose ids are the sentences themselves."""
    return [pytest.param(sentence, meaning, id=sentence) for sentence, meaning in rows.items()]


def refusal(text: str) -> SentenceError:
    with pytest.raises(SentenceError) as caught:
        parse_sentence(text)
    return caught.value


PROMISED = {
    "every 5 minutes": "*/5 * * * *",
    "every day at 2am": "0 2 * * *",
    "every weekday at 9am": "0 9 * * 1-5",
    "every weekday at 7am": "0 7 * * 1-5",
    "every Monday at 9am": "0 9 * * 1",
    "every first of the month at midnight": "0 0 1 * *",
    "twice daily at 8am and 8pm": "0 8,20 * * *",
}

SPOKEN = {
    # weekdays
    "every Monday, Wednesday and Friday at 6pm": "0 18 * * 1,3,5",
    "every Tuesday and Thursday at 10:30": "30 10 * * 2,4",
    "every Monday and every Friday at 9am": "0 9 * * 1,5",
    "Monday through Thursday at 8am": "0 8 * * 1-4",
    "from Monday to Friday at 9am": "0 9 * * 1-5",
    "mon-fri at 9am": "0 9 * * 1-5",
    "Friday through Monday at 9am": "0 9 * * 0,1,5,6",
    "weekends at noon": "0 12 * * 0,6",
    "on weekdays at 9:30pm": "30 21 * * 1-5",
    "every weekday 9am": "0 9 * * 1-5",
    "every business day at 9am": "0 9 * * 1-5",
    "weekly on Monday at 9am": "0 9 * * 1",
    "mon/wed/fri at 9am": "0 9 * * 1,3,5",
    "tue/thu at 4pm": "0 16 * * 2,4",
    "every Tuesday/Thursday": "0 0 * * 2,4",
    # times of day
    "every day at noon": "0 12 * * *",
    "every day at midnight": "0 0 * * *",
    "every day at 12am": "0 0 * * *",
    "every day at 12pm": "0 12 * * *",
    "every day at 9 a.m.": "0 9 * * *",
    "every day at 21:30": "30 21 * * *",
    "every day at 9:30": "30 9 * * *",
    "every day at 9:30 and 17:30": "30 9,17 * * *",
    "every day at 9am and at 5pm": "0 9,17 * * *",
    "every day at 09:00:30": "30 0 9 * * *",
    "3 times a day at 8am, noon and 4pm": "0 8,12,16 * * *",
    "once a day at noon": "0 12 * * *",
    "every day at 8am, noon, 4pm and 8pm": "0 8,12,16,20 * * *",
    "every day @ 9am": "0 9 * * *",
    "every noon": "0 12 * * *",
    "every midnight": "0 0 * * *",
    "daily at midday": "0 12 * * *",
    "nightly at 2am": "0 2 * * *",
    "once per day at 5pm": "0 17 * * *",
    # days of the month
    "on the 1st and 15th at 6am": "0 6 1,15 * *",
    "on the 1st and 15th of the month at 6am": "0 6 1,15 * *",
    "on the 1st and 15th of every month at 6am": "0 6 1,15 * *",
    "on the first day of the month at 6am": "0 6 1 * *",
    "on the 1st through 7th at 6am": "0 6 1-7 * *",
    "monthly on the 15th at noon": "0 12 15 * *",
    "every month on the 31st": "0 0 31 * *",
    "on the last day of the month at 23:00": "0 23 L * *",
    "on the last weekday of the month": "0 0 LW * *",
    "on the 1st and the last day of the month": "0 0 1,L * *",
    "on the last Friday of the month at 5pm": "0 17 * * 5L",
    "on the second Tuesday of the month at 10am": "0 10 * * 2#2",
    "on the second and fourth Tuesday of the month": "0 0 * * 2#2,2#4",
    "on the second at 9am": "0 9 2 * *",
    "every second of the month at 9am": "0 9 2 * *",
    "every first Monday of the month": "0 0 * * 1#1",
    "on the 13th of the month or on Friday at 9am": "0 9 13 * 5",
    "on the 1st through 7th of the month if it is a Monday": "0 0 */31,2-7 * 1",
    # months and dates
    "every January 1st at noon": "0 12 1 1 *",
    "on 1 January at noon": "0 12 1 1 *",
    "1st of January at noon": "0 12 1 1 *",
    "every year on March 15 at 8am": "0 8 15 3 *",
    "on January 1 and July 1 at noon": "0 12 1 1,7 *",
    "on the 1st of the month, the 1st of January at 9am": "0 9 1 * *",
    "in January and July on the 1st at 9am": "0 9 1 1,7 *",
    "every Monday in November through February": "0 0 * 1,2,11,12 1",
    "every quarter": "0 0 1 1,4,7,10 *",
    "every quarter at 9am": "0 9 1 1,4,7,10 *",
    "every 6 months": "0 0 1 1,7 *",
    "every second month": "0 0 1 1,3,5,7,9,11 *",
    "every other month at 9am": "0 9 1 1,3,5,7,9,11 *",
    # as the macros of cron
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "daily at 6am": "0 6 * * *",
    "weekly": "0 0 * * 0",
    "monthly": "0 0 1 * *",
    "yearly": "0 0 1 1 *",
    "annually": "0 0 1 1 *",
    # how often
    "every second": "* * * * * *",
    "every minute": "* * * * *",
    "every hour": "0 * * * *",
    "every five minutes": "*/5 * * * *",
    "every 30 seconds": "*/30 * * * * *",
    "every half hour": "*/30 * * * *",
    "every quarter hour": "*/15 * * * *",
    "every 2 hours": "0 */2 * * *",
    "once every 2 hours": "0 */2 * * *",
    "every 5m": "*/5 * * * *",
    "every 2h": "0 */2 * * *",
    "every 60 minutes": "0 * * * *",
    "every 0.5 hours": "*/30 * * * *",
    "every 15 minutes on weekdays": "*/15 * * * 1-5",
    "every hour at minute 5": "5 * * * *",
    "at minute 5 past every hour": "5 * * * *",
    "5 minutes past every hour": "5 * * * *",
    "at minute 5 past every second hour": "5 */2 * * *",
    "at 5 minutes past every 2 hours": "5 */2 * * *",
    "every 5th minute past hour 3": "*/5 3 * * *",
    "every hour at :15": "15 * * * *",
    "every hour at :15 and :45": "15,45 * * * *",
    "every hour on the hour": "0 * * * *",
    "every 2 hours on the half hour": "30 */2 * * *",
    "every third hour": "0 */3 * * *",
    "every other hour": "0 */2 * * *",
    "every second hour": "0 */2 * * *",
    "every 10th minute": "*/10 * * * *",
    "every 60th minute": "0 * * * *",
    "every half-hour": "*/30 * * * *",
    "every 2 h": "0 */2 * * *",
    "every 5minutes": "*/5 * * * *",
    "every minute at second 30": "30 * * * * *",
    "every hour from 9am to 5pm": "0 9-17 * * *",
    "every hour 9am-5pm on weekdays": "0 9-17 * * 1-5",
    "every 2 hours between 9am and 5pm on weekdays": "0 9-17/2 * * 1-5",
    "every 2 hours from 9:30 to 17:30": "30 9-17/2 * * *",
    "every 2 hours between 9am and 6pm": "0 9-17/2 * * *",
    "every 15 minutes from 09:00 to 16:59": "*/15 9-16 * * *",
    "every 15 minutes from 09:00 to 16:45": "*/15 9-16 * * *",
    # order and letters
    "at 9am every weekday": "0 9 * * 1-5",
    "in July at 9am every Monday": "0 9 * 7 1",
    "EVERY MONDAY AT 9AM": "0 9 * * 1",
    "  every   Monday,  at 9am. ": "0 9 * * 1",
}


@pytest.mark.req("H-03")
@pytest.mark.parametrize(("sentence", "expression"), table(PROMISED))
def test_a_promised_sentence_means_its_cron(sentence: str, expression: str) -> None:
    assert parse_sentence(sentence) == CronResult(expression, zone=None)


@pytest.mark.req("H-03")
@pytest.mark.parametrize(("sentence", "expression"), table(SPOKEN))
def test_typical_sentences_mean_their_cron_expressions(sentence: str, expression: str) -> None:
    assert parse_sentence(sentence) == CronResult(expression, zone=None)


@pytest.mark.req("H-03")
@pytest.mark.parametrize(
    ("sentence", "zone"),
    table(
        {
            "every Monday at 9am UTC": "UTC",
            "every Monday at 9am in UTC": "UTC",
            "every Monday at 9am utc": "UTC",
            "every Monday at 9am (Europe/Berlin)": "Europe/Berlin",
            "every Monday at 9am America/New_York": "America/New_York",
            "every Monday at 9am in America/Argentina/Buenos_Aires": "America/Argentina/Buenos_Aires",
            "at 9am Etc/GMT+5 every Monday": "Etc/GMT+5",
            "every Monday at 9am in Japan": "Japan",
            "every Monday at 9am in EST5EDT": "EST5EDT",
            "every Monday at 9am in NZ-CHAT": "NZ-CHAT",
        }
    ),
)
def test_a_zone_is_given_back(sentence: str, zone: str) -> None:
    assert parse_sentence(sentence) == CronResult("0 9 * * 1", zone)


@pytest.mark.req("H-03")
@pytest.mark.parametrize(
    ("sentence", "period"),
    table(
        {
            "every 7 minutes": timedelta(minutes=7),
            "every 90s": timedelta(seconds=90),
            "every 1h30m": timedelta(minutes=90),
            "every 1 hour and 30 minutes": timedelta(minutes=90),
            "every 1.5 hours": timedelta(minutes=90),
            "every 5 hours": timedelta(hours=5),
            "every 24 hours": timedelta(days=1),
            "every 3 days": timedelta(days=3),
            "every 3 d": timedelta(days=3),
            "every two weeks": timedelta(weeks=2),
            "every 500ms": timedelta(milliseconds=500),
            "every 100ms": timedelta(milliseconds=100),
            "every 36525 days": timedelta(days=36525),
        }
    ),
)
def test_a_period_that_divides_nothing_evenly_is_an_interval(sentence: str, period: timedelta) -> None:
    assert parse_sentence(sentence) == IntervalResult(period)


#: Refused sentences: the word at fault, and the suggestions.
REFUSED = {
    # cron cannot count
    "every other Monday at 9am": ("every other Monday", "on the first and third Monday of the month at 9am"),
    "every other day": ("every other day", "every 2 days"),
    "every other week": ("every other week", "every 2 weeks"),
    "every second Tuesday at 9am": (
        "every second Tuesday",
        "on the first and third Tuesday of the month at 9am",
    ),
    "every third Monday at 9am": ("every third Monday", "every third Monday of the month at 9am"),
    "on every third Monday": ("on every third Monday", "on every third Monday of the month"),
    "every 3rd day": ("every 3rd day", "every 3 days"),
    "biweekly": ("biweekly", "every 2 weeks"),
    "fortnightly at 9am": ("fortnightly", FALLBACK_EXAMPLE),
    "every 7th minute": ("every 7th minute", "every 7 minutes"),
    "twice a week": ("twice a week", FALLBACK_EXAMPLE),
    "every friday the 13th": ("every friday the 13th", FALLBACK_EXAMPLE),
    "every sunday the 13th": ("every sunday the 13th", "on the 13th of the month if it is a Sunday"),
    "end of month": ("end of month", "on the last day of the month"),
    "end of the month at 6pm": ("end of the month", "on the last day of the month at 6pm"),
    "bimonthly": ("bimonthly", "on the 1st and 15th of the month"),
    "every 5 months": ("every 5 months", "every 6 months"),
    "every 2 years": ("every 2 years", FALLBACK_EXAMPLE),
    "every 18 months": ("every 18 months", FALLBACK_EXAMPLE),
    "first weekday of the month at 9am": ("first weekday", "on the last weekday of the month at 09:00"),
    "every Monday, counted from its start": ("counted from its start", "every 7 minutes, counted from its start"),
    # times that are none
    "every day at 9": ("9", "every day at 09:00"),
    "every day at 17": ("17", "every day at 17:00"),
    "at 9": ("9", "every day at 09:00"),
    "mon-fri at 9": ("9", "mon-fri at 09:00"),
    "every hour between 9 and 17": ("9", "every hour between 09:00 and 17:00"),
    "every day at 13pm": ("13pm", "every day at 13:00"),
    "every day at 0am": ("0am", "every day at 00:00"),
    "every day at 25:00": ("25:00", "every day at 09:00"),
    "every day at 9:75": ("9:75", "every day at 09:00"),
    "every day at 9:5": ("5", "every day at 9:05"),
    "every day at 9.30am": ("9.30", "every day at 09:30am"),
    "every morning": ("every morning", "every day at 09:00"),
    "every Monday morning": ("morning", "every Monday at 09:00"),
    "every night at 2am": ("every night", "every day at 2am"),
    "each morning at 8": ("each morning", "every day at 08:00"),
    "each evening at 8": ("each evening", FALLBACK_EXAMPLE),
    "daily at 17h30": ("17h30", "daily at 17:30"),
    "at 17": ("17", "every day at 17:00"),
    "every day at nine am": ("nine", "every day at 9 am"),
    "every hour at :75": (":75", FALLBACK_EXAMPLE),
    # more than one schedule
    "every day at 9:00 and 17:30": ("at 9:00 and 17:30", "every day at 09:00"),
    "every Monday at 9am and Friday at 5pm": ("and", "every Monday at 9am"),
    "every Monday at 9am, Friday at 5pm": ("Friday", "every Monday at 9am"),
    "on the 13th and Friday at 9am": ("and", "on the 13th or on Friday at 9am"),
    "every 2 hours and every 5 minutes": ("and", "every 2 hours"),
    "on 1 January and 2 July": ("1 January and 2 July", "on 1 January"),
    "on monday 9am friday 10am": ("friday", "on monday 9am"),
    "every Monday and Friday on the 1st and 15th at 6pm": (
        "Monday and Friday",
        "on the 1st and 15th of the month or on Monday and Friday at 18:00",
    ),
    "on Monday or Friday at 9am": ("or", "on Monday and Friday at 9am"),
    "on the first Monday and Wednesday of the month": (
        "Wednesday",
        "on the first Monday and the first Wednesday of the month",
    ),
    "every week on the 1st": ("every week", "on the 1st"),
    "every day on Monday at 9am": ("every day", "on Monday at 9am"),
    "every week every 5 minutes": ("every week", "every 5 minutes"),
    "every 5 minutes at 9am": ("every 5 minutes", "every 5 minutes"),
    "every 5 minutes at minute 3 past hour 2": ("hour 2", FALLBACK_EXAMPLE),
    # windows
    "every hour from 9am to 9am": ("from 9am to 9am", "every hour from 09:00 to 23:00"),
    "every hour from 9am to 5pm at minute 5": ("from 9am to 5pm", "every hour at minute 5"),
    "every 15 minutes between 9am and 5pm": (
        "between 9am and 5pm",
        "every 15 minutes from 09:00 to 16:59",
    ),
    "every 10 minutes from 9:10 to 10:59": ("from 9:10 to 10:59", "every 10 minutes from 09:00 to 10:59"),
    "every 10 minutes from 9:00 to 10:15": ("from 9:00 to 10:15", "every 10 minutes from 09:00 to 10:59"),
    "every hour from 10pm to 6am": ("from 10pm to 6am", "every hour from 22:00 to 23:00"),
    "every day from 9am to 5pm": ("from 9am to 5pm", "every hour from 09:00 to 17:00"),
    # intervals stand alone
    "every 7 minutes on weekdays": ("every 7 minutes", "every 6 minutes on weekdays"),
    "every 90s from 9am to 5pm": ("every 90s", "every 90s"),
    "every 2 weeks at 9am": ("every 2 weeks", "every 2 weeks"),
    "every 7 minutes UTC": ("every 7 minutes", "every 6 minutes UTC"),
    # periods
    "every 0 minutes": ("every 0 minutes", "every minute"),
    "every -5 minutes": ("-", "every 5 minutes"),
    "every 50ms": ("every 50ms", "every 100ms"),
    "every 0.3333 seconds": ("every 0.3333 seconds", "every 333ms"),
    "every 99999999999999999999 minutes": ("every 99999999999999999999 minutes", "every 36525 days"),
    "every hour and a half": ("every hour and a half", "every 90 minutes"),
    "every 3mo": ("3mo", "every 3 months"),
    "every 30 minutes and 1 hour": ("every 30 minutes and 1 hour", "every 1 hour and 30 minutes"),
    "every minutes": ("minutes", "every minute"),
    "every 1,000 minutes": ("1,000", "every 1000 minutes"),
    # too little
    "": ("", FALLBACK_EXAMPLE),
    "   ": ("   ", FALLBACK_EXAMPLE),
    "every": ("", "every 5 minutes"),
    "every 5": ("", "every 5 minutes"),
    "at noon": ("at noon", "every day at noon"),
    "in January at 9am": ("at 9am", "every day in January at 9am"),
    "at minute 5": ("minute 5", "every hour at minute 5"),
    "at second 5": ("second 5", "every minute at second 5"),
    "twice daily": ("twice daily", "every day at 08:00 and 20:00"),
    "every month on Monday": ("Monday", "every month on the first Monday of the month"),
    "on the last at 9am": ("last", "on the last day of the month at 9am"),
    "on Monday if it is a Friday": ("Friday", FALLBACK_EXAMPLE),
    # exceptions
    "every day except Monday": ("except", "every Tuesday through Sunday"),
    "every day but sunday": ("but", "every Monday through Saturday"),
    "every weekday except friday at 9am": ("except", "every Monday through Thursday at 9am"),
    "every day at 9am except on weekends": ("except", "every weekday at 9am"),
    "not on sundays": ("not", "every Monday through Saturday"),
    "every monday except in august": ("except", FALLBACK_EXAMPLE),
    "every day at 9am and not on sundays in Europe/Berlin": ("not", FALLBACK_EXAMPLE),
    "sometimes": ("sometimes", "every hour"),
    # never, or once
    "on February 30": ("February 30", "on 29 February"),
    "on 31 February at 9am": ("31 February", "on 29 February at 9am"),
    "on the 31st of April": ("31st of April", "on 30 April"),
    "on the 32nd": ("32nd", "on the 1st"),
    "tomorrow at 9am": ("tomorrow", INSTANT),
    "in 5 minutes": ("in 5 minutes", INSTANT),
    "next Monday": ("next Monday", INSTANT),
    "Dec 1 2026 at 9am": ("Dec 1 2026", INSTANT),
    "12/01/2026 9am": ("12/01/2026", INSTANT),
    "once at noon": ("once", INSTANT),
    # zones
    "every Monday at 9am EST": ("EST", "every Monday at 9am America/New_York"),
    "every day at 9am in IST": ("in IST", "every day at 9am Asia/Kolkata"),
    "every day at 9am UTC+2": ("UTC+2", "every day at 9am Etc/GMT-2"),
    "every day at 9am Europe/Berln": ("Europe/Berln", "every day at 9am Europe/Berlin"),
    "every day at 9am in europe/berlin": ("europe/berlin", "every day at 9am in Europe/Berlin"),
    "every day at 9am America/New York": ("America/New York", "every day at 9am America/New_York"),
    "every day at 9am in new york": ("new york", "every day at 9am in America/New_York"),
    "every day in los angeles at 9am": ("los angeles", "every day in America/Los_Angeles at 9am"),
    "every day at 9am Berlin time": ("Berlin time", "every day at 9am Europe/Berlin"),
    "every day at 9am in japan": ("japan", "every day at 9am in Japan"),
    "every day at 9am Mars/Olympus": ("Mars/Olympus", FALLBACK_EXAMPLE),
    "every weekday at 9 London": ("9", "every weekday at 09:00 Europe/London"),
    # letters
    "every wekday at 9am": ("wekday", "every weekday at 9am"),
    "evry Munday at 9am": ("evry", "every Monday at 9am"),
    # the suggestion keeps the way of writing
    "everyday at 5 pm": ("everyday", "every day at 5 pm"),
    "Everyday at noon": ("Everyday", "Every day at noon"),
    "everymonday at 9:30 am": ("everymonday", "every monday at 9:30 am"),
    "daily atnoon": ("atnoon", "daily at noon"),
    "every \u0665 minutes": ("\u0665", "every 5 minutes"),
    "every \uff15 minutes": ("\uff15", "every 5 minutes"),
    "mon\u2013fri at 9am": ("\u2013", "mon-fri at 9am"),
    "every\x00day": ("\x00", "every day"),
    "every day at 9am \N{PARTY POPPER}": ("\N{PARTY POPPER}", "every day at 9am"),
    "\u6bce\u65e5 9:00": ("\u6bce", FALLBACK_EXAMPLE),
    "hello world": ("hello", FALLBACK_EXAMPLE),
    "please run every 5 minutes": ("please", "every 5 minutes"),
    # parts that a suggestion must not leave out
    "every leap year": ("leap", FALLBACK_EXAMPLE),
    "every full moon": ("full", FALLBACK_EXAMPLE),
    "every sat at sunset": ("sunset", FALLBACK_EXAMPLE),
    "every 3 hours starting at 1am": ("starting", FALLBACK_EXAMPLE),
    "every day at 9am for 5 days": ("for", FALLBACK_EXAMPLE),
    "every day at 9am-5pm": ("-5pm", FALLBACK_EXAMPLE),
    "every 1/2 hour": ("/2", FALLBACK_EXAMPLE),
    "second to last friday of the month": ("second", FALLBACK_EXAMPLE),
    "every hour during business hours": ("business", FALLBACK_EXAMPLE),
}


@pytest.mark.req("H-03")
@pytest.mark.parametrize(("sentence", "blamed"), table({text: blamed for text, (blamed, _) in REFUSED.items()}))
def test_a_refusal_points_at_the_words_to_blame(sentence: str, blamed: str) -> None:
    place = refusal(sentence).position

    assert place is not None
    assert sentence[place.start : place.end] == blamed


@pytest.mark.req("H-03")
@pytest.mark.parametrize(("sentence", "offered"), table({text: offered for text, (_, offered) in REFUSED.items()}))
def test_a_refusal_offers_a_sentence(sentence: str, offered: str) -> None:
    assert refusal(sentence).suggestion == offered


@pytest.mark.req("H-03")
@pytest.mark.parametrize("sentence", [pytest.param(text, id=text) for text in REFUSED])
def test_every_offered_sentence_is_a_schedule(sentence: str) -> None:
    assert parse_schedule(refusal(sentence).suggestion or "").describe()


@pytest.mark.parametrize(
    "sentence", [FALLBACK_EXAMPLE, *sorted({text for known in KNOWN_MISTAKES for text in known.otherwise})]
)
def test_every_example_is_a_schedule(sentence: str) -> None:
    assert parse_schedule(sentence).describe()


@pytest.mark.parametrize(
    ("sentence", "reason"),
    table(
        {
            "every wekday at 9am": 'has "wekday", which is not a word of schedules',
            "every day at 13pm": 'has "13pm", but with pm an hour is 1 to 12',
            "every day at 9:00 and 17:30": ("has 09:00 and 17:30, which one schedule cannot hold; make one for each"),
            "every 15 minutes between 9am and 5pm": "does not say whether it still runs at 17:00",
            "on February 30": "never happens: February has no 30th",
            "tomorrow at 9am": (
                'has "tomorrow", which names one moment; for that, give an instant such as 2026-12-01T09:00:00+00:00'
            ),
            "every": "ends before it says a whole schedule",
            "every 7th minute": 'has "every 7th minute", which does not divide its hour evenly',
            "every second year": 'has "every second year", which cron cannot count across years',
            "every friday the 13th": (
                'has "every friday the 13th", which wants a weekday and a day of the month at once; '
                "cron can only want either"
            ),
            "every day at 9am Europe/Berln": 'has "Europe/Berln", which is not an IANA time zone',
        }
    ),
)
def test_a_refusal_says_why(sentence: str, reason: str) -> None:
    assert refusal(sentence).reason == reason


def test_a_refusal_marks_the_word_in_the_text_as_it_was_typed() -> None:
    error = refusal("  EVERY   Wekday at 9am")

    assert (error.position, error.understood) == (Position(10, 16), "  EVERY")


def test_a_refusal_says_what_could_have_followed() -> None:
    assert refusal("every wekday").expected == (
        "a weekday",
        "a month",
        "a day such as 1st",
        "a number",
        "a unit such as minutes",
    )


def test_no_more_than_five_things_are_said_to_be_expected() -> None:
    assert len(refusal("evry day").expected) == 5


def test_a_long_text_is_refused_at_once() -> None:
    text = "every day " * 1000
    parse_sentence("daily")

    error, calls = refusal(text), counted_calls(lambda: refusal(text))

    assert calls < 1000
    assert error.reason == "has 10000 characters; 500 is the most"


def test_the_grammar_has_no_conflicts(caplog: pytest.LogCaptureFixture) -> None:
    from lark import Lark, logger

    from gnomon.core.english.normalizer import TokenNormalizer

    caplog.set_level(logging.DEBUG, logger=logger.name)
    Lark.open_from_package(
        "gnomon.core.english", "grammar.lark", parser="lalr", lexer="basic", postlex=TokenNormalizer(), debug=True
    )

    assert "onflict" not in caplog.text


def test_describing_does_not_load_the_parser() -> None:
    program = (
        "import sys; from gnomon.core.cron.dialect_standard import parse; "
        "from gnomon.core.english import describe; "
        "describe(parse('0 9 * * 1-5')); sys.exit('lark' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


DOCUMENTED = re.findall(
    r"^\| `([^`]+)` \| (?:.*\| )?`([^`]+)` \|$",
    (Path(__file__).parents[3] / "docs" / "sentences.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)


@pytest.mark.req("H-03")
@pytest.mark.parametrize(("sentence", "shown"), [pytest.param(*row, id=row[0]) for row in DOCUMENTED])
def test_examples_of_the_documentation_are_true(sentence: str, shown: str) -> None:
    assert shown == documented(sentence)


def documented(sentence: str) -> str:
    """The cell of a table of the documentation beside a sentence."""
    try:
        found = parse_sentence(sentence)
    except SentenceError as error:
        return error.suggestion or ""
    return found.expression if isinstance(found, CronResult) else str(found.period)


WORDS = (
    "every|each|at|on|in|of|the|and|or|,|.|-|from|to|between|through|past|"
    "if it is a|by elapsed time|a|an|twice|once|times|half|quarter|other|last|first|"
    "second|third|1st|15th|31st|32nd|0|1|5|7|30|61|1.5|two|9am|12pm|13pm|09:00|"
    "16:59|25:00|noon|midnight|second|seconds|minute|minutes|hour|hours|day|days|week|"
    "month|months|year|Monday|tue|weekday|weekends|January|feb|hourly|daily|weekly|"
    "yearly|90s|1h30m|500ms|UTC|Europe/Berlin|EST|every day|every 5 minutes|at 9am|"
    "of the month|on the 1st|tomorrow|wekday|mon/wed|in Japan|in berlin|Europe/Berln|per|nightly|:15|other|"
    "on the hour|2 h|5minutes|Dec 1 2026|end of|in new york"
).split("|")

sentences = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)


@EXAMPLES
@given(st.text() | st.text(alphabet="0123456789:.-*/ amp") | sentences)
def test_any_text_is_read_or_refused_with_an_offer(text: str) -> None:
    error, offered = None, "every day"
    try:
        parse_sentence(text)
    except SentenceError as refused:
        error, offered = refused, refused.suggestion or ""

    assert str(error).isprintable()
    assert parse_schedule(offered).next_after(datetime(2026, 1, 1, tzinfo=UTC))


@EXAMPLES
@given(sentences, st.sampled_from(["except", "but not", "not on", "never", "but"]), sentences)
def test_an_offer_never_drops_a_negation(before: str, negation: str, after: str) -> None:
    text = f"{before} {negation} {after} at 9am in Europe/Berlin"[:500]
    offered = refusal(text).suggestion or ""

    assert offered == FALLBACK_EXAMPLE or re.search(
        "every (Mon|Tues|Wednes|Thurs|Fri|Satur|Sun|week)|on weekends", offered
    )


@pytest.mark.req("H-22")
@pytest.mark.parametrize("word", ["abc ", "a_b ", "in abc ", "abc/def ", "wekday "])
def test_many_unknown_words_are_refused_in_no_time(word: str) -> None:
    refusal("every day in Neu York")
    text = (word * 500)[:500]

    # With all words compared to all time zones it took 0.12 s, and 0.01 s since.
    assert is_done_within(0.05, lambda: refusal(text))
