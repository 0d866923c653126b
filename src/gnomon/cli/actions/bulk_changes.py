"""Changes of many jobs or executions on the command line: `--all` with filters."""

from collections.abc import Sequence
from typing import NamedTuple

from gnomon.cli.inputs import parse_start
from gnomon.cli.output import Format, print_data, print_table, progress_spinner
from gnomon.cli.target import Target, echo, list_all, with_gateway
from gnomon.client import requests
from gnomon.client.transport import ApiRequest
from gnomon.core.explain.phrases import pluralized
from gnomon.core.ledger.edits import ResumePolicy
from gnomon.core.responses.base import Page
from gnomon.core.responses.bulk_changes import ExecutionCancelled, JobChanged
from gnomon.errors import UsageError


class JobFilterOptions(NamedTuple):
    """The filters of jobs."""

    q: str | None = None
    tag: str | None = None
    state: str | None = None


def selects_many(name: str | None, filters: Sequence[object], *, everything: bool, preview: bool) -> bool:
    """Whether a command is about all that match. UsageError if its arguments contradict each other."""
    if name is None and not everything:
        raise UsageError("name one, or use --all")
    if name is not None and (everything or preview or any(one is not None for one in filters)):
        raise UsageError("name one or use --all, not both; filters and --dry-run go with --all")
    return name is None


def pause_jobs(options: JobFilterOptions, target: Target, form: Format, *, preview: bool) -> bool:
    """Pause all jobs that match; return whether none was refused."""
    return _change_jobs(requests.pause_jobs(all=True, preview=preview, **options._asdict()), target, form)


def resume_jobs(options: JobFilterOptions, missed: str, target: Target, form: Format, *, preview: bool) -> bool:
    """Resume all jobs that match; return whether none was refused."""
    word, _, rest = missed.strip().partition(" ")
    since = parse_start(rest, option="--missed since") if word == ResumePolicy.SINCE else None
    over = rest or None if word != ResumePolicy.SINCE else None
    request = requests.resume_jobs(all=True, preview=preview, missed=word, since=since, over=over, **options._asdict())
    return _change_jobs(request, target, form)


def _change_jobs(request: ApiRequest[Page[JobChanged]], target: Target, form: Format) -> bool:
    with progress_spinner("changing jobs"):
        done = with_gateway(target, lambda gateway: list_all(gateway, request))
    if form is not Format.TABLE:
        print_data(done, form)
    elif done:
        print_table(["job", "became", "missed", "of which run"], [_job_row(one) for one in done])
        echo(pluralized(len(done), "job"))
    else:
        echo("no jobs match")
    return all(one.refused is None for one in done)


def _job_row(one: JobChanged) -> list[str]:
    missed = "" if one.swallowed is None else str(one.swallowed.count)
    return [one.job, one.refused or one.became or "", missed, "" if one.runs is None else str(one.runs)]


def cancel_executions(target: Target, form: Format, *, preview: bool, **filters: str | None) -> bool:
    """Cancel all executions that match and have not ended; return whether none was refused."""
    request = requests.cancel_executions(all=True, preview=preview, **filters)
    with progress_spinner("cancelling executions"):
        done = with_gateway(target, lambda gateway: list_all(gateway, request))
    if form is not Format.TABLE:
        print_data(done, form)
    elif done:
        print_table(["execution", "job", "became"], [_execution_row(one) for one in done])
        echo(pluralized(len(done), "execution"))
    else:
        echo("no executions match")
    return all(one.refused is None for one in done)


def _execution_row(one: ExecutionCancelled) -> list[str]:
    return [one.execution_id, one.job or "", one.refused or one.became or ""]
