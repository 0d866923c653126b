"""A clock that is set by somebody else's."""

import pytest

from gnomon.adapters.host import SystemClock
from gnomon.adapters.synced_clock import StoreSyncedClock

HOUR = 3_600_000


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time of the machine's clock."""
    shows = [1_000_000]
    monkeypatch.setattr(SystemClock, "now", lambda _: shows[0])
    monkeypatch.setattr(SystemClock, "until", lambda _, at: (at - shows[0]) / 1000)
    return shows


@pytest.mark.guarantee("C10", "S16")
@pytest.mark.parametrize("wrong", [HOUR, -HOUR, 501])
def test_it_shows_what_the_other_shows(machine: list[int], wrong: int) -> None:
    clock = StoreSyncedClock()
    asked_at = clock.now()

    assert clock.synchronize(machine[0] - wrong, asked_at=asked_at) == wrong

    machine[0] += 5_000
    assert clock.now() == 1_005_000 - wrong
    assert clock.until(1_006_000 - wrong) == 1


def test_a_difference_that_the_way_of_the_answer_explains_is_none(machine: list[int]) -> None:
    clock = StoreSyncedClock()
    asked_at = clock.now()
    machine[0] += 3_000

    assert clock.synchronize(asked_at, asked_at=asked_at) == 0
    assert clock.now() == machine[0]


def test_it_takes_the_middle_of_question_and_answer(machine: list[int]) -> None:
    clock = StoreSyncedClock()
    asked_at = clock.now()
    machine[0] += 100

    assert clock.synchronize(asked_at - HOUR, asked_at=asked_at) == HOUR + 50


def test_it_follows_a_clock_that_is_put_right_later(machine: list[int]) -> None:
    clock = StoreSyncedClock()
    clock.synchronize(machine[0] - HOUR, asked_at=clock.now())

    machine[0] -= HOUR
    assert clock.synchronize(machine[0], asked_at=clock.now()) == -HOUR
    assert clock.now() == machine[0]


@pytest.mark.guarantee("C10")
def test_it_is_never_ahead_of_an_answer_that_was_given_after_the_question(machine: list[int]) -> None:
    clock = StoreSyncedClock()

    assert clock.synchronize(machine[0] - 40, asked_at=clock.now()) == 0

    assert clock.now() == machine[0] - 40
