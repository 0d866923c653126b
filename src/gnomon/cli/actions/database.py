"""`gnomon db` and `gnomon doctor`: migrate, clean and check a database."""

import asyncio
import sys
from pathlib import Path

import msgspec

from gnomon.app import backups
from gnomon.app.doctor import diagnose
from gnomon.app.local_user import local_user
from gnomon.app.maintenance import archive_chosen
from gnomon.app.observability import console_events
from gnomon.app.payloads import decrypted_lines
from gnomon.app.stores import migrate_database, move_database
from gnomon.cli.output import Format, format_instant, print_data, print_table
from gnomon.cli.target import Target, echo, with_operations
from gnomon.core.ledger.restored import DoubtfulTicks
from gnomon.errors import UsageError
from gnomon.ports.maintenance import RetentionKind
from gnomon.services.observability.health import Severity


def migrate(target: Target, schema: str | None) -> None:
    """Migrate the database, move its tables into the schema if one is named, and print their revision."""
    settings = target.settings(**{"database.schema": schema} if schema else {})
    if schema is not None:
        asyncio.run(move_database(settings))
    revision = asyncio.run(migrate_database(settings))
    sys.stdout.write(f"schema {revision}\n")


def clean(target: Target, form: Format, *, dry: bool) -> None:
    """Archive and delete old history and print the counts."""
    if not dry and not archive_chosen(target.settings()):
        raise UsageError(
            "neither execution.archive nor execution.archive_dir is set, and the servers archive where they run:"
            " set one as they have it, or execution.archive_dir to none to delete without an archive"
        )
    done = with_operations(target, lambda operations: operations.cleaner.clean(dry=dry))
    if form is not Format.TABLE:
        gone = {kind.value: count for kind, count in done.gone.items()}
        print_data({"dry_run": dry, "gone": gone, "archived_rows": dict(done.rows)}, form)
        return
    if not done.gone:
        echo("nothing is older than its retention")
        return
    rows = [[kind.value.replace("_", " "), f"{count:,}"] for kind, count in done.gone.items()]
    print_table(["kind", "would be deleted" if dry else "deleted"], rows)
    if dry and RetentionKind.RUNS in done.gone:
        echo("ticks whose runs still exist are not counted: they are deleted after their runs")


def back_up(target: Target, file: Path, form: Format) -> None:
    """Write a backup and print what it holds."""
    done = asyncio.run(backups.back_up(target.settings(), file))
    if form is not Format.TABLE:
        print_data(
            {"file": str(done.file), "schema": done.schema, "backup_at": done.backup_at, "bytes": done.size}, form
        )
        return
    echo(f"{done.file}: schema {done.schema}, {done.size:,} bytes, as of {format_instant(done.backup_at)}; checked")


def restore(target: Target, file: Path, form: Format, *, replace: bool) -> None:
    """Restore a backup and print what is in doubt."""
    events = console_events(sys.stderr, quiet=True)
    request = backups.RestoreRequest(backup=file, replace=replace, actor=local_user())
    done = asyncio.run(backups.restore(target.settings(), request, events))
    report = done.report
    if form is not Format.TABLE:
        print_data(_restored_data(done), form)
        return
    if done.kept is not None:
        echo(f"the database that was there is now {done.kept}")
    since = report.restore.backup_at
    echo(f"restored as of {'an unknown time' if since is None else format_instant(since)}")
    rows = [[one.job, one.tenant, f"{one.count:,}", *_span(one), "missed"] for one in report.missed]
    rows += [[one.job, one.tenant, f"{one.count:,}", *_span(one), "left to catch-up"] for one in report.left]
    if rows:
        echo("these ticks may have run before:")
        print_table(["job", "tenant", "ticks", "first", "last", "decided"], rows)
    for run in report.cancelled:
        echo(f"cancelled {run.run_id} of {run.schedule_id or run.workflow_id}, which may have gone on before")
    for backfill in report.backfills:
        echo(f"cancelled the backfill {backfill}, whose runs may have gone on before")
    echo("tokens that were revoked since are valid again; the audit trail ends earlier: gnomon audit verify --accept")


def _span(one: DoubtfulTicks) -> list[str]:
    return [format_instant(one.first_at), format_instant(one.last_at)]


def _restored_data(done: backups.Restored) -> dict[str, object]:
    report = done.report
    return {
        "backup_at": report.restore.backup_at,
        "restored_at": report.restore.restored_at,
        "replaced": None if done.kept is None else str(done.kept),
        "missed": [msgspec.to_builtins(one) for one in report.missed],
        "left_to_catchup": [msgspec.to_builtins(one) for one in report.left],
        "cancelled_runs": [run.run_id for run in report.cancelled],
        "cancelled_backfills": list(report.backfills),
    }


def decrypt(target: Target) -> bool:
    """Copy the lines of an archive from stdin to stdout, decrypted; return whether all payloads could be."""
    failed = 0
    for line, whole in decrypted_lines(target.settings(), sys.stdin.buffer):
        sys.stdout.buffer.write(line)
        failed += not whole
    sys.stdout.buffer.flush()
    if failed:
        sys.stderr.write(f"{failed} payloads cannot be decrypted: payload.keys lacks their key, or they were altered\n")
    return not failed


def doctor(target: Target, form: Format) -> bool:
    """Print the findings; return whether none is an error."""
    found = asyncio.run(diagnose(target.settings()))
    if form is Format.TABLE:
        print_table(["about", "is", ""], [[one.about, one.grade.value, one.message] for one in found])
    else:
        print_data([msgspec.to_builtins(one) for one in found], form)
    return all(one.grade is not Severity.ERROR for one in found)
