"""Services of systemd as commands."""

from collections.abc import Iterator, Mapping
from typing import Any

from gnomon.core.durations import duration_text
from gnomon.core.importing.entries import USUAL_TIMEOUT, Note
from gnomon.core.importing.spans import span_ms
from gnomon.core.importing.units import Unit, assignments_of, shell_command
from gnomon.core.importing.variables import shown, with_variables
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
