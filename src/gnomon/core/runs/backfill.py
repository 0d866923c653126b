"""Backfills: planned times of the past that are run after all, a few at a time, each with an entry of its own."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import RunId, Schedule, ScheduleUid, Source
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest, keyed_run_id, new_requested_run


class BackfillTickKind(StrEnum):
    """What became of a planned time of the past."""

    FIRED = "fired"
    SKIPPED = "skipped"


class BackfillTickReason(StrEnum):
    """Why that became of it."""

    #: It had no run.
    NEVER_RAN = "never_ran"
    #: Whatever there was, it was to run again.
    AGAIN = "again"
    #: Its own tick had one.
    HAD_A_RUN = "had_a_run"
    #: An earlier backfill has run it.
    BACKFILLED_BEFORE = "backfilled_before"


class Backfill(Struct, frozen=True, kw_only=True):
    """A stretch of the past that is to be run, and how far that has been decided."""

    backfill_id: str
    tenant: str
    schedule_uid: ScheduleUid
    schedule_id: str
    #: What the schedule said when it was asked for: that is what is planned.
    revision: int
    #: The first planned time may be at it, and the last at the other.
    from_at: int
    until_at: int
    #: How many runs of it may be under way together.
    max_parallel: int
    #: Also those that have had a run.
    again: bool
    #: How many planned times there are.
    planned: int
    #: Every planned time up to here has its entry.
    mark_at: int
    created_at: int
    actor: str
    #: When the last of its runs was over, or nothing more was to be started.
    ended_at: int | None = None
    cancelled: bool = False


def keyed_backfill_id(tenant: str, schedule: ScheduleUid, key: str) -> str:
    """The one backfill of a job that a caller's key can have."""
    digest = sha256(f"{tenant}\0{schedule}\0{key}".encode()).hexdigest()
    return f"bf_{digest[:32]}"


def same_backfill_request(wanted: Backfill, kept: Backfill) -> bool:
    """Whether whoever asked for the one that is kept has asked for the other, too.

    What was asked for up to a moment that had not been decided ends where it had: so a later end may be meant, too,
    if it was not yet to come.
    """
    terms = (wanted.from_at, wanted.max_parallel, wanted.again) == (kept.from_at, kept.max_parallel, kept.again)
    return terms and (wanted.until_at == kept.until_at or kept.until_at < wanted.until_at <= kept.created_at)


class BackfillTick(Struct, frozen=True, kw_only=True):
    """What became of one planned time."""

    backfill_id: str
    planned_at: int
    schedule_uid: ScheduleUid
    kind: BackfillTickKind
    reason: BackfillTickReason
    run_id: RunId | None
    decided_at: int


class OpenBackfill(Struct, frozen=True):
    """A backfill that has not ended, and how many of its runs have not."""

    backfill: Backfill
    under_way: int


class BackfillBatch(Struct, frozen=True, kw_only=True):
    """The next entries of a backfill and the runs that they have: carried out whole, or not at all."""

    #: As it was read. If it has gone on since, the lot is void.
    backfill: Backfill
    entries: tuple[BackfillTick, ...] = ()
    launches: tuple[LaunchRequest, ...] = ()
    mark_at: int
    ended: bool = False


class BatchOutcome(StrEnum):
    """What became of a lot."""

    DONE = "done"
    #: Someone else was quicker.
    VOID = "void"
    #: The schedule is gone.
    GONE = "gone"


class BackfillProgress(Struct, frozen=True, kw_only=True):
    """How far a backfill has come."""

    backfill: Backfill
    fired: int = 0
    skipped: int = 0
    under_way: int = 0
    #: Of those that were fired: did not succeed.
    failed: int = 0


def planned_times(ticks: Ticks, *, after: int, until: int, limit: int) -> list[int]:
    """The first planned times after `after` and up to `until`."""
    found: list[int] = []
    while len(found) < limit and (at := ticks.after(found[-1] if found else after)) is not None and at <= until:
        found.append(at)
    return found


def next_backfill_batch(
    open_: OpenBackfill, schedule: Schedule, planned: Sequence[int], had: Mapping[int, BackfillTickReason], *, now: int
) -> BackfillBatch | None:
    """What is to be done next about a backfill of a schedule as it was then; None while there is nothing."""
    backfill, room = open_.backfill, open_.backfill.max_parallel - open_.under_way
    if not planned:
        done = BackfillBatch(backfill=backfill, mark_at=backfill.until_at, ended=True)
        return None if open_.under_way else done
    entries: list[BackfillTick] = []
    launches: list[LaunchRequest] = []
    for at in planned:
        skipped = at in had and not backfill.again
        if not skipped and len(launches) >= room:
            break
        launch = None if skipped else _launch(backfill, schedule, at, now)
        reason = had[at] if skipped else BackfillTickReason.AGAIN if at in had else BackfillTickReason.NEVER_RAN
        entries.append(_entry(backfill, at, reason, None if launch is None else launch.run.run_id, now))
        launches += [launch] if launch is not None else []
    if not entries:
        return None
    return BackfillBatch(
        backfill=backfill, entries=tuple(entries), launches=tuple(launches), mark_at=entries[-1].planned_at
    )


def _launch(backfill: Backfill, schedule: Schedule, planned_at: int, now: int) -> LaunchRequest:
    # What is wanted once is one run, whichever backfill asks for it.
    scope = f"backfill {backfill.backfill_id if backfill.again else schedule.uid}"
    run_id = keyed_run_id(backfill.tenant, scope, str(planned_at))
    run = new_requested_run(run_id, schedule, source=Source.BACKFILL, now=now, user_id=backfill.actor)
    return LaunchRequest(run=replace(run, planned_at=planned_at), first_steps=schedule.spec.first_steps, force=True)


def _entry(backfill: Backfill, at: int, reason: BackfillTickReason, run_id: RunId | None, now: int) -> BackfillTick:
    return BackfillTick(
        backfill_id=backfill.backfill_id,
        planned_at=at,
        schedule_uid=backfill.schedule_uid,
        kind=BackfillTickKind.SKIPPED if run_id is None else BackfillTickKind.FIRED,
        reason=reason,
        run_id=run_id,
        decided_at=now,
    )


def batch_ticks_after_launch(lot: BackfillBatch, became: Iterable[LaunchOutcome]) -> tuple[BackfillTick, ...]:
    """The entries of a lot once its runs were launched: one whose run there was before has none of its own."""
    there = {
        launch.run.run_id
        for launch, outcome in zip(lot.launches, became, strict=True)
        if outcome is LaunchOutcome.ALREADY
    }
    before = {"kind": BackfillTickKind.SKIPPED, "reason": BackfillTickReason.BACKFILLED_BEFORE, "run_id": None}
    return tuple(replace(one, **before) if one.run_id in there else one for one in lot.entries)


def backfill_after_batch(lot: BackfillBatch, *, now: int) -> Backfill:
    """The backfill after the lot."""
    return replace(lot.backfill, mark_at=lot.mark_at, ended_at=now if lot.ended else None)
