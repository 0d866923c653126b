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


async def test_pools_of_the_file_apply_and_apply_again_when_it_changes() -> None:
    harness, file = ExecutionHarness(), EditableFile()
    file_sync = PoolsFileSync(file.watched(), harness.dispatcher.router, harness.events, on_change=lambda: None)
    await file_sync.read()
    assert harness.dispatcher.router.pools == FIRST
    await file_sync.step()
    assert harness.events.names() == ["pools_read"]

    file.write(SECOND)
    await file_sync.step()

    assert harness.dispatcher.router.pools == SECOND


async def test_a_changed_file_wakes_the_dispatcher() -> None:
    harness, file, reported = ExecutionHarness(), EditableFile(), list[str]()
    file_sync = PoolsFileSync(
        file.watched(), harness.dispatcher.router, harness.events, on_change=lambda: reported.append("changed")
    )
    await file_sync.read()
    file.write("line 3 is wrong")
    await file_sync.step()
    file.write(SECOND)
    await file_sync.step()

    assert reported == ["changed"] * 2


async def test_a_broken_file_is_reported_once_and_its_last_content_stays_in_force() -> None:
    harness, file = ExecutionHarness(), EditableFile()
    file_sync = PoolsFileSync(file.watched(), harness.dispatcher.router, harness.events, on_change=lambda: None)
    await file_sync.read()

    file.write("line 3 is wrong")
    await file_sync.step()
    await file_sync.step()

    assert harness.dispatcher.router.pools == FIRST
    assert harness.events.names() == ["pools_read", "pools_refused"]
    file.write(SECOND)
    await file_sync.step()
    assert harness.dispatcher.router.pools == SECOND


async def test_at_the_start_a_broken_file_is_refused() -> None:
    harness, file = ExecutionHarness(), EditableFile()
    file.write("line 3 is wrong")

    with pytest.raises(UsageError, match="line 3"):
        await PoolsFileSync(file.watched(), harness.dispatcher.router, harness.events, on_change=lambda: None).read()
