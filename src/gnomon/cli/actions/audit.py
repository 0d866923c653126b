"""`gnomon audit`: list the audit trail and verify its hash chain."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from gnomon.app.gateway import Gateway
from gnomon.cli.output import Format, first_line, format_instant, print_data, print_list, printable
from gnomon.cli.target import Target, echo, list_all, page_size, with_gateway, with_operations
from gnomon.client import requests
from gnomon.core.responses import AuditRecord
from gnomon.errors import FieldError, FileError
from gnomon.services.operations.audit import ChainVerification

_LONGEST_HEAD = 200


def list_entries(
    filters: Mapping[str, str | None], limit: int, tenant: str | None, target: Target, form: Format
) -> None:
    """Print audit entries, newest first."""
    for field in ("since", "until"):
        _check_instant(field, filters[field])

    async def work(gateway: Gateway) -> list[AuditRecord]:
        return await list_all(gateway, requests.audit(page=page_size(limit), **filters), limit)

    found = with_gateway(target, work, tenant=tenant)
    columns = ["at", "actor", "action", "what", "details", "sealed"]
    print_list(found, form, columns, _row, none="no entries")


def verify(expect: str | None, head_file: Path | None, target: Target, form: Format) -> bool:
    """Verify the whole chain and return whether it is intact.

    `head_file` keeps the last hash between calls, so that entries cut off the end of the chain are noticed.
    """
    wanted = expect if head_file is None else _read_head_file(head_file)
    done = with_operations(target, lambda operations: operations.audit.verify(expect=wanted))
    if done.intact and head_file is not None:
        _write_head_file(head_file, done.head.hash)
    if form is Format.TABLE:
        _print_result(done)
    else:
        print_data(_result_data(done), form)
    return done.intact


def _check_instant(field: str, text: str | None) -> None:
    if text is None:
        return
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise FieldError(field, text, "is not an ISO 8601 instant such as 2026-03-01T12:00:00Z") from None
    if found.tzinfo is None:
        raise FieldError(field, text, "has no time zone: end it with Z or an offset")


def _row(one: AuditRecord) -> list[str]:
    details = ", ".join(f"{name} {fact}" for name, fact in one.details.items())
    sealed = "" if one.seq is None else str(one.seq)
    what = f"{one.kind} {one.name}"
    return [format_instant(one.at), first_line(one.actor, 40), one.action, what, first_line(details, 60), sealed]


def _print_result(done: ChainVerification) -> None:
    for broken in done.breaks:
        echo(broken.reason)
    later = f"; {done.unsealed} more not sealed yet" if done.unsealed else ""
    echo(f"{'whole' if done.intact else 'BROKEN'}: {done.head.seq} entries{later}")
    echo(f"head {printable(done.head.hash)}")


def _result_data(done: ChainVerification) -> dict[str, Any]:
    return {
        "whole": done.intact,
        "entries": done.head.seq,
        "unsealed": done.unsealed,
        "head": done.head.hash,
        "flaws": [{"seq": broken.seq, "reason": broken.reason} for broken in done.breaks],
    }


def _read_head_file(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii")[:_LONGEST_HEAD].strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(file, f"cannot be read: {error}") from None


def _write_head_file(file: Path, head: str) -> None:
    fresh = file.with_name(f"{file.name}.new")
    try:
        fresh.write_text(f"{head}\n", encoding="ascii")
        fresh.replace(file)
    except OSError as error:
        raise FileError(file, f"cannot be written: {error.strerror}") from None
