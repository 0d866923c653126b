"""What can be typed to look ahead. Commands only name their parameters here; the work is in modules of their own."""

from typing import Annotated

import typer

from gnomon.cli.options import Config, Database, JobsFiles, Output, PruneTag
from gnomon.cli.output import Format

FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on", metavar="WORDS", help="Exit with 3 if there is any: created, changed, removed, added, moved."
    ),
]
Zone = Annotated[
    str, typer.Option("--tz", metavar="ZONE", help="Whose days and hours are shown, and outages are named in.")
]
Durations = Annotated[
    list[str] | None,
    typer.Option("--duration", metavar="[JOB=]SPAN", help="How long runs last, of one job or of all others."),
]
Recorded = Annotated[
    str | None,
    typer.Option("--durations-from", metavar="PATH|URL", help="A database whose past runs say how long they last."),
]
Outages = Annotated[
    list[str] | None,
    typer.Option("--outage", metavar="WHEN", help="Nothing is decided: 'mon 02:00-04:00' or FROM/TO as instants."),
]
StartAt = Annotated[
    str | None, typer.Option("--from", metavar="INSTANT", help="Begin at this ISO instant instead of now.")
]


def plan_jobs(
    file: JobsFiles,
    *,
    days: Annotated[int, typer.Option(min=1, max=366, help="How far to look ahead.")] = 14,
    prune: Annotated[bool, typer.Option("--prune", help="As if every job that no file names were removed.")] = False,
    prune_tag: PruneTag = None,
    fail_on: FailOn = None,
    limit: Annotated[int | None, typer.Option("-n", min=0, max=10_000, help="How many fires of a job to show.")] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Say what apply would do, in fields and in fires, and do nothing."""
    from gnomon.cli.actions.jobs import prune_selection
    from gnomon.cli.actions.plan import EXIT_FOUND, parse_fail_on, plan
    from gnomon.cli.target import Target

    told, pruned = parse_fail_on(fail_on or []), prune_selection(prune_tag, everything=prune)
    found = plan(file, Target(database, config), output, days=days, prune=pruned, limit=limit)
    if told & found:
        raise typer.Exit(EXIT_FOUND)


def simulate(
    file: JobsFiles,
    *,
    days: Annotated[int, typer.Option(min=1, max=366, help="For how long.")] = 30,
    start: StartAt = None,
    tz: Zone = "UTC",
    durations: Durations = None,
    durations_from: Recorded = None,
    outages: Outages = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Let the jobs of a file run on a clock of their own, and show load, collisions, overlaps and odd days."""
    from gnomon.cli.actions.simulate import SimulateOptions, show, simulated
    from gnomon.cli.inputs import parse_start
    from gnomon.cli.target import Target
    from gnomon.core.instants import ms_of

    wanted = SimulateOptions(
        files=file,
        target=Target(None, config),
        days=days,
        start_at=ms_of(parse_start(start, timezone=tz)),
        zone=tz,
        durations=tuple(durations or ()),
        durations_from=durations_from,
        outages=tuple(outages or ()),
    )
    show(simulated(wanted), output)
