"""Two ways of firing compared: what stays, comes, goes and moves."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.instants import ms_of
from gnomon.core.ledger.forecast import FireChange, FireChangeKind, FireDiff, NamedSpec, fire_diff
from gnomon.core.model import DAY_MS, Spec
from gnomon.core.schedule_parser import parse_schedule

NOON = ms_of(datetime(2026, 11, 16, 12, tzinfo=UTC))  # a Monday
HOUR = DAY_MS // 24


def firing(said: str | None, **spec: Any) -> NamedSpec | None:  # noqa: ANN401 - any field of a spec
    return None if said is None else NamedSpec("job", Spec(trigger=parse_schedule(said), workflow_id="job", **spec))


def diff(before: str | None, after: str | None, *, days: int = 14, most: int = 5_000) -> FireDiff:
    return fire_diff(firing(before), firing(after), now=NOON, until=NOON + days * DAY_MS, most=most)


def counts(found: FireDiff) -> tuple[int, int, int, int]:
    return (
        found.same,
        found.count(FireChangeKind.ADDED),
        found.count(FireChangeKind.REMOVED),
        found.count(FireChangeKind.MOVED),
    )


@pytest.mark.parametrize(
    ("before", "after", "same", "added", "removed", "moved"),
    [
        ("0 2 * * *", "0 2 * * *", 14, 0, 0, 0),
        (None, "0 2 * * *", 0, 14, 0, 0),
        ("0 2 * * *", None, 0, 0, 14, 0),
        ("0 2 * * *", "0 3 * * *", 0, 0, 0, 14),
        ("0 2 * * *", "0 2 * * 1-5", 10, 0, 4, 0),
        ("0 2 * * 1-5", "0 2 * * *", 10, 4, 0, 0),
        ("0 2 * * *", "0 3 * * 2", 0, 0, 12, 2),
        ("0 * * * *", "0 */2 * * *", 168, 0, 168, 0),
    ],
)
def test_fires_stay_come_go_and_move(
    before: str | None, after: str | None, same: int, added: int, removed: int, moved: int
) -> None:
    assert counts(diff(before, after)) == (same, added, removed, moved)


def test_a_fire_that_moves_to_a_time_that_is_past_today_is_gone_today() -> None:
    found = diff("0 13 * * *", "0 11 * * *", days=3)

    assert found.changes[0] == FireChange(fate=FireChangeKind.REMOVED, before_at=NOON + HOUR)
    assert counts(found) == (0, 0, 1, 3)


def test_a_fire_that_moves_past_the_last_day_is_not_taken_for_one_that_is_gone() -> None:
    assert counts(diff("0 11 * * *", "0 13 * * *", days=1)) == (0, 1, 0, 1)


def test_each_moved_fire_is_paired_with_the_nearest() -> None:
    moved = [change for change in diff("0 2 * * *", "30 1 * * *").changes if change.fate is FireChangeKind.MOVED]

    assert {(one.after_at or 0) - (one.before_at or 0) for one in moved} == {-HOUR // 2}


def test_unpaired_fires_between_pairs_are_paired_around_them() -> None:
    assert counts(diff("0,11 6 * * *", "10,25 6 * * *", days=1)) == (0, 0, 0, 2)


def test_a_fire_more_than_a_week_away_is_another_fire() -> None:
    assert counts(diff("0 0 20 11 *", "0 0 29 11 *")) == (0, 1, 1, 0)


def test_a_job_that_fires_every_second_is_compared_for_a_while_and_counted_in_all() -> None:
    found = diff("* * * * * *", "*/2 * * * * *", most=100)

    assert (found.before, found.after) == (14 * 86_400, 7 * 86_400)
    assert found.compared_until == NOON + 100_000
    assert counts(found) == (50, 0, 50, 0)


def test_a_new_job_that_fires_every_second_is_counted_whole_and_shown_in_part() -> None:
    found = diff(None, "* * * * * *", most=10)

    assert (found.count(FireChangeKind.ADDED), len(found.changes)) == (14 * 86_400, 10)


def test_an_unchanged_job_that_fires_every_second_is_not_walked() -> None:
    assert counts(diff("* * * * * *", "* * * * * *", days=366)) == (366 * 86_400, 0, 0, 0)


def test_a_window_that_closes_takes_fires_away() -> None:
    ends = fire_diff(firing("0 * * * *"), firing("0 * * * *", end_at=NOON + 2 * HOUR), now=NOON, until=NOON + 4 * HOUR)

    assert counts(ends) == (1, 0, 3, 0)


HOURS = st.lists(st.integers(0, 23), min_size=1, max_size=6, unique=True).map(lambda hours: ",".join(map(str, hours)))


@given(HOURS, HOURS)
def test_every_fire_of_either_side_is_accounted_for_once(before: str, after: str) -> None:
    found = diff(f"0 {before} * * *", f"30 {after} * * *", days=5)

    until = NOON + 5 * DAY_MS
    old = [one.before_at for one in found.changes if one.before_at is not None and one.before_at <= until]
    new = [one.after_at for one in found.changes if one.after_at is not None and one.after_at <= until]
    assert (len(set(old)), len(set(new))) == (len(old), len(new))
    assert (len(old) + found.same, len(new) + found.same) == (found.before, found.after)
    assert all(one.at <= other.at for one, other in pairwise(found.changes))
