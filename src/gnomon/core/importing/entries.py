"""What was found in another scheduler's files, and what becomes of it."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.importing.naming import Names
from gnomon.core.jobs import read_job
from gnomon.core.requests import Defaults
from gnomon.errors import FieldError

#: Where nothing limits how long something may take, this does.
USUAL_TIMEOUT = "1d"
MOST_ENTRIES = 10_000


class Note(Struct, frozen=True):
    """One thing about an entry that a person should know."""

    text: str
    #: Whether something does not come along; if not, it comes along in another way.
    lost: bool = True


class Entry(Struct, frozen=True, kw_only=True):
    """One thing that ran elsewhere."""

    #: The file, and the line or the name in it.
    place: str
    #: As it stands there, in a few words.
    original: str
    #: What it becomes, in the words of a jobs file; None if it is left out.
    job: dict[str, Any] | None = None
    notes: tuple[Note, ...] = ()
    #: What was written above it.
    comments: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether all of it comes along."""
        return self.job is not None and not any(note.lost for note in self.notes)


class Imported(Struct, frozen=True, kw_only=True):
    """All that was found."""

    entries: tuple[Entry, ...] = ()
    #: What holds for all of them.
    remarks: tuple[str, ...] = ()
    #: What was written below the last entry.
    comments: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether all of it comes along."""
        return all(entry.whole for entry in self.entries)


def left_out(place: str, original: str, reason: str, *, comments: Sequence[str] = ()) -> Entry:
    """An entry that cannot come along."""
    return Entry(place=place, original=original, notes=(Note(reason),), comments=tuple(comments))


def reason_of(error: FieldError) -> str:
    """Why something is left out; what is missing is not shown."""
    return f"{error.field} {error.reason}" if error.value is None else str(error)


def together(found: Iterable[Imported], *, now: int) -> Imported:
    """All of it as one file of jobs that can be read: each name is there once, and what no job can say is left out."""
    parts, names = list(found), Names()
    count = sum(len(part.entries) for part in parts)
    if count > MOST_ENTRIES:
        raise FieldError("FILE", f"{count} entries", f"is too much at once: at most {MOST_ENTRIES} are taken")
    entries = tuple(_checked(entry, names, now) for part in parts for entry in part.entries)
    remarks = dict.fromkeys(remark for part in parts for remark in part.remarks)
    return Imported(
        entries=entries, remarks=tuple(remarks), comments=tuple(line for part in parts for line in part.comments)
    )


def _checked(entry: Entry, names: Names, now: int) -> Entry:
    if entry.job is None:
        return entry
    try:
        read_job(entry.job, Defaults(), now=now)
    except FieldError as error:
        return replace(entry, job=None, notes=(Note(f"{error.field}: {error.reason}"), *entry.notes))
    return replace(entry, job=entry.job | {"name": names.unique(entry.job["name"])})
