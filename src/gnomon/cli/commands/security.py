"""`gnomon security`: the policy of commands, and its judgement about one."""

from typing import Annotated

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.options import Config, Database, Output
from gnomon.cli.output import Format

security = typer.Typer(
    cls=CommandGroup, name="security", help="Show the policy of commands, and check one.", no_args_is_help=True
)


@security.command("check")
def check_security(
    command: Annotated[str, typer.Argument(metavar="COMMAND", help="Command; quote it as one argument.")],
    *,
    origin: Annotated[
        str,
        typer.Option("--origin", metavar="KIND", help="Origin of the job: file, import, cli, cron, api, mcp or model."),
    ] = "api",
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="NAME=VALUE", help="Variable of the step, or NAME alone if it is known later; repeatable."
        ),
    ] = None,
    approved: Annotated[bool, typer.Option("--approved", help="Check as if the job had an approval.")] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Check a command as a job of this origin would be checked; exit with 1 if it would be refused."""
    from gnomon.cli.actions.security import CheckOptions, check
    from gnomon.cli.target import Target

    if not check(CheckOptions(command, origin, env or [], approved), Target(database, config), output):
        raise typer.Exit(1)


@security.command("show")
def show_security(
    *,
    origin: Annotated[
        str | None,
        typer.Option("--origin", metavar="KIND", help="Only the policy for jobs of this origin."),
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Print the policy for each origin of jobs, the sandbox of this machine, the budget, and the risk of programs."""
    from gnomon.cli.actions.security import show
    from gnomon.cli.target import Target

    show(origin, Target(database, config), output)
