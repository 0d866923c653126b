"""What operators type about single ticks of a job. The work is in modules of their own."""

from typing import Annotated

import typer

from gnomon.cli.operating import Name
from gnomon.cli.options import Config, Database, Output
from gnomon.cli.output import Format

First = Annotated[str | None, typer.Option("--from", metavar="INSTANT", help="The first planned time that may run.")]
Last = Annotated[str | None, typer.Option("--to", metavar="INSTANT", help="The last planned time that may run.")]
Parallel = Annotated[
    int, typer.Option("--max-parallel", min=1, max=1000, help="How many of its runs may be under way together.")
]
Cancel = Annotated[str | None, typer.Option("--cancel", metavar="ID", help="Start nothing more of that backfill.")]


def resume_job(
    name: Name,
    value: Annotated[str | None, typer.Argument(metavar="[INSTANT|SPAN]", help="Of --missed since, or spread.")] = None,
    *,
    missed: Annotated[
        str,
        typer.Option("--missed", metavar="CHOICE", help="skip, latest, all, since INSTANT or spread SPAN."),
    ] = "skip",
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Let a paused job go on from now; --missed says which of the runs that the pause swallowed take place."""
    from gnomon.cli.offices import Where
    from gnomon.cli.resuming import resume

    resume(name, missed, value, Where(database, config), output)


def skip_tick(
    name: Name,
    *,
    at: Annotated[str, typer.Option("--at", metavar="INSTANT", help="The coming planned time that is meant.")],
    move_to: Annotated[
        str | None, typer.Option("--move-to", metavar="INSTANT", help="Run at this time instead.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let it fire at its time after all.")] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Skip one coming run of a job, or move it. Times without a zone are those of the job's zone."""
    from gnomon.cli.offices import Where
    from gnomon.cli.skips import skip

    if undo and move_to is not None:
        raise typer.BadParameter("--undo and --move-to are two different things")
    skip(name, at, move_to, Where(database, config), output, undo=undo)


def backfill_job(  # noqa: PLR0913 - as many parameters as the command has options
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A job.")] = None,
    *,
    first: First = None,
    last: Last = None,
    parallel: Parallel = 1,
    again: Annotated[bool, typer.Option("--again", help="Run also what has had a run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and change nothing.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for its end.")] = False,
    cancel: Cancel = None,
    key: Annotated[str | None, typer.Option("--key", help="With the same key it is started once.")] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Run planned times of the past that had no run; it goes on without this command, too.

    Times without a zone are those of the job's zone.
    """
    from gnomon.cli import backfills
    from gnomon.cli.offices import Where

    where = Where(database, config)
    if cancel is not None:
        if name or first or last or key:
            raise typer.BadParameter("--cancel takes the id of a backfill and nothing else")
        backfills.cancel(cancel, where, output)
        return
    if name is None or first is None or last is None:
        raise typer.BadParameter("a backfill needs a job, --from and --to")
    wanted = backfills.Wanted(name, first, last, again=again, key=key)
    if dry_run:
        backfills.preview(wanted, where, output)
    elif not backfills.backfill(wanted, where, output, parallel=parallel, detach=detach):
        raise typer.Exit(1)


def list_backfills(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only those of this job.")] = None,
    *,
    limit: Annotated[int, typer.Option("-n", min=1, help="How many to show at most.")] = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List backfills and how far they have come, the newest first."""
    from gnomon.cli.backfills import list_backfills as run
    from gnomon.cli.offices import Where

    run(name, limit, Where(database, config), output)
