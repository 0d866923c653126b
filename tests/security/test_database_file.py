"""The database file is the one that was opened, under one name, with its own log."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from gnomon.adapters.sql.connect import open_sqlite
from gnomon.adapters.sql.database_file import refuse_second_path, touch_database_id
from gnomon.adapters.sql.sqlite import FileLock, SqliteTransactions, refuse_network_disk
from gnomon.core.health import HealthCondition
from gnomon.errors import FileError, StoreUnavailable, UsageError
from gnomon.services.observability.health import HealthMonitor, StepFailures
from gnomon.testing.clock import VirtualClock
from support.command_line import run_command
from support.gnomon_processes import up

# ---- replaced while it is open -------------------------------------------------------------------


def deleted(file: Path) -> None:
    file.unlink()


def moved(file: Path) -> None:
    file.rename(file.with_name("kept.db"))


def replaced(file: Path) -> None:
    other = file.with_name("other.db")
    shutil.copy(file, other)
    other.rename(file)


def log_deleted(file: Path) -> None:
    Path(f"{file}-wal").unlink()


def put_back(file: Path) -> None:
    file.with_name("kept.db").rename(file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gnomon.db"


def rows_written_to(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM gnomon_meta WHERE key = 'written'").fetchone()[0])


@pytest.mark.parametrize("taken", [deleted, moved, replaced, log_deleted])
async def test_nothing_is_written_to_a_file_that_is_gone(file: Path, taken: Callable[[Path], None]) -> None:
    store = await open_sqlite(str(file))
    taken(file)
    ran: list[object] = []

    with pytest.raises(StoreUnavailable, match="moved, deleted or replaced while it was in use"):
        await store.transactions.write(ran.append)
    await store.close()
    assert ran == []


@pytest.mark.parametrize("taken", [deleted, replaced])
async def test_a_commit_during_which_the_file_goes_away_does_not_count(
    file: Path, taken: Callable[[Path], None]
) -> None:
    store = await open_sqlite(str(file))
    with pytest.raises(StoreUnavailable, match="moved, deleted or replaced"):
        await store.transactions.write(lambda _: taken(file))
    await store.close()


async def test_the_store_of_a_file_that_is_gone_is_ill_until_the_file_is_back(file: Path) -> None:
    store = await open_sqlite(str(file))
    clock = VirtualClock(0)
    monitor = HealthMonitor(store.stats, clock, failures=StepFailures(clock), tick_ms=1000, max_jobs=0)

    async def condition() -> tuple[HealthCondition, bool]:
        clock.advance(2000)
        report = await monitor.report()
        return next(one.condition for one in report.components if one.name == "store"), report.ready

    found = [await condition()]
    moved(file)
    found.append(await condition())
    put_back(file)
    found.append(await condition())
    await store.close()

    assert found == [(HealthCondition.OK, True), (HealthCondition.ERROR, False), (HealthCondition.OK, True)]


SECONDLY = "jobs: [{name: second, schedule: every second, command: 'echo x >> $OUT', env: {OUT: %s}}]"


def test_a_scheduler_stops_deciding_when_its_file_is_gone_and_doctor_says_so(file: Path, tmp_path: Path) -> None:
    jobs, out = tmp_path / "jobs.yaml", tmp_path / "out"
    jobs.write_text(SECONDLY % out)
    with up(file, "--jobs", str(jobs), imports=[]) as running:
        running.line_with("+ second in")
        replaced(file)
        running.line_with("was moved or deleted")
        wait_for_ticks_elsewhere(1, tmp_path)
        # Earlier attempts have ended; from now on nothing may run.
        ran = out.read_text()
        wait_for_ticks_elsewhere(4, tmp_path)
        ran_since = out.read_text().removeprefix(ran)
        doctor = run_command("doctor", "--database", str(file), folder=tmp_path)
        running.terminate()

    assert ran
    assert ran_since == ""
    assert doctor.returncode != 0
    assert f"process id {running.pid}" in doctor.stdout
    with up(file, "--jobs", str(jobs), imports=[]) as running:
        running.line_with("+ second in")
        running.line_with("+ second in")
    assert len(out.read_text()) > len(ran)


def wait_for_ticks_elsewhere(count: int, folder: Path) -> None:
    """Wait until another scheduler has run a job of every second so many times."""
    jobs = folder / "elsewhere.yaml"
    jobs.write_text(SECONDLY % os.devnull)
    with up(folder / "elsewhere.db", "--jobs", str(jobs), imports=[]) as other:
        for _ in range(count):
            other.line_with("+ second in")


# ---- two paths -----------------------------------------------------------------------------------


async def test_a_second_name_of_the_file_is_refused(file: Path, tmp_path: Path) -> None:
    store = await open_sqlite(str(file))
    second = tmp_path / "second.db"
    second.hardlink_to(file)

    with pytest.raises(FileError, match="has 2 names"):
        await open_sqlite(str(second))
    await store.close()
    second.unlink()
    await (await open_sqlite(str(file))).close()


async def test_a_symbolic_link_is_another_spelling_of_the_same_path(file: Path, tmp_path: Path) -> None:
    store = await open_sqlite(str(file))
    link = tmp_path / "link.db"
    link.symlink_to(file)
    lock = FileLock(str(file))
    assert lock.try_acquire()

    other = await open_sqlite(str(link))
    assert not FileLock(str(link)).try_acquire()
    await other.close()
    await store.close()
    lock.release()


def test_a_file_that_is_mounted_without_its_folder_is_refused(file: Path, tmp_path: Path) -> None:
    file.touch()
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\n/dev/sda1 {str(file).replace(' ', chr(92) + '040')} ext4 rw 0 0\n")

    with pytest.raises(FileError, match="mount its folder instead"):
        refuse_second_path(str(file), str(mounts))


def test_names_of_mounts_need_not_be_text(file: Path, tmp_path: Path) -> None:
    file.touch()
    mounts = tmp_path / "mounts"
    mounts.write_bytes(
        b"/dev/sdb1 /media/caf\xe9 vfat rw 0 0\n /tmp tmpfs rw 0 0\nodd\nhost:/x /srv/\xc3\xbc\\040x nfs4 rw 0 0\n"
    )

    refuse_second_path(str(file), str(mounts))
    refuse_network_disk(str(file), str(mounts))
    with pytest.raises(UsageError, match="nfs4"):
        refuse_network_disk("/srv/ü x/gnomon.db", str(mounts))


LOCK_BOTH = """
import sys
from gnomon.adapters.sql.sqlite import FileLock
locks = [FileLock(path) for path in sys.argv[1:]]
print([lock.try_acquire() for lock in locks])
"""


def test_a_folder_that_is_mounted_twice_has_one_lock(tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()
    first = tmp_path / "first"
    first.mkdir()
    script = f'mount --bind {first} {second} && exec {sys.executable} -c "$0" {first}/g.db {second}/g.db'
    unshare = shutil.which("unshare") or "/bin/false"
    ran = subprocess.run([unshare, "-m", "sh", "-c", script, LOCK_BOTH], capture_output=True, text=True, check=False)
    if ran.returncode:
        pytest.skip("this process may not mount")

    assert "[True, False]" in ran.stdout


def test_a_real_mount_of_the_file_is_refused(file: Path, tmp_path: Path) -> None:
    file.touch()
    mounted = tmp_path / "mounted.db"
    mounted.touch()
    script = f"mount --bind {file} {mounted} || exit 99; exec {sys.executable} -m gnomon jobs list --database {mounted}"
    unshare = shutil.which("unshare") or "/bin/false"
    ran = subprocess.run([unshare, "-m", "sh", "-c", script], capture_output=True, text=True, check=False)
    if ran.returncode in (1, 99) and "mount its folder" not in ran.stderr:
        pytest.skip("this process may not mount")

    assert "mount its folder instead" in ran.stderr


# ---- the log of another database -----------------------------------------------------------------

CRASH = """
import asyncio, os, sys
from gnomon.adapters.sql.connect import open_sqlite
from gnomon.adapters.sql.sqlite import FileLock

async def main():
    store = await open_sqlite(sys.argv[1])
    lock = FileLock(sys.argv[1])
    lock.try_acquire()
    await store.transactions.write(lambda conn: conn.exec_driver_sql("INSERT INTO gnomon_meta VALUES ('written', '1')"))
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def crash(path: Path) -> None:
    """Schedule on the file, write, and die, so that a log is left."""
    ended = subprocess.run([sys.executable, "-c", CRASH, str(path)], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert Path(f"{path}-wal").stat().st_size > 0


def schedule_once(path: Path) -> None:
    """Schedule on the file, and stop."""

    async def main() -> None:
        store = await open_sqlite(str(path))
        lock = FileLock(str(path))
        assert lock.try_acquire()
        lock.release()
        await store.close()

    asyncio.run(main())


def test_the_log_of_another_database_is_refused_and_changes_nothing(file: Path, tmp_path: Path) -> None:
    other, log = tmp_path / "other.db", Path(f"{file}-wal")
    crash(other)
    schedule_once(file)
    shutil.copy(f"{other}-wal", log)
    before = file.read_bytes(), log.read_bytes()

    for _ in range(2):
        with pytest.raises(FileError, match="log of another database"):
            schedule_once(file)
    assert (file.read_bytes(), log.read_bytes()) == before
    log.unlink()
    schedule_once(file)


def test_the_log_that_a_crash_left_is_taken_in(file: Path, tmp_path: Path) -> None:
    crash(file)
    copied = tmp_path / "copied" / "gnomon.db"
    copied.parent.mkdir()
    for suffix in ("", "-wal", ".lock"):
        shutil.copy(f"{file}{suffix}", f"{copied}{suffix}")

    for path in (file, copied):
        schedule_once(path)
        assert rows_written_to(path) == 1


def test_a_new_file_under_the_old_name_is_no_foreign_database(file: Path) -> None:
    crash(file)
    file.unlink()
    schedule_once(file)


async def test_a_new_database_in_place_of_an_old_one_can_be_opened_twice(file: Path) -> None:
    crash(file)
    for path in (file, file.with_name("gnomon.db-wal"), file.with_name("gnomon.db-shm")):
        path.unlink()
    store = await open_sqlite(str(file))

    await (await open_sqlite(str(file))).close()
    await store.close()


def test_a_database_that_is_replaced_together_with_its_log_is_taken_in(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    crash(other)
    crash(file)
    for suffix in ("", "-wal"):
        shutil.copy(f"{other}{suffix}", f"{file}{suffix}")

    schedule_once(file)
    assert rows_written_to(file) == 1


def test_the_log_that_another_database_left_is_refused_beside_a_new_one(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    crash(file)
    schedule_once(other)
    other.rename(file)
    before = file.read_bytes()

    with pytest.raises(FileError, match="log of another database"):
        schedule_once(file)
    assert file.read_bytes() == before


async def test_the_log_of_another_process_that_ends_while_the_file_is_opened_is_no_alarm(file: Path) -> None:
    await (await open_sqlite(str(file))).close()
    other = sqlite3.connect(file, check_same_thread=False)
    other.execute("DELETE FROM gnomon_meta WHERE key = 'nothing'")
    other.commit()
    transactions = SqliteTransactions(str(file), now=lambda: 0)

    def end_other(*_: object) -> None:
        """Close the last connection, between the first check and our own connection."""
        other.close()
        # It takes the number of the file that was removed.
        file.with_name("placeholder").touch()

    sa.event.listen(transactions._writing, "do_connect", end_other)  # noqa: SLF001

    for _ in range(2):
        await transactions.write(touch_database_id)
    await transactions.close()


async def test_every_log_holds_the_id_of_its_database(file: Path) -> None:
    store = await open_sqlite(str(file))
    await store.transactions.write(lambda conn: conn.exec_driver_sql("CREATE TABLE filler (number)"))
    pages = []
    for _ in range(3):
        await store.transactions.write(fill)
        empty_log(file)
        await store.transactions.write(fill)
        pages.append(holds_id(file))
    await store.close()

    assert pages == [True] * 3


def fill(conn: sa.Connection) -> None:
    """As many changes as there are between two checkpoints."""
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000) SELECT i FROM n"
    conn.exec_driver_sql(f"INSERT INTO filler {rows}")


def empty_log(file: Path) -> None:
    """Make a complete checkpoint: the next write begins the log anew."""
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0


def holds_id(file: Path) -> bool:
    return b"database_id" in Path(f"{file}-wal").read_bytes()
