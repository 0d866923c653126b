"""One scheduler a database file, whatever path leads to it and however it ends."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gnomon.adapters.sql.sqlite import FileLock, refuse_network_disk
from gnomon.errors import StoreUnavailable, UsageError

HOLDER = """
import sys
from gnomon.adapters.sql.sqlite import FileLock
lock = FileLock(sys.argv[1])
print(lock.try_acquire(), flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(database: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has the lock until its input ends."""
    started = [sys.executable, "-c", HOLDER, str(database)]
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        yield process
        process.kill()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "gnomon.db"


@pytest.mark.guarantee("E1")
def test_a_second_process_does_not_get_the_lock(database: Path) -> None:
    with another_process(database):
        assert not FileLock(str(database)).try_acquire()


@pytest.mark.guarantee("E1")
def test_a_link_to_the_database_leads_to_the_same_lock(database: Path, tmp_path: Path) -> None:
    database.touch()
    link = tmp_path / "link.db"
    link.symlink_to(database)

    with another_process(database):
        assert not FileLock(str(link)).try_acquire()


@pytest.mark.guarantee("E1", "E2")
def test_a_process_that_is_killed_leaves_the_lock_free(database: Path) -> None:
    with another_process(database) as process:
        process.kill()
        process.wait()

        assert FileLock(str(database)).try_acquire()


def test_two_locks_in_one_process_exclude_each_other(database: Path) -> None:
    one, other = FileLock(str(database)), FileLock(str(database))

    assert [one.try_acquire(), one.try_acquire(), other.try_acquire()] == [True, True, False]
    one.release()
    assert other.try_acquire()
    other.release()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_does_not_keep_the_lock_of_its_parent(database: Path) -> None:
    lock = FileLock(str(database))
    assert lock.try_acquire()
    there, here = multiprocessing.get_context("fork").Pipe()
    child = os.fork()
    if not child:
        here.close()
        there.send("up")
        there.poll(None)
        os._exit(0)
    there.close()
    assert here.recv() == "up"

    lock.release()

    assert FileLock(str(database)).try_acquire()
    here.close()
    os.waitpid(child, 0)


def test_a_folder_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="No such file"):
        FileLock(str(tmp_path / "nowhere" / "gnomon.db")).try_acquire()


MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/export /mnt/shared\\040disk nfs4 rw 0 0
/dev/vdb /mnt/shared\\040disk/local xfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/srv/gnomon.db", False),
        ("/mnt/shared disk/gnomon.db", True),
        ("/mnt/shared disk/local/gnomon.db", False),
        ("/mnt/shared diskette/gnomon.db", False),
    ],
)
def test_a_network_disk_is_refused(path: str, refused: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a column
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)

    if refused:
        with pytest.raises(UsageError, match="nfs4"):
            refuse_network_disk(path, str(mounts))
    else:
        refuse_network_disk(path, str(mounts))


def test_where_mounts_cannot_be_listed_nothing_is_refused(tmp_path: Path) -> None:
    refuse_network_disk("/srv/gnomon.db", str(tmp_path / "nothing"))
