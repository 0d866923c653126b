"""Helpers shared by all sources of settings: environment references, unknown names, and redacted values."""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from gnomon.core.spelling import nearest
from gnomon.errors import FieldError

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
#: Keys whose values are passwords, or URLs that may hold one.
_CREDENTIALS = frozenset(
    ("url", "iam_url", "password", "keys", "secret_access_key", "session_token", "kernel_token", "token", "secret")
)


class _Redacted:
    """The placeholder of a value that must not be shown."""

    def __repr__(self) -> str:
        return "[hidden]"


REDACTED = _Redacted()


class RedactedSettings(Struct, frozen=True, kw_only=True):
    """A section that may hold credentials and redacts them in its representation."""

    def __repr__(self) -> str:
        values = (f"{key}={redact_value(key, getattr(self, key))!r}" for key in self.__struct_fields__)
        return f"{type(self).__name__}({', '.join(values)})"


def redact_value(field: str, value: object) -> object:
    """The value, unless it may hold credentials."""
    secret = field.rpartition(".")[2] in _CREDENTIALS or (isinstance(value, str) and "://" in value)
    return REDACTED if secret else value


def unknown_setting_reason(name: object, known: Iterable[str]) -> str:
    """The reason for refusing a name, with a similar known name."""
    near = nearest(str(name), known)
    return "is no setting" + (f"; did you mean {near}?" if near else "")


def expand_environment(value: object, environment: Mapping[str, str], field: str) -> object:
    """The value with each `${NAME}` replaced by the environment variable, however deep."""
    if isinstance(value, list):
        return [expand_environment(entry, environment, field) for entry in value]
    if isinstance(value, Mapping):
        return {key: expand_environment(entry, environment, f"{field}.{key}") for key, entry in value.items()}
    if not isinstance(value, str):
        return value

    def resolved(reference: re.Match[str]) -> str:
        if reference[1] not in environment:
            raise FieldError(field, redact_value(field, value), f"names {reference[1]}, which the environment lacks")
        return environment[reference[1]]

    return _REFERENCE.sub(resolved, value)
