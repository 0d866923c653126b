"""What operators type about single ticks of a job. The work is in modules of their own."""

from typing import Annotated

import typer

from gnomon.cli.operating import Name
from gnomon.cli.options import Config, Database


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
) -> None:
    """Let a paused job go on from now; --missed says which of the runs that the pause swallowed take place."""
    from gnomon.cli.offices import Where
    from gnomon.cli.resuming import resume

    resume(name, missed, value, Where(database, config))


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
) -> None:
    """Skip one coming run of a job, or move it. Times without a zone are those of the job's zone."""
    from gnomon.cli.offices import Where
    from gnomon.cli.skips import skip

    if undo and move_to is not None:
        raise typer.BadParameter("--undo and --move-to are two different things")
    skip(name, at, move_to, Where(database, config), undo=undo)
