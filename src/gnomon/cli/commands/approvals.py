"""`gnomon approvals`: what waits for the consent of people, and their votes."""

from typing import Annotated, Literal

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.commands.jobs import JobName
from gnomon.cli.options import Config, Database, MaxEntries, OfJob, Output
from gnomon.cli.output import Format

approvals = typer.Typer(
    cls=CommandGroup,
    name="approvals",
    help="List what waits for an approval, and vote on it.",
    no_args_is_help=True,
)
ApprovalId = Annotated[str, typer.Argument(metavar="ID", help="ID of an approval.")]
Digest = Annotated[
    str,
    typer.Option(
        "--digest", metavar="HEX", help="Digest of the approval as you have seen it: at least its first 8 digits."
    ),
]
Why = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Reason, for the record.")]
StatusName = Literal["waiting", "approved", "rejected", "expired", "void", "revoked", "all"]
KindName = Literal["task", "command"]


@approvals.command("list")
def list_approvals(
    *,
    status: Annotated[StatusName, typer.Option(help="Only approvals with this status.")] = "waiting",
    kind: Annotated[KindName | None, typer.Option(help="Only approvals of this kind.")] = None,
    job: OfJob = None,
    limit: MaxEntries = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List approvals, newest first; without --status, those that wait for votes."""
    from gnomon.cli.actions.approvals import ListOptions
    from gnomon.cli.actions.approvals import list_approvals as run
    from gnomon.cli.target import Target

    run(ListOptions(status, kind, job, limit), Target(database, config), output)


@approvals.command("show")
def show_approval(
    approval: ApprovalId, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Show what an approval is about: its digest, the input of the task or the commands, and the votes."""
    from gnomon.cli.actions.approvals import show
    from gnomon.cli.target import Target

    show(approval, Target(database, config), output)


@approvals.command("ask")
def ask_for_approval(
    name: JobName,
    *,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why the commands should run; for those who vote.")
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Ask an admin to let a job run commands of medium risk, until its commands change."""
    from gnomon.cli.actions.approvals import ask
    from gnomon.cli.target import Target

    ask(name, reason, Target(database, config), output)


@approvals.command("approve")
def approve(
    approval: ApprovalId,
    *,
    digest: Digest,
    reason: Why = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Vote for a task or for commands; with enough votes they may run."""
    from gnomon.cli.actions.approvals import approve as run
    from gnomon.cli.target import Target

    run(approval, digest, reason, Target(database, config), output)


@approvals.command("reject")
def reject(
    approval: ApprovalId,
    *,
    digest: Digest,
    reason: Why = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Vote against a task or commands; a task ends, whoever has approved it before."""
    from gnomon.cli.actions.approvals import reject as run
    from gnomon.cli.target import Target

    run(approval, digest, reason, Target(database, config), output)


@approvals.command("revoke")
def revoke_approval(
    approval: ApprovalId, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Revoke an approval of commands: they do not run any more."""
    from gnomon.cli.actions.approvals import revoke
    from gnomon.cli.target import Target

    revoke(approval, Target(database, config), output)


@approvals.command("override")
def override_approval(
    approval: ApprovalId,
    *,
    digest: Digest,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason; required.")],
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Let a task run without its approval: for members of the groups in policy.break_glass."""
    from gnomon.cli.actions.approvals import override
    from gnomon.cli.target import Target

    override(approval, digest, reason, Target(database, config), output)
