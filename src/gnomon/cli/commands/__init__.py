"""The `gnomon` command and its sub-commands.

One module per group of commands declares names, options and help texts; `gnomon.cli.actions` does the work. Each
command imports its action when it is called, so that `gnomon --help` loads neither a database driver nor a parser.
"""

from typing import Annotated

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.commands import (
    admin,
    agents,
    approvals,
    breakers,
    cron,
    events,
    executions,
    imports,
    jobs,
    models,
    planning,
    policy,
    quarantine,
    security,
    server,
)

app = typer.Typer(
    cls=CommandGroup,
    name="gnomon",
    help="Predict, prove and explain every fire.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group in (
    jobs.jobs,
    executions.executions,
    events.events,
    events.workflows,
    executions.announcements,
    approvals.approvals,
    quarantine.quarantine,
    executions.dead_letters,
    breakers.breakers,
    agents.agents,
    agents.sessions,
    cron.cron,
    imports.imports,
    admin.token,
    admin.audit,
    admin.config,
    admin.profiles,
    security.security,
    policy.policy,
    server.database,
    server.worker,
):
    app.add_typer(group)
for command in (
    server.up,
    server.server,
    server.workers,
    server.dashboard,
    server.whoami,
    server.doctor,
    models.mcp,
    planning.explain,
    planning.schedule,
    planning.simulate,
    planning.why,
):
    app.command()(command)


@app.callback(invoke_without_command=True)
def root(
    *,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)] = False,
) -> None:
    """Predict, prove and explain every fire."""
    if version:
        from gnomon.version import __version__

        typer.echo(f"gnomon {__version__}")
        raise typer.Exit
