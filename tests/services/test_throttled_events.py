"""Events that clients can cause as often as they like, and the log that must not grow with them."""

from contracts.store import NOON
from gnomon.services.observed_events import ThrottledEvents
from gnomon.testing.clock import Recorder, VirtualClock


def test_one_event_a_second_of_each_cause_is_passed_on_and_the_others_are_counted() -> None:
    clock, log = VirtualClock(NOON), Recorder()
    throttled = ThrottledEvents(log, clock)

    for number in range(1000):
        throttled.emit("refused", cause="size", number=number)
    throttled.emit("refused", cause="syntax")
    clock.advance(1000)
    throttled.emit("refused", cause="size", number=1000)

    assert log.seen == [
        ("refused", {"cause": "size", "number": 0}),
        ("refused", {"cause": "syntax"}),
        ("refused", {"cause": "size", "number": 1000, "left_out": 999}),
    ]


def test_the_last_events_of_a_flood_are_not_forgotten() -> None:
    clock, log = VirtualClock(NOON), Recorder()
    throttled = ThrottledEvents(log, clock)
    for number in range(10):
        throttled.emit("refused", number=number)

    throttled.flush()
    assert len(log.seen) == 1
    clock.advance(1000)
    throttled.flush()
    throttled.flush()

    assert log.seen[1:] == [("refused", {"number": 9, "left_out": 8})]


def test_many_causes_do_not_fill_the_memory() -> None:
    clock, log = VirtualClock(NOON), Recorder()
    throttled = ThrottledEvents(log, clock)

    for number in range(10_000):
        throttled.emit("refused", cause=str(number))

    assert len(throttled._kinds) <= 200  # noqa: SLF001 - the memory in question
