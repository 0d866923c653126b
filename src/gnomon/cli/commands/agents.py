"""`gnomon agents`: the usage of agents."""

from typing import Annotated

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.options import Config, Database, Output
from gnomon.cli.output import Format

agents = typer.Typer(cls=CommandGroup, name="agents", help="Show the usage of agents.", no_args_is_help=True)


@agents.command("usage")
def agent_usage(
    *,
    days: Annotated[int, typer.Option("--days", min=1, max=366, help="How many days, today included.")] = 7,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Print the requests, tokens and cost of agents by day and model, in UTC."""
    from gnomon.cli.actions.agents import usage
    from gnomon.cli.target import Target

    usage(days, Target(database, config), output)


sessions = typer.Typer(
    cls=CommandGroup, name="sessions", help="List, show and clear the sessions of agents.", no_args_is_help=True
)
_Session = Annotated[str, typer.Argument(metavar="SESSION", help="Name of the session.")]


@sessions.command("list")
def list_sessions(*, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """List the sessions with history."""
    from gnomon.cli.actions.agent_sessions import list_sessions
    from gnomon.cli.target import Target

    list_sessions(Target(database, config), output)


@sessions.command("show")
def show_session(
    session: _Session,
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", min=1, max=200, help="At most so many turns.")] = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the newest turns of a session with their messages, newest first."""
    from gnomon.cli.actions.agent_sessions import show
    from gnomon.cli.target import Target

    show(session, limit, Target(database, config), output)


@sessions.command("clear")
def clear_session(
    session: _Session, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Forget the history of a session."""
    from gnomon.cli.actions.agent_sessions import clear
    from gnomon.cli.target import Target

    clear(session, Target(database, config), output)
