"""What can be typed. Commands only name their parameters here; the work is in modules of their own."""

from pathlib import Path
from typing import Annotated

import typer

from gnomon.cli.commands import admin, forecast
from gnomon.cli.commands import imports as imports_commands
from gnomon.cli.commands import jobs as jobs_commands
from gnomon.cli.options import (
    Bus,
    Config,
    Database,
    From,
    Imports,
    MetricsPort,
    Output,
    Port,
    Quiet,
    Slots,
    WatchedJobs,
    job_names,
)
from gnomon.cli.output import Format
from gnomon.core.cron import Dialect

app = typer.Typer(
    name="gnomon",
    help="Predict, prove and explain every fire.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
jobs_commands.jobs.command("resume")(jobs_commands.resume_job)
jobs_commands.jobs.command("skip")(jobs_commands.skip_tick)
jobs_commands.jobs.command("backfill")(jobs_commands.backfill_job)
jobs_commands.jobs.command("backfills")(jobs_commands.list_backfills)
for group in (
    jobs_commands.jobs,
    jobs_commands.executions,
    jobs_commands.events,
    jobs_commands.workflows,
    jobs_commands.dead_letters,
):
    app.add_typer(group)
app.add_typer(imports_commands.imports)
for group in (admin.token, admin.audit, admin.config, admin.profiles):
    app.add_typer(group)


@app.callback(invoke_without_command=True)
def root(
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)] = False,
) -> None:
    """Predict, prove and explain every fire."""
    if version:
        from gnomon.version import __version__

        typer.echo(f"gnomon {__version__}")
        raise typer.Exit


@app.command()
def explain(
    schedule: Annotated[str, typer.Argument(metavar="EXPR", help="Cron, a macro, a sentence or an ISO instant.")],
    *,
    tz: Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="IANA time zone; UTC if not given.")] = None,
    dialect: Annotated[Dialect, typer.Option(help="Which cron it is.")] = "standard",
    count: Annotated[int, typer.Option("-n", min=0, max=1000, help="How many fires to show.")] = 5,
    start: From = None,
    output: Output = Format.TABLE,
) -> None:
    """Say a schedule in words, and when it fires next."""
    from gnomon.cli.actions.explain import explained, show
    from gnomon.cli.inputs import parse_start

    found = explained(schedule, timezone=tz, dialect=dialect, count=count, now=parse_start(start, timezone=tz))
    show(found, output)


@app.command()
def schedule(
    *,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="A jobs file, instead of the registered jobs.")
    ] = None,
    hours: Annotated[int, typer.Option(min=1, max=24 * 366, help="How far to look ahead.")] = 24,
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many fires to show at most.")] = 20,
    start: From = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List the coming fires of all registered jobs, or of the jobs in a file."""
    from gnomon.cli.inputs import parse_start

    now = parse_start(start)
    if file is not None:
        from gnomon.cli.actions.schedule import show, upcoming

        show(upcoming(file, now=now, hours=hours, limit=limit), output)
        return
    from gnomon.cli.actions.schedule import show_upcoming
    from gnomon.cli.target import Target

    show_upcoming(Target(database, config), output, since=now, hours=hours, limit=limit)


@app.command()
def why(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="A job, also one that was deleted.", autocompletion=job_names)
    ],
    *,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help='Such as 2026-03-29T02:30, "yesterday 14:30", "mon 02:00" or 02:00.'),
    ] = None,
    last: Annotated[int | None, typer.Option(min=1, max=100, help="How many of the newest; 3.")] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Say why a job ran, or did not: at a moment, or last of all, and what it waits for."""
    from gnomon.cli.actions.why import why as run
    from gnomon.cli.target import Target

    run(job, at, last, Target(database, config), output)


app.command("simulate")(forecast.simulate)
jobs_commands.jobs.command("plan")(forecast.plan_jobs)
app.command("workers")(jobs_commands.list_workers)


@app.command()
def doctor(*, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """Say whether all is well with a database and those who work on it."""
    from gnomon.cli.actions.database import doctor as run
    from gnomon.cli.target import Target

    if not run(Target(database, config), output):
        raise typer.Exit(1)


database = typer.Typer(name="db", help="The database behind the ledger.", no_args_is_help=True)
app.add_typer(database)


@database.command()
def migrate(
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="sqlite:///PATH or postgresql://…; the configured one if not given."),
    ] = None,
) -> None:
    """Bring a database to the newest schema. Doing it again changes nothing."""
    from gnomon.cli.actions.database import migrate as run

    run(url)


@database.command()
def clean(
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    place: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Archive and remove history that is older than its retention, as the scheduler does by itself."""
    from gnomon.cli.actions.database import clean as run
    from gnomon.cli.target import Target

    run(Target(place, config), output, dry=dry_run)


@app.command()
def up(
    *,
    place: Database = None,
    config: Config = None,
    jobs: WatchedJobs = None,
    imports: Imports = None,
    slots: Slots = None,
    port: Port = None,
    no_api: Annotated[bool, typer.Option("--no-api", help="Answer no requests over HTTP.")] = False,
    quiet: Quiet = False,
) -> None:
    """Schedule, execute and answer requests, all in this process, until told to stop."""
    from gnomon.cli.actions.server import settings_flags
    from gnomon.cli.actions.server import up as run

    flags = settings_flags(place, port=port, slots=slots)
    run(flags=flags, config=config, jobs=jobs or [], imports=imports or [], quiet=quiet, api=not no_api)


@app.command()
def server(
    *,
    place: Database = None,
    config: Config = None,
    jobs: WatchedJobs = None,
    port: Port = None,
    quiet: Quiet = False,
) -> None:
    """Schedule and answer requests, and leave the executing to workers elsewhere. There may be several."""
    from gnomon.cli.actions.server import settings_flags
    from gnomon.cli.actions.server import up as run

    run(flags=settings_flags(place, port=port), config=config, jobs=jobs or [], quiet=quiet, executes=False)


@app.command()
def worker(
    *,
    place: Annotated[
        str | None, typer.Option("--database", metavar="PATH|URL", help="Where servers schedule; ./gnomon.db.")
    ] = None,
    nats: Bus = None,
    config: Config = None,
    imports: Imports = None,
    pool: Annotated[
        str | None, typer.Option(metavar="POOL", help="The pool that it takes tasks from; default.")
    ] = None,
    labels: Annotated[
        list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="By what tasks find it; may be repeated.")
    ] = None,
    capabilities: Annotated[
        list[str] | None,
        typer.Option("--capability", metavar="WORD", help="What tasks may require; may be repeated."),
    ] = None,
    slots: Slots = None,
    metrics_port: MetricsPort = None,
    quiet: Quiet = False,
) -> None:
    """Execute what servers elsewhere schedule, until told to stop. There may be many."""
    from gnomon.cli.actions.server import settings_flags
    from gnomon.cli.actions.worker import parse_labels
    from gnomon.cli.actions.worker import worker as run

    said = {
        "nats.url": nats,
        "worker.pool": pool,
        "worker.labels": parse_labels(labels or []) or None,
        "worker.capabilities": capabilities,
        "metrics.port": metrics_port,
    }
    flags = settings_flags(place, port=None, slots=slots) | {
        key: value for key, value in said.items() if value is not None
    }
    run(flags=flags, config=config, imports=imports or [], quiet=quiet)
