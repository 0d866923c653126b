"""`gnomon events` and `gnomon workflows`: events that start jobs, and workflows deployed as JSON."""

from pathlib import Path
from typing import Annotated

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.options import Config, Database, MaxEntries, Output
from gnomon.cli.output import Format

events = typer.Typer(
    cls=CommandGroup, name="events", help="Emit events and see which jobs they started.", no_args_is_help=True
)
workflows = typer.Typer(
    cls=CommandGroup,
    name="workflows",
    help="Deploy workflows as JSON, and inspect their versions.",
    no_args_is_help=True,
)


@events.command("emit")
def emit_event(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the event, such as model.drift.")],
    *,
    body: Annotated[
        str | None, typer.Option("--body", metavar="JSON|@FILE", help="Body of the event, as JSON or a JSON file.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: a repeated key has no effect.")
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Emit an event and start the jobs that listen to it."""
    from gnomon.cli.actions.events import emit
    from gnomon.cli.target import Target

    emit(name, body, key, Target(database, config), output)


@events.command("list")
def list_events(
    *,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only events with this name.")] = None,
    limit: MaxEntries = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List events, newest first."""
    from gnomon.cli.actions.events import list_events as run
    from gnomon.cli.target import Target

    run(name, limit, Target(database, config), output)


@events.command("show")
def show_event(
    event: Annotated[str, typer.Argument(metavar="ID", help="ID of an event.")],
    *,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show an event and its effect on every job that listens to it."""
    from gnomon.cli.actions.events import show
    from gnomon.cli.target import Target

    show(event, Target(database, config), output)


@workflows.command("deploy")
def deploy_workflow(
    file: Annotated[Path, typer.Option("-f", "--file", metavar="FILE", help="Workflow definition in JSON.")],
    *,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Store a workflow definition as a new version and register its triggers. Idempotent."""
    from gnomon.cli.actions.workflows import deploy
    from gnomon.cli.target import Target

    deploy(file, Target(database, config), output)


@workflows.command("list")
def list_workflows(*, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """List the newest version of every workflow. Each job has a workflow of the same name."""
    from gnomon.cli.actions.workflows import list_workflows as run
    from gnomon.cli.target import Target

    run(Target(database, config), output)


@workflows.command("show")
def show_workflow(
    workflow: Annotated[str, typer.Argument(metavar="ID", help="ID of a workflow.")],
    *,
    version: Annotated[
        int | None, typer.Option("--version", min=1, help="Version to show (default: the newest).")
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a workflow and draw its steps."""
    from gnomon.cli.actions.workflows import show
    from gnomon.cli.target import Target

    show(workflow, version, Target(database, config), output)
