"""`gnomon db` and `gnomon doctor`: migrate, clean and check a database."""

import asyncio
import os
import sys

import msgspec

from gnomon.app.doctor import diagnose
from gnomon.app.maintenance import archive_configured
from gnomon.app.stores import migrate_database
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.target import Target, echo, with_operations
from gnomon.config.settings import load
from gnomon.errors import UsageError
from gnomon.ports.maintenance import RetentionKind
from gnomon.services.observability.health import Severity


def migrate(url: str | None) -> None:
    """Migrate the database and print its schema revision."""
    settings = load(flags={"database.url": url} if url else None, environment=os.environ)
    revision = asyncio.run(migrate_database(settings))
    sys.stdout.write(f"schema {revision}\n")


def clean(target: Target, form: Format, *, dry: bool) -> None:
    """Archive and delete old history and print the counts."""
    if not dry and not archive_configured(target.settings()):
        raise UsageError(
            "execution.archive_dir names no folder to archive to; set it to none to delete without an archive"
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


def doctor(target: Target, form: Format) -> bool:
    """Print the findings; return whether none is an error."""
    found = asyncio.run(diagnose(target.settings()))
    if form is Format.TABLE:
        print_table(["about", "is", ""], [[one.about, one.grade.value, one.message] for one in found])
    else:
        print_data([msgspec.to_builtins(one) for one in found], form)
    return all(one.grade is not Severity.ERROR for one in found)
