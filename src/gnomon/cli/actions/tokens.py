"""`gnomon token`: create tokens signed with the local key, and inspect any token."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gnomon.app.auth import inspect_token, new_token
from gnomon.cli.output import Format, format_fields, format_instant, format_iso, print_data, printable
from gnomon.cli.target import Target, current_user, echo
from gnomon.core.durations import duration_ms
from gnomon.core.model import DAY_MS, SECOND_MS
from gnomon.errors import FieldError, UsageError
from gnomon.ports.auth import Role

_LONGEST_MS = 3650 * DAY_MS
_LARGEST = 65_536
_INSTANTS = ("iat", "nbf", "exp")


class TokenOptions(NamedTuple):
    """The arguments of `gnomon token create`."""

    role: str
    subject: str | None
    tenant: str
    expires: str


def create(options: TokenOptions, target: Target, form: Format) -> None:
    """Print a new token: alone as text, because it is copied or piped, and with its claims as data."""
    role, settings = Role[options.role.upper()], target.settings()
    lasts_ms = duration_ms("expires", options.expires, low=SECOND_MS, high=_LONGEST_MS)
    subject = current_user() if options.subject is None else options.subject
    made = new_token(settings, role, subject=subject, tenant=options.tenant, lasts_ms=lasts_ms)
    if form is Format.TABLE:
        echo(made)
        return
    claims = inspect_token(settings, made).claims
    print_data({"token": made, **_for_machines(claims)}, form)


def inspect(shown: str | None, file: Path | None, target: Target, form: Format) -> bool:
    """Print the claims of a token; return whether this installation would accept it, as far as it can check."""
    found = inspect_token(target.settings(), _read_token(shown, file))
    if form is not Format.TABLE:
        signed = {"algorithm": found.algorithm, "kid": found.kid, "signed_here": found.ours}
        print_data({**signed, "refused": found.refused or None, "claims": _for_machines(found.claims)}, form)
        return not found.refused
    fields = [(name, printable(_for_people(name, value))) for name, value in found.claims.items()]
    signed_by = {True: "the key of this installation", False: "another key, not checked", None: "not checked"}
    fields += [("algorithm", found.algorithm), ("key", found.kid or ""), ("signed by", signed_by[found.ours])]
    fields.append(("counts", f"no: {found.refused}" if found.refused else "yes, if its signature is right"))
    if found.ours and not found.refused:
        fields[-1] = ("counts", "yes")
    echo("\n".join(format_fields(fields)))
    return not found.refused


def _read_token(shown: str | None, file: Path | None) -> str:
    """The token from the argument, standard input or a file; arguments are visible to other users of the machine."""
    if (shown is None) == (file is None):
        raise UsageError("pass a token, - for standard input, or --file: one of them")
    if shown == "-":
        return sys.stdin.read(_LARGEST).strip()
    if file is None:
        return (shown or "").strip()
    try:
        with file.open(encoding="utf-8") as text:
            return text.read(_LARGEST).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise FieldError("--file", str(file), f"cannot be read: {error}") from None


def _for_machines(claims: Mapping[str, Any]) -> dict[str, Any]:
    return {name: format_iso(_ms(value)) if _is_instant(name, value) else value for name, value in claims.items()}


def _for_people(name: str, value: object) -> str:
    if _is_instant(name, value):
        return format_instant(_ms(value))
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _is_instant(name: str, value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return name in _INSTANTS and number and 0 <= float(str(value)) < 253_402_300_800


def _ms(value: object) -> int:
    return int(float(str(value)) * 1000)
