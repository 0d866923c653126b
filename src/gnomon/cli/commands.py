"""What can be typed. Commands only name their parameters here; the work is in modules of their own."""

from pathlib import Path
from typing import Annotated

import typer

from gnomon.cli.output import Format
from gnomon.core.cron import Dialect

app = typer.Typer(
    name="gnomon",
    help="Predict, prove and explain every fire.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Output = Annotated[Format, typer.Option("-o", "--output", help="How to print.")]
From = Annotated[
    str | None, typer.Option("--from", metavar="INSTANT", help="Look from this ISO instant instead of now.")
]


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
    from gnomon.cli.explain import explained, show
    from gnomon.cli.starts import start_of

    found = explained(schedule, timezone=tz, dialect=dialect, count=count, now=start_of(start, timezone=tz))
    show(found, output)


@app.command()
def schedule(
    file: Annotated[Path, typer.Option("-f", "--file", metavar="FILE", help="A jobs file.")],
    *,
    hours: Annotated[int, typer.Option(min=1, max=24 * 366, help="How far to look ahead.")] = 24,
    limit: Annotated[int, typer.Option("-n", min=1, max=100_000, help="How many fires to show at most.")] = 20,
    start: From = None,
    output: Output = Format.TABLE,
) -> None:
    """List the coming fires of the jobs in a file."""
    from gnomon.cli.schedule import show, upcoming
    from gnomon.cli.starts import start_of

    show(upcoming(file, now=start_of(start), hours=hours, limit=limit), output)


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
    from gnomon.cli.database import migrate as run

    run(url)
