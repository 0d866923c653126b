"""Names for what had none: taken from the command, and fit for a job."""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.jobs.fields import NAME
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.jobs.steps import ENV_NAME
from gnomon.errors import FieldError

_LONGEST = 60
#: What only says how something else is run, and which of its options have a word of their own.
_WRAPPERS = frozenset("sudo nice ionice exec env time nohup timeout flock chronic setsid command".split())
_VALUED = ("-u", "-g", "-n", "-c", "-k", "-s", "-w")
#: What a shell does itself, before anything worth a name.
_BUILT_IN = ("cd", "test", "[", "export", "set", "source", ".")
_SPAN = re.compile(r"[0-9.]+[smhd]")
_INTERPRETERS = re.compile(r"(?:sh|bash|dash|zsh|ksh|perl|ruby|node|php|python)[0-9.]*")
_ENDINGS = re.compile(r"\.(?:sh|bash|py|pl|rb|php|js)$")
_WORD = re.compile(r"""[A-Za-z0-9_./\\-]*[A-Za-z][A-Za-z0-9_./\\-]*""")
_BREAKS = re.compile(r"[;&|\n]+")


def name_of_command(command: str) -> str:
    """A name that reminds of the command."""
    for part in _BREAKS.split(command[:2000]):
        words = [word for word in re.split(r"[\s\"'()]+", part) if word and "=" not in word]
        named = _program(words)
        if named:
            return named
    return "command"


def _program(words: list[str]) -> str:
    if not words or words[0] in _BUILT_IN:
        return ""
    wrapped = skips = False
    for word in words:
        base = _ENDINGS.sub("", word.rstrip("/").rpartition("/")[2])
        if skips or word.startswith("-") or not _WORD.fullmatch(word) or _SPAN.fullmatch(word):
            skips = wrapped and word in _VALUED
        elif base in _WRAPPERS:
            wrapped = True
        elif not _INTERPRETERS.fullmatch(base) and (name := slugify(base)):
            return name
    return slugify(words[0].rpartition("/")[2])


def slugify(text: str) -> str:
    """The text as a job may be named; nothing, if nothing of it is left."""
    plain = re.sub(r"[^a-z0-9._]+", "-", text.lower()[: 4 * _LONGEST]).strip("-._")[:_LONGEST].rstrip("-._")
    return plain if NAME.fullmatch(plain) else ""


class UniqueNames:
    """Names that were given."""

    def __init__(self) -> None:
        #: Each with the number that the next one like it may have.
        self._next: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """The name, or with a number behind it that makes it another."""
        wanted = name
        while wanted in self._next:
            self._next[name] += 1
            wanted = f"{name}-{self._next[name]}"
        self._next[wanted] = 1
        return wanted


#: Where nothing limits how long something may take, this does.
USUAL_TIMEOUT = "1d"
MOST_ENTRIES = 10_000


class ImportNote(Struct, frozen=True):
    """One thing about an entry that a person should know."""

    text: str
    #: Whether something does not come along; if not, it comes along in another way.
    lost: bool = True


class ImportedEntry(Struct, frozen=True, kw_only=True):
    """One thing that ran elsewhere."""

    #: The file, and the line or the name in it.
    place: str
    #: As it stands there, in a few words.
    original: str
    #: What it becomes, in the words of a jobs file; None if it is left out.
    job: dict[str, Any] | None = None
    notes: tuple[ImportNote, ...] = ()
    #: What was written above it.
    comments: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether all of it comes along."""
        return self.job is not None and not any(note.lost for note in self.notes)


class ImportReport(Struct, frozen=True, kw_only=True):
    """All that was found."""

    entries: tuple[ImportedEntry, ...] = ()
    #: What holds for all of them.
    remarks: tuple[str, ...] = ()
    #: What was written below the last entry.
    comments: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether all of it comes along."""
        return all(entry.whole for entry in self.entries)


def skipped_entry(place: str, original: str, reason: str, *, comments: Sequence[str] = ()) -> ImportedEntry:
    """An entry that cannot come along."""
    return ImportedEntry(place=place, original=original, notes=(ImportNote(reason),), comments=tuple(comments))


def error_reason(error: FieldError) -> str:
    """Why something is left out; what is missing is not shown."""
    return f"{error.field} {error.reason}" if error.value is None else str(error)


def merge_reports(found: Iterable[ImportReport], *, now: int) -> ImportReport:
    """All of it as one file of jobs that can be read: each name is there once, and what no job can say is left out."""
    parts, names = list(found), UniqueNames()
    count = sum(len(part.entries) for part in parts)
    if count > MOST_ENTRIES:
        raise FieldError("FILE", f"{count} entries", f"is too much at once: at most {MOST_ENTRIES} are taken")
    entries = tuple(_checked(entry, names, now) for part in parts for entry in part.entries)
    remarks = dict.fromkeys(remark for part in parts for remark in part.remarks)
    return ImportReport(
        entries=entries, remarks=tuple(remarks), comments=tuple(line for part in parts for line in part.comments)
    )


def _checked(entry: ImportedEntry, names: UniqueNames, now: int) -> ImportedEntry:
    if entry.job is None:
        return entry
    try:
        read_job(entry.job, Defaults(), now=now)
    except FieldError as error:
        return replace(entry, job=None, notes=(ImportNote(f"{error.field}: {error.reason}"), *entry.notes))
    return replace(entry, job=entry.job | {"name": names.unique(entry.job["name"])})


def with_variables(
    command: str, variables: Mapping[str, str], notes: list[ImportNote], *, secrets: Collection[str] = ()
) -> dict[str, Any]:
    """The command and its `env`. What would mean something else in a job is set by the command itself.

    `secrets` are those whose values are meant as references to secrets.
    """
    env: dict[str, str] = {}
    for name, value in variables.items():
        if not ENV_NAME.fullmatch(name):
            notes.append(ImportNote(f"{shown(name)}: no variable may be called that here"))
        elif "${" in value and name not in secrets:
            # In a job that is a reference; elsewhere it is just what it says.
            command = f"export {name}={shlex.quote(value)}; {command}"
        else:
            env[name] = value
    return {"command": command, "env": env} if env else {"command": command}


def inside_quotes(text: str) -> str:
    """The text as it must stand between double quotes for a shell to take it as it is."""
    return re.sub(r'([\\"`$])', r"\\\1", text)


def shown(text: str, longest: int = 60) -> str:
    """The text on one line, as long as a report has room for."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text[: longest + 1])
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"
