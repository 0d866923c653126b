"""The table of pools while its file is written, broken and mended."""

import pytest

from gnomon.core.runs.routing import Pools
from gnomon.errors import UsageError
from gnomon.services.maintenance.file_sync import PoolsFileSync, WatchedFile
from support.execution import ExecutionHarness

pytestmark = pytest.mark.req("R-10")
FIRST, SECOND = Pools(topics={"a": ("one",)}), Pools(topics={"b": ("two",)})


class EditableFile:
    """A file that a test writes."""

    def __init__(self) -> None:
        self.number = 0
        self.says: Pools | str = FIRST

    def write(self, says: Pools | str) -> None:
        self.number += 1
        self.says = says

    def read(self) -> Pools:
        if isinstance(self.says, str):
            raise UsageError(self.says)
        return self.says

    def watched(self) -> WatchedFile[Pools]:
        return WatchedFile("pools.yaml", stamp=lambda: self.number, digest=lambda: self.number, read=self.read)


async def test_what_the_file_says_counts_and_counts_anew_when_it_changes() -> None:
    harness, file = ExecutionHarness(), EditableFile()
    keeper = PoolsFileSync(file.watched(), harness.dispatcher.router, harness.events, on_change=lambda: None)
    await keeper.read()
    assert harness.dispatcher.router.pools == FIRST
    await keeper.step()
    assert harness.events.names() == ["pools_read"]

    file.write(SECOND)
    await keeper.step()

    assert harness.dispatcher.router.pools == SECOND


async def test_whoever_waits_for_a_pool_hears_that_the_table_has_changed() -> None:
    harness, file, told = ExecutionHarness(), EditableFile(), list[str]()
    keeper = PoolsFileSync(
        file.watched(), harness.dispatcher.router, harness.events, on_change=lambda: told.append("changed")
    )
    await keeper.read()
    file.write("line 3 is wrong")
    await keeper.step()
    file.write(SECOND)
    await keeper.step()

    assert told == ["changed"] * 2


async def test_a_broken_file_is_reported_once_and_what_it_said_goes_on_counting() -> None:
    harness, file = ExecutionHarness(), EditableFile()
    keeper = PoolsFileSync(file.watched(), harness.dispatcher.router, harness.events, on_change=lambda: None)
    await keeper.read()

    file.write("line 3 is wrong")
    await keeper.step()
    await keeper.step()

    assert harness.dispatcher.router.pools == FIRST
    assert harness.events.names() == ["pools_read", "pools_refused"]
    file.write(SECOND)
    await keeper.step()
    assert harness.dispatcher.router.pools == SECOND


async def test_at_the_start_a_broken_file_is_refused() -> None:
    harness, file = ExecutionHarness(), EditableFile()
    file.write("line 3 is wrong")

    with pytest.raises(UsageError, match="line 3"):
        await PoolsFileSync(file.watched(), harness.dispatcher.router, harness.events, on_change=lambda: None).read()
