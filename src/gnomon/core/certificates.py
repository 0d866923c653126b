"""Services that show a certificate instead of a token: whose certificate may do what."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gnomon.core.said import schedule_name
from gnomon.errors import FieldError

_FIELD = "auth.certificates"
_ROLES = ("viewer", "operator", "admin")


class Granted(Struct, frozen=True):
    """What the bearer of a certificate may do, and to whose things."""

    role: str
    tenant: str = "default"


def read_certificates(entries: Sequence[str]) -> dict[str, Granted]:
    """What each name may do; FieldError for an entry that is none of `NAME=ROLE` and `NAME=ROLE/TENANT`."""
    found: dict[str, Granted] = {}
    for entry in entries:
        name, equals, rest = entry.rpartition("=")
        role, slash, tenant = rest.partition("/")
        if not equals or not name.strip() or role not in _ROLES:
            raise FieldError(
                _FIELD, entry, f"must be NAME=ROLE or NAME=ROLE/TENANT, with a role of {', '.join(_ROLES)}"
            )
        if name in found:
            raise FieldError(_FIELD, entry, "names a certificate a second time")
        found[name] = Granted(role, schedule_name(_FIELD, tenant) if slash else "default")
    return found


def names_in(certificate: Mapping[str, Any]) -> Iterator[str]:
    """The names that a certificate proves: its other names, and without any its common name."""
    others = [value for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "URI")]
    yield from others
    if not others:
        for parts in certificate.get("subject", ()):
            yield from (value for kind, value in parts if kind == "commonName")
