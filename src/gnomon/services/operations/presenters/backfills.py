"""Presents backfills."""

from gnomon.core.instants import instant_of
from gnomon.core.responses.backfills import BackfillDetail, BackfillPreview
from gnomon.core.runs.backfill import Backfill, BackfillProgress
from gnomon.services.operations.backfills import Preview
from gnomon.services.operations.presenters.common import optional_instant


def backfill_detail(progress: BackfillProgress) -> BackfillDetail:
    """A backfill and its progress."""
    backfill = progress.backfill
    return BackfillDetail(
        backfill_id=backfill.backfill_id,
        job=backfill.schedule_id,
        from_at=instant_of(backfill.from_at),
        until_at=instant_of(backfill.until_at),
        state=_backfill_state(backfill),
        max_parallel=backfill.max_parallel,
        again=backfill.again,
        planned=backfill.planned,
        fired=progress.fired,
        skipped=progress.skipped,
        under_way=progress.under_way,
        failed=progress.failed,
        created_at=instant_of(backfill.created_at),
        actor=backfill.actor,
        ended_at=optional_instant(backfill.ended_at),
    )


def backfill_preview(job: str, found: Preview) -> BackfillPreview:
    """The planned times that a backfill would run."""
    return BackfillPreview(job=job, to_run=[instant_of(one) for one in found.to_run], had_a_run=found.had)


def _backfill_state(backfill: Backfill) -> str:
    return "cancelled" if backfill.cancelled else "under way" if backfill.ended_at is None else "done"
