"""The rules about settings of the command policy that their types do not express."""

import re
from collections.abc import Iterable

from gnomon.config.sections import SecuritySettings
from gnomon.core.commands.files import normal_path
from gnomon.core.commands.programs import program_names, starts_others
from gnomon.errors import FieldError

_NAME = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.+@%-]*")


def check_security(security: SecuritySettings) -> None:
    """Raise FieldError for an entry that no path can match."""
    for entry in security.allowed_commands or ():
        _check_program(entry)
    _check_paths("security.forbidden_paths", security.forbidden_paths or (), homes=True)
    _check_paths("security.allowed_roots", security.allowed_roots)
    _check_paths("security.path", security.path)
    forbidden = {normal_path(entry) for entry in security.forbidden_paths or () if not entry.startswith("~")}
    for entry in security.allowed_roots:
        if normal_path(entry) in forbidden:
            raise FieldError("security.allowed_roots", entry, "is also in security.forbidden_paths: name it once")
    if security.max_actions_per_hour is not None and security.max_actions_per_hour < -1:
        raise FieldError("security.max_actions_per_hour", security.max_actions_per_hour, "must be 0 or more, or none")


def _check_program(entry: str) -> None:
    field = "security.allowed_commands"
    if "/" in entry:
        _check_paths(field, (entry,))
        if entry != normal_path(entry):
            raise FieldError(field, entry, f"must be written without . and .. and double slashes: {normal_path(entry)}")
    elif not _NAME.fullmatch(entry):
        raise FieldError(field, entry, "must be the name of a program or an absolute path: patterns are not possible")
    if starts_others(program_names(entry, entry)):
        raise FieldError(field, entry, "starts other programs and cannot be allowed: list those instead")


def _check_paths(field: str, paths: Iterable[str], *, homes: bool = False) -> None:
    for path in paths:
        if "\0" in path or not (path.startswith("/") or (homes and re.match("~/[^/]", path))):
            other = ", or begin with ~/ and a name" if homes else ""
            raise FieldError(field, path, f"must be an absolute path{other}")
