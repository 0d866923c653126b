"""Ids that are given by their first characters: of executions, announcements and dead letters.

An execution may also be given as the last one of a job.
"""

from collections.abc import Sequence

from gnomon.app.gateway import Gateway
from gnomon.client import requests
from gnomon.errors import NotFound, UsageError

#: How many ids an error lists.
_MOST_LISTED = 5


async def execution_of(gateway: Gateway, given: str | None, *, job: str | None = None) -> str:
    """The id of the execution whose id begins so; without one, that of the last execution of the job."""
    if given is not None:
        page = await gateway.send(requests.executions(prefix=given, page=_MOST_LISTED + 1))
        return _only("execution", given, [one.execution_id for one in page.items])
    page = await gateway.send(requests.executions(job=job, page=1))
    if not page.items:
        raise NotFound("execution of job", str(job))
    return page.items[0].execution_id


async def dead_letter_of(gateway: Gateway, given: str) -> str:
    """The id of the dead letter whose id begins so."""
    page = await gateway.send(requests.dead_letters_by_prefix(given, page=_MOST_LISTED + 1))
    return _only("dead letter", given, [one.dead_letter_id for one in page.items])


async def announcement_of(gateway: Gateway, given: str) -> str:
    """The id of the announcement whose id begins so."""
    page = await gateway.send(requests.announcements_by_prefix(given, page=_MOST_LISTED + 1))
    return _only("announcement", given, [one.announcement_id for one in page.items])


def selected_execution(given: str | None, job: str | None, *, last: bool) -> None:
    """UsageError unless an id is given, or a job with --last."""
    if (given is None) == (job is None) or last != (job is not None):
        raise UsageError("name an execution by its id, or the last one of a job with --job NAME --last")


def _only(kind: str, given: str, found: Sequence[str]) -> str:
    if given in found:
        return given
    if not found:
        raise NotFound(kind, given)
    if len(found) > 1:
        listed = ", ".join(found[:_MOST_LISTED]) + (", ..." if len(found) > _MOST_LISTED else "")
        raise UsageError(f"{given!r} is the beginning of several ids: {listed}")
    return found[0]
