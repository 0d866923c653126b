"""`gnomon quarantine`: outputs that are held back."""

from typing import Annotated, Literal

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.options import Config, Database, MaxEntries, Output
from gnomon.cli.output import Format

quarantine = typer.Typer(
    cls=CommandGroup,
    name="quarantine",
    help="List outputs that are held back, and release or discard them.",
    no_args_is_help=True,
)
OfTask = Annotated[str, typer.Argument(metavar="TASK", help="ID of the task.")]
HeldStatusName = Literal["held", "released", "discarded", "all"]


@quarantine.command("list")
def list_outputs(
    *,
    status: Annotated[HeldStatusName, typer.Option(help="Only outputs with this status.")] = "held",
    limit: MaxEntries = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List outputs, newest first, without their contents; without --status, those that are held back."""
    from gnomon.cli.actions.quarantine import list_outputs as run
    from gnomon.cli.target import Target

    run(status, limit, Target(database, config), output)


@quarantine.command("show")
def show_output(
    task: OfTask, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Show an output that is held back, with its content; the audit trail records the look."""
    from gnomon.cli.actions.quarantine import show
    from gnomon.cli.target import Target

    show(task, Target(database, config), output)


@quarantine.command("release")
def release_output(
    task: OfTask,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason; required.")],
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Store an output as that of its task, and let the execution go on: the task does not run again."""
    from gnomon.cli.actions.quarantine import release
    from gnomon.cli.target import Target

    release(task, reason, Target(database, config), output)


@quarantine.command("discard")
def discard_output(
    task: OfTask,
    *,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Reason, for the record.")] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Delete an output that is held back; its task and execution stay as they ended."""
    from gnomon.cli.actions.quarantine import discard
    from gnomon.cli.target import Target

    discard(task, reason, Target(database, config), output)
