"""What operators type about tokens, the audit trail and settings. The work is in modules of their own."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gnomon.cli.options import Config, Database, Output
from gnomon.cli.output import Format

token = typer.Typer(name="token", help="Who may come in through the API.", no_args_is_help=True)

RoleName = Literal["viewer", "operator", "admin"]


@token.command("create")
def create_token(
    *,
    role: Annotated[RoleName, typer.Option(help="What its bearer may do.")],
    subject: Annotated[
        str | None, typer.Option("--subject", metavar="NAME", help="Who its bearer is; you if not given.")
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", metavar="NAME", help="Whose jobs it is about.")] = "default",
    expires: Annotated[str, typer.Option("--expires", metavar="SPAN", help="How long it counts.")] = "30d",
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Print a new token, signed with the key beside the database. Whoever has it is let in."""
    from gnomon.cli.offices import Where
    from gnomon.cli.tokens import Wanted, create

    create(Wanted(role, subject, tenant, expires), Where(database, config), output)


@token.command("inspect")
def inspect_token(
    shown: Annotated[str | None, typer.Argument(metavar="TOKEN", help="A token; - reads it from the input.")] = None,
    *,
    file: Annotated[Path | None, typer.Option("--file", metavar="FILE", help="A file that holds it.")] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show what a token says, without its signature, and whether it would be refused."""
    from gnomon.cli.offices import Where
    from gnomon.cli.tokens import inspect

    if not inspect(shown, file, Where(database, config), output):
        raise typer.Exit(1)
