"""Archive files, and the archive in a folder: gzipped JSON lines, one file for each day and batch.

A file is named after the digest of its content, so that archiving the same records again writes nothing new. In a
folder, a file gets its final name only after it has been read back and verified; a crash before that leaves a file
whose name begins with a dot, which is never read.
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
from typing import Any, NamedTuple

import msgspec

from gnomon.core.instants import instant_of
from gnomon.errors import ArchiveUnavailable, UsageError
from gnomon.ports.maintenance import ArchiveRecord

FORMAT = 1
_SUFFIX = ".jsonl.gz"
_NAMED_BY = 24


class FolderArchive:
    """Archives records in a folder, which is created on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def keep(self, records: Sequence[ArchiveRecord]) -> None:
        """See Archive.keep."""
        for file in await asyncio.to_thread(packed_files, records):
            await asyncio.to_thread(self._keep, file)

    def _keep(self, file: "PackedFile") -> None:
        place = self.folder / file.name
        try:
            if not _is_whole(place):
                _write(place, file.content)
        except OSError as error:
            raise ArchiveUnavailable(f"cannot archive to {self.folder}: {error.strerror or error}") from error


class NoArchive:
    """Discards all records, for installations that have turned the archive off."""

    async def keep(self, records: Sequence[ArchiveRecord]) -> None:
        """See Archive.keep."""


class PackedFile(NamedTuple):
    """A file of an archive."""

    #: The path below the beginning of the archive.
    name: str
    content: bytes


def packed_files(records: Sequence[ArchiveRecord]) -> list[PackedFile]:
    """The files for the records, one for each day."""
    by_day: dict[str, list[ArchiveRecord]] = {}
    for record in records:
        by_day.setdefault(f"{instant_of(record.at):%Y-%m-%d}", []).append(record)
    return [_packed(day, of_day) for day, of_day in sorted(by_day.items())]


def _packed(day: str, records: Sequence[ArchiveRecord]) -> PackedFile:
    lines = b"".join(sorted(msgspec.json.encode({"table": r.table, **r.row}) + b"\n" for r in records))
    header: dict[str, Any] = {
        "archive": FORMAT,
        "day": day,
        "rows": len(records),
        "tables": dict(sorted(Counter(record.table for record in records).items())),
        "sha256": hashlib.sha256(lines).hexdigest(),
    }
    name = f"{day[:4]}/{day}.{header['sha256'][:_NAMED_BY]}{_SUFFIX}"
    return PackedFile(name, gzip.compress(msgspec.json.encode(header) + b"\n" + lines, mtime=0))


def _write(place: Path, packed: bytes) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    # Another process may write the same file at this moment, from a machine where it has the same process id.
    unfinished = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        with open(unfinished, "wb", opener=_open_private) as file:
            file.write(packed)
            file.flush()
            os.fsync(file.fileno())
        if not _is_whole(unfinished):
            raise OSError(None, "the file does not read back as written")
        unfinished.replace(place)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()
    for folder in (place.parent, place.parent.parent):
        _flush_folder(folder)


def _open_private(path: str, flags: int) -> int:
    # The records were private in the database, so the file is readable by its owner only.
    return os.open(path, flags, 0o600)


def _flush_folder(folder: Path) -> None:
    """Sync the folder, so that the names in it survive a power failure."""
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
    """The rows of one archive file; UsageError if the file is incomplete or altered."""
    return unpacked_rows(place.read_bytes(), place)


def unpacked_rows(content: bytes, place: object) -> list[Mapping[str, Any]]:
    """The rows in the content of an archive file at that place; UsageError if it is incomplete or altered."""
    try:
        header, _, lines = gzip.decompress(content).partition(b"\n")
        fields = msgspec.json.decode(header, type=dict[str, Any])
        rows: list[Mapping[str, Any]] = [msgspec.json.decode(line, type=dict[str, Any]) for line in lines.splitlines()]
    except (EOFError, gzip.BadGzipFile, zlib.error, msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UsageError(f"{place} is damaged: {error}") from error
    if fields.get("rows") != len(rows) or fields.get("sha256") != hashlib.sha256(lines).hexdigest():
        raise UsageError(f"{place} is damaged: its rows do not match its header")
    return rows


def read_archive(folder: Path) -> Iterator[Mapping[str, Any]]:
    """Every row of an archive once, oldest day first, even if an interrupted batch was archived twice."""
    day, seen = "", set[bytes]()
    for place in sorted(folder.glob(f"*/[0-9]*{_SUFFIX}")):
        if place.name[:10] != day:
            # A row is always archived under the same day, so duplicates are only found within one day.
            day, seen = place.name[:10], set()
        for row in read_file(place):
            digest = hashlib.sha256(msgspec.json.encode(row)).digest()
            if digest not in seen:
                seen.add(digest)
                yield row
