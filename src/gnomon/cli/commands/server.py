"""`gnomon up`, `server`, `worker`, `workers`, `doctor` and `gnomon db`: running and maintaining an installation."""

from typing import Annotated

import typer

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

database = typer.Typer(name="db", help="Migrate and clean the database.", no_args_is_help=True)


def up(
    *,
    place: Database = None,
    config: Config = None,
    jobs: WatchedJobs = None,
    imports: Imports = None,
    slots: Slots = None,
    port: Port = None,
    no_api: Annotated[bool, typer.Option("--no-api", help="Do not serve the HTTP API.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run scheduler, worker and HTTP API in one process."""
    from gnomon.cli.actions.server import settings_flags
    from gnomon.cli.actions.server import up as run

    flags = settings_flags(place, port=port, slots=slots)
    run(flags=flags, config=config, jobs=jobs or [], imports=imports or [], quiet=quiet, api=not no_api)


def server(
    *,
    place: Database = None,
    config: Config = None,
    jobs: WatchedJobs = None,
    port: Port = None,
    quiet: Quiet = False,
) -> None:
    """Run scheduler and HTTP API without a worker; several servers may share a database."""
    from gnomon.cli.actions.server import settings_flags
    from gnomon.cli.actions.server import up as run

    run(flags=settings_flags(place, port=port), config=config, jobs=jobs or [], quiet=quiet, executes=False)


def worker(
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


def workers(*, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """List live workers, their load and their functions."""
    from gnomon.cli.actions.workers import list_workers as run
    from gnomon.cli.target import Target

    run(Target(database, config), output)


def doctor(*, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """Check the database, its schedulers and workers, disk space and time zones; exit with 1 on an error."""
    from gnomon.cli.actions.database import doctor as run
    from gnomon.cli.target import Target

    if not run(Target(database, config), output):
        raise typer.Exit(1)


@database.command()
def migrate(
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="sqlite:///PATH or postgresql://… (default: the configured database)."),
    ] = None,
) -> None:
    """Create or upgrade the schema of a database. Idempotent."""
    from gnomon.cli.actions.database import migrate as run

    run(url)


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
