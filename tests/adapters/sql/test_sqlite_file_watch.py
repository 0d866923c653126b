"""Changes of a database file by other processes are noticed: writes, and its removal."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from gnomon.adapters.sql.database_file import DatabaseFileMonitor
from gnomon.adapters.sql.sqlite import CommitWatcher


class AnnouncedChanges:
    """The events that were emitted."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def emit(self, name: str, **facts: object) -> None:
        self.events.append((name, facts["path"]))


@pytest.fixture
def heard() -> AnnouncedChanges:
    return AnnouncedChanges()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "gnomon.db"
    made.touch()
    return made


async def looked(guard: DatabaseFileMonitor, times: int = 2) -> None:
    for _ in range(times):
        await guard.step()


def write(file: Path) -> None:
    with closing(sqlite3.connect(file)) as other, other:
        other.execute("CREATE TABLE IF NOT EXISTS x (y)")
        other.execute("INSERT INTO x VALUES (1)")


def test_a_commit_is_noticed_once(file: Path) -> None:
    write(file)
    with closing(CommitWatcher(str(file))) as watch:
        before = watch.changed()
        write(file)

        assert (before, watch.changed(), watch.changed()) == (False, True, False)


def test_an_unreadable_file_state_counts_as_a_change(tmp_path: Path) -> None:
    with closing(CommitWatcher(str(tmp_path / "none.db"))) as watch:
        assert watch.changed()


async def test_a_watcher_reports_the_start_and_every_commit_until_it_is_stopped(file: Path) -> None:
    write(file)
    reported, stop = asyncio.Queue[None](), asyncio.Event()
    telling = asyncio.create_task(CommitWatcher(str(file)).watch(lambda: reported.put_nowait(None), stop))
    await reported.get()
    write(file)
    await asyncio.wait_for(reported.get(), 10)
    stop.set()
    await telling

    assert reported.empty()


def taken_and_put_back(file: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    kept = file.with_name("kept.db")
    return lambda: file.rename(kept), lambda: kept.rename(file)


def replaced(file: Path) -> None:
    other = file.with_name("other.db")
    other.touch()
    other.replace(file)


async def test_a_file_that_stays_is_not_mentioned(file: Path, heard: AnnouncedChanges) -> None:
    guard = DatabaseFileMonitor(str(file), heard)
    write(file)
    await looked(guard)

    assert heard.events == []


@pytest.mark.parametrize("taken", [Path.unlink, replaced, lambda file: file.rename(file.with_name("kept.db"))])
async def test_a_file_that_is_gone_is_said_once(
    file: Path, heard: AnnouncedChanges, taken: Callable[[Path], None]
) -> None:
    guard = DatabaseFileMonitor(str(file), heard)
    taken(file)
    await looked(guard)

    assert heard.events == [("database_gone", str(file))]


async def test_a_file_that_was_put_back_may_be_gone_again(file: Path, heard: AnnouncedChanges) -> None:
    guard, (take, put_back) = DatabaseFileMonitor(str(file), heard), taken_and_put_back(file)
    for _ in range(2):
        take()
        await looked(guard)
        put_back()
        await looked(guard)

    assert len(heard.events) == 2
