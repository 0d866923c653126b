"""`gnomon jobs`: definitions, schedules, runs on demand and backfills of jobs."""

from typing import Annotated

import typer

from gnomon.cli.command_names import CommandGroup
from gnomon.cli.options import (
    Config,
    Database,
    JobsFiles,
    Key,
    OfTag,
    Output,
    PruneTag,
    job_names,
)
from gnomon.cli.output import Format

jobs = typer.Typer(cls=CommandGroup, name="jobs", help="Define, run, pause and inspect jobs.", no_args_is_help=True)

JobName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a job.", autocompletion=job_names)]
WithText = Annotated[
    str | None,
    typer.Option("-q", metavar="TEXT", help="Only jobs with this text in their name, description or a tag."),
]
InState = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="Only jobs in this state: active, paused, running, waiting, done, missed, failing or overdue.",
    ),
]
EveryJob = Annotated[bool, typer.Option("--all", help="All jobs that match -q, --tag and --state.")]
Preview = Annotated[bool, typer.Option("--dry-run", help="With --all: print the jobs and change nothing.")]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="WORDS",
        help="Exit with 3 if the plan has any of: created, changed, removed, added, moved; comma-separated.",
    ),
]
First = Annotated[
    str | None, typer.Option("--from", metavar="INSTANT", help="First planned time to run, an ISO 8601 instant.")
]
LastPlannedAt = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="INSTANT", help="Last planned time to run: an ISO 8601 instant, or a date (that whole day)."
    ),
]
Parallel = Annotated[
    int, typer.Option("--max-parallel", min=1, max=1000, help="Maximum number of runs of this backfill at a time.")
]
Cancel = Annotated[
    str | None, typer.Option("--cancel", metavar="ID", help="Cancel this backfill: start no more of its runs.")
]


@jobs.command("validate")
def validate_jobs(
    file: JobsFiles,
    *,
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Check that these modules register the functions; repeatable."),
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Check jobs files without applying them, and print all mistakes."""
    from gnomon.cli.actions.jobs import validate
    from gnomon.cli.target import Target

    if not validate(file, imports or [], Target(database, config), output):
        raise typer.Exit(2)


@jobs.command("plan")
def plan_jobs(
    file: JobsFiles,
    *,
    days: Annotated[int, typer.Option(min=1, max=366, help="Days to look ahead.")] = 14,
    prune: Annotated[bool, typer.Option("--prune", help="Plan as if apply were called with --prune.")] = False,
    prune_tag: PruneTag = None,
    fail_on: FailOn = None,
    limit: Annotated[
        int | None,
        typer.Option("-n", min=0, max=10_000, help="Maximum number of fires per job (default: 5; all with -o)."),
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Show which fields and fires apply would change, without changing anything."""
    from gnomon.cli.actions.jobs import prune_selection
    from gnomon.cli.actions.plan import EXIT_FOUND, parse_fail_on, plan
    from gnomon.cli.target import Target

    fatal, pruned = parse_fail_on(fail_on or []), prune_selection(prune_tag, everything=prune)
    found = plan(file, Target(database, config), output, days=days, prune=pruned, limit=limit)
    if fatal & found:
        raise typer.Exit(EXIT_FOUND)


@jobs.command("apply")
def apply_jobs(
    file: JobsFiles,
    *,
    prune: Annotated[bool, typer.Option("--prune", help="Delete every job that is in none of the files.")] = False,
    prune_tag: PruneTag = None,
    planned: Annotated[
        str | None,
        typer.Option(
            "--plan",
            metavar="DIGEST",
            help="The digest of a plan of these files (jobs plan -o json): fail if anything has changed since.",
        ),
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Create or update the jobs in the files, atomically. Idempotent."""
    from gnomon.cli.actions.jobs import apply, prune_selection
    from gnomon.cli.target import Target

    apply(file, Target(database, config), output, prune=prune_selection(prune_tag, everything=prune), planned=planned)


@jobs.command("list")
def list_jobs(
    *,
    text: WithText = None,
    tag: OfTag = None,
    state: InState = None,
    order: Annotated[
        str | None,
        typer.Option(
            "--order", metavar="ORDER", help="name; next: the next run first; last: the last decided tick first."
        ),
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List jobs and their next run."""
    from gnomon.cli.actions.jobs import list_jobs as run
    from gnomon.cli.target import Target

    run(Target(database, config), output, q=text, tag=tag, state=state, order=order)


@jobs.command("show")
def show_job(name: JobName, *, database: Database = None, config: Config = None, output: Output = Format.TABLE) -> None:
    """Show the policies, next runs, last ticks and active executions of a job."""
    from gnomon.cli.actions.jobs import show
    from gnomon.cli.target import Target

    show(name, Target(database, config), output)


@jobs.command("next")
def next_runs(
    name: JobName,
    *,
    count: Annotated[int, typer.Option("-n", min=1, max=1000, help="Number of planned times to show.")] = 5,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List the next planned times of a job."""
    from gnomon.cli.actions.jobs import coming
    from gnomon.cli.target import Target

    coming(name, count, Target(database, config), output)


@jobs.command("revisions")
def list_revisions(
    name: JobName,
    *,
    count: Annotated[int, typer.Option("-n", min=1, max=1000, help="Number of revisions to show.")] = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List the newest definitions that a job had, and which fields changed."""
    from gnomon.cli.actions.revisions import list_revisions as run
    from gnomon.cli.target import Target

    run(name, count, Target(database, config), output)


@jobs.command("trigger")
def trigger_job(
    name: JobName,
    *,
    given: Annotated[
        str | None,
        typer.Option("--input", metavar="JSON|@FILE", help="Input of the run, instead of the job's own."),
    ] = None,
    key: Key = None,
    force: Annotated[bool, typer.Option("--force", help="Start the run even if another run is active.")] = False,
    deadline: Annotated[
        str | None,
        typer.Option("--deadline", metavar="SPAN", help="End the run after this time, such as 10m, whatever it does."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run ends; exit with 1 if it fails.")] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Run a job now, even if it is paused."""
    from gnomon.cli.actions.jobs import trigger
    from gnomon.cli.target import Target

    target = Target(database, config)
    if not trigger(name, given, target, output, key=key, force=force, wait=wait, deadline=deadline):
        raise typer.Exit(1)


@jobs.command("pause")
def pause_jobs(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of a job.", autocompletion=job_names)] = None,
    *,
    everything: EveryJob = False,
    text: WithText = None,
    tag: OfTag = None,
    state: InState = None,
    preview: Preview = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Pause a job, or all that match: no tick fires until the job is resumed."""
    from gnomon.cli.actions.bulk_changes import JobFilterOptions, pause_jobs, selects_many
    from gnomon.cli.actions.jobs import pause
    from gnomon.cli.target import Target

    options, target = JobFilterOptions(text, tag, state), Target(database, config)
    if selects_many(name, options, everything=everything, preview=preview) or name is None:
        if not pause_jobs(options, target, output, preview=preview):
            raise typer.Exit(1)
    else:
        pause(name, target, output)


@jobs.command("resume")
def resume_jobs(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of a job.", autocompletion=job_names)] = None,
    value: Annotated[
        str | None, typer.Argument(metavar="[INSTANT|SPAN]", help="Argument of --missed since or spread.")
    ] = None,
    *,
    missed: Annotated[
        str,
        typer.Option(
            "--missed", metavar="CHOICE", help="Missed runs to start: skip, latest, all, since INSTANT or spread SPAN."
        ),
    ] = "skip",
    everything: EveryJob = False,
    text: WithText = None,
    tag: OfTag = None,
    state: InState = None,
    preview: Preview = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Resume a paused job, or all that match; --missed selects which runs missed during the pause are started."""
    from gnomon.cli.actions.bulk_changes import JobFilterOptions, resume_jobs, selects_many
    from gnomon.cli.actions.jobs import resume
    from gnomon.cli.target import Target

    options, target = JobFilterOptions(text, tag, state), Target(database, config)
    if selects_many(name, options, everything=everything, preview=preview) or name is None:
        if not resume_jobs(options, missed, target, output, preview=preview):
            raise typer.Exit(1)
    else:
        resume(name, missed, value, target, output)


@jobs.command("skip")
def skip_tick(
    name: JobName,
    *,
    at: Annotated[str, typer.Option("--at", metavar="INSTANT", help="Planned time of the run.")],
    move_to: Annotated[
        str | None,
        typer.Option("--move-to", metavar="INSTANT", help="Move the run to this time instead of skipping it."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Undo an earlier skip or move.")] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Skip or move one coming run of a job. Times without a UTC offset are in the job's time zone."""
    from gnomon.cli.actions.jobs import skip
    from gnomon.cli.target import Target

    if undo and move_to is not None:
        raise typer.BadParameter("--undo cannot be used with --move-to")
    skip(name, at, move_to, Target(database, config), output, undo=undo)


@jobs.command("backfill")
def backfill_job(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Name of a job.")] = None,
    *,
    first: First = None,
    last: LastPlannedAt = None,
    parallel: Parallel = 1,
    again: Annotated[bool, typer.Option("--again", help="Also run planned times that already had a run.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the planned times and start nothing.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return at once; the backfill continues in the scheduler.")
    ] = False,
    cancel: Cancel = None,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="Idempotency key: a repeated key starts no second backfill."),
    ] = None,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Run past planned times that had no run.

    The scheduler executes the backfill; interrupting this command does not stop it.

    Times without a UTC offset are in the job's time zone.
    """
    from gnomon.cli.actions import backfills
    from gnomon.cli.target import Target

    target = Target(database, config)
    if cancel is not None:
        if name or first or last or key:
            raise typer.BadParameter("--cancel takes only the id of a backfill")
        backfills.cancel(cancel, target, output)
        return
    if name is None or first is None or last is None:
        raise typer.BadParameter("a backfill needs a job, --from and --to")
    options = backfills.BackfillOptions(name, first, last, again=again, key=key)
    if dry_run:
        backfills.preview(options, target, output)
    elif not backfills.backfill(options, target, output, parallel=parallel, detach=detach):
        raise typer.Exit(1)


@jobs.command("backfills")
def list_backfills(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only backfills of this job.")] = None,
    *,
    limit: Annotated[int, typer.Option("-n", min=1, help="Maximum number of entries.")] = 20,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """List backfills and their progress, newest first."""
    from gnomon.cli.actions.backfills import list_backfills as run
    from gnomon.cli.target import Target

    run(name, limit, Target(database, config), output)


@jobs.command("delete")
def delete_job(
    name: JobName,
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    database: Database = None,
    config: Config = None,
    output: Output = Format.TABLE,
) -> None:
    """Delete a job and free its name. Its history is kept."""
    from gnomon.cli.actions.jobs import delete
    from gnomon.cli.target import Target

    if not yes:
        typer.confirm(f"Delete {name}?", abort=True)
    delete(name, Target(database, config), output)


@jobs.command("schema")
def jobs_schema(*, output: Output = Format.TABLE) -> None:
    """Print the JSON Schema of a jobs file, for editors."""
    from gnomon.cli.actions.jobs import schema

    schema(output)
