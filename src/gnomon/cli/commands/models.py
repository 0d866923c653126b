"""`gnomon mcp`: the verbs of the scheduler as tools of a model."""

from typing import Annotated

import typer

from gnomon.cli.options import Config, Database


def mcp(
    *,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Tenant of a local database (default: default).")
    ] = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """Serve tools to a model over standard input and output, with the Model Context Protocol."""
    from gnomon.cli.actions.models import serve_model
    from gnomon.cli.target import Target

    serve_model(Target(database, config), tenant=tenant)
