"""Ids are drawn: no two alike, and those drawn one after the other in order."""

import threading
from uuid import UUID

from contracts.store import NOON
from gnomon.adapters.host import RandomIds


def test_ids_of_one_millisecond_grow_in_the_order_in_which_they_are_drawn() -> None:
    ids = RandomIds()
    drawn = [ids.new("sch", NOON) for _ in range(10_000)]

    assert drawn == sorted(drawn)
    assert len(set(drawn)) == len(drawn)


def test_an_id_is_a_uuid_of_version_seven_that_begins_with_its_time() -> None:
    ids = RandomIds()
    for drawn in (ids.new("run", NOON), ids.new("run", NOON), ids.new("run", NOON + 1)):
        found = UUID(drawn.removeprefix("run_"))

        assert found.version == 7
        assert found.int >> 80 in (NOON, NOON + 1)


def test_two_who_draw_at_the_same_instant_get_different_ids() -> None:
    assert RandomIds().new("run", NOON) != RandomIds().new("run", NOON)


def test_threads_never_draw_the_same_id() -> None:
    ids, drawn = RandomIds(), list[str]()
    threads = [
        threading.Thread(target=lambda: drawn.extend(ids.new("run", NOON) for _ in range(2000))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(drawn)) == 8000
