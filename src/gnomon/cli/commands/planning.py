"""`gnomon explain`, `schedule`, `simulate` and `why`: past and coming fires."""

from pathlib import Path
from typing import Annotated

import typer

from gnomon.cli.options import Config, Database, From, JobsFiles, Output, job_names
from gnomon.cli.output import Format
from gnomon.core.cron import Dialect

ReportZone = Annotated[
    str, typer.Option("--tz", metavar="ZONE", help="IANA time zone of the report and of --outage and --from.")
]
Durations = Annotated[
    list[str] | None,
    typer.Option(
        "--duration",
        metavar="[JOB=]SPAN",
        help="Run time such as 5m, of one job or of all others; repeatable.",
    ),
]
Recorded = Annotated[
    str | None,
    typer.Option("--durations-from", metavar="PATH|URL", help="Database to take the run times of past runs from."),
]
Outages = Annotated[
    list[str] | None,
    typer.Option(
        "--outage",
        metavar="WHEN",
        help="Period without a scheduler: 'mon 02:00-04:00', or FROM/TO as ISO 8601 instants; repeatable.",
    ),
]
PolicyOption = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="Policy file by which the jobs are judged.")
]
PolicySource = Annotated[
    str | None,
    typer.Option("--policy-from", metavar="PATH|URL", help="Database with the policy by which the jobs are judged."),
]


def explain(
    schedule: Annotated[
        str, typer.Argument(metavar="EXPR", help="Cron expression, macro, English sentence or ISO 8601 instant.")
    ],
    *,
    tz: Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="IANA time zone (default: UTC).")] = None,
    dialect: Annotated[Dialect, typer.Option(help="Dialect of the cron expression.")] = "standard",
    count: Annotated[int, typer.Option("-n", min=0, max=1000, help="Number of fires to show.")] = 5,
    start: From = None,
    output: Output = Format.TABLE,
) -> None:
    """Describe a schedule in English and list its next fires."""
    from gnomon.cli.actions.explain import explained, show
    from gnomon.cli.inputs import parse_start

    found = explained(schedule, timezone=tz, dialect=dialect, count=count, now=parse_start(start, timezone=tz))
    show(found, output)


def schedule(
    *,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", metavar="FILE", help="Jobs file to read instead of the database.")
    ] = None,
    hours: Annotated[int, typer.Option(min=1, max=24 * 366, help="Hours to look ahead.")] = 24,
    limit: Annotated[int, typer.Option("-n", min=1, max=10_000, help="Maximum number of fires.")] = 20,
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


def simulate(
    file: JobsFiles,
    *,
    days: Annotated[int, typer.Option(min=1, max=366, help="Days to simulate.")] = 30,
    start: From = None,
    tz: ReportZone = "UTC",
    durations: Durations = None,
    durations_from: Recorded = None,
    outages: Outages = None,
    policy: PolicyOption = None,
    policy_from: PolicySource = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Simulate the jobs in a file and report load, collisions, overlaps, clock changes and what a policy holds back."""
    from gnomon.cli.actions.simulate import SimulateOptions, show, simulated
    from gnomon.cli.inputs import parse_start
    from gnomon.cli.target import Target
    from gnomon.core.instants import ms_of

    options = SimulateOptions(
        files=file,
        target=Target(None, config),
        days=days,
        start_at=ms_of(parse_start(start, timezone=tz)),
        zone=tz,
        durations=tuple(durations or ()),
        durations_from=durations_from,
        outages=tuple(outages or ()),
        policy=policy,
        policy_from=policy_from,
    )
    show(simulated(options), output)


def why(
    job: Annotated[
        str, typer.Argument(metavar="JOB", help="Name of a job, current or deleted.", autocompletion=job_names)
    ],
    *,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help='Explain this time, such as 2026-03-29T02:30, "yesterday 14:30", "mon 02:00" or 02:00.',
        ),
    ] = None,
    last: Annotated[
        int | None, typer.Option(min=1, max=100, help="Number of most recent ticks to explain (default: 3).")
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Explain why a job ran or did not run, and what it is waiting for."""
    from gnomon.cli.actions.why import why as run
    from gnomon.cli.target import Target

    run(job, at, last, Target(database, config), output)
