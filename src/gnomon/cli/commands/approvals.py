"""`gnomon approvals`: what waits for the consent of people, and their votes."""

from typing import Annotated, Literal

import typer

from gnomon.cli.command_names import CommandGroup
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
    """Show what an approval is about: its digest, the input of the task, and the votes."""
    from gnomon.cli.actions.approvals import show
    from gnomon.cli.target import Target

    show(approval, Target(database, config), output)


@approvals.command("approve")
def approve_task(
    approval: ApprovalId,
    *,
    digest: Digest,
    reason: Why = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Vote for a task; with enough votes it goes on."""
    from gnomon.cli.actions.approvals import approve
    from gnomon.cli.target import Target

    approve(approval, digest, reason, Target(database, config), output)


@approvals.command("reject")
def reject_task(
    approval: ApprovalId,
    *,
    digest: Digest,
    reason: Why = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Vote against a task: it ends, whoever has approved it before."""
    from gnomon.cli.actions.approvals import reject
    from gnomon.cli.target import Target

    reject(approval, digest, reason, Target(database, config), output)


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
