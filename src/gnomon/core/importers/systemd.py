"""Services of systemd as commands."""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from gnomon.core.durations import duration_text
from gnomon.core.importers.report import (
    USUAL_TIMEOUT,
    Entry,
    Imported,
    Note,
    as_name,
    left_out,
    reason_of,
    shown,
    with_variables,
)
from gnomon.core.importers.systemd_syntax import Times, Unit, assignments_of, read_calendar, shell_command, span_ms
from gnomon.core.jobs.schedule_fields import MOST_JITTER_MS
from gnomon.errors import FieldError

_SERVICE = "Service"
_COMMANDS = ("ExecStartPre", "ExecStart", "ExecStartPost")
#: Understood, or without a meaning where a command runs to its end and is heard to its end.
_KNOWN = (*_COMMANDS, "Type", "Environment", "WorkingDirectory", "TimeoutStartSec", "TimeoutSec", "RuntimeMaxSec")
_NEEDLESS = ("RemainAfterExit", "SyslogIdentifier", "KillMode", "TimeoutStopSec", "StandardError", "StandardInput")
_QUIET_OUTPUTS = ("", "journal", "inherit", "null", "journal+console", "syslog", "kmsg")
_PLAIN_TYPES = ("", "simple", "exec", "oneshot", "idle")
#: What a unit may ask of others, or of the machine, before or after it runs.
_RELATIONS = ("Requires", "Requisite", "BindsTo", "Conflicts", "OnFailure", "OnSuccess", "PartOf")


class Service:
    """What a service does, in the words of a job; FieldError if no shell could do it."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self.notes: list[Note] = []
        self.work: dict[str, Any] = with_variables(self._command(), self._variables(), self.notes)
        self.work |= self._workdir() | {"timeout": self._timeout()}
        self.notes += self._left_behind()

    def about(self, usual: str) -> dict[str, str]:
        """Its description, or the usual one."""
        text = self._unit.last("Unit", "Description", usual)
        plain = "".join(letter for letter in text if letter.isprintable())[:1000]
        return {"description": plain} if plain else {}

    def _command(self) -> str:
        if not self._unit.all(_SERVICE, "ExecStart"):
            raise FieldError("ExecStart", None, f"is missing in {self._unit.name}")
        spoken = []
        for key in _COMMANDS:
            for line in self._unit.all(_SERVICE, key):
                command, marks = shell_command(key, self._unit.filled(key, line))
                spoken.append(command)
                if marks:
                    self.notes.append(Note(f"{key}: the {marks} before it, which changes its rights or its name"))
        return " && ".join(spoken)

    def _variables(self) -> Mapping[str, str]:
        lines = [self._unit.filled("Environment", line) for line in self._unit.all(_SERVICE, "Environment")]
        return assignments_of("Environment", lines)

    def _workdir(self) -> dict[str, str]:
        folder = self._unit.last(_SERVICE, "WorkingDirectory").removeprefix("-")
        if not folder:
            return {}
        folder = self._unit.filled("WorkingDirectory", folder)
        if folder.startswith("~"):
            self.notes.append(Note("WorkingDirectory ~: commands run in the workspace"))
            return {}
        self.notes.append(
            Note(f"WorkingDirectory {shown(folder)} must lie inside of the workspace (shell.workspace)", lost=False)
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

    def _left_behind(self) -> Iterator[Note]:
        kind = self._unit.last(_SERVICE, "Type")
        if kind not in _PLAIN_TYPES:
            yield Note(
                f"Type {shown(kind)}: a job lasts as long as its command, and what that leaves running is killed"
            )
        user = self._unit.last(_SERVICE, "User")
        if user:
            yield Note(f"User {shown(user)}: it runs as the user of the worker")
        if self._unit.all(_SERVICE, "EnvironmentFile"):
            yield Note("EnvironmentFile: write its variables into env")
        output = self._unit.last(_SERVICE, "StandardOutput")
        if output not in _QUIET_OUTPUTS:
            yield Note(f"StandardOutput {shown(output)}: what a command prints is in its log")
        handled = (*_KNOWN, *_NEEDLESS, "User", "EnvironmentFile", "StandardOutput")
        others = [key for key in self._unit.keys(_SERVICE) if key not in handled]
        others += [
            key for key in self._unit.keys("Unit") if key in _RELATIONS or key.startswith(("Condition", "Assert"))
        ]
        if others:
            yield Note(f"{shown(', '.join(others), 300)}: nothing here does that")


_TIMER = "Timer"
_SUFFIX = ".timer"
_ONCE = ("OnActiveSec", "OnBootSec", "OnStartupSec")
_REPEATED = ("OnUnitActiveSec", "OnUnitInactiveSec")
_KNOWN_TIMER_KEYS = ("OnCalendar", *_ONCE, *_REPEATED, "Persistent", "RandomizedDelaySec", "AccuracySec", "Unit")
#: Switches that change nothing here.
_NEEDLESS_TIMER_KEYS = ("RemainAfterElapse", "FixedRandomDelay", "DeferReactivation", "RandomizedOffsetSec")
REMARKS = (
    "commands run in the workspace, by a login shell, as the user of the worker",
    f"a service without a time limit has one of {USUAL_TIMEOUT}",
)


def read_timers(units: Mapping[str, str], *, timezone: str) -> Imported:
    """The timers among the units, by the names of their files. `timezone` is that of the machine they come from."""
    entries: list[Entry] = []
    for name, text in units.items():
        if name.endswith(_SUFFIX):
            entries += _entries(Unit(name, text), units, timezone)
    zone = f"times of day are those of {timezone}, unless a timer names a zone"
    return Imported(entries=tuple(entries), remarks=(*REMARKS, zone))


def service_of(name: str, text: str) -> str | None:
    """The unit that a timer starts; None for what is no timer."""
    if not name.endswith(_SUFFIX):
        return None
    return Unit(name, text).last(_TIMER, "Unit", f"{name.removesuffix(_SUFFIX)}.service")


def template_of(name: str) -> str:
    """The unit that an instance is made from; its own name, if it is none."""
    stem, at, instance = name.partition("@")
    return f"{stem}@.{instance.rpartition('.')[2]}" if at else name


def _entries(timer: Unit, units: Mapping[str, str], timezone: str) -> list[Entry]:
    stem = timer.name.removesuffix(_SUFFIX)
    wanted = timer.last(_TIMER, "Unit", f"{stem}.service")
    if stem.endswith("@"):
        return [left_out(timer.name, wanted, "it is a template, and only its instances run")]
    text = units.get(wanted, units.get(template_of(wanted)))
    if text is None:
        return [left_out(timer.name, wanted, f"its service {wanted} is not among the files")]
    try:
        service = Service(Unit(wanted, text))
    except FieldError as error:
        return [left_out(timer.name, wanted, reason_of(error))]
    usual = {"name": as_name(stem) or "timer"} | service.about(timer.last("Unit", "Description"))
    policies, notes = _policies(timer)
    found = []
    for original, when in _times(timer, timezone):
        if isinstance(when, str):
            found.append(left_out(timer.name, original, when))
            continue
        job = usual | when | service.work | policies | {"overlap": "skip"}
        job |= {"catchup": "latest"} if "every" not in when and timer.yes(_TIMER, "Persistent") else {}
        found.append(Entry(place=timer.name, original=original, job=job, notes=(*notes, *service.notes)))
    return _numbered(timer, found, notes)


def _numbered(timer: Unit, found: list[Entry], notes: list[Note]) -> list[Entry]:
    """Several times of one timer are several jobs, which do not know of each other."""
    if not found:
        once = ", ".join(key for key in _ONCE if timer.all(_TIMER, key))
        reason = (
            f"{once} counts from a start of the machine, and no clock says when that is" if once else "it has no time"
        )
        return [Entry(place=timer.name, original=timer.name, notes=(Note(reason), *notes))]
    if len(found) == 1:
        return found
    several = Note(f"it has {len(found)} times, so it becomes several jobs, which may overlap each other", lost=False)
    return [one if one.job is None else replace(one, notes=(several, *one.notes)) for one in found]


def _times(timer: Unit, timezone: str) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """Each time as it is written, and as a job says it or why none can."""
    for text in timer.all(_TIMER, "OnCalendar"):
        try:
            times = read_calendar(timer.filled("OnCalendar", text))
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


def _when(times: Times, timezone: str) -> dict[str, Any]:
    zone = {"timezone": times.timezone or timezone}
    return {"at": times.at, **zone} if times.schedule is None else {"schedule": times.schedule, **zone}


def _policies(timer: Unit) -> tuple[dict[str, Any], list[Note]]:
    notes = list(_notes(timer))
    text = timer.last(_TIMER, "RandomizedDelaySec", "0")
    try:
        delay = span_ms("RandomizedDelaySec", text)
    except FieldError as error:
        return {}, [*notes, Note(str(error))]
    if delay == 0:
        return {}, notes
    if delay is None or delay > MOST_JITTER_MS:
        return {}, [*notes, Note(f"RandomizedDelaySec {text}: jitter is at most {duration_text(MOST_JITTER_MS)}")]
    differs = Note("RandomizedDelaySec: jitter moves a fire either way, and not only to a later time", lost=False)
    return {"jitter": duration_text(delay)}, [*notes, differs]


def _notes(timer: Unit) -> Iterator[Note]:
    repeated = [key for key in _REPEATED if timer.all(_TIMER, key)]
    once = [key for key in _ONCE if timer.all(_TIMER, key)]
    if "OnUnitInactiveSec" in repeated:
        yield Note("OnUnitInactiveSec counts from the end of a run; the interval counts from start to start")
    if repeated and once:
        yield Note(f"{', '.join(once)}: the interval begins when the job is registered", lost=False)
    elif once and timer.all(_TIMER, "OnCalendar"):
        yield Note(f"{', '.join(once)}: no clock says when the machine starts")
    if timer.all(_TIMER, "AccuracySec"):
        yield Note("AccuracySec is not needed: fires are exact", lost=False)
    unknown = [key for key in timer.keys(_TIMER) if key not in _KNOWN_TIMER_KEYS and key not in _NEEDLESS_TIMER_KEYS]
    if unknown:
        yield Note(f"{', '.join(unknown)}: nothing here does that")
