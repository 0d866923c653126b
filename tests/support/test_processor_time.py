"""The bounds on processor time tell a defect from a slow machine."""

import pytest

from support import processor_time
from support.processor_time import is_done_within, slowness


def work(count: int) -> int:
    return sum(number * number for number in range(count))


def test_work_that_takes_much_longer_is_not_done_in_time() -> None:
    assert is_done_within(5, lambda: work(1000))
    assert not is_done_within(0.0005, lambda: work(1_000_000))


def test_a_machine_that_is_slower_has_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slowness() >= 1
    monkeypatch.setattr(processor_time, "_USUAL_SECONDS", 1e-9)

    assert slowness() > 1000
    assert is_done_within(0.0005, lambda: work(1_000_000))


def test_an_error_of_the_work_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        is_done_within(1, lambda: 1 // 0)
