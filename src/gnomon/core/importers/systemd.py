"""The importer of systemd timers: services become commands, timers become schedules."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from gnomon.core.durations import duration_text
from gnomon.core.importers.report import (
    USUAL_TIMEOUT,
    ImportedEntry,
    ImportNote,
    ImportReport,
    error_reason,
    shown,
    skipped_entry,
    slugify,
    with_variables,
)
from gnomon.core.importers.systemd_syntax import (
    CalendarTimes,
    SystemdUnit,
    assignments_of,
    read_calendar,
    shell_command,
    span_ms,
)
from gnomon.core.jobs.schedule_fields import MOST_JITTER_MS
from gnomon.errors import FieldError

_SERVICE = "Service"
_COMMANDS = ("ExecStartPre", "ExecStart", "ExecStartPost")
#: Keys that are carried over; then keys without a meaning for a job, which waits for the end of its command.
_SERVICE_KEYS = (
    *_COMMANDS,
    "Type",
    "Environment",
    "WorkingDirectory",
    "TimeoutStartSec",
    "TimeoutSec",
    "RuntimeMaxSec",
)
_IGNORED_SERVICE_KEYS = (
    "RemainAfterExit",
    "SyslogIdentifier",
    "KillMode",
    "TimeoutStopSec",
    "StandardError",
    "StandardInput",
)
_QUIET_OUTPUTS = ("", "journal", "inherit", "null", "journal+console", "syslog", "kmsg")
_PLAIN_TYPES = ("", "simple", "exec", "oneshot", "idle")
#: Relations to other units, which are not carried over.
_RELATIONS = ("Requires", "Requisite", "BindsTo", "Conflicts", "OnFailure", "OnSuccess", "PartOf")


class SystemdService:
    """The fields of a job that does what a service does; raise FieldError if no shell command can."""

    def __init__(self, unit: SystemdUnit) -> None:
        self._unit = unit
        self.notes: list[ImportNote] = []
        self.work: dict[str, Any] = with_variables(self._command(), self._variables(), self.notes)
        self.work |= self._workdir() | {"timeout": self._timeout()}
        self.notes += self._left_behind()

    def about(self, default: str) -> dict[str, str]:
        """The field `description`, if there is one."""
        text = self._unit.last("Unit", "Description", default)
        plain = "".join(letter for letter in text if letter.isprintable())[:1000]
        return {"description": plain} if plain else {}

    def _command(self) -> str:
        if not self._unit.all(_SERVICE, "ExecStart"):
            raise FieldError("ExecStart", None, f"is missing in {self._unit.name}")
        commands = []
        for key in _COMMANDS:
            for line in self._unit.all(_SERVICE, key):
                command, marks = shell_command(key, self._unit.expand_specifiers(key, line))
                commands.append(command)
                if marks:
                    self.notes.append(ImportNote(f"{key}: the {marks} before it, which changes its rights or its name"))
        return " && ".join(commands)

    def _variables(self) -> Mapping[str, str]:
        lines = [self._unit.expand_specifiers("Environment", line) for line in self._unit.all(_SERVICE, "Environment")]
        return assignments_of("Environment", lines)

    def _workdir(self) -> dict[str, str]:
        folder = self._unit.last(_SERVICE, "WorkingDirectory").removeprefix("-")
        if not folder:
            return {}
        folder = self._unit.expand_specifiers("WorkingDirectory", folder)
        if folder.startswith("~"):
            self.notes.append(ImportNote("WorkingDirectory ~: commands run in the workspace"))
            return {}
        self.notes.append(
            ImportNote(
                f"WorkingDirectory {shown(folder)} must lie inside of the workspace (shell.workspace)", lost=False
            )
        )
        return {"workdir": folder}

    def _timeout(self) -> str:
        keys = ["RuntimeMaxSec"]
        if self._unit.last(_SERVICE, "Type") == "oneshot":
            keys += ["TimeoutStartSec", "TimeoutSec"]
        for key in keys:
            text = self._unit.last(_SERVICE, key)
            span = span_ms(key, text) if text else None
            if span:
                return duration_text(span)
        return USUAL_TIMEOUT

    def _left_behind(self) -> Iterator[ImportNote]:
        kind = self._unit.last(_SERVICE, "Type")
        if kind not in _PLAIN_TYPES:
            yield ImportNote(
                f"Type {shown(kind)}: a job lasts as long as its command, and processes left running are killed"
            )
        user = self._unit.last(_SERVICE, "User")
        if user:
            yield ImportNote(f"User {shown(user)}: it runs as the user of the worker")
        if self._unit.all(_SERVICE, "EnvironmentFile"):
            yield ImportNote("EnvironmentFile: write its variables into env")
        output = self._unit.last(_SERVICE, "StandardOutput")
        if output not in _QUIET_OUTPUTS:
            yield ImportNote(f"StandardOutput {shown(output)}: the output of a command is in its log")
        handled = (*_SERVICE_KEYS, *_IGNORED_SERVICE_KEYS, "User", "EnvironmentFile", "StandardOutput")
        others = [key for key in self._unit.keys(_SERVICE) if key not in handled]
        others += [
            key for key in self._unit.keys("Unit") if key in _RELATIONS or key.startswith(("Condition", "Assert"))
        ]
        if others:
            yield ImportNote(f"{shown(', '.join(others), 300)}: not supported")


# ---- timers --------------------------------------------------------------------------------------

_TIMER = "Timer"
_SUFFIX = ".timer"
_ONCE = ("OnActiveSec", "OnBootSec", "OnStartupSec")
_REPEATED = ("OnUnitActiveSec", "OnUnitInactiveSec")
_TIMER_KEYS = ("OnCalendar", *_ONCE, *_REPEATED, "Persistent", "RandomizedDelaySec", "AccuracySec", "Unit")
#: Switches that change nothing here.
_IGNORED_TIMER_KEYS = ("RemainAfterElapse", "FixedRandomDelay", "DeferReactivation", "RandomizedOffsetSec")
REMARKS = (
    "commands run in the workspace, by a login shell, as the user of the worker",
    f"a service without a time limit has one of {USUAL_TIMEOUT}",
)


def read_timers(units: Mapping[str, str], *, timezone: str) -> ImportReport:
    """Import the timers among the units, which are given by file name. `timezone` is that of the original machine."""
    entries: list[ImportedEntry] = []
    for name, text in units.items():
        if name.endswith(_SUFFIX):
            entries += _entries(SystemdUnit(name, text), units, timezone)
    zone = f"times of day are those of {timezone}, unless a timer names a zone"
    return ImportReport(entries=tuple(entries), remarks=(*REMARKS, zone))


def service_of(name: str, text: str) -> str | None:
    """The unit that a timer starts; None if the unit is no timer."""
    if not name.endswith(_SUFFIX):
        return None
    return SystemdUnit(name, text).last(_TIMER, "Unit", f"{name.removesuffix(_SUFFIX)}.service")


def template_of(name: str) -> str:
    """The template of a unit instance; the name itself if it is no instance."""
    stem, at, instance = name.partition("@")
    return f"{stem}@.{instance.rpartition('.')[2]}" if at else name


def _entries(timer: SystemdUnit, units: Mapping[str, str], timezone: str) -> list[ImportedEntry]:
    stem = timer.name.removesuffix(_SUFFIX)
    started = timer.last(_TIMER, "Unit", f"{stem}.service")
    if stem.endswith("@"):
        return [skipped_entry(timer.name, started, "it is a template, and only its instances run")]
    text = units.get(started, units.get(template_of(started)))
    if text is None:
        return [skipped_entry(timer.name, started, f"its service {started} is not among the files")]
    try:
        service = SystemdService(SystemdUnit(started, text))
    except FieldError as error:
        return [skipped_entry(timer.name, started, error_reason(error))]
    common = {"name": slugify(stem) or "timer"} | service.about(timer.last("Unit", "Description"))
    policies, notes = _policies(timer)
    found = []
    for original, when in _times(timer, timezone):
        if isinstance(when, str):
            found.append(skipped_entry(timer.name, original, when))
            continue
        job = common | when | service.work | policies | {"overlap": "skip"}
        job |= {"catchup": "latest"} if "every" not in when and timer.yes(_TIMER, "Persistent") else {}
        found.append(ImportedEntry(place=timer.name, original=original, job=job, notes=(*notes, *service.notes)))
    return _numbered(timer, found, notes)


def _numbered(timer: SystemdUnit, found: list[ImportedEntry], notes: list[ImportNote]) -> list[ImportedEntry]:
    """The entries of a timer: with several times it becomes several independent jobs, and a note says so."""
    if not found:
        once = ", ".join(key for key in _ONCE if timer.all(_TIMER, key))
        reason = (
            f"{once} counts from the start of the machine, which is no time of a schedule" if once else "it has no time"
        )
        return [ImportedEntry(place=timer.name, original=timer.name, notes=(ImportNote(reason), *notes))]
    if len(found) == 1:
        return found
    several = ImportNote(
        f"it has {len(found)} times, so it becomes several jobs, which may overlap each other", lost=False
    )
    return [entry if entry.job is None else replace(entry, notes=(several, *entry.notes)) for entry in found]


def _times(timer: SystemdUnit, timezone: str) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Each time of the timer: its text, and the fields of a job or the reason why there are none."""
    for text in timer.all(_TIMER, "OnCalendar"):
        try:
            times = read_calendar(timer.expand_specifiers("OnCalendar", text))
        except FieldError as error:
            yield f"OnCalendar={text}", str(error)
            continue
        yield f"OnCalendar={text}", _when(times, timezone)
    for key in _REPEATED:
        for text in timer.all(_TIMER, key):
            try:
                span = span_ms(key, text)
            except FieldError as error:
                yield f"{key}={text}", str(error)
                continue
            yield f"{key}={text}", {"every": duration_text(span)} if span else f"{key}: there is no such interval"


def _when(times: CalendarTimes, timezone: str) -> dict[str, Any]:
    zone = {"timezone": times.timezone or timezone}
    return {"at": times.at, **zone} if times.schedule is None else {"schedule": times.schedule, **zone}


def _policies(timer: SystemdUnit) -> tuple[dict[str, Any], list[ImportNote]]:
    notes = list(_notes(timer))
    text = timer.last(_TIMER, "RandomizedDelaySec", "0")
    try:
        delay = span_ms("RandomizedDelaySec", text)
    except FieldError as error:
        return {}, [*notes, ImportNote(str(error))]
    if delay == 0:
        return {}, notes
    if delay is None or delay > MOST_JITTER_MS:
        return {}, [*notes, ImportNote(f"RandomizedDelaySec {text}: jitter is at most {duration_text(MOST_JITTER_MS)}")]
    differs = ImportNote("RandomizedDelaySec: jitter moves a fire either way, and not only to a later time", lost=False)
    return {"jitter": duration_text(delay)}, [*notes, differs]


def _notes(timer: SystemdUnit) -> Iterator[ImportNote]:
    repeated = [key for key in _REPEATED if timer.all(_TIMER, key)]
    once = [key for key in _ONCE if timer.all(_TIMER, key)]
    if "OnUnitInactiveSec" in repeated:
        yield ImportNote("OnUnitInactiveSec counts from the end of a run; the interval counts from start to start")
    if repeated and once:
        yield ImportNote(f"{', '.join(once)}: the interval begins when the job is registered", lost=False)
    elif once and timer.all(_TIMER, "OnCalendar"):
        yield ImportNote(f"{', '.join(once)}: the start of the machine is no time of a schedule")
    if timer.all(_TIMER, "AccuracySec"):
        yield ImportNote("AccuracySec is not needed: fires are exact", lost=False)
    unknown = [key for key in timer.keys(_TIMER) if key not in _TIMER_KEYS and key not in _IGNORED_TIMER_KEYS]
    if unknown:
        yield ImportNote(f"{', '.join(unknown)}: not supported")
