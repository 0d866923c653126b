"""Backfills: planned times of the past are run after all, a few at a time, each with an entry of its own."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.ledger.ticks import Ticks
from gnomon.core.model import RunId, RunSource, Schedule, ScheduleUid
from gnomon.core.runs.deadlines import first_spans
from gnomon.core.runs.launch import LaunchOutcome, LaunchRequest, keyed_run_id, new_requested_run


class BackfillTickKind(StrEnum):
    """The decision on a planned time of the past."""

    FIRED = "fired"
    SKIPPED = "skipped"


class BackfillTickReason(StrEnum):
    """The reason of that decision."""

    #: It had no run.
    NEVER_RAN = "never_ran"
    #: It had a run, and the backfill repeats those.
    AGAIN = "again"
    #: Its own tick had a run.
    HAD_A_RUN = "had_a_run"
    #: An earlier backfill ran it.
    BACKFILLED_BEFORE = "backfilled_before"


class Backfill(Struct, frozen=True, kw_only=True):
    """A range of the past to run, and how far it has been decided."""

    backfill_id: str
    tenant: str
    schedule_uid: ScheduleUid
    schedule_id: str
    #: The revision of the schedule at the time of the request; its planned times are run.
    revision: int
    #: The range of planned times, both ends included.
    from_at: int
    until_at: int
    #: How many of its runs may be open at once.
    max_parallel: int
    #: Whether planned times that had a run are run again.
    again: bool
    #: The number of planned times.
    planned: int
    #: Every planned time up to here has an entry.
    mark_at: int
    created_at: int
    actor: str
    #: When the last of its runs ended, or when it was cancelled.
    ended_at: int | None = None
    cancelled: bool = False


def keyed_backfill_id(tenant: str, schedule: ScheduleUid, key: str) -> str:
    """The id of the only backfill of a job that a caller's key can have."""
    digest = sha256(f"{tenant}\0{schedule}\0{key}".encode()).hexdigest()
    return f"bf_{digest[:32]}"


def same_backfill_request(requested: Backfill, stored: Backfill) -> bool:
    """Whether a request repeats the one that created the stored backfill.

    A backfill ends at the last decided tick at the latest. So a request may name a later end than the stored one has,
    if that end was not in the future when the backfill was created.
    """
    same_terms = (requested.from_at, requested.max_parallel, requested.again) == (
        stored.from_at,
        stored.max_parallel,
        stored.again,
    )
    same_end = requested.until_at == stored.until_at
    return same_terms and (same_end or stored.until_at < requested.until_at <= stored.created_at)


class BackfillTick(Struct, frozen=True, kw_only=True):
    """The entry of one planned time: the decision, its reason and its run."""

    backfill_id: str
    planned_at: int
    schedule_uid: ScheduleUid
    kind: BackfillTickKind
    reason: BackfillTickReason
    run_id: RunId | None
    decided_at: int


class OpenBackfill(Struct, frozen=True):
    """A backfill that has not ended, and the number of its open runs."""

    backfill: Backfill
    under_way: int


class BackfillBatch(Struct, frozen=True, kw_only=True):
    """The next entries of a backfill and their runs, written in one transaction."""

    #: The backfill as it was read. If it has changed since, the batch is void.
    backfill: Backfill
    entries: tuple[BackfillTick, ...] = ()
    launches: tuple[LaunchRequest, ...] = ()
    mark_at: int
    ended: bool = False


class BatchOutcome(StrEnum):
    """The outcome of writing a batch."""

    DONE = "done"
    #: Another node has advanced the backfill.
    VOID = "void"
    #: The schedule is gone.
    GONE = "gone"


class BackfillProgress(Struct, frozen=True, kw_only=True):
    """The progress of a backfill."""

    backfill: Backfill
    fired: int = 0
    skipped: int = 0
    under_way: int = 0
    #: How many of the fired ones did not succeed.
    failed: int = 0


#: How many open backfills are looked at, to find those of every tenant.
MOST_IN_TURNS = 10_000


def in_turns(backfills: Iterable[Sequence[str]], limit: int) -> list[str]:
    """The ids to go on with, of ids and tenants: the first of each tenant, then the second of each, and so on."""
    counts = Counter[str]()
    turns: list[tuple[int, str]] = []
    for backfill_id, tenant in backfills:
        counts[tenant] += 1
        turns.append((counts[tenant], backfill_id))
    return [backfill_id for _, backfill_id in sorted(turns)[:limit]]


def planned_times(ticks: Ticks, *, after: int, until: int, limit: int) -> list[int]:
    """The first planned times after `after` and up to `until`."""
    found: list[int] = []
    while len(found) < limit and (at := ticks.after(found[-1] if found else after)) is not None and at <= until:
        found.append(at)
    return found


def next_backfill_batch(
    open_: OpenBackfill, schedule: Schedule, planned: Sequence[int], had: Mapping[int, BackfillTickReason], *, now: int
) -> BackfillBatch | None:
    """The next batch of a backfill; None while there is nothing to do.

    `schedule` has the revision of the backfill; `had` gives the planned times that had a run, with the reason.
    """
    backfill, free = open_.backfill, open_.backfill.max_parallel - open_.under_way
    if not planned:
        done = BackfillBatch(backfill=backfill, mark_at=backfill.until_at, ended=True)
        return None if open_.under_way else done
    entries: list[BackfillTick] = []
    launches: list[LaunchRequest] = []
    for at in planned:
        skipped = at in had and not backfill.again
        if not skipped and len(launches) >= free:
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
    # Unless it repeats runs, every backfill of the schedule computes the same run id for a planned time.
    scope = f"backfill {backfill.backfill_id if backfill.again else schedule.uid}"
    run_id = keyed_run_id(backfill.tenant, scope, str(planned_at))
    run = new_requested_run(
        run_id, schedule, source=RunSource.BACKFILL, now=now, actor=backfill.actor, user_id=backfill.actor
    )
    return LaunchRequest(
        run=replace(run, planned_at=planned_at),
        first_steps=schedule.spec.first_steps,
        first_spans_ms=first_spans(schedule.spec.deadlines),
        force=True,
    )


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


def batch_ticks_after_launch(batch: BackfillBatch, outcomes: Iterable[LaunchOutcome]) -> tuple[BackfillTick, ...]:
    """The entries of a batch after its launches: one whose run existed before is skipped."""
    existing = {
        launch.run.run_id
        for launch, outcome in zip(batch.launches, outcomes, strict=True)
        if outcome is LaunchOutcome.ALREADY
    }
    before = {"kind": BackfillTickKind.SKIPPED, "reason": BackfillTickReason.BACKFILLED_BEFORE, "run_id": None}
    return tuple(replace(entry, **before) if entry.run_id in existing else entry for entry in batch.entries)


def backfill_after_batch(batch: BackfillBatch, *, now: int) -> Backfill:
    """The backfill after the batch was written."""
    return replace(batch.backfill, mark_at=batch.mark_at, ended_at=now if batch.ended else None)
