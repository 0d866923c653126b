"""What operators type about jobs, executions, events, workflows and the rest. The work is in modules of their own."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gnomon.cli.options import (
    Config,
    Database,
    JobsFile,
    JobsFiles,
    Key,
    OfJob,
    OfTag,
    Output,
    PruneTag,
    Since,
    Until,
    job_names,
)
from gnomon.cli.output import Format

jobs = typer.Typer(name="jobs", help="What runs and when.", no_args_is_help=True)
executions = typer.Typer(name="executions", help="What ran, and how it went.", no_args_is_help=True)
events = typer.Typer(name="events", help="What happened outside, and what became of it.", no_args_is_help=True)
workflows = typer.Typer(name="workflows", help="Graphs of steps that other programs write.", no_args_is_help=True)
dead_letters = typer.Typer(name="dead-letters", help="What has failed for good.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A job.", autocompletion=job_names)]
ExecutionId = Annotated[str, typer.Argument(metavar="ID", help="An execution.")]
LetterId = Annotated[str, typer.Argument(metavar="ID", help="A dead letter.")]
Most = Annotated[int, typer.Option("-n", min=1, max=10_000, help="How many to show at most.")]
Status = Literal["pending", "running", "completed", "failed", "cancelled", "skipped"]
Trigger = Literal["cron", "manual", "api", "event", "backfill"]


@jobs.command("validate")
def validate_jobs(
    file: JobsFile, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Check a jobs file without applying it."""
    from gnomon.cli.actions.jobs import validate
    from gnomon.cli.target import Target

    validate(file, Target(database, config), output)


@jobs.command("apply")
def apply_jobs(
    file: JobsFiles,
    *,
    prune: Annotated[bool, typer.Option("--prune", help="Remove every job that no file names.")] = False,
    prune_tag: PruneTag = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Make the jobs stand as a file says, all of them or none. Doing it again changes nothing."""
    from gnomon.cli.actions.jobs import apply, prune_selection
    from gnomon.cli.target import Target

    apply(file, Target(database, config), output, prune=prune_selection(prune_tag, everything=prune))


@jobs.command("list")
def list_jobs(
    *, tag: OfTag = None, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """List all jobs and when they run next."""
    from gnomon.cli.actions.jobs import list_jobs as run
    from gnomon.cli.target import Target

    run(tag, Target(database, config), output)


@jobs.command("show")
def show_job(name: Name, *, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """Show a job: its policies, its next runs, its last ticks, what is under way."""
    from gnomon.cli.actions.jobs import show
    from gnomon.cli.target import Target

    show(name, Target(database, config), output)


@jobs.command("trigger")
def trigger_job(
    name: Name,
    *,
    given: Annotated[
        str | None,
        typer.Option("--input", metavar="JSON|@FILE", help="What the run is given instead of the job's own."),
    ] = None,
    key: Key = None,
    force: Annotated[bool, typer.Option("--force", help="Start it beside a run that is under way.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end; fail if it fails.")] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a job now, paused or not."""
    from gnomon.cli.actions.jobs import trigger
    from gnomon.cli.target import Target

    if not trigger(name, given, Target(database, config), output, key=key, force=force, wait=wait):
        raise typer.Exit(1)


@jobs.command("pause")
def pause_job(name: Name, *, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """Let no tick of a job fire until it is resumed."""
    from gnomon.cli.actions.jobs import pause
    from gnomon.cli.target import Target

    pause(name, Target(database, config), output)


@jobs.command("delete")
def delete_job(
    name: Name,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """End a job and free its name. Its history stays."""
    from gnomon.cli.actions.jobs import delete
    from gnomon.cli.target import Target

    if not yes:
        typer.confirm(f"Delete {name}?", abort=True)
    delete(name, Target(database, config), output)


@jobs.command("next")
def next_runs(
    name: Name,
    *,
    count: Annotated[int, typer.Option("-n", min=1, max=1000, help="How many to show.")] = 5,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List the next planned times of a job."""
    from gnomon.cli.actions.jobs import coming
    from gnomon.cli.target import Target

    coming(name, count, Target(database, config), output)


@jobs.command("schema")
def jobs_schema(*, output: Output = Format.TABLE) -> None:
    """Print the JSON Schema of a jobs file, for editors."""
    from gnomon.cli.actions.jobs import schema

    schema(output)


@executions.command("list")
def list_executions(
    *,
    job: OfJob = None,
    status: Annotated[Status | None, typer.Option(help="Only those.")] = None,
    trigger: Annotated[Trigger | None, typer.Option(help="Only those that this started.")] = None,
    tag: OfTag = None,
    since: Since = None,
    until: Until = None,
    limit: Most = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List executions, the newest first; with --status skipped, the ticks of a job that had none."""
    from gnomon.cli.actions.executions import list_executions as run
    from gnomon.cli.target import Target

    asked = {"job": job, "status": status, "trigger": trigger, "tag": tag, "since": since, "until": until}
    run(asked, limit, Target(database, config), output)


@executions.command("show")
def show_execution(
    execution: ExecutionId, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """Show an execution: its input, its steps, every attempt and its outcome."""
    from gnomon.cli.actions.executions import show
    from gnomon.cli.target import Target

    show(execution, Target(database, config), output)


@executions.command("cancel")
def cancel_execution(
    execution: ExecutionId, *, database: Database = None, config: Config = None, output: Output = Format.TABLE
) -> None:
    """End an execution: what waits at once, what runs as soon as it stops."""
    from gnomon.cli.actions.executions import cancel
    from gnomon.cli.target import Target

    cancel(execution, Target(database, config), output)


@executions.command("logs")
def execution_logs(
    execution: ExecutionId,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Go on until it is over.")] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Print what an execution has said."""
    from gnomon.cli.actions.executions import logs
    from gnomon.cli.target import Target

    logs(execution, Target(database, config), output, follow=follow)


@events.command("emit")
def emit_event(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What happened, such as model.drift.")],
    *,
    body: Annotated[
        str | None, typer.Option("--body", metavar="JSON|@FILE", help="What is to be known about it.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Emitting again with the same key does nothing.")
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Say that something happened, and start the jobs that listen to it."""
    from gnomon.cli.actions.events import emit
    from gnomon.cli.target import Target

    emit(name, body, key, Target(database, config), output)


@events.command("list")
def list_events(
    *,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only those of this name.")] = None,
    limit: Most = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List events, the newest first."""
    from gnomon.cli.actions.events import list_events as run
    from gnomon.cli.target import Target

    run(name, limit, Target(database, config), output)


@events.command("show")
def show_event(
    event: Annotated[str, typer.Argument(metavar="ID", help="An event.")],
    *,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show an event, and what became of it for every job that listens."""
    from gnomon.cli.actions.events import show
    from gnomon.cli.target import Target

    show(event, Target(database, config), output)


@workflows.command("deploy")
def deploy_workflow(
    file: Annotated[Path, typer.Option("-f", "--file", metavar="FILE", help="A definition in JSON.")],
    *,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Keep a definition as a new version, and let its triggers stand. Doing it again changes nothing."""
    from gnomon.cli.actions.workflows import deploy
    from gnomon.cli.target import Target

    deploy(file, Target(database, config), output)


@workflows.command("list")
def list_all_workflows(*, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """List every workflow in its newest version. Each job has one of its own name."""
    from gnomon.cli.actions.workflows import list_workflows
    from gnomon.cli.target import Target

    list_workflows(Target(database, config), output)


@workflows.command("show")
def show_workflow(
    workflow: Annotated[str, typer.Argument(metavar="ID", help="A workflow.")],
    *,
    version: Annotated[int | None, typer.Option("--version", min=1, help="Which; the newest if not given.")] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show a version of a workflow and draw its steps."""
    from gnomon.cli.actions.workflows import show
    from gnomon.cli.target import Target

    show(workflow, version, Target(database, config), output)


@dead_letters.command("list")
def list_dead_letters(
    *,
    unresolved: Annotated[bool, typer.Option("--unresolved", help="Only those nobody has dealt with.")] = False,
    job: OfJob = None,
    limit: Most = 100,
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
    """Show a dead letter with every attempt."""
    from gnomon.cli.actions.dead_letters import show
    from gnomon.cli.target import Target

    show(letter, Target(database, config), output)


@dead_letters.command("replay")
def replay_dead_letters(
    letter: Annotated[str | None, typer.Argument(metavar="ID", help="A dead letter.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All that nobody has dealt with.")] = False,
    job: OfJob = None,
    key: Key = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Run again what has failed, as a new execution."""
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
    """Mark a dead letter as dealt with."""
    from gnomon.cli.actions.dead_letters import resolve
    from gnomon.cli.target import Target

    resolve(letter, Target(database, config), output)


def list_workers(*, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """List the workers that are alive, and the functions they know."""
    from gnomon.cli.actions.workers import list_workers as run
    from gnomon.cli.target import Target

    run(Target(database, config), output)


First = Annotated[str | None, typer.Option("--from", metavar="INSTANT", help="The first planned time that may run.")]
Last = Annotated[str | None, typer.Option("--to", metavar="INSTANT", help="The last planned time that may run.")]
Parallel = Annotated[
    int, typer.Option("--max-parallel", min=1, max=1000, help="How many of its runs may be under way together.")
]
Cancel = Annotated[str | None, typer.Option("--cancel", metavar="ID", help="Start nothing more of that backfill.")]


def resume_job(
    name: Name,
    value: Annotated[str | None, typer.Argument(metavar="[INSTANT|SPAN]", help="Of --missed since, or spread.")] = None,
    *,
    missed: Annotated[
        str,
        typer.Option("--missed", metavar="CHOICE", help="skip, latest, all, since INSTANT or spread SPAN."),
    ] = "skip",
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Let a paused job go on from now; --missed says which of the runs that the pause swallowed take place."""
    from gnomon.cli.actions.jobs import resume
    from gnomon.cli.target import Target

    resume(name, missed, value, Target(database, config), output)


def skip_tick(
    name: Name,
    *,
    at: Annotated[str, typer.Option("--at", metavar="INSTANT", help="The coming planned time that is meant.")],
    move_to: Annotated[
        str | None, typer.Option("--move-to", metavar="INSTANT", help="Run at this time instead.")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Let it fire at its time after all.")] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Skip one coming run of a job, or move it. Times without a zone are those of the job's zone."""
    from gnomon.cli.actions.jobs import skip
    from gnomon.cli.target import Target

    if undo and move_to is not None:
        raise typer.BadParameter("--undo and --move-to are two different things")
    skip(name, at, move_to, Target(database, config), output, undo=undo)


def backfill_job(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A job.")] = None,
    *,
    first: First = None,
    last: Last = None,
    parallel: Parallel = 1,
    again: Annotated[bool, typer.Option("--again", help="Run also what has had a run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would run, and change nothing.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for its end.")] = False,
    cancel: Cancel = None,
    key: Annotated[str | None, typer.Option("--key", help="With the same key it is started once.")] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Run planned times of the past that had no run; it goes on without this command, too.

    Times without a zone are those of the job's zone.
    """
    from gnomon.cli.actions import backfills
    from gnomon.cli.target import Target

    target = Target(database, config)
    if cancel is not None:
        if name or first or last or key:
            raise typer.BadParameter("--cancel takes the id of a backfill and nothing else")
        backfills.cancel(cancel, target, output)
        return
    if name is None or first is None or last is None:
        raise typer.BadParameter("a backfill needs a job, --from and --to")
    wanted = backfills.BackfillOptions(name, first, last, again=again, key=key)
    if dry_run:
        backfills.preview(wanted, target, output)
    elif not backfills.backfill(wanted, target, output, parallel=parallel, detach=detach):
        raise typer.Exit(1)


def list_backfills(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only those of this job.")] = None,
    *,
    limit: Annotated[int, typer.Option("-n", min=1, help="How many to show at most.")] = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List backfills and how far they have come, the newest first."""
    from gnomon.cli.actions.backfills import list_backfills as run
    from gnomon.cli.target import Target

    run(name, limit, Target(database, config), output)
