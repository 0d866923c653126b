"""The importer of crontabs: those of users, and those of the system, which have a column for the user."""

import re
import shlex
from typing import Any

from msgspec import Struct

from gnomon.core.importers.report import (
    USUAL_TIMEOUT,
    ImportedEntry,
    ImportNote,
    ImportReport,
    name_of_command,
    shown,
    skipped_entry,
    with_variables,
)

_ASSIGNMENT = re.compile(
    r"""[ \t]*(?:"(?P<double>[^"]*)"|'(?P<single>[^']*)'|(?P<plain>[A-Za-z_][^\s=]*))[ \t]*=[ \t]*(?P<value>.*)""",
    re.DOTALL,
)
_BLANKS = re.compile(r"[ \t]+")
_MACROS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_OTHER_MACROS = {"@every_minute": "* * * * *"}
_FIELDS = 5
#: Variables that configure cron itself, and not the command.
_FOR_CRON = ("MAILTO", "MAILFROM", "CRON_TZ", "RANDOM_DELAY", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING")
_LONGEST_DELAY = 60
_REBOOT = "@reboot starts with the machine, which is no time: leave it to the init system"
_RANDOM = "~ has cron choose a time at random: choose one, or use jitter"
REMARKS = (
    "commands run in the workspace, by a login shell; cron runs them in the home folder, with a short PATH",
    f"cron sets no time limit: each job has one of {USUAL_TIMEOUT}",
)


class _CrontabSchedule(Struct, frozen=True):
    """The schedule of a line, and the rest of the line."""

    schedule: str
    rest: str
    quiet: bool = False


class _Crontab:
    """Reads a crontab line by line: variables and comments apply to the lines below them."""

    def __init__(self, place: str, timezone: str, *, system: bool) -> None:
        self._place = place
        self._timezone = timezone
        self._system = system
        self._variables: dict[str, str] = {}
        self.comments: list[str] = []
        #: Remarks about those who were mailed.
        self.mails: list[str] = []
        self.entries: list[ImportedEntry] = []

    def line(self, number: int, text: str) -> None:
        """Read one more line."""
        text = text.strip(" \t\r\f\v")
        if text.startswith("#"):
            self.comments.append(text[1:].removeprefix(" ").rstrip())
            return
        if not text:
            return
        assignment = _ASSIGNMENT.fullmatch(text)
        if assignment is not None:
            name = assignment["double"] or assignment["single"] or assignment["plain"] or ""
            self._variables[name] = _unquoted(assignment["value"].strip())
            return
        place, comments = f"{self._place}:{number}", tuple(self.comments)
        self.comments.clear()
        found = self._entry(place, text, comments)
        self.entries.append(
            skipped_entry(place, shown(text), found, comments=comments) if isinstance(found, str) else found
        )

    def _entry(self, place: str, text: str, comments: tuple[str, ...]) -> ImportedEntry | str:
        """The entry, or why there is none."""
        when = _when(text)
        if isinstance(when, str):
            return when
        rest, notes = when.rest, []
        if when.quiet:
            notes.append(
                ImportNote("the dash in front of it, which keeps it out of the system's log, means nothing here")
            )
        if self._system:
            user, *behind = _BLANKS.split(rest, maxsplit=1)
            rest = "".join(behind)
            notes.append(ImportNote(f"user {shown(user)}: it runs as the user of the worker"))
        command, stdin = split_percents(rest)
        if not command.strip():
            return "it has no command" + (" behind the user" if self._system else "")
        job = self._job(when.schedule, command, stdin, notes)
        return ImportedEntry(place=place, original=shown(text), job=job, notes=tuple(notes), comments=comments)

    def _job(self, schedule: str, command: str, stdin: str, notes: list[ImportNote]) -> dict[str, Any]:
        name = name_of_command(command)
        shell = self._variables.get("SHELL", "")
        if shell and shell.rpartition("/")[2] != "sh":
            command = f"exec {shlex.quote(shell)} -c {shlex.quote(command)}"
        # A job runs sh anyway.
        needless = (*_FOR_CRON, "SHELL") if shell.rpartition("/")[2] == "sh" else _FOR_CRON
        own = {variable: value for variable, value in self._variables.items() if variable not in needless}
        job: dict[str, Any] = {"name": name, "schedule": schedule}
        job["timezone"] = self._variables.get("CRON_TZ") or self._timezone
        job |= with_variables(command, own, notes)
        job |= {"stdin": stdin} if stdin else {}
        return job | {"overlap": "allow", "timeout": USUAL_TIMEOUT} | self._for_cron(notes)

    def _for_cron(self, notes: list[ImportNote]) -> dict[str, Any]:
        """The fields that follow from variables for cron itself."""
        mail = self._variables.get("MAILTO")
        if mail:
            self.mails.append(f"MAILTO {shown(mail)}: nothing is mailed; the output of a command is in its log")
        delay = self._variables.get("RANDOM_DELAY")
        if not delay:
            return {}
        if not delay.isdecimal() or not 0 < len(delay) <= 3 or not 0 < int(delay) <= _LONGEST_DELAY:
            notes.append(ImportNote(f"RANDOM_DELAY {shown(delay)}: jitter is at most an hour"))
            return {}
        notes.append(
            ImportNote("RANDOM_DELAY: jitter moves a fire either way, and not only to a later time", lost=False)
        )
        return {"jitter": f"{int(delay)}m"}


def read_crontab(text: str, *, place: str, timezone: str, system: bool = False) -> ImportReport:
    """Import a crontab. `timezone` is that of the original machine."""
    crontab = _Crontab(place, timezone, system=system)
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        crontab.line(number, line)
    zone = f"times of day are those of {timezone}, unless CRON_TZ is set"
    remarks = (*REMARKS, zone, *dict.fromkeys(crontab.mails))
    return ImportReport(entries=tuple(crontab.entries), remarks=remarks, comments=tuple(crontab.comments))


def split_percents(rest: str) -> tuple[str, str]:
    r"""The command and its standard input: the text after the first %; further ones end lines. `\%` is a plain %."""
    lines, current, escaped = [], "", False
    for letter in rest:
        if escaped:
            current += letter if letter == "%" else "\\" + letter
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter == "%":
            lines.append(current)
            current = ""
        else:
            current += letter
    command, *read = [*lines, current + ("\\" if escaped else "")]
    text = "\n".join(read)
    return command.strip(), text if not text or text.endswith("\n") else text + "\n"


def _when(text: str) -> _CrontabSchedule | str:
    quiet = text.startswith("-")
    text = text[1:].lstrip(" \t") if quiet else text
    if text.startswith("@"):
        macro, *rest = _BLANKS.split(text, maxsplit=1)
        if macro == "@reboot":
            return _REBOOT
        if macro not in _MACROS and macro not in _OTHER_MACROS:
            return f"{shown(macro)} is unknown"
        return _CrontabSchedule(_OTHER_MACROS.get(macro, macro), "".join(rest), quiet)
    parts = _BLANKS.split(text, maxsplit=_FIELDS)
    if len(parts) <= _FIELDS:
        return "it is neither five fields and a command, nor a variable, nor a comment"
    schedule = " ".join(parts[:_FIELDS])
    return _RANDOM if "~" in schedule else _CrontabSchedule(schedule, parts[_FIELDS], quiet)


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
