"""`gnomon breakers`: the services that tasks wait for, because calls to them kept failing."""

from typing import Annotated

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.options import Config, Database, Output
from gnomon.cli.output import Format

breakers = typer.Typer(cls=CommandGroup, name="breakers", help="List and reset circuit breakers.", no_args_is_help=True)
BreakerName = Annotated[str, typer.Argument(metavar="BREAKER", help="Breaker.")]


@breakers.command("list")
def list_breakers(
    *,
    limit: Annotated[int, typer.Option("-n", "--limit", metavar="N", help="Maximum number of entries.")] = 100,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List the circuit breakers that tasks have used, by name."""
    from gnomon.cli.actions.breakers import list_all_breakers
    from gnomon.cli.target import Target

    list_all_breakers(limit, Target(database, config), output)


@breakers.command("reset")
def reset_breaker(
    name: BreakerName,
    *,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Close a circuit breaker: the tasks that wait for it start now."""
    from gnomon.cli.actions.breakers import reset
    from gnomon.cli.target import Target

    reset(name, Target(database, config), output)
