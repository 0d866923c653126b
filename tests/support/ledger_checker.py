"""Checks the ledger and the runs of one schedule by their rows alone, whatever its policies and its edits.

The checker of `gnomon.testing` replays every commit in order, which only a simulation records. This one takes rows of
the store that many processes wrote, and uses what holds in any order. It shares no decision code with the product:
planned times come from the oracle.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from gnomon.core.model import Catchup, Overlap, Reason, Run, RunSource, Schedule, Spec, Tick, TickKind
from gnomon.ports.schedules import Pause, Revision
from gnomon.testing.oracle import planned
from gnomon.testing.rules import exception_reason, fire_at

#: Reasons that a policy for overlaps or catch-up must allow, and the policies that do.
_ALLOWED_OVERLAPS = {
    Reason.OVERLAP: {Overlap.SKIP},
    Reason.QUEUE_FULL: {Overlap.QUEUE},
    Reason.BEHIND_A_RUN: {Overlap.QUEUE},
    Reason.REPLACES_A_RUN: {Overlap.REPLACE},
}
_ALLOWED_CATCHUPS = {
    Reason.CATCHUP_NONE: {Catchup.NONE},
    Reason.WINDOW: {Catchup.ALL, Catchup.SPREAD},
}
#: Policies under which an older tick gives way to a newer one.
_COALESCING = {Catchup.NONE, Catchup.LATEST}
#: Two writes of different processes are stamped by clocks that follow the store's with this tolerance.
_STAMPS_DIFFER_MS = 1_000


@dataclass(frozen=True, kw_only=True)
class LedgerRows:
    """All rows of one schedule, oldest first."""

    schedule: Schedule
    revisions: Sequence[Revision]
    pauses: Sequence[Pause]
    ticks: Sequence[Tick]
    runs: Sequence[Run]

    @property
    def name(self) -> str:
        return self.schedule.schedule_id

    @cached_property
    def changed_at(self) -> frozenset[int]:
        """When operators changed the schedule: each change decides the ticks planned before it, also delayed ones."""
        paused = {at for one in self.pauses for at in (one.paused_at, one.resumed_at) if at is not None}
        return frozenset(paused | {one.from_at for one in self.revisions})

    def spec_of(self, tick: Tick) -> Spec:
        """The definition that the tick was decided by."""
        return next(one.schedule.spec for one in self.revisions if one.revision == tick.revision)


def ledger_violations(rows: LedgerRows, late_by: Callable[[int], int | None]) -> Iterator[str]:
    """All violations. `late_by` says by how much a tick planned then may be decided late; None for any time."""
    yield from _covered_once(rows)
    yield from _one_run_each(rows)
    for tick in rows.ticks:
        yield from _decided_rightly(rows, tick)
        yield from _in_time(rows, tick, late_by)
    yield from _paused_rightly(rows)
    yield from _spread_in_order(rows)


def _covered_once(rows: LedgerRows) -> Iterator[str]:
    """K1, K9: every planned time of every revision has one decision, and no other time has one."""
    decided: set[int] = set()
    reached = rows.revisions[0].from_at
    ends = [*(one.from_at for one in rows.revisions[1:]), rows.schedule.mark_at]
    for revision, end in zip(rows.revisions, ends, strict=True):
        ticks = [tick.decision for tick in rows.ticks if tick.revision == revision.revision]
        last = max([end, *(one.last_at for one in ticks)])
        wanted = [
            at for at in planned(revision.schedule.spec, max(revision.from_at, reached), last) if at not in decided
        ]
        times = dict.fromkeys(wanted, 0)
        for decision in ticks:
            inside = wanted[bisect_left(wanted, decision.planned_at) : bisect_right(wanted, decision.last_at)]
            if len(inside) != decision.count or decision.planned_at not in times:
                yield f"K9 {rows.name}: {decision} covers {len(inside)} planned times"
            for at in inside:
                times[at] += 1
        for at, number in times.items():
            if number != 1:
                yield f"K1 {rows.name}: tick {at} of revision {revision.revision} has {number} decisions"
        decided.update(wanted)
        reached = max([reached, *(one.last_at for one in ticks)])


def _one_run_each(rows: LedgerRows) -> Iterator[str]:
    """K3: a tick that fired or was queued has exactly one run, and no other tick has a run."""
    with_run = sorted(tick.decision.planned_at for tick in rows.ticks if tick.decision.starts_run)
    runs = sorted(run.planned_at for run in rows.runs if run.source is RunSource.CRON)
    if with_run != runs:
        yield f"K3 {rows.name}: {len(with_run)} ticks with a run, {len(runs)} runs: {sorted({*with_run} ^ {*runs})[:5]}"


def _decided_rightly(rows: LedgerRows, tick: Tick) -> Iterator[str]:
    """K2, as far as one row tells: the policies allow the reason, and there was a cause for it."""
    spec, one = rows.spec_of(tick), tick.decision
    allowed = _ALLOWED_OVERLAPS.get(one.reason)
    if allowed is not None and spec.overlap not in allowed:
        yield f"K2 {rows.name}: {one} with overlap {spec.overlap}"
    catching_up = _ALLOWED_CATCHUPS.get(one.reason)
    if catching_up is not None and spec.catchup not in catching_up:
        yield f"K2 {rows.name}: {one} with catchup {spec.catchup}"
    if one.reason is Reason.NEWER_TICK and spec.catchup not in _COALESCING and spec.overlap is not Overlap.REPLACE:
        yield f"K2 {rows.name}: {one} gave way to a newer tick with catchup {spec.catchup}"
    if one.reason is Reason.CATCHUP_NONE and tick.decided_at - one.last_at <= spec.misfire_grace_ms:
        yield f"K2 {rows.name}: {one} was missed {tick.decided_at - one.last_at} ms late"
    excepted = exception_reason(spec, one.planned_at)
    if one.reason is not excepted if excepted else one.reason in (Reason.SKIPPED_ONCE, Reason.MOVED):
        yield f"K2 {rows.name}: {one} with the exception {excepted}"


def _was_open(rows: LedgerRows, tick: Tick) -> bool:
    """Whether a run of another tick was open when this one was decided."""
    at = tick.decided_at
    return any(
        run.created_at <= at + _STAMPS_DIFFER_MS
        and (run.completed_at is None or run.completed_at >= at - _STAMPS_DIFFER_MS)
        for run in rows.runs
        if run.planned_at != tick.decision.planned_at
    )


def _in_time(rows: LedgerRows, tick: Tick, late_by: Callable[[int], int | None]) -> Iterator[str]:
    """K5: no tick is decided before its fire; in quiet times none is late, or skipped without a run under way."""
    one, spec = tick.decision, rows.spec_of(tick)
    fires = fire_at(planned, spec, rows.name, one.last_at)
    early = (one.last_at if tick.decided_at in rows.changed_at else fires) - tick.decided_at
    if early > 0:
        yield f"K5 {rows.name}: {one} was decided {early} ms early"
    bound = late_by(one.planned_at)
    # An end is written after its time, much later in a fault: until then the run is under way.
    if bound is not None and one.reason is Reason.OVERLAP and not _was_open(rows, tick):
        yield f"K2 {rows.name}: {one} was skipped at {tick.decided_at} without a run under way"
    late = tick.decided_at - fire_at(planned, spec, rows.name, one.planned_at)
    if bound is not None and one.kind is not TickKind.SKIPPED and late > bound:
        yield f"K5 {rows.name}: {one} was decided {late} ms late in a quiet time (at most {bound})"


def _paused_rightly(rows: LedgerRows) -> Iterator[str]:
    """K9: the ticks of a pause, and no others, are skipped for that reason."""
    for tick in rows.ticks:
        one = tick.decision
        if one.reason in (Reason.SKIPPED_ONCE, Reason.MOVED):
            continue
        inside = any(
            pause.paused_at < one.last_at and (pause.resumed_at is None or one.planned_at <= pause.resumed_at)
            for pause in rows.pauses
        )
        if inside != (one.reason is Reason.PAUSED):
            yield f"K9 {rows.name}: {one}, with the pauses {rows.pauses}"


def _spread_in_order(rows: LedgerRows) -> Iterator[str]:
    """C-06: ticks that are caught up together are spread in planned order."""
    caught = [
        tick.decision
        for tick in rows.ticks
        if tick.decision.reason is Reason.CAUGHT_UP and rows.spec_of(tick).catchup is Catchup.SPREAD
    ]
    for earlier, later in pairwise(caught):
        if (earlier.fire_at or 0) > (later.fire_at or 0):
            yield f"C-06 {rows.name}: {later} starts before {earlier}"
