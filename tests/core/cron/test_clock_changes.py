"""The effect of clock changes on a schedule, described in advance."""

from datetime import UTC, datetime, timedelta

import pytest

from gnomon import Cron, Dst
from gnomon.core.cron.clock_changes import clock_changes

START = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)

FORWARD = "clocks go forward from 02:00 to 03:00"
BACK = "clocks go back from 02:00 to 01:00"


@pytest.mark.parametrize(
    ("expression", "dst", "sentences"),
    [
        pytest.param(
            "30 2 * * *",
            Dst(),
            [f"{FORWARD}: skipped times fire once, at 03:00", f"{BACK}: no fire is affected"],
            id="a daily time that is skipped",
        ),
        pytest.param(
            "30 2 * * *",
            Dst(gap="skip"),
            [f"{FORWARD}: skipped times do not fire", f"{BACK}: no fire is affected"],
            id="skipped on purpose",
        ),
        pytest.param(
            "30 1 * * *",
            Dst(),
            [
                f"{FORWARD}: no fire is affected",
                f"{BACK}: repeated times fire the first time only",
            ],
            id="a daily time that is repeated",
        ),
        pytest.param(
            "30 1 * * *",
            Dst(fold="both"),
            [f"{FORWARD}: no fire is affected", f"{BACK}: repeated times fire both times"],
            id="repeated on purpose",
        ),
        pytest.param(
            "*/10 * * * *",
            Dst(),
            [
                f"{FORWARD}: fires follow elapsed time",
                f"{BACK}: fires follow elapsed time",
            ],
            id="elapsed time",
        ),
        pytest.param(
            "*/10 2 * * *",
            Dst(),
            [f"{FORWARD}: skipped times do not fire", f"{BACK}: no fire is affected"],
            id="elapsed time within an hour that is skipped",
        ),
    ],
)
def test_every_change_of_the_year_is_explained(expression: str, dst: Dst, sentences: list[str]) -> None:
    cron = Cron(expression, "America/New_York", dst=dst)

    found = [change.describe() for change in clock_changes(cron, after=START, until=START + YEAR)]

    assert found == sentences


def test_a_change_is_given_in_the_new_local_time() -> None:
    [forward, _] = clock_changes(Cron("@daily", "Europe/Rome"), after=START, until=START + YEAR)

    assert forward.at.isoformat() == "2026-03-29T03:00:00+02:00"
    assert forward.instead_of.isoformat() == "2026-03-29T02:00:00+01:00"


def test_there_are_no_changes_in_utc() -> None:
    assert list(clock_changes(Cron("@daily"), after=START, until=START + 50 * YEAR)) == []
