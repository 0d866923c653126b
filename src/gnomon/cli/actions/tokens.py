"""`gnomon token`: create tokens signed with the local key, inspect, list and revoke tokens."""

import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from gnomon.app.auth import ensure_local_access, inspect_token, new_token, read_local_token
from gnomon.app.gateway import Gateway
from gnomon.app.local_user import local_user
from gnomon.app.operations import Operations
from gnomon.cli.output import (
    Format,
    first_line,
    format_fields,
    format_instant,
    format_iso,
    print_data,
    print_list,
    printable,
)
from gnomon.cli.target import Target, echo, list_all, page_size, send, with_gateway, with_operations
from gnomon.client import requests
from gnomon.core.durations import duration_ms
from gnomon.core.model import SECOND_MS
from gnomon.core.responses.tokens import TokenDetail
from gnomon.core.tokens import EVERY_TENANT, RevokedTokens
from gnomon.errors import FieldError, NoDatabase, Unavailable, UsageError
from gnomon.ports.auth import Role

_LARGEST = 65_536
_INSTANTS = ("iat", "nbf", "exp")


class TokenOptions(NamedTuple):
    """The arguments of `gnomon token create`."""

    role: str
    subject: str | None
    tenant: str
    expires: str
    groups: tuple[str, ...] = ()


class RevokeOptions(NamedTuple):
    """The arguments of `gnomon token revoke`."""

    token_id: str | None
    file: Path | None
    all: bool
    tenant: str | None


def create(options: TokenOptions, target: Target, form: Format) -> None:
    """Print a new token: alone as text, because it is copied or piped, and with its claims as data."""
    role, settings = Role[options.role.upper()], target.settings()
    lasts_ms = duration_ms("expires", options.expires, low=SECOND_MS, high=settings.auth.max_lifetime_ms)
    subject = local_user() if options.subject is None else options.subject
    made = new_token(
        settings,
        role,
        subject=subject,
        tenant=options.tenant,
        lasts_ms=lasts_ms,
        groups=options.groups,
        issued_by=local_user(),
    )
    # Before it is printed: a token that is in use is always listed.
    with_operations(target, lambda operations: operations.tokens.issued(made.record), make=True)
    if form is Format.TABLE:
        echo(made.token)
        return
    claims = inspect_token(settings, made.token).claims
    print_data({"token": made.token, **_for_machines(claims)}, form)


def list_tokens(limit: int, tenant: str | None, target: Target, form: Format) -> None:
    """Print the tokens that were issued or revoked, newest first."""

    async def work(gateway: Gateway) -> list[TokenDetail]:
        return await list_all(gateway, requests.tokens(page=page_size(limit)), limit)

    found = with_gateway(target, work, tenant=tenant)
    columns = ["id", "subject", "role", "issued", "by", "expires", "revoked"]
    print_list(found, form, columns, _row, none="no tokens")


def revoke(options: RevokeOptions, target: Target, form: Format) -> None:
    """Revoke a token, or all of them. On a local database that means every tenant, unless one is named."""
    token_id = None if options.all else _token_id(options, target)
    if target.remote_server() is not None:
        request = requests.revoke_all_tokens() if token_id is None else requests.revoke_token(token_id)
        done = send(target, request).revoked
    else:
        done = with_operations(target, partial(_revoke_locally, token_id, options.tenant or EVERY_TENANT))
        _renew_local_token(target)
    if form is not Format.TABLE:
        print_data({"token_id": token_id, "revoked": done}, form)
    elif token_id is None:
        echo("revoked all tokens that were issued until now")
    else:
        echo(f"revoked {token_id}" if done else f"{token_id} was revoked before")


async def _revoke_locally(token_id: str | None, tenant: str, operations: Operations) -> bool:
    if token_id is not None:
        return await operations.tokens.revoke(token_id, actor=local_user(), tenant=tenant)
    await operations.tokens.revoke_all(actor=local_user(), tenant=tenant)
    return True


def _renew_local_token(target: Target) -> None:
    """Replace the admin token in its file if it has been revoked, so that the owner keeps access."""
    settings = target.settings()
    if settings.auth.verify_tokens and read_local_token(settings) is not None:
        ensure_local_access(settings, revoked=_revocations(target))


def _revocations(target: Target) -> RevokedTokens | None:
    """The revoked tokens; None if there is no database to ask."""
    try:
        return with_operations(target, lambda operations: operations.store.tokens.revoked())
    except (NoDatabase, Unavailable):
        return None


def _token_id(options: RevokeOptions, target: Target) -> str:
    if options.file is None:
        return options.token_id or ""
    return inspect_token(target.settings(), _read_token(None, options.file)).token_id


def _row(one: TokenDetail) -> list[str]:
    by = f" by {one.revoked_by}" if one.revoked_by else ""
    revoked = "" if one.revoked_at is None else f"{format_instant(one.revoked_at)}{by}"
    issued = format_instant(one.issued_at)
    role = one.role.removeprefix("scheduler-")
    return [
        one.token_id,
        first_line(one.subject, 40),
        role,
        issued,
        one.issued_by,
        format_instant(one.expires_at),
        revoked,
    ]


def inspect(shown: str | None, file: Path | None, target: Target, form: Format) -> bool:
    """Print the claims of a token; return whether this installation would accept it, as far as it can check."""
    found = inspect_token(target.settings(), _read_token(shown, file), revoked=_revocations(target))
    if form is not Format.TABLE:
        signed = {"token_id": found.token_id, "algorithm": found.algorithm, "kid": found.kid, "signed_here": found.ours}
        print_data({**signed, "refused": found.refused or None, "claims": _for_machines(found.claims)}, form)
        return not found.refused
    fields = [("id", printable(found.token_id))]
    fields += [(name, printable(_for_people(name, value))) for name, value in found.claims.items() if name != "jti"]
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
