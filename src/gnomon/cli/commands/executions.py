"""`gnomon executions` and `gnomon dead-letters`: runs, and tasks that failed for good."""

from typing import Annotated, Literal

import typer

from gnomon.cli.options import Config, Database, Key, Limit, OfJob, OfTag, Output, Since, Until
from gnomon.cli.output import Format

executions = typer.Typer(name="executions", help="Inspect and cancel executions.", no_args_is_help=True)
dead_letters = typer.Typer(
    name="dead-letters", help="Inspect, replay and resolve tasks that failed for good.", no_args_is_help=True
)

ExecutionId = Annotated[str, typer.Argument(metavar="ID", help="ID of an execution.")]
LetterId = Annotated[str, typer.Argument(metavar="ID", help="ID of a dead letter.")]
Status = Literal["pending", "running", "completed", "failed", "cancelled", "skipped"]
Trigger = Literal["cron", "manual", "api", "event", "backfill"]


@executions.command("list")
def list_executions(
    *,
    job: OfJob = None,
    status: Annotated[Status | None, typer.Option(help="Only executions with this status.")] = None,
    trigger: Annotated[Trigger | None, typer.Option(help="Only executions started this way.")] = None,
    tag: OfTag = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List executions, newest first; with --status skipped, the ticks of a job that had no execution."""
    from gnomon.cli.actions.executions import list_executions as run
    from gnomon.cli.target import Target

    filters = {"job": job, "status": status, "trigger": trigger, "tag": tag, "since": since, "until": until}
    run(filters, limit, Target(database, config), output)


@executions.command("show")
def show_execution(
    execution: ExecutionId, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Show the input, steps, attempts and result of an execution."""
    from gnomon.cli.actions.executions import show
    from gnomon.cli.target import Target

    show(execution, Target(database, config), output)


@executions.command("cancel")
def cancel_execution(
    execution: ExecutionId, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Cancel an execution: pending steps at once, running steps as soon as they stop."""
    from gnomon.cli.actions.executions import cancel
    from gnomon.cli.target import Target

    cancel(execution, Target(database, config), output)


@executions.command("logs")
def execution_logs(
    execution: ExecutionId,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Print new lines until the execution ends.")] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Print the log of an execution."""
    from gnomon.cli.actions.executions import logs
    from gnomon.cli.target import Target

    logs(execution, Target(database, config), output, follow=follow)


@dead_letters.command("list")
def list_dead_letters(
    *,
    unresolved: Annotated[bool, typer.Option("--unresolved", help="Only unresolved dead letters.")] = False,
    job: OfJob = None,
    limit: Limit = 100,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List dead letters."""
    from gnomon.cli.actions.dead_letters import list_letters
    from gnomon.cli.target import Target

    list_letters(job, limit, Target(database, config), output, unresolved=unresolved)


@dead_letters.command("show")
def show_dead_letter(
    letter: LetterId, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Show a dead letter and its attempts."""
    from gnomon.cli.actions.dead_letters import show
    from gnomon.cli.target import Target

    show(letter, Target(database, config), output)


@dead_letters.command("replay")
def replay_dead_letters(
    letter: Annotated[str | None, typer.Argument(metavar="ID", help="ID of a dead letter.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="Replay every unresolved dead letter.")] = False,
    job: OfJob = None,
    key: Key = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Run the failed task of a dead letter again, as a new execution."""
    from gnomon.cli.actions.dead_letters import replay, replay_all, selected_letter
    from gnomon.cli.target import Target

    one = selected_letter(letter, job, key, everything=everything)
    if one is not None:
        replay(one, key, Target(database, config), output)
    elif not replay_all(job, Target(database, config), output):
        raise typer.Exit(1)


@dead_letters.command("resolve")
def resolve_dead_letter(
    letter: LetterId, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Mark a dead letter as resolved."""
    from gnomon.cli.actions.dead_letters import resolve
    from gnomon.cli.target import Target

    resolve(letter, Target(database, config), output)
