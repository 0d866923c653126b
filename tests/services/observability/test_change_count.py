"""The count of changes tells a page whether anything has changed since it was made, for a while and no longer."""

import asyncio

import pytest

from gnomon.core.instants import instant_of
from gnomon.ports.auth import Caller
from gnomon.ports.change_log import Change
from gnomon.services.observability import change_stream
from gnomon.services.observability.change_stream import ChangeStream

EVE, BOB = Caller("eve", frozenset()), Caller("bob", frozenset(), "other")


def changed(tenant: str = "default") -> Change:
    return Change("tick", tenant, instant_of(0), {})


async def test_a_page_is_counted_for_until_its_stream_begins() -> None:
    stream = ChangeStream()
    count, before = stream.count_for(EVE)
    stream.publish([changed(), changed("other"), changed()])

    subscriber = stream.subscribe(EVE)
    assert (subscriber.count, subscriber.number) == (count, before + 2)
    assert stream.count_for(EVE) == (count, before + 2)
    assert stream.count_for(BOB)[0] != count


async def test_the_count_goes_on_from_one_page_to_the_next() -> None:
    stream = ChangeStream()
    first = stream.subscribe(EVE)
    count = stream.count_for(EVE)
    stream.unsubscribe(first)
    stream.publish([changed()])

    assert stream.followed
    assert stream.count_for(EVE) == (count[0], count[1] + 1)


async def test_nothing_is_counted_once_nobody_has_looked_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_stream, "_COUNTED_SECONDS", 0.0)
    stream = ChangeStream(reads_log=True)
    stream.count_for(EVE)
    stream.set_complete()
    count, _ = stream.count_for(EVE)
    subscriber = stream.subscribe(EVE)
    for _ in range(3):
        await asyncio.sleep(0)
    assert stream.followed

    stream.unsubscribe(subscriber)
    assert not stream.followed
    # A later page cannot know what was not counted.
    assert stream.count_for(EVE)[0] == "" != count


async def test_a_page_says_that_it_does_not_know_while_changes_of_other_processes_are_not_read() -> None:
    stream = ChangeStream(reads_log=True)

    assert stream.count_for(EVE) == ("", 0)
    assert stream.wake.is_set()
    stream.set_complete()
    assert stream.count_for(EVE)[0] != ""
