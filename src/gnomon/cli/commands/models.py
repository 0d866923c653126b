"""`gnomon mcp`: the verbs of the scheduler as tools of a model."""

from typing import Annotated

import typer

from gnomon.cli.options import Config, Database


def mcp(
    *,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Also offer the tools that add, pause, resume and trigger jobs."),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="NAME", help="Name of the model in the audit trail (default: that of its program)."
        ),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Tenant of a local database (default: default).")
    ] = None,
    database: Database = None,
    config: Config = None,
) -> None:
    """Serve tools to a model over standard input and output, with the Model Context Protocol."""
    from gnomon.cli.actions.models import serve_model
    from gnomon.cli.target import Target

    serve_model(Target(database, config), allow_changes=allow_changes, model=model, tenant=tenant)
