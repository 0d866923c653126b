"""The state file: one writer, nothing half-written, nothing lost when a process is killed; and the host's own zone."""

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gnomon.declarative import MemoryState, Scheduler, State, errors
from gnomon.declarative.cron import HostZone, Occurrences
from gnomon.declarative.events import Event
from gnomon.declarative.state import StateFile, state_at
from support import declarative_process

HOUR = timedelta(hours=1)


async def nothing() -> None: ...


# ---- what every state does -----------------------------------------------------------------------


@pytest.fixture(params=["memory", "file"])
def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], State]:
    """The same rows, each time as another process would see them."""
    if request.param == "file":
        return lambda: StateFile(tmp_path / "state.db")
    memory = MemoryState()
    return lambda: memory


@pytest.mark.req("D-16")
async def test_records_are_read_in_the_order_of_their_numbers(reopened: Callable[[], State]) -> None:
    state = reopened()
    assert await state.open() == []
    await state.write([(2, "b"), (1, "a"), (3, "c")])
    await state.write([(1, "A")], removed=[3])
    await state.close()

    again = reopened()

    assert await again.open() == [(1, "A"), (2, "b")]
    await again.close()


@pytest.mark.req("D-16")
async def test_writing_the_same_twice_changes_nothing(reopened: Callable[[], State]) -> None:
    state = reopened()
    await state.open()
    for _ in range(2):
        await state.write([(1, "a")], removed=[2])
    await state.close()

    again = reopened()

    assert await again.open() == [(1, "a")]
    await again.close()


@pytest.mark.req("D-16")
async def test_a_second_process_is_refused_until_the_first_releases_the_lock(
    reopened: Callable[[], State], tmp_path: Path
) -> None:
    first, second = reopened(), reopened()
    await first.open()

    with pytest.raises(errors.StateInUseError) as caught:
        await second.open()
    await first.close()
    assert ".db" not in str(caught.value)
    assert caught.value.details["file"] == (str(tmp_path / "state.db") if isinstance(first, StateFile) else None)

    assert await second.open() == []
    await second.close()
    await second.close()


@pytest.mark.req("D-16")
async def test_of_two_who_come_at_once_one_gets_it(reopened: Callable[[], State]) -> None:
    both = [reopened(), reopened()]

    opened = await asyncio.gather(*(state.open() for state in both), return_exceptions=True)
    for state in both:
        await state.close()

    assert sorted(type(answer).__name__ for answer in opened) == ["StateInUseError", "list"]


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.req("D-16")
async def test_a_write_that_fails_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state.db")
    await state.open()
    await state.write([(1, "a")])

    with pytest.raises(errors.StateUnavailableError) as caught:
        await state.write([(1, "b"), (2, None)], removed=[1])  # type: ignore[list-item]  # the file refuses it

    assert str(caught.value) == "Cannot write the state file: SQLITE_CONSTRAINT_NOTNULL"
    assert caught.value.details["file"] == str(tmp_path / "state.db")
    await state.write([(3, "c")])
    await state.close()
    assert await state.open() == [(1, "a"), (3, "c")]
    await state.close()


@pytest.mark.req("D-16")
async def test_every_commit_is_flushed(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state.db")
    await state.open()

    assert state._connection is not None  # noqa: SLF001 - there is no other way to ask
    assert state._connection.execute("PRAGMA synchronous").fetchone() == (2,)  # noqa: SLF001
    await state.close()


@pytest.mark.req("D-12", "D-16")
async def test_a_stopped_scheduler_leaves_one_file(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/state.db")
    await scheduler.initialize([("a", "0 0 29 2 *", nothing, HOUR)])
    await scheduler.stop()

    assert names_in(tmp_path) == ["state.db"]


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def not_a_database(path: Path) -> None:
    path.write_text("once upon a time " * 100)


def of_something_else(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE run (id INTEGER)")
    connection.close()


def of_a_newer_scheduler(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 1735290733")
        connection.execute("PRAGMA user_version = 2")
        connection.execute("CREATE TABLE task (id INTEGER)")
    connection.close()


@pytest.mark.req("D-12", "D-16")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (not_a_database, "Cannot open the state file: SQLITE_NOTADB"),
        (Path.mkdir, "Cannot open the state file: SQLITE_CANTOPEN"),
        (of_something_else, "Cannot initialize scheduler: the state file belongs to another program"),
        (of_a_newer_scheduler, "Cannot initialize scheduler: the state file has version 2; this scheduler knows 1"),
    ],
)
async def test_a_file_that_is_not_ours_is_refused_and_left_as_it_is(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    path = tmp_path / "state.db"
    make(path)
    before = path.read_bytes() if path.is_file() else b""
    scheduler = Scheduler(path)

    with pytest.raises(errors.SchedulerError) as caught:
        await scheduler.initialize([("a", "* * * * *", nothing, HOUR)])

    assert str(caught.value) == message
    assert str(tmp_path) not in str(caught.value)
    assert caught.value.details["file"] == str(path)
    assert (path.read_bytes() if path.is_file() else b"") == before
    path.rmdir() if path.is_dir() else path.unlink()
    await scheduler.initialize([("a", "0 0 29 2 *", nothing, HOUR)])
    await scheduler.stop()


@pytest.mark.req("D-01")
def test_a_relative_place_is_meant_from_where_the_scheduler_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = [state_at("state.db"), state_at("sqlite:///state.db"), state_at(f"sqlite:///{tmp_path}/state.db")]

    assert {state._path for state in places if isinstance(state, StateFile)} == {tmp_path / "state.db"}  # noqa: SLF001


# ---- real time, real processes -------------------------------------------------------------------


@pytest.mark.req("D-01", "D-02", "D-07")
async def test_on_the_clock_of_the_host_a_failed_task_is_retried_in_its_time(tmp_path: Path) -> None:
    started, times = asyncio.Event(), []

    async def body() -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            raise ValueError
        started.set()

    scheduler = Scheduler(tmp_path / "state.db")
    await scheduler.initialize([("a", "* * * * *", body, timedelta(seconds=1))])
    await asyncio.wait_for(started.wait(), 30)
    await scheduler.stop()

    assert times[1] - times[0] >= 0.999


@pytest.mark.thorough
@pytest.mark.req("D-17")
@pytest.mark.timeout(300)
async def test_a_hundred_thousand_tasks_that_are_due_together_start_well_within_a_minute(tmp_path: Path) -> None:
    tasks, begun, all_begun = 100_000, set[int](), asyncio.Event()

    def body(number: int) -> Callable[[], Awaitable[None]]:
        async def begin() -> None:
            begun.add(number)
            if len(begun) == tasks:
                all_begun.set()

        return begin

    scheduler = Scheduler(tmp_path / "state.db")
    work = [(f"task {n}", "* * * * *", body(n), HOUR) for n in range(tasks)]
    # On a busy machine the clock says more about others than about this process.
    before = time.process_time()
    await scheduler.initialize(work)
    await all_begun.wait()
    took = time.process_time() - before
    await scheduler.stop()

    assert took < 30


@pytest.fixture
def killable(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process whose one task never ends."""
    command = [sys.executable, declarative_process.__file__, str(tmp_path / "state.db")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def wait_for(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdout is not None
    while text not in (line := process.stdout.readline()):
        assert line, "it ended"


@pytest.mark.req("D-13", "D-14", "D-16", "D-17")
async def test_a_killed_process_lets_go_of_its_file_and_what_it_ran_is_started_again_at_once(
    tmp_path: Path, killable: "subprocess.Popen[str]"
) -> None:
    wait_for(killable, "TaskRunStarted endless registration")
    events: list[Event] = []
    again = asyncio.Event()
    scheduler = Scheduler(tmp_path / "state.db", on_event=events.append)

    async def endless() -> None:
        again.set()

    tasks = [("endless", "0 0 29 2 *", endless, HOUR)]
    with pytest.raises(errors.StateInUseError):
        await scheduler.initialize(tasks)
    killable.kill()
    killable.wait()
    await scheduler.initialize(tasks)
    await asyncio.wait_for(again.wait(), 30)
    await scheduler.stop()

    assert [event.cause for event in events if event.name == "TaskRunStarted"] == ["orphan"]


@pytest.mark.req("D-16")
def test_a_scheduler_may_live_in_one_event_loop_after_the_other(tmp_path: Path) -> None:
    scheduler = Scheduler(tmp_path / "state.db")

    async def live() -> None:
        await scheduler.initialize([("a", "0 0 29 2 *", nothing, HOUR)])
        await scheduler.stop()

    asyncio.run(live())
    asyncio.run(live())


@pytest.mark.req("D-16")
def test_a_program_that_ends_without_a_stop_leaves_its_run_interrupted() -> None:
    state = MemoryState()

    async def forget_to_stop() -> None:
        begun = asyncio.Event()

        async def endless() -> None:
            begun.set()
            await asyncio.Event().wait()

        await Scheduler(state).initialize([("a", "* * * * *", endless, HOUR)])
        await begun.wait()

    asyncio.run(forget_to_stop())

    [record] = state.rows.values()
    assert "schedulerIdentifier" in str(record)
    assert "lastFailureAt" not in str(record)


# ---- the host's zone -----------------------------------------------------------------------------


@pytest.fixture
def host_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    def move(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        time.tzset()

    yield move
    monkeypatch.undo()
    time.tzset()


@pytest.mark.req("D-02", "D-03")
@pytest.mark.parametrize("zone", ["America/New_York", "EST5EDT,M3.2.0,M11.1.0"])
def test_without_a_zone_the_clock_changes_are_those_of_the_host(host_in: Callable[[str], None], zone: str) -> None:
    host_in(zone)
    daily = Occurrences("30 2 * * *", HostZone())
    hourly = Occurrences("30 1 * * *", HostZone())

    skipped = daily.next_after(datetime(2026, 3, 7, 12, tzinfo=UTC))
    first = hourly.next_after(datetime(2026, 11, 1, 4, tzinfo=UTC))

    assert skipped == datetime(2026, 3, 9, 6, 30, tzinfo=UTC)
    assert first == datetime(2026, 11, 1, 5, 30, tzinfo=UTC)
    assert hourly.next_after(first) == datetime(2026, 11, 1, 6, 30, tzinfo=UTC)


@pytest.mark.req("D-02")
async def test_a_scheduler_without_a_zone_lives_in_that_of_the_host(host_in: Callable[[str], None]) -> None:
    host_in("Asia/Kolkata")
    now = datetime.now(UTC) + timedelta(hours=5, minutes=30)
    ran = asyncio.Event()

    async def body() -> None:
        ran.set()

    scheduler = Scheduler(MemoryState())
    hours = f"{now.hour},{(now.hour + 1) % 24}"
    await scheduler.initialize([("a", f"* {hours} * * *", body, HOUR)])
    await asyncio.wait_for(ran.wait(), 30)
    await scheduler.stop()
