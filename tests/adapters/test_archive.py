"""The archive in a folder: whole or not there, the same however often it is written, and read back once."""

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.store import HOUR, NOON
from gnomon.adapters.archive import FolderArchive, read_archive, read_file
from gnomon.errors import ArchiveUnavailable, UsageError
from gnomon.ports.maintenance import ArchiveRecord

DAY = 24 * HOUR
KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from gnomon.adapters import archive
from gnomon.ports.maintenance import ArchiveRecord

at = sys.argv[2]
if at == "before the name":
    Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
records = [ArchiveRecord("run", {"run_id": f"run_{n}"}, 0) for n in range(10)]
asyncio.run(archive.FolderArchive(Path(sys.argv[1])).keep(records))
os.kill(os.getpid(), signal.SIGKILL)
"""


def record(name: str, at: int = NOON) -> ArchiveRecord:
    return ArchiveRecord("run", {"run_id": name, "error": "käse\n"}, at)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.req("H-11")
async def test_records_are_kept_in_a_file_for_each_day(tmp_path: Path) -> None:
    await FolderArchive(tmp_path).keep([record("run_b"), record("run_a"), record("run_c", NOON + DAY)])

    first, second = files(tmp_path)
    assert (first.parent.name, first.name[:11], second.name[:11]) == ("2026", "2026-03-02.", "2026-03-03.")
    assert [row["run_id"] for row in read_file(first)] == ["run_a", "run_b"]
    assert list(read_archive(tmp_path)) == [
        {"table": "run", "run_id": f"run_{name}", "error": "käse\n"} for name in ("a", "b", "c")
    ]


async def test_archive_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    await FolderArchive(tmp_path).keep([record("run_a")])

    [kept] = files(tmp_path)
    assert kept.stat().st_mode & 0o077 == 0


async def test_keeping_the_same_records_again_changes_nothing(tmp_path: Path) -> None:
    archive = FolderArchive(tmp_path)
    await archive.keep([record("run_a"), record("run_b")])
    [before] = files(tmp_path)
    stamp = before.stat().st_mtime_ns

    await archive.keep([record("run_b"), record("run_a")])

    assert files(tmp_path) == [before]
    assert before.stat().st_mtime_ns == stamp


async def test_duplicates_of_an_interrupted_batch_are_read_once(tmp_path: Path) -> None:
    archive = FolderArchive(tmp_path)
    await archive.keep([record("run_a"), record("run_b")])
    await archive.keep([record("run_b"), record("run_c")])

    assert sorted(row["run_id"] for row in read_archive(tmp_path)) == ["run_a", "run_b", "run_c"]


@pytest.mark.parametrize("damage", ["cut", "changed", "flipped", "no header", "no rows", "nested"])
async def test_a_damaged_file_is_noticed_and_written_again(tmp_path: Path, damage: str) -> None:
    archive = FolderArchive(tmp_path)
    await archive.keep([record("run_a")])
    [file] = files(tmp_path)
    whole = file.read_bytes()
    changed = gzip.compress(gzip.decompress(whole).replace(b"run_a", b"run_x"))
    # The first byte behind the header of gzip: it says how the rest is packed.
    flipped = whole[:10] + bytes([whole[10] ^ 0xFF]) + whole[11:]
    header = gzip.decompress(whole).partition(b"\n")[0]
    damaged = {
        "cut": whole[: len(whole) // 2],
        "changed": changed,
        "flipped": flipped,
        "no header": gzip.compress(b"[]\n"),
        "no rows": gzip.compress(header + b"\n5\n"),
        "nested": gzip.compress(header + b"\n" + b"[" * 100_000),
    }
    file.write_bytes(damaged[damage])
    with pytest.raises(UsageError, match="damaged"):
        read_file(file)

    await archive.keep([record("run_a")])

    assert [row["run_id"] for row in read_file(file)] == ["run_a"]


async def test_a_file_in_place_of_the_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "archive").write_text("mine")

    with pytest.raises(ArchiveUnavailable, match="archive"):
        await FolderArchive(tmp_path / "archive").keep([record("run_a")])


@pytest.mark.parametrize(("at", "left"), [("before the name", 0), ("after it", 10)])
def test_a_process_that_is_killed_leaves_a_whole_file_or_none(tmp_path: Path, at: str, left: int) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), at], check=False)

    assert len(list(read_archive(tmp_path))) == left
