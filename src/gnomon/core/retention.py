"""The retention of history: what may be deleted, and what must stay because something else depends on it."""

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from gnomon.core.model import DAY_MS, DeadLetter, Run, ScheduleUid, Tick
from gnomon.core.runs.external_events import EventEffect, EventEffectKind


class RetainedSchedule(Struct, frozen=True, kw_only=True):
    """A schedule with history, existing or deleted."""

    uid: ScheduleUid
    tenant: str
    schedule_id: str
    workflow_id: str
    #: Every tick up to here has been decided.
    mark_at: int
    catchup_window_ms: int
    deleted_at: int | None = None
    #: The planned times of the oldest stored run, the oldest stored tick and the newest tick.
    oldest_run_at: int | None = None
    oldest_tick_at: int | None = None
    newest_tick_at: int | None = None


#: The order in which the runs of a job were created: when, and the id.
RunPosition = tuple[int, str]


class RetentionHorizons(Struct, frozen=True):
    """The instants before which history may be deleted, and how many runs of a job are kept."""

    #: Runs that ended before this may be deleted.
    runs_at: int
    #: Idempotency keys older than this may be deleted.
    keys_at: int
    #: How many of the newest runs that have ended are kept; None for all of them.
    most_runs: int | None = None


def retention_horizons(days: int, *, dedupe_ms: int, now: int, catchup_window_ms: int = 0) -> RetentionHorizons:
    """The horizons under a retention of so many days.

    A key outlives everything that could repeat its request: a caller who retries, a tick that is caught up.
    """
    retention_ms = days * DAY_MS
    return RetentionHorizons(now - retention_ms, now - max(retention_ms, dedupe_ms, catchup_window_ms))


def run_expired(run: Run, horizons: RetentionHorizons, oldest_kept: RunPosition | None = None) -> bool:
    """Whether the run ended long enough ago, or was created before the oldest of the runs whose number is kept.

    A run with a caller's key also proves that the key was used, and stays for as long as the key counts.
    """
    if run.completed_at is None or not run.over:
        return False
    surplus = oldest_kept is not None and (run.created_at, run.run_id) < oldest_kept
    if not surplus and run.completed_at >= horizons.runs_at:
        return False
    return run.idempotency_key is None or run.completed_at < horizons.keys_at


def needed_by_dead_letter(run: Run, letters: Iterable[DeadLetter], open_runs: Collection[str]) -> bool:
    """Whether a dead letter still needs the run.

    An unresolved letter of a run without a job does: the letter alone does not say what to run again. So does a letter
    that is being replayed.
    """
    return any(
        letter.resolved_at is None and (run.schedule_uid is None or letter.replayed_by in open_runs)
        for letter in letters
    )


def select_expired_ticks(
    schedule: RetainedSchedule, ticks: Sequence[Tick], horizons: RetentionHorizons, runs: Collection[str]
) -> list[Tick]:
    """The ticks whose keys cannot be requested again; `runs` are those of their runs that still exist.

    A mark that is set back, because the clock was ahead, is never set back before a deleted tick that ran: so no tick
    runs a second time even if its entry is deleted. The newest tick still stays: it explains the mark. The ticks of a
    deleted schedule are all deleted in the end, as its uid is never used again.
    """
    return [
        tick
        for tick in ticks
        if tick.decision.last_at < horizons.keys_at
        and tick.decided_at < horizons.keys_at
        and tick.decision.last_at <= schedule.mark_at
        and tick.run_id not in runs
        and (schedule.deleted_at is not None or tick.decision.planned_at != schedule.newest_tick_at)
    ]


def dead_letter_expired(letter: DeadLetter, horizon_at: int, open_runs: Collection[str]) -> bool:
    """Whether the dead letter was resolved long enough ago. An unresolved one stays, however old it is."""
    return letter.resolved_at is not None and letter.resolved_at < horizon_at and letter.replayed_by not in open_runs


def event_expired(entries: Iterable[EventEffect]) -> bool:
    """Whether an event that is old enough waits in no batch."""
    return all(entry.kind is not EventEffectKind.GATHERED for entry in entries)


def schedule_expired(schedule: RetainedSchedule, horizons: RetentionHorizons) -> bool:
    """Whether a deleted schedule has no runs and ticks left."""
    deleted = schedule.deleted_at is not None and schedule.deleted_at < horizons.keys_at
    return deleted and schedule.oldest_run_at is None and schedule.oldest_tick_at is None
