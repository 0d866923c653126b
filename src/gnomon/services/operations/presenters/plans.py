"""Presents the plan of a change of jobs."""

from collections.abc import Sequence

from gnomon.core.instants import instant_of
from gnomon.core.ledger.forecast import ClockChangeDay, FireChange, FireChangeKind, FireDiff, is_on_clock_change_day
from gnomon.core.responses.plans import JobPlan, JobsPlanned, PlannedChange, PlannedField, PlannedFires, PlannedOddDay
from gnomon.services.operations.job_changes import PLANNED_CHANGES, JobChange
from gnomon.services.operations.job_plan import JobsPlan, PlannedJob
from gnomon.services.operations.presenters.common import optional_instant
from gnomon.services.operations.presenters.policy import step_ruling


def jobs_planned(planned: JobsPlan, *, limit: int, digest: str) -> JobsPlanned:
    """The plan of a change of jobs, with at most `limit` fires per job, and its digest."""
    fires = {fate.value: planned.fires(fate) for fate in FireChangeKind}
    return JobsPlanned(
        from_at=instant_of(planned.from_at),
        until_at=instant_of(planned.until_at),
        jobs={change.value: planned.count(change) for change in PLANNED_CHANGES},
        fires=fires | {"same": sum(one.forecast.fires.same for one in planned.jobs)},
        plan=[_job_plan(one, limit) for one in planned.jobs],
        digest=digest,
    )


def _job_plan(one: PlannedJob, limit: int) -> JobPlan:
    expected = one.forecast
    days = [PlannedOddDay(at=day.at, timezone=day.zone, what=day.what) for day in expected.odd_days]
    removed = one.standing if one.change is JobChange.REMOVED else None
    return JobPlan(
        job=expected.name,
        change=one.change.value,
        stays_paused=expected.stays_paused,
        timezone=one.job.spec.timezone,
        under_way=removed.active_runs if removed else 0,
        queued=removed.queued_runs if removed else 0,
        fields=[PlannedField(field=f.field, before=f.before, after=f.after) for f in expected.fields],
        fires=_planned_fires(expected.fires, expected.odd_days, limit),
        clock_changes=days,
        policy=[step_ruling(step) for step in one.outlook.steps],
        warnings=list(one.warnings),
    )


def _planned_fires(diff: FireDiff, days: Sequence[ClockChangeDay], limit: int) -> PlannedFires:
    return PlannedFires(
        before=diff.before,
        after=diff.after,
        same=diff.same,
        added=diff.count(FireChangeKind.ADDED),
        removed=diff.count(FireChangeKind.REMOVED),
        moved=diff.count(FireChangeKind.MOVED),
        compared_until=instant_of(diff.compared_until),
        changes=[_planned_change(change, days) for change in _shown_changes(diff, days, limit)],
    )


def _shown_changes(diff: FireDiff, days: Sequence[ClockChangeDay], limit: int) -> list[FireChange]:
    """The first `limit` changes, and `limit` more on days of clock changes."""
    first = diff.changes[:limit]
    odd = [change for change in diff.changes[limit:] if any(is_on_clock_change_day(change, day) for day in days)][
        :limit
    ]
    return [*first, *odd]


def _planned_change(change: FireChange, days: Sequence[ClockChangeDay]) -> PlannedChange:
    return PlannedChange(
        fate=change.fate.value,
        before=optional_instant(change.before_at),
        after=optional_instant(change.after_at),
        clock_change=any(is_on_clock_change_day(change, day) for day in days),
    )
