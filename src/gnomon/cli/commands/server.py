"""`gnomon up`, `server`, `worker`, `workers`, `doctor` and `gnomon db`: running and maintaining an installation."""

from pathlib import Path
from typing import Annotated

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.options import (
    Bus,
    Config,
    Database,
    Imports,
    MetricsPort,
    Output,
    Port,
    Quiet,
    Slots,
    WatchedJobs,
)
from gnomon.cli.output import Format

database = typer.Typer(
    cls=CommandGroup, name="db", help="Migrate, clean, back up and restore the database.", no_args_is_help=True
)
worker = typer.Typer(cls=CommandGroup, name="worker")

WorkerName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the worker.")]
PruneUndeclared = Annotated[
    bool,
    typer.Option("--prune", help="Delete jobs that these files and modules declared before and do not declare now."),
]
KeysFolder = Annotated[
    Path, typer.Option("--keys", metavar="FOLDER", help="Folder with the keys that sign credentials.")
]


def up(
    *,
    place: Database = None,
    config: Config = None,
    jobs: WatchedJobs = None,
    imports: Imports = None,
    slots: Slots = None,
    port: Port = None,
    no_api: Annotated[bool, typer.Option("--no-api", help="Do not serve the HTTP API.")] = False,
    prune: PruneUndeclared = False,
    quiet: Quiet = False,
) -> None:
    """Run scheduler, worker and HTTP API in one process."""
    from gnomon.cli.actions.server import ServerMode, settings_flags
    from gnomon.cli.actions.server import up as run

    flags, mode = settings_flags(place, port=port, slots=slots), ServerMode(api=not no_api, prune=prune)
    run(flags=flags, config=config, jobs=jobs or [], imports=imports or [], quiet=quiet, mode=mode)


def server(
    *,
    place: Database = None,
    config: Config = None,
    jobs: WatchedJobs = None,
    port: Port = None,
    prune: PruneUndeclared = False,
    quiet: Quiet = False,
) -> None:
    """Run scheduler and HTTP API without a worker; several servers may share a database."""
    from gnomon.cli.actions.server import ServerMode, settings_flags
    from gnomon.cli.actions.server import up as run

    flags, mode = settings_flags(place, port=port), ServerMode(executes=False, prune=prune)
    run(flags=flags, config=config, jobs=jobs or [], quiet=quiet, mode=mode)


@worker.callback(invoke_without_command=True)
def run_worker(
    context: typer.Context,
    *,
    place: Annotated[
        str | None,
        typer.Option(
            "--database", metavar="PATH|URL", help="Database that the servers schedule in (default: ./gnomon.db)."
        ),
    ] = None,
    nats: Bus = None,
    config: Config = None,
    imports: Imports = None,
    pool: Annotated[
        str | None, typer.Option(metavar="POOL", help="Worker pool to take tasks from (default: default).")
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option("--label", metavar="KEY=VALUE", help="Worker label that tasks can select; repeatable."),
    ] = None,
    capabilities: Annotated[
        list[str] | None,
        typer.Option("--capability", metavar="WORD", help="Capability that tasks can require; repeatable."),
    ] = None,
    slots: Slots = None,
    metrics_port: MetricsPort = None,
    quiet: Quiet = False,
) -> None:
    """Run a worker that executes the tasks of one or more servers."""
    if context.invoked_subcommand is not None:
        return
    from gnomon.cli.actions.server import settings_flags
    from gnomon.cli.actions.worker import parse_labels
    from gnomon.cli.actions.worker import worker as run

    given = {
        "nats.url": nats,
        "worker.pool": pool,
        "worker.labels": parse_labels(labels or []) or None,
        "worker.capabilities": capabilities,
        "metrics.port": metrics_port,
    }
    flags = settings_flags(place, port=None, slots=slots) | {
        key: value for key, value in given.items() if value is not None
    }
    run(flags=flags, config=config, imports=imports or [], quiet=quiet)


@worker.command("enroll")
def enroll_worker(
    name: WorkerName,
    *,
    keys: KeysFolder,
    pool: Annotated[str, typer.Option(metavar="POOL", help="Worker pool that it may take tasks from.")] = "default",
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="SPAN", help="Lifetime, such as 90d (default: until revoked).")
    ] = None,
) -> None:
    """Create NATS credentials for one worker, which permit its own subjects and the tasks of its pool."""
    from gnomon.cli.actions.enrolment import enroll

    enroll(name, keys, pool=pool, expires=expires)


@worker.command("revoke")
def revoke_worker(name: WorkerName, *, keys: KeysFolder) -> None:
    """Revoke the NATS credentials of a worker."""
    from gnomon.cli.actions.enrolment import revoke

    revoke(name, keys)


@worker.command("enrolled")
def list_enrolled(*, keys: KeysFolder, output: Output = Format.TABLE) -> None:
    """List the workers that have NATS credentials."""
    from gnomon.cli.actions.enrolment import list_enrolled as run

    run(keys, output)


def workers(*, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """List live workers, their load and their functions."""
    from gnomon.cli.actions.workers import list_workers as run
    from gnomon.cli.target import Target

    run(Target(database, config), output)


def whoami(*, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """Show who you are to the server or the database: subject, tenant, roles and groups."""
    from gnomon.cli.actions.whoami import show_caller
    from gnomon.cli.target import Target

    show_caller(Target(database, config), output)


def dashboard(
    *,
    place: Database = None,
    config: Config = None,
    port: Port = None,
    only_print: Annotated[bool, typer.Option("--print", help="Print the address; open no browser.")] = False,
) -> None:
    """Open the dashboard in a browser, signed in by a code that counts once and for a minute."""
    from gnomon.cli.actions.dashboard import open_dashboard
    from gnomon.cli.target import Target

    open_dashboard(Target(place, config), port=port, only_print=only_print)


def doctor(*, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """Check the database, its schedulers and workers, disk space and time zones; exit with 1 on an error."""
    from gnomon.cli.actions.database import doctor as run
    from gnomon.cli.target import Target

    if not run(Target(database, config), output):
        raise typer.Exit(1)


@database.command()
def migrate(
    database: Database = None,
    config: Config = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", metavar="NAME", help="Move the tables into this schema of PostgreSQL; stop all nodes."
        ),
    ] = None,
) -> None:
    """Create or upgrade the tables of a database. Idempotent."""
    from gnomon.cli.actions.database import migrate as run
    from gnomon.cli.target import Target

    run(Target(database, config), schema)


@database.command()
def clean(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the counts and delete nothing.")] = False,
    place: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Archive and delete history that is older than its retention, as a running scheduler does."""
    from gnomon.cli.actions.database import clean as run
    from gnomon.cli.target import Target

    run(Target(place, config), output, dry=dry_run)


@database.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write; it must not exist.")],
    *,
    place: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Write a checked backup of the database, which may be in use."""
    from gnomon.cli.actions.database import back_up
    from gnomon.cli.target import Target

    back_up(Target(place, config), file, output)


@database.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Backup to restore.")],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Restore although the database has content. A file is kept beside.")
    ] = False,
    place: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Restore a backup into an empty database, and list what may have run since it was made."""
    from gnomon.cli.actions.database import restore as run
    from gnomon.cli.target import Target

    run(Target(place, config), file, output, replace=replace)


@database.command()
def decrypt(config: Config = None) -> None:
    """Decrypt the payloads in the lines of an archive, from standard input to standard output."""
    from gnomon.cli.actions.database import decrypt as run
    from gnomon.cli.target import Target

    if not run(Target(None, config)):
        raise typer.Exit(1)
