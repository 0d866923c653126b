"""`gnomon executions`, `gnomon announcements` and `gnomon dead-letters`: runs, and what follows from their ends."""

from typing import Annotated, Literal

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.options import Config, Database, Key, MaxEntries, OfJob, OfTag, Output, Since, Until, job_names
from gnomon.cli.output import Format

executions = typer.Typer(
    cls=CommandGroup,
    name="executions",
    help="Inspect and cancel executions (runs of jobs); also: gnomon runs.",
    no_args_is_help=True,
)
dead_letters = typer.Typer(
    cls=CommandGroup,
    name="dead-letters",
    help="Inspect, replay and resolve tasks that failed for good; also: gnomon dlq.",
    no_args_is_help=True,
)
announcements = typer.Typer(
    cls=CommandGroup,
    name="announcements",
    help="Inspect announcements to channels, and retry those that were given up.",
    no_args_is_help=True,
)

ExecutionId = Annotated[
    str | None, typer.Argument(metavar="ID", help="ID of an execution, or as much of its beginning as only one has.")
]
LastJob = Annotated[
    str | None, typer.Option("--job", metavar="NAME", help="With --last, instead of an ID.", autocompletion=job_names)
]
LastExecution = Annotated[bool, typer.Option("--last", help="The last execution of the job.")]
OfStep = Annotated[str | None, typer.Option("--step", metavar="STEP", help="Only dead letters of this step.")]
WithReason = Annotated[str | None, typer.Option("--reason", metavar="REASON", help="Only those with this reason.")]
WithError = Annotated[
    str | None, typer.Option("--error", metavar="TEXT", help="Only those whose error begins with this text.")
]
LetterId = Annotated[
    str, typer.Argument(metavar="ID", help="ID of a dead letter, or as much of its beginning as only one has.")
]
AnnouncementId = Annotated[
    str, typer.Argument(metavar="ID", help="ID of an announcement, or as much of its beginning as only one has.")
]
AnnouncedState = Literal["pending", "sent", "silent", "given_up"]
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
    limit: MaxEntries = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List executions, newest first; with --status skipped, the ticks that had none."""
    from gnomon.cli.actions.executions import list_executions as run
    from gnomon.cli.target import Target

    filters = {"job": job, "status": status, "trigger": trigger, "tag": tag, "since": since, "until": until}
    run(filters, limit, Target(database, config), output)


@executions.command("show")
def show_execution(
    execution: ExecutionId = None,
    *,
    job: LastJob = None,
    last: LastExecution = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show the input, steps, attempts and result of an execution."""
    from gnomon.cli.actions.executions import show
    from gnomon.cli.ids import selected_execution
    from gnomon.cli.target import Target

    selected_execution(execution, job, last=last)
    show(execution, job, Target(database, config), output)


@executions.command("cancel")
def cancel_execution(
    execution: ExecutionId = None,
    *,
    job: LastJob = None,
    last: LastExecution = False,
    everything: Annotated[
        bool, typer.Option("--all", help="All executions that have not ended: of --job, --status and --tag.")
    ] = False,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="With --all: pending or running.")
    ] = None,
    tag: OfTag = None,
    preview: Annotated[
        bool, typer.Option("--dry-run", help="With --all: print the executions and change nothing.")
    ] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Cancel an execution, or all that match: pending steps at once, running steps as soon as they stop."""
    if everything or preview or status is not None or tag is not None:
        from gnomon.cli.actions.bulk_changes import cancel_executions, selects_many
        from gnomon.cli.target import Target

        selects_many("" if last else execution, (status, tag), everything=everything, preview=preview)
        target = Target(database, config)
        if not cancel_executions(target, output, preview=preview, job=job, status=status, tag=tag):
            raise typer.Exit(1)
        return
    from gnomon.cli.actions.executions import cancel
    from gnomon.cli.ids import selected_execution
    from gnomon.cli.target import Target

    selected_execution(execution, job, last=last)
    cancel(execution, job, Target(database, config), output)


@executions.command("rollback")
def roll_back_execution(
    execution: ExecutionId = None,
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why the execution is rolled back.")],
    job: LastJob = None,
    last: LastExecution = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Undo the steps of an execution that has ended: those that succeeded, the last one first."""
    from gnomon.cli.actions.executions import roll_back
    from gnomon.cli.ids import selected_execution
    from gnomon.cli.target import Target

    selected_execution(execution, job, last=last)
    roll_back(execution, job, reason, Target(database, config), output)


@executions.command("logs")
def execution_logs(
    execution: ExecutionId = None,
    *,
    job: LastJob = None,
    last: LastExecution = False,
    follow: Annotated[bool, typer.Option("--follow", help="Print new lines until the execution ends.")] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Print the log of an execution."""
    from gnomon.cli.actions.executions import logs
    from gnomon.cli.ids import selected_execution
    from gnomon.cli.target import Target

    selected_execution(execution, job, last=last)
    logs(execution, job, Target(database, config), output, follow=follow)


@executions.command("decisions")
def execution_decisions(
    execution: ExecutionId = None,
    *,
    job: LastJob = None,
    last: LastExecution = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Print the decisions of the policy about the tasks of an execution."""
    from gnomon.cli.actions.policy import decisions
    from gnomon.cli.ids import selected_execution
    from gnomon.cli.target import Target

    selected_execution(execution, job, last=last)
    decisions(execution, job, Target(database, config), output)


@announcements.command("list")
def list_announcements(
    *,
    job: OfJob = None,
    state: Annotated[AnnouncedState | None, typer.Option(help="Only announcements in this state.")] = None,
    limit: MaxEntries = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List announcements, newest first."""
    from gnomon.cli.actions.announcements import list_announcements as run
    from gnomon.cli.target import Target

    run(job, state, limit, Target(database, config), output)


@announcements.command("show")
def show_announcement(
    announcement: AnnouncementId, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Show an announcement: its recipient, its times and its result."""
    from gnomon.cli.actions.announcements import show
    from gnomon.cli.target import Target

    show(announcement, Target(database, config), output)


@announcements.command("retry")
def retry_announcement(
    announcement: AnnouncementId, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Try an announcement again that was given up, from the part where it stopped."""
    from gnomon.cli.actions.announcements import retry
    from gnomon.cli.target import Target

    retry(announcement, Target(database, config), output)


@dead_letters.command("list")
def list_dead_letters(
    *,
    unresolved: Annotated[bool, typer.Option("--unresolved", help="Only unresolved dead letters.")] = False,
    job: OfJob = None,
    step: OfStep = None,
    reason: WithReason = None,
    error: WithError = None,
    limit: MaxEntries = 100,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List dead letters, newest first."""
    from gnomon.cli.actions.dead_letters import LetterOptions, list_letters
    from gnomon.cli.target import Target

    options = LetterOptions(job, step, reason, error)
    list_letters(options, limit, Target(database, config), output, unresolved=unresolved)


@dead_letters.command("groups")
def list_dead_letter_groups(
    *,
    job: OfJob = None,
    step: OfStep = None,
    reason: WithReason = None,
    error: WithError = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Count unresolved dead letters by job, step and the first line of the error."""
    from gnomon.cli.actions.dead_letters import LetterOptions, list_groups
    from gnomon.cli.target import Target

    list_groups(LetterOptions(job, step, reason, error), Target(database, config), output)


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
    everything: Annotated[
        bool, typer.Option("--all", help="Replay every unresolved dead letter that matches.")
    ] = False,
    job: OfJob = None,
    step: OfStep = None,
    reason: WithReason = None,
    error: WithError = None,
    key: Key = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Run the failed task of a dead letter again, as a new execution."""
    from gnomon.cli.actions.dead_letters import LetterOptions, replay, replay_all, selected_letter
    from gnomon.cli.target import Target

    options = LetterOptions(job, step, reason, error)
    one = selected_letter(letter, options, everything=everything)
    if one is not None:
        replay(one, key, Target(database, config), output)
    elif not replay_all(options, key, Target(database, config), output):
        raise typer.Exit(1)


@dead_letters.command("resolve")
def resolve_dead_letters(
    letter: Annotated[str | None, typer.Argument(metavar="ID", help="ID of a dead letter.")] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Resolve every unresolved dead letter that matches.")
    ] = False,
    job: OfJob = None,
    step: OfStep = None,
    reason: WithReason = None,
    error: WithError = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Mark a dead letter as resolved, or all that match."""
    from gnomon.cli.actions.dead_letters import LetterOptions, resolve, resolve_all, selected_letter
    from gnomon.cli.target import Target

    options = LetterOptions(job, step, reason, error)
    one = selected_letter(letter, options, everything=everything)
    if one is not None:
        resolve(one, Target(database, config), output)
    else:
        resolve_all(options, Target(database, config), output)
