"""How long what happened is kept: what may go, and what has to stay because something else still rests on it."""

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct

from gnomon.core.model import DAY_MS, DeadLetter, Run, ScheduleUid, Tick
from gnomon.core.runs.external_events import EventEffect, EventEffectKind


class RetainedSchedule(Struct, frozen=True, kw_only=True):
    """A schedule that has a history, whether it is still there or not."""

    uid: ScheduleUid
    tenant: str
    schedule_id: str
    workflow_id: str
    #: Every tick up to here has been decided, and is never decided again.
    mark_at: int
    catchup_window_ms: int
    deleted_at: int | None = None
    #: The planned times of the oldest run and the oldest tick that are kept, and of the newest tick.
    oldest_run_at: int | None = None
    oldest_tick_at: int | None = None
    newest_tick_at: int | None = None


class RetentionHorizons(Struct, frozen=True):
    """Instants before which things may go."""

    #: Runs that ended before this.
    runs_at: int
    #: Keys by which something is known to have been done already, if they are older than this.
    keys_at: int


def retention_horizons(days: int, *, dedupe_ms: int, now: int, catchup_window_ms: int = 0) -> RetentionHorizons:
    """How far back things are kept under a retention of so many days.

    A key outlives whatever could ask for the same thing again: a caller who repeats himself, a tick that is caught up.
    """
    kept_ms = days * DAY_MS
    return RetentionHorizons(now - kept_ms, now - max(kept_ms, dedupe_ms, catchup_window_ms))


def run_expired(run: Run, kept: RetentionHorizons) -> bool:
    """Whether the run ended long enough ago. One that a caller named is also the proof that it was asked for."""
    if run.completed_at is None or not run.over:
        return False
    return run.completed_at < (kept.runs_at if run.idempotency_key is None else min(kept.runs_at, kept.keys_at))


def needed_by_dead_letter(run: Run, letters: Iterable[DeadLetter], under_way: Collection[str]) -> bool:
    """Whether a dead letter still needs the run.

    That of a run without a job does, until someone has dealt with it: the letter alone does not say what to run again.
    So does one that is being tried again.
    """
    return any(
        letter.resolved_at is None and (run.schedule_uid is None or letter.replayed_by in under_way)
        for letter in letters
    )


def select_expired_ticks(
    past: RetainedSchedule, ticks: Sequence[Tick], kept: RetentionHorizons, runs: Collection[str]
) -> list[Tick]:
    """The ticks whose keys nobody can ask for again; `runs` are those of their runs that are still there.

    The mark of a schedule never goes back, whatever the clock does, so that nothing up to it is decided a second time
    even without its tick. All the same the newest tick stays: it says what the mark rests on. The ticks of a schedule
    that is gone all go in the end, as its uid is never given again.
    """
    return [
        tick
        for tick in ticks
        if tick.decision.last_at < kept.keys_at
        and tick.decided_at < kept.keys_at
        and tick.decision.last_at <= past.mark_at
        and tick.run_id not in runs
        and (past.deleted_at is not None or tick.decision.planned_at != past.newest_tick_at)
    ]


def dead_letter_expired(letter: DeadLetter, kept_at: int, under_way: Collection[str]) -> bool:
    """Whether someone dealt with the dead letter long enough ago. Until then it stays, however old it is."""
    return letter.resolved_at is not None and letter.resolved_at < kept_at and letter.replayed_by not in under_way


def event_expired(entries: Iterable[EventEffect]) -> bool:
    """Whether nothing more will come of an event that is old enough."""
    return all(entry.kind is not EventEffectKind.GATHERED for entry in entries)


def schedule_expired(past: RetainedSchedule, kept: RetentionHorizons) -> bool:
    """Whether nothing is left of a schedule but that it was there."""
    gone = past.deleted_at is not None and past.deleted_at < kept.keys_at
    return gone and past.oldest_run_at is None and past.oldest_tick_at is None
