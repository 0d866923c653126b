"""The tuning of a process: garbage collection and thread switching."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.app.server import tune_gc
from support.command_line import run_command


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    looks = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*looks)


class SoleNodeStub:
    """Knows nobody but itself."""

    def __init__(self) -> None:
        self.myself = self


async def test_objects_of_the_start_are_frozen_for_the_garbage_collector() -> None:
    tune_gc(after=0)
    await asyncio.sleep(0.001)

    assert gc.get_freeze_count() > 0


async def test_little_garbage_is_kept_once_the_start_is_over() -> None:
    tune_gc(after=0)
    at_the_start = gc.get_threshold()[0]
    await asyncio.sleep(0.001)

    assert gc.get_threshold()[0] < at_the_start


def test_a_command_seldom_looks_for_garbage_in_what_it_loads(tmp_path: Path) -> None:
    gc.set_threshold(700)

    run_command("--version", folder=tmp_path)

    assert gc.get_threshold()[0] >= 10_000


async def test_garbage_is_collected_again_and_again() -> None:
    tune_gc(after=60, every=0.001)
    for _ in range(2):
        gone = asyncio.Event()
        made = SoleNodeStub()
        gc.collect()  # so that it is old
        weakref.finalize(made, gone.set)
        del made

        await asyncio.wait_for(gone.wait(), 10)


async def test_while_much_is_made_all_that_there_is_is_not_looked_at_all_the_time() -> None:
    tune_gc(after=60, every=60)
    before = gc.get_stats()[2]["collections"]

    kept = [[number] for number in range(1_000_000)]

    assert gc.get_stats()[2]["collections"] == before
    assert len(kept) == 1_000_000
