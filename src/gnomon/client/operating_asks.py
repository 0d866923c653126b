"""What operators ask for besides: plans, backfills, single ticks, the audit trail."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gnomon.client.asking import Ask, path
from gnomon.core.responses import AuditRecord, BackfillDetail, BackfillPreview, JobDetail, JobResumed, JobsPlanned, Page


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def plan(
    jobs: Sequence[Mapping[str, Any]],
    *,
    days: int = 14,
    prune: bool = False,
    prune_tag: str | None = None,
    fires: int | None = None,
) -> Ask[JobsPlanned]:
    """What applying jobs would do, in fields and in fires."""
    body = {"jobs": list(jobs), "days": days, "prune": prune, "prune_tag": prune_tag}
    body |= {} if fires is None else {"fires": fires}
    return Ask(method="POST", path=path("plan"), answer=JobsPlanned, body=body)


def resume(
    name: str, *, missed: str = "skip", since: datetime | None = None, over: str | None = None
) -> Ask[JobResumed]:
    """Let a job go on from now; `missed` says which of the runs that its pause swallowed take place.

    That is `skip`, `latest`, `all`, `since` a time, or `spread` over some time, such as 10m.
    """
    body = {"missed": missed, "since": _iso(since), "over": over}
    said = {field: value for field, value in body.items() if value is not None}
    return Ask(method="POST", path=path("jobs", name, "resume"), answer=JobResumed, body=said)


def skip(name: str, at: datetime, *, move_to: datetime | None = None) -> Ask[JobDetail]:
    """Let one coming planned time of a job start nothing, or start it at another time."""
    body = {"at": _iso(at)} | ({} if move_to is None else {"move_to": _iso(move_to)})
    return Ask(method="POST", path=path("jobs", name, "skip"), answer=JobDetail, body=body)


def unskip(name: str, at: datetime) -> Ask[JobDetail]:
    """Let a planned time that was skipped or moved fire when it was planned, after all."""
    return Ask(method="POST", path=path("jobs", name, "unskip"), answer=JobDetail, body={"at": _iso(at)})


def backfill(
    name: str,
    first: datetime,
    last: datetime,
    *,
    max_parallel: int = 1,
    again: bool = False,
    key: str | None = None,
) -> Ask[BackfillDetail]:
    """Run the planned times of the past from the first to the last that had no run; `again` also those that had.

    The same key is the same backfill, however often it is asked for.
    """
    body = {"from": _iso(first), "to": _iso(last), "max_parallel": max_parallel, "again": again}
    where, headers = path("jobs", name, "backfill"), {} if key is None else {"Idempotency-Key": key}
    return Ask(method="POST", path=where, answer=BackfillDetail, body=body, headers=headers)


def preview_backfill(name: str, first: datetime, last: datetime, *, again: bool = False) -> Ask[BackfillPreview]:
    """What a backfill would run."""
    body, where = {"from": _iso(first), "to": _iso(last), "again": again}, path("jobs", name, "backfill", "preview")
    return Ask(method="POST", path=where, answer=BackfillPreview, body=body)


def backfills(*, job: str | None = None, page: int = 100) -> Ask[Page[BackfillDetail]]:
    """Backfills and how far they have come, the newest first, read page by page as it is asked for."""
    query = {"job": job, "limit": page}
    return Ask(method="GET", path=path("backfills"), answer=Page[BackfillDetail], query=query)


def backfill_state(backfill_id: str) -> Ask[BackfillDetail]:
    """A backfill and how far it has come."""
    return Ask(method="GET", path=path("backfills", backfill_id), answer=BackfillDetail)


def cancel_backfill(backfill_id: str) -> Ask[BackfillDetail]:
    """Start nothing more of a backfill; what is under way goes on."""
    return Ask(method="POST", path=path("backfills", backfill_id, "cancel"), answer=BackfillDetail)


def audit(*, page: int = 100, **asked: object) -> Ask[Page[AuditRecord]]:
    """Who changed what, the newest first, by actor, action, kind, name, since and until."""
    return Ask(method="GET", path=path("audit"), answer=Page[AuditRecord], query={"limit": page, **asked})
