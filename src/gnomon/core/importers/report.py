"""The report of an import: entries with their jobs and notes, and helpers for commands, variables and names."""

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.jobs.fields import NAME
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.core.jobs.steps import ENV_NAME
from gnomon.errors import FieldError

#: The timeout of jobs whose original has no time limit.
USUAL_TIMEOUT = "1d"
MOST_ENTRIES = 10_000


class ImportNote(Struct, frozen=True):
    """A remark about an entry: a difference between the original and the job."""

    text: str
    #: Whether something is lost; if not, it is carried over in another way.
    lost: bool = True


class ImportedEntry(Struct, frozen=True, kw_only=True):
    """One entry of another scheduler."""

    #: The file, and the line or the name in it.
    place: str
    #: The original entry, shortened.
    original: str
    #: The fields of its job in a jobs file; None if it is left out.
    job: dict[str, Any] | None = None
    notes: tuple[ImportNote, ...] = ()
    #: The comments above it.
    comments: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing of the entry is lost."""
        return self.job is not None and not any(note.lost for note in self.notes)


class ImportReport(Struct, frozen=True, kw_only=True):
    """The result of an import."""

    entries: tuple[ImportedEntry, ...] = ()
    #: Remarks about all entries.
    remarks: tuple[str, ...] = ()
    #: The comments below the last entry.
    comments: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing is lost."""
        return all(entry.whole for entry in self.entries)


def skipped_entry(place: str, original: str, reason: str, *, comments: Sequence[str] = ()) -> ImportedEntry:
    """An entry that cannot be imported."""
    return ImportedEntry(place=place, original=original, notes=(ImportNote(reason),), comments=tuple(comments))


def error_reason(error: FieldError) -> str:
    """The reason for leaving an entry out; a missing value is not shown."""
    return f"{error.field} {error.reason}" if error.value is None else str(error)


# ---- commands ------------------------------------------------------------------------------------


def with_variables(
    command: str, variables: Mapping[str, str], notes: list[ImportNote], *, secrets: Collection[str] = ()
) -> dict[str, Any]:
    """The fields `command` and `env`. A value that would be a reference in a job is exported by the command instead.

    `secrets` names the variables whose values are meant as references to secrets.
    """
    env: dict[str, str] = {}
    for name, value in variables.items():
        if not ENV_NAME.fullmatch(name):
            notes.append(ImportNote(f"{shown(name)}: no variable may be called that here"))
        elif "${" in value and name not in secrets:
            # In a job this would be a reference; in the original it is plain text.
            command = f"export {name}={shlex.quote(value)}; {command}"
        else:
            env[name] = value
    return {"command": command, "env": env} if env else {"command": command}


def double_quoted(word: str, pattern: re.Pattern[str], variable: Callable[[re.Match[str]], str | None]) -> str:
    """The word in double quotes for a shell. `variable` gives the text for a match; None leaves it as it is."""
    text, place = "", 0
    for found in pattern.finditer(word):
        value = variable(found)
        if value is not None:
            text += _escaped(word[place : found.start()]) + value
            place = found.end()
    return f'"{text}{_escaped(word[place:])}"'


def _escaped(text: str) -> str:
    """The text, escaped for use between double quotes of a shell."""
    return re.sub(r'([\\"`$])', r"\\\1", text)


def shown(text: str, longest: int = 60) -> str:
    """The text on one line, shortened for a report."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in text[: longest + 1])
    return plain if len(plain) <= longest else plain[: longest - 1] + "…"


# ---- names ---------------------------------------------------------------------------------------

_LONGEST = 60
#: Commands that run another command, and those of their options that take a value.
_WRAPPERS = frozenset("sudo nice ionice exec env time nohup timeout flock chronic setsid command".split())
_VALUED = ("-u", "-g", "-n", "-c", "-k", "-s", "-w")
#: Builtins of a shell, which give no name.
_BUILT_IN = ("cd", "test", "[", "export", "set", "source", ".")
_SPAN = re.compile(r"[0-9.]+[smhd]")
_INTERPRETERS = re.compile(r"(?:sh|bash|dash|zsh|ksh|perl|ruby|node|php|python)[0-9.]*")
_ENDINGS = re.compile(r"\.(?:sh|bash|py|pl|rb|php|js)$")
_WORD = re.compile(r"""[A-Za-z0-9_./\\-]*[A-Za-z][A-Za-z0-9_./\\-]*""")
_BREAKS = re.compile(r"[;&|\n]+")


def name_of_command(command: str) -> str:
    """A job name made from the program of a command."""
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
    """The text as the name of a job; empty if no character of it is allowed."""
    plain = re.sub(r"[^a-z0-9._]+", "-", text.lower()[: 4 * _LONGEST]).strip("-._")[:_LONGEST].rstrip("-._")
    return plain if NAME.fullmatch(plain) else ""


class UniqueNames:
    """Makes names unique by appending numbers."""

    def __init__(self) -> None:
        #: Each used name, with the last number that was appended to it.
        self._last: dict[str, int] = {}

    def unique(self, name: str) -> str:
        """The name, with a number appended if it is taken."""
        free = name
        while free in self._last:
            self._last[name] += 1
            free = f"{name}-{self._last[name]}"
        self._last[free] = 1
        return free


# ---- merging -------------------------------------------------------------------------------------


def merge_reports(found: Iterable[ImportReport], *, now: int) -> ImportReport:
    """All reports as one: names are made unique, and entries that `read_job` refuses are left out with a note."""
    parts, names = list(found), UniqueNames()
    count = sum(len(part.entries) for part in parts)
    if count > MOST_ENTRIES:
        raise FieldError("FILE", f"{count} entries", f"is too much at once: at most {MOST_ENTRIES} are allowed")
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
