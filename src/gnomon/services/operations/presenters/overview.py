"""Presents the overview: numbers with the addresses of their rows."""

from collections.abc import Mapping, Sequence
from urllib.parse import quote, urlencode

from gnomon.core.health import HealthCondition, NodeHealth
from gnomon.core.instants import in_zone, instant_of
from gnomon.core.model import Reason, RunStatus, TickKind
from gnomon.core.responses.overview import (
    DueFire,
    HealthSummary,
    LiveWorkers,
    OverdueFires,
    Overview,
    RowCount,
    TickCount,
    WaitCount,
)
from gnomon.core.runs.states import WaitReason
from gnomon.ports.overview import BoundedTotal, TickTotal
from gnomon.ports.tasks import WorkerInfo
from gnomon.services.operations.overview import MOST_COUNTED, DueJob, OverdueJobs, OverviewView

#: The decision that each reason is given for.
KIND_OF_REASON: Mapping[Reason, TickKind] = {
    Reason.ON_TIME: TickKind.FIRED,
    Reason.LATE: TickKind.FIRED,
    Reason.CAUGHT_UP: TickKind.FIRED,
    Reason.BEHIND_A_RUN: TickKind.QUEUED,
    Reason.REPLACES_A_RUN: TickKind.QUEUED,
    Reason.OVERLAP: TickKind.SKIPPED,
    Reason.QUEUE_FULL: TickKind.SKIPPED,
    Reason.PAUSED: TickKind.SKIPPED,
    Reason.SKIPPED_ONCE: TickKind.SKIPPED,
    Reason.MOVED: TickKind.SKIPPED,
    Reason.NEWER_TICK: TickKind.COALESCED,
    Reason.CATCHUP_NONE: TickKind.MISSED,
    Reason.WINDOW: TickKind.MISSED,
    Reason.STORE_UNCERTAIN: TickKind.MISSED,
}
_LATE, _NOT_RUN, _QUEUED = (
    frozenset({TickKind.FIRED}),
    frozenset({TickKind.SKIPPED, TickKind.COALESCED, TickKind.MISSED}),
    frozenset({TickKind.QUEUED}),
)


def overview(view: OverviewView) -> Overview:
    """The overview with the address of the rows of each number."""
    window = {"since": view.since, "until": view.until}
    totals, runs = view.totals, view.under_way
    return Overview(
        since=instant_of(view.since),
        until=instant_of(view.until),
        unknown=_unknown(view.unknown),
        jobs=None if totals is None else _counted(totals.jobs, "/v1/jobs"),
        due_next=None if view.due_next is None else [_due_fire(one, view.now) for one in view.due_next],
        overdue=None if view.overdue is None else _overdue_fires(view.overdue, view.now),
        late=_tick_counts(view.ticks, _LATE, window),
        not_run=_tick_counts(view.ticks, _NOT_RUN, window),
        queued=_tick_counts(view.ticks, _QUEUED, window),
        failed=None if view.failed is None else _counted(view.failed, "/v1/executions", status="failed", **window),
        running=None if runs is None else _counted(runs[RunStatus.RUNNING], "/v1/executions", status="running"),
        pending=None if runs is None else _counted(runs[RunStatus.PENDING], "/v1/executions", status="pending"),
        waiting=None if view.waiting is None else _wait_counts(view.waiting),
        dead_letters=None if totals is None else _counted(totals.dead_letters, "/v1/dead-letters"),
        approvals=None if totals is None else _counted(totals.approvals, "/v1/approvals", status="waiting"),
        workers=None if view.workers is None else _live_workers(view.workers),
        health=None if view.health is None else _health_summary(view.health),
    )


#: The parts of the response that are made of each part that is read.
_SHOWN_IN = {
    "totals": ("jobs", "dead_letters", "approvals"),
    "ticks": ("late", "not_run", "queued"),
    "under_way": ("running", "pending"),
}


def _unknown(reasons: Mapping[str, str]) -> dict[str, str]:
    return {shown: reason for part, reason in reasons.items() for shown in _SHOWN_IN.get(part, (part,))}


def _href(path: str, query: Mapping[str, str | int]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _counted(found: int, path: str, **query: str | int) -> RowCount:
    return RowCount(count=min(found, MOST_COUNTED), more=found > MOST_COUNTED, href=_href(path, query))


def _tick_counts(
    found: Mapping[Reason, TickTotal] | None, kinds: frozenset[TickKind], window: Mapping[str, int]
) -> list[TickCount] | None:
    if found is None:
        return None
    return [
        TickCount(
            kind=kind.value,
            reason=reason.value,
            count=min(total.rows, MOST_COUNTED),
            more=total.rows > MOST_COUNTED,
            planned_times=total.planned_times,
            newest_at=instant_of(total.newest_at),
            href=_href("/v1/ticks", {"kind": kind.value, "reason": reason.value, **window}),
        )
        for reason, total in found.items()
        if (kind := KIND_OF_REASON[reason]) in kinds
    ]


def _wait_counts(found: Mapping[WaitReason, BoundedTotal]) -> list[WaitCount]:
    return [
        WaitCount(
            reason=reason.value,
            count=total.count,
            more=total.more,
            href=_href("/v1/executions", {"waiting": reason.value}),
        )
        for reason, total in sorted(found.items())
    ]


def _overdue_fires(found: OverdueJobs, now: int) -> OverdueFires:
    items = [_due_fire(one, now) for one in found.jobs]
    return OverdueFires(count=len(items), more=found.more, href="/v1/jobs?state=overdue", items=items)


def _due_fire(one: DueJob, now: int) -> DueFire:
    planned, name, zone = instant_of(one.planned_at), one.schedule.schedule_id, one.schedule.spec.timezone
    return DueFire(
        job=name,
        planned_at=planned,
        due_at=instant_of(one.due_at),
        local=in_zone(planned, zone).isoformat(),
        timezone=zone,
        late_ms=max(0, now - one.due_at),
        href=_href(f"/v1/jobs/{quote(name, safe='')}/why", {"at": planned.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}),
    )


def _live_workers(found: Sequence[WorkerInfo]) -> LiveWorkers:
    return LiveWorkers(count=len(found), draining=sum(one.draining for one in found), href="/v1/workers")


def _health_summary(found: NodeHealth) -> HealthSummary:
    failing = [one.name for one in found.components if one.condition is HealthCondition.ERROR]
    return HealthSummary(status=found.condition.value, failing=failing, href="/v1/health")
