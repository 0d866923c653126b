"""`gnomon audit`: list the audit trail and verify its hash chain."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gnomon.app.auth import checkpoint_file, existing_checkpoint_key
from gnomon.app.gateway import Gateway
from gnomon.app.local_user import local_user
from gnomon.app.operations import Operations
from gnomon.cli.inputs import parse_bounds
from gnomon.cli.output import Format, first_line, format_instant, format_iso, print_data, print_list, printable
from gnomon.cli.target import Target, echo, list_all, page_size, with_gateway, with_operations
from gnomon.client import requests
from gnomon.core.responses.audit import AuditRecord
from gnomon.errors import FileError
from gnomon.services.operations.audit import AuditService, ChainVerification

_LONGEST_HEAD = 200


def list_entries(
    filters: Mapping[str, str | None], limit: int, tenant: str | None, target: Target, form: Format
) -> None:
    """Print audit entries, newest first."""
    filters = {**filters, **parse_bounds(filters)}

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
    done = with_operations(target, lambda operations: _audit(operations, target).verify(expect=wanted))
    if done.intact and head_file is not None:
        _write_head_file(head_file, done.head.hash)
    if form is Format.TABLE:
        _print_result(done)
    else:
        print_data(_result_data(done), form)
    return done.intact


def accept(target: Target) -> None:
    """Sign the chain as it is now."""
    done = with_operations(
        target,
        lambda operations: _audit(operations, target).accept(actor=local_user(), now=operations.clock.now()),
    )
    echo("there is nothing to sign" if done is None else f"signed {_entries(done.seq)}")


def _audit(operations: Operations, target: Target) -> AuditService:
    """The audit trail with the key that signs it, which requests over the API never see."""
    settings = target.settings()
    return AuditService(operations.store.audit, key=existing_checkpoint_key(settings), anchor=checkpoint_file(settings))


def _row(one: AuditRecord) -> list[str]:
    details = ", ".join(f"{name} {fact}" for name, fact in one.details.items())
    sealed = "" if one.hash is None else "yes" if one.seq is None else str(one.seq)
    what = f"{one.kind} {one.name}"
    return [format_instant(one.at), first_line(one.actor, 40), one.action, what, first_line(details, 60), sealed]


def _print_result(done: ChainVerification) -> None:
    for broken in done.breaks:
        echo(broken.reason)
    later = f"; {done.unsealed} more not sealed yet" if done.unsealed else ""
    echo(f"{'intact' if done.intact else 'BROKEN'}: {_entries(done.head.seq)}{later}")
    echo(_signature_line(done))
    echo(f"head {printable(done.head.hash)}")


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"


def _signature_line(done: ChainVerification) -> str:
    if not done.has_key:
        return "not signed: there is no key that signs it (audit.key_file)"
    if done.checkpoint is None:
        return "not signed yet: a running scheduler signs it"
    return f"signed {_entries(done.checkpoint.seq)} at {format_instant(done.checkpoint.at)}"


def _result_data(done: ChainVerification) -> dict[str, Any]:
    return {
        "whole": done.intact,
        "entries": done.head.seq,
        "unsealed": done.unsealed,
        "head": done.head.hash,
        "signed": None if done.checkpoint is None else done.checkpoint.seq,
        "signed_at": None if done.checkpoint is None else format_iso(done.checkpoint.at),
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
