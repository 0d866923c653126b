"""What operators did and plan to do, as answers for those who ask."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import asdict

from gnomon.core import responses as answers
from gnomon.core.audit import Kept
from gnomon.core.instants import instant_of
from gnomon.core.ledger.forecast import Fate, FireChange, FireDiff, OddDay, is_odd
from gnomon.core.runs.backfill import Backfill, Progress
from gnomon.services.answering import at, job_detail, zone_of
from gnomon.services.applying import Change
from gnomon.services.backfills import Preview
from gnomon.services.job_views import JobView
from gnomon.services.planning import JobsPlan, PlannedJob
from gnomon.services.registrar import Resumed


def job_resumed(view: JobView, done: Resumed) -> answers.JobResumed:
    """A job that goes on, and what became of its pause."""
    gone = done.swallowed
    told = answers.TicksSwallowed(count=gone.count, first_at=at(gone.first_at), last_at=at(gone.last_at))
    return answers.JobResumed(**asdict(job_detail(view)), swallowed=told, runs=done.runs)


# ---- backfills -----------------------------------------------------------------------------------


def backfill_detail(one: Progress) -> answers.BackfillDetail:
    """A backfill, and how far it has come."""
    asked = one.backfill
    return answers.BackfillDetail(
        backfill_id=asked.backfill_id,
        job=asked.schedule_id,
        from_at=instant_of(asked.from_at),
        until_at=instant_of(asked.until_at),
        state=_state(asked),
        max_parallel=asked.max_parallel,
        again=asked.again,
        planned=asked.planned,
        fired=one.fired,
        skipped=one.skipped,
        under_way=one.under_way,
        failed=one.failed,
        created_at=instant_of(asked.created_at),
        actor=asked.actor,
        ended_at=at(asked.ended_at),
    )


def backfill_preview(job: str, found: Preview) -> answers.BackfillPreview:
    """What a backfill would do."""
    return answers.BackfillPreview(job=job, to_run=[instant_of(one) for one in found.to_run], had_a_run=found.had)


def _state(asked: Backfill) -> str:
    return "cancelled" if asked.cancelled else "under way" if asked.ended_at is None else "done"


# ---- plans ---------------------------------------------------------------------------------------


def jobs_planned(planned: JobsPlan, *, limit: int) -> answers.JobsPlanned:
    """What would become of the jobs; of each, so many fires."""
    fires = {fate.value: planned.fires(fate) for fate in Fate}
    return answers.JobsPlanned(
        from_at=instant_of(planned.from_at),
        until_at=instant_of(planned.until_at),
        jobs={change.value: planned.count(change) for change in Change},
        fires=fires | {"same": sum(one.forecast.fires.same for one in planned.jobs)},
        plan=[_job(one, limit) for one in planned.jobs],
    )


def _job(one: PlannedJob, limit: int) -> answers.JobPlan:
    told, standing = one.forecast, one.standing
    days = [answers.PlannedOddDay(at=day.at, timezone=day.zone, what=day.what) for day in told.odd_days]
    going = standing if one.change is Change.REMOVED else None
    return answers.JobPlan(
        job=told.name,
        change=one.change.value,
        stays_paused=told.stays_paused,
        timezone=zone_of(one.job.spec),
        under_way=going.active_runs if going else 0,
        queued=going.queued_runs if going else 0,
        fields=[answers.PlannedField(field=f.field, before=f.before, after=f.after) for f in told.fields],
        fires=_fires(told.fires, told.odd_days, limit),
        clock_changes=days,
    )


def _fires(diff: FireDiff, days: Sequence[OddDay], limit: int) -> answers.PlannedFires:
    return answers.PlannedFires(
        before=diff.before,
        after=diff.after,
        same=diff.same,
        added=diff.count(Fate.ADDED),
        removed=diff.count(Fate.REMOVED),
        moved=diff.count(Fate.MOVED),
        compared_until=instant_of(diff.compared_until),
        changes=[_fire(change, days) for change in _chosen(diff, days, limit)],
    )


def _chosen(diff: FireDiff, days: Sequence[OddDay], limit: int) -> list[FireChange]:
    """The first few, and those on days when clocks are changed."""
    first = diff.changes[:limit]
    odd = [change for change in diff.changes[limit:] if any(is_odd(change, day) for day in days)][:limit]
    return [*first, *odd]


def _fire(change: FireChange, days: Sequence[OddDay]) -> answers.PlannedChange:
    return answers.PlannedChange(
        fate=change.fate.value,
        before=at(change.before_at),
        after=at(change.after_at),
        clock_change=any(is_odd(change, day) for day in days),
    )


# ---- the audit trail -----------------------------------------------------------------------------


def audit_record(kept: Kept) -> answers.AuditRecord:
    """An entry, and its place in the chain."""
    entry = kept.entry
    return answers.AuditRecord(
        number=kept.number,
        at=instant_of(entry.at),
        actor=entry.actor,
        tenant=entry.tenant,
        action=entry.action,
        kind=entry.kind,
        name=entry.name,
        before=entry.before,
        after=entry.after,
        details=msgspec.json.decode(entry.details),
        seq=kept.seq,
        prev_hash=kept.prev_hash,
        hash=kept.hash,
    )
