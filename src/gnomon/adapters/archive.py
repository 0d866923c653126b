"""The archive in a folder: JSON lines, packed, in a file for each day and batch.

A file is named after what it holds, so that keeping the same records again finds them kept. It has its name only once
it was read back and found whole; a crash before that leaves a file that begins with a dot, which nobody reads.
"""

import asyncio
import gzip
import hashlib
import os
import secrets
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from gnomon.core.instants import instant_of
from gnomon.errors import ArchiveUnavailable, UsageError
from gnomon.ports.maintenance import ArchiveRecord

FORMAT = 1
_SUFFIX = ".jsonl.gz"
_NAMED_BY = 24


class FolderArchive:
    """Keeps records in a folder, which is made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def keep(self, records: Sequence[ArchiveRecord]) -> None:
        """See Archive.keep."""
        by_day: dict[str, list[ArchiveRecord]] = {}
        for record in records:
            by_day.setdefault(f"{instant_of(record.at):%Y-%m-%d}", []).append(record)
        for day, of_day in sorted(by_day.items()):
            await asyncio.to_thread(self._keep, day, of_day)

    def _keep(self, day: str, records: Sequence[ArchiveRecord]) -> None:
        header, lines = _packed(day, records)
        place = self.folder / day[:4] / f"{day}.{header['sha256'][:_NAMED_BY]}{_SUFFIX}"
        try:
            if not _is_whole(place):
                _write(place, gzip.compress(msgspec.json.encode(header) + b"\n" + lines, mtime=0))
        except OSError as error:
            raise ArchiveUnavailable(f"cannot archive to {self.folder}: {error.strerror or error}") from error


class NoArchive:
    """Keeps nothing: for those who said that they want none."""

    async def keep(self, records: Sequence[ArchiveRecord]) -> None:
        """See Archive.keep."""


def _packed(day: str, records: Sequence[ArchiveRecord]) -> tuple[dict[str, Any], bytes]:
    lines = b"".join(sorted(msgspec.json.encode({"table": r.table, **r.row}) + b"\n" for r in records))
    header: dict[str, Any] = {
        "archive": FORMAT,
        "day": day,
        "rows": len(records),
        "tables": dict(sorted(Counter(record.table for record in records).items())),
        "sha256": hashlib.sha256(lines).hexdigest(),
    }
    return header, lines


def _write(place: Path, packed: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    # Another may write the same file at this moment, from another machine that numbers its processes as ours does.
    unfinished = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        with open(unfinished, "wb", opener=_open_private) as file:
            file.write(packed)
            file.flush()
            os.fsync(file.fileno())
        if not _is_whole(unfinished):
            raise OSError(None, "what was written does not read back as it was")
        unfinished.replace(place)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()
    for folder in (place.parent, place.parent.parent):
        _flush_folder(folder)


def _open_private(path: str, flags: int) -> int:
    # What was private in the database is private here.
    return os.open(path, flags, 0o600)


def _flush_folder(folder: Path) -> None:
    """The names in a folder outlive a power cut."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _is_whole(place: Path) -> bool:
    try:
        read_file(place)
    except (FileNotFoundError, UsageError):
        return False
    return True


def read_file(place: Path) -> list[Mapping[str, Any]]:
    """The rows of one file of an archive; UsageError if they are not all there, as they were written."""
    try:
        header, _, lines = gzip.decompress(place.read_bytes()).partition(b"\n")
        said = msgspec.json.decode(header)
        rows = [msgspec.json.decode(line) for line in lines.splitlines()]
    except (EOFError, gzip.BadGzipFile, zlib.error, msgspec.DecodeError, ValueError) as error:
        raise UsageError(f"{place} is damaged: {error}") from error
    if said.get("rows") != len(rows) or said.get("sha256") != hashlib.sha256(lines).hexdigest():
        raise UsageError(f"{place} is damaged: it does not hold what it says")
    return rows


def read_archive(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Every row of an archive once, the oldest days first, though a batch that was interrupted is there twice."""
    day, seen = "", set[bytes]()
    for place in sorted(folder.glob(f"*/[0-9]*{_SUFFIX}")):
        if place.name[:10] != day:
            # A row is archived by the same day each time.
            day, seen = place.name[:10], set()
        for row in read_file(place):
            digest = hashlib.sha256(msgspec.json.encode(row)).digest()
            if digest not in seen:
                seen.add(digest)
                yield row
