"""`gnomon cron`: commands under a schedule, without a jobs file."""

from typing import Annotated

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.options import Config, Database, Output, job_names
from gnomon.cli.output import Format

cron = typer.Typer(
    cls=CommandGroup, name="cron", help="Run commands under a schedule, without a jobs file.", no_args_is_help=True
)

Command = Annotated[str, typer.Argument(metavar="COMMAND", help="The command, in quotes, as typed into a shell.")]
CronName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of a job, or the beginning of its name.", autocompletion=job_names),
]
NewName = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Name of the job (default: made of the command).")
]
Delivery = Annotated[
    str | None,
    typer.Option(
        "--delivery",
        metavar="JSON",
        help="Announcement of runs: {mode, channel, to, best_effort} in JSON, or the JSON file named after an @.",
    ),
]
Keep = Annotated[bool, typer.Option("--keep", help="Keep the job after its run instead of deleting it.")]
Zone = Annotated[
    str | None, typer.Option("--tz", metavar="ZONE", help="IANA time zone of the schedule (default: UTC).")
]


@cron.command("add")
def add(
    expression: Annotated[str, typer.Argument(metavar="EXPRESSION", help="Cron, a macro or a sentence, in quotes.")],
    command: Command,
    *,
    timezone: Zone = None,
    name: NewName = None,
    delivery: Delivery = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a command by a schedule."""
    from gnomon.cli.actions import cron as actions
    from gnomon.cli.target import Target

    actions.add(expression, timezone, actions.NewJob(command, name, delivery), Target(database, config), output)


@cron.command("add-at")
def add_at(
    instant: Annotated[str, typer.Argument(metavar="INSTANT", help="An ISO 8601 instant, with an offset or --tz.")],
    command: Command,
    *,
    timezone: Annotated[
        str | None, typer.Option("--tz", metavar="ZONE", help="IANA time zone of an instant without an offset.")
    ] = None,
    name: NewName = None,
    keep: Keep = False,
    delivery: Delivery = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a command once, at an instant."""
    from gnomon.cli.actions import cron as actions
    from gnomon.cli.target import Target

    new = actions.NewJob(command, name, delivery, keep=keep)
    actions.add_at(instant, timezone, new, Target(database, config), output)


@cron.command("add-every")
def add_every(
    interval: Annotated[
        str, typer.Argument(metavar="MILLISECONDS", help="The interval in milliseconds, or a duration such as 5m.")
    ],
    command: Command,
    *,
    name: NewName = None,
    delivery: Delivery = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a command at an interval."""
    from gnomon.cli.actions import cron as actions
    from gnomon.cli.target import Target

    actions.add_every(interval, actions.NewJob(command, name, delivery), Target(database, config), output)


@cron.command("once")
def once(
    delay: Annotated[
        str, typer.Argument(metavar="DELAY", help="The delay: 30s, 5m, 2h or 1d; a bare number is minutes.")
    ],
    command: Command,
    *,
    name: NewName = None,
    keep: Keep = False,
    delivery: Delivery = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a command once, after a delay."""
    from gnomon.cli.actions import cron as actions
    from gnomon.cli.target import Target

    actions.once(delay, actions.NewJob(command, name, delivery, keep=keep), Target(database, config), output)


@cron.command("list")
def list_jobs(*, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """List the jobs, by their next run."""
    from gnomon.cli.actions import cron as actions
    from gnomon.cli.target import Target

    actions.list_jobs(Target(database, config), output)


@cron.command("update")
def update(
    name: CronName,
    *,
    expression: Annotated[str | None, typer.Option("--expression", metavar="EXPRESSION", help="New schedule.")] = None,
    timezone: Annotated[
        str | None, typer.Option("--tz", metavar="ZONE", help="New IANA time zone of the schedule.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="INSTANT", help="New instant of a job that runs once.")
    ] = None,
    every: Annotated[
        str | None, typer.Option("--every", metavar="MILLISECONDS", help="New interval of a job that has one.")
    ] = None,
    command: Annotated[str | None, typer.Option("--command", metavar="COMMAND", help="New command.")] = None,
    delivery: Delivery = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Change the schedule, the command or the delivery of a job, and nothing else."""
    from gnomon.cli.actions import cron as actions
    from gnomon.cli.target import Target
    from gnomon.core.jobs.cron_jobs import CronUpdate

    wanted = CronUpdate(
        expression=expression, timezone=timezone, at=at, every=every, command=command, delivery=delivery
    )
    actions.update(name, wanted, Target(database, config), output)


@cron.command("remove")
def remove(name: CronName, *, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """Delete a job. Its history is kept."""
    from gnomon.cli.actions import cron as actions
    from gnomon.cli.target import Target

    actions.remove(name, Target(database, config), output)


@cron.command("pause")
def pause(name: CronName, *, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """Pause a job."""
    from gnomon.cli.actions import cron as actions
    from gnomon.cli.target import Target

    actions.pause(name, Target(database, config), output)


@cron.command("resume")
def resume(name: CronName, *, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """Resume a paused job. The runs that the pause suppressed are not made up for."""
    from gnomon.cli.actions import cron as actions
    from gnomon.cli.target import Target

    actions.resume(name, Target(database, config), output)


@cron.command("run")
def run(name: CronName, *, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """Run a job now, wait for its end and show its output; exit with 1 if it fails."""
    from gnomon.cli.actions import cron as actions
    from gnomon.cli.target import Target

    if not actions.run(name, Target(database, config), output):
        raise typer.Exit(1)


@cron.command("runs")
def runs(
    name: CronName,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=1000, help="Maximum number of runs.")] = 10,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List the runs of a job with their output, newest first."""
    from gnomon.cli.actions import cron as actions
    from gnomon.cli.target import Target

    actions.runs(name, limit, Target(database, config), output)
