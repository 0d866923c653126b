"""Where a worker finds the secrets that inputs name."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.errors import FieldError
from gnomon.sections import Secrets

_REFERENCE = re.compile(r"\$\{secret:([^}]*)\}")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
#: What is shorter would be found everywhere, and could not be taken out of a text.
_SHORTEST = 4
_LARGEST_FILE = 65_536


class SecretSource:
    """Reads secrets when an attempt starts, and keeps none."""

    def __init__(self, settings: Secrets, environ: Mapping[str, str]) -> None:
        self._allowed = frozenset(settings.allow)
        self._folder = Path(settings.folder) if settings.folder else None
        self._environ = environ

    def resolve(self, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, str]]:
        """The input with every `${secret:NAME}` replaced, and the secrets that it then holds.

        FieldError names a secret that is not allowed, missing or too short; never its value.
        """
        if not given or not _mentions(given):
            return given, {}
        found: dict[str, str] = {}
        return self._filled(given, found), found

    def _filled(self, value: Any, found: dict[str, str]) -> Any:  # noqa: ANN401 - any JSON
        match value:
            case str():
                return _REFERENCE.sub(lambda reference: self._secret(reference[1], found), value)
            case Mapping():
                return {key: self._filled(each, found) for key, each in value.items()}
            case list() | tuple():
                return [self._filled(each, found) for each in value]
            case _:
                return value

    def _secret(self, name: str, found: dict[str, str]) -> str:
        if name not in found:
            if name not in self._allowed or not _NAME.fullmatch(name):
                raise FieldError("secret", name, "is not allowed")
            value = self._from_file(name)
            value = self._environ.get(name) if value is None else value
            if value is None:
                raise FieldError("secret", name, "is missing")
            if not _is_unicode(value):
                raise FieldError("secret", name, "is no text: it has bytes that are not UTF-8")
            if len(value) < _SHORTEST:
                raise FieldError("secret", name, f"is shorter than {_SHORTEST} characters: it could not be kept secret")
            found[name] = value
        return found[name]

    def _from_file(self, name: str) -> str | None:
        if self._folder is None or not name.strip("."):
            return None
        folder = self._folder.resolve()
        file = (folder / name).resolve()
        if not file.is_relative_to(folder) or not file.is_file():
            return None
        try:
            with file.open("rb") as opened:
                raw = opened.read(_LARGEST_FILE + 1)
            text = raw.decode()
        except (OSError, UnicodeDecodeError):
            raise FieldError("secret", name, "cannot be read from its file") from None
        if len(raw) > _LARGEST_FILE:
            raise FieldError("secret", name, f"is larger than {_LARGEST_FILE} bytes")
        return text.removesuffix("\n").removesuffix("\r")


def _is_unicode(value: str) -> bool:
    """False for what the environment holds that is no UTF-8: it comes as halves of characters."""
    return not any("\ud800" <= letter <= "\udfff" for letter in value)


def _mentions(value: Any) -> bool:  # noqa: ANN401 - any JSON
    match value:
        case str():
            return "${secret:" in value
        case Mapping():
            return any(map(_mentions, value.values()))
        case list() | tuple():
            return any(map(_mentions, value))
        case _:
            return False
