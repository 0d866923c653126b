"""The rules of the ledger, implemented naively: tick by tick, and with every run by name.

This module shares no decision code with the scheduler and is not optimised, so that it can serve as a reference.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from gnomon.core.ledger.plan import CatchupLimit
from gnomon.core.model import Catchup, Decision, Overlap, Reason, Schedule, Spec, TickKind
from gnomon.core.runs.launch import LaunchOutcome

#: Planned times, in milliseconds, after the first and up to the second.
Oracle = Callable[[Spec, int, int], Sequence[int]]

#: A tick that is late by less counts as on time.
_ON_TIME_MS = 1_000


class ExpectedTicks(NamedTuple):
    """The expected decision on a tick, or on consecutive ticks."""

    first: int
    last: int
    kind: TickKind
    reason: Reason


class RunKey(NamedTuple):
    """The identity of a run, in the order in which waiting runs are released."""

    planned_at: int
    run_id: str = ""


@dataclass(slots=True)
class ActiveRuns:
    """The runs of one schedule that have not ended."""

    active: set[RunKey] = field(default_factory=set)
    waiting: set[RunKey] = field(default_factory=set)
    #: Waiting runs that a newer one cancelled.
    replaced: set[RunKey] = field(default_factory=set)

    def copy(self) -> "ActiveRuns":
        """A copy for trial decisions."""
        return ActiveRuns(set(self.active), set(self.waiting))

    def end(self, run: RunKey) -> bool:
        """Remove a run that has ended; if it was the last active one, activate the oldest waiting one.

        False if the run is unknown.
        """
        known = run in self.active or run in self.waiting or run in self.replaced
        for runs in (self.active, self.waiting, self.replaced):
            runs.discard(run)
        if self.waiting and not self.active:
            released = min(self.waiting)
            self.waiting.discard(released)
            self.active.add(released)
        return known

    def outcome(self, spec: Spec, reason: Reason) -> tuple[TickKind, Reason]:
        """The decision of the overlap policy on a tick that is due to fire for this reason."""
        if spec.overlap is Overlap.ALLOW or not (self.active or self.waiting):
            return TickKind.FIRED, reason
        if spec.overlap is Overlap.SKIP:
            return TickKind.SKIPPED, Reason.OVERLAP
        if spec.overlap is Overlap.REPLACE:
            return TickKind.QUEUED, Reason.REPLACES_A_RUN
        if len(self.waiting) < spec.queue_limit:
            return TickKind.QUEUED, Reason.BEHIND_A_RUN
        return TickKind.SKIPPED, Reason.QUEUE_FULL

    def launching(self, spec: Spec, *, force: bool, waits: bool) -> LaunchOutcome:
        """The decision of the overlap policy on a launch."""
        kind, reason = (TickKind.FIRED, Reason.ON_TIME) if force else self.outcome(spec, Reason.ON_TIME)
        if waits and kind is not TickKind.FIRED:
            return LaunchOutcome.QUEUED
        if kind is TickKind.SKIPPED:
            return LaunchOutcome.OVERLAP if reason is Reason.OVERLAP else LaunchOutcome.QUEUE_FULL
        return LaunchOutcome.STARTED if kind is TickKind.FIRED else LaunchOutcome.QUEUED

    def take(self, run: RunKey, kind: TickKind, reason: Reason) -> None:
        """Add the run of a decision, active or waiting."""
        if reason is Reason.REPLACES_A_RUN:
            self.replaced |= self.waiting
            self.waiting.clear()
        if kind is TickKind.FIRED:
            self.active.add(run)
        if kind is TickKind.QUEUED:
            self.waiting.add(run)

    def take_launched(self, run: RunKey, spec: Spec, outcome: LaunchOutcome, *, waits: bool) -> None:
        """Add the run of a launch, active or waiting; one that `waits` replaces no other."""
        if outcome is LaunchOutcome.STARTED:
            self.take(run, TickKind.FIRED, Reason.ON_TIME)
        if outcome is LaunchOutcome.QUEUED:
            replaces = spec.overlap is Overlap.REPLACE and not waits
            self.take(run, TickKind.QUEUED, Reason.REPLACES_A_RUN if replaces else Reason.BEHIND_A_RUN)


class DueTicksSplit(NamedTuple):
    """Due ticks: those that are dropped, and those that fire, each with its reason."""

    dropped: list[ExpectedTicks]
    firing: list[tuple[int, Reason]]


def expected(
    oracle: Oracle, schedule: Schedule, active_runs: ActiveRuns, *, now: int, by_change: bool, limit: CatchupLimit
) -> list[ExpectedTicks]:
    """The decisions that the schedule requires at `now`, oldest first."""
    spec, active_runs = schedule.spec, active_runs.copy()
    due = _due(oracle, schedule, now=now, by_change=by_change)
    if schedule.paused_at is not None:
        skipped = _as_range([at for at in due if not _left_out(schedule, at)], TickKind.SKIPPED, Reason.PAUSED)
        return _around_excepted(schedule, skipped, due)
    dropped, firing = _sorted(oracle, schedule, now=now, by_change=by_change, most=limit.ticks)
    found = list(dropped)
    if spec.overlap is Overlap.REPLACE:
        # Only the newest replaces the active run: the others would be cancelled as soon as they were queued.
        found += _as_range([at for at, _ in firing[:-1]], TickKind.COALESCED, Reason.NEWER_TICK)
        firing = firing[-1:]
    for at, reason in firing:
        kind, why = active_runs.outcome(spec, reason)
        active_runs.take(RunKey(at), kind, why)
        found.append(ExpectedTicks(at, at, kind, why))
    return _around_excepted(schedule, found, due)


def resumed_ticks(
    oracle: Oracle, schedule: Schedule, active_runs: ActiveRuns, *, now: int, runs: int
) -> list[ExpectedTicks]:
    """The decisions at the end of a pause, if the operator asks for `runs` runs: the newest ticks get them."""
    spec, active_runs = schedule.spec, active_runs.copy()
    due = _due(oracle, schedule, now=now, by_change=True)
    paused = [at for at in due if not _left_out(schedule, at)]
    chosen = paused[max(0, len(paused) - runs) :] if runs else []
    found = _as_range(paused[: len(paused) - len(chosen)], TickKind.SKIPPED, Reason.PAUSED)
    for at in chosen[-1:] if spec.overlap is Overlap.REPLACE else chosen:
        kind, why = TickKind.FIRED, Reason.CAUGHT_UP
        if spec.overlap is not Overlap.ALLOW and (active_runs.active or active_runs.waiting):
            replaces = spec.overlap is Overlap.REPLACE
            kind, why = TickKind.QUEUED, Reason.REPLACES_A_RUN if replaces else Reason.BEHIND_A_RUN
        active_runs.take(RunKey(at), kind, why)
        found.append(ExpectedTicks(at, at, kind, why))
    return _around_excepted(schedule, found, due)


def exception_reason(spec: Spec, at: int) -> Reason | None:
    """The reason why an operator excepted this tick; None if none did."""
    for one in spec.exceptions:
        if one.planned_at == at:
            return Reason.SKIPPED_ONCE if one.moved_to is None else Reason.MOVED
    return None


def _decided(schedule: Schedule) -> frozenset[int]:
    """The ticks after the mark that are decided already: they ran before the mark was set back."""
    return frozenset() if schedule.mark_correction is None else frozenset(schedule.mark_correction.decided)


def _due(oracle: Oracle, schedule: Schedule, *, now: int, by_change: bool) -> list[int]:
    """All due ticks, excepted ones too; during a pause and for a change, all ticks planned up to now."""
    spec, mark = schedule.spec, schedule.mark_at
    if schedule.paused_at is not None:
        return list(oracle(spec, mark, now))
    ahead = oracle(spec, mark, now + spec.jitter_ms)
    fires = {at: fire_at(oracle, spec, schedule.schedule_id, at) for at in ahead}
    return [at for at, fire in fires.items() if fire <= now or (by_change and at <= now)]


def _left_out(schedule: Schedule, at: int) -> bool:
    """Whether the policies do not apply to this tick: it is excepted, or decided already."""
    return at in _decided(schedule) or exception_reason(schedule.spec, at) is not None


def _around_excepted(schedule: Schedule, found: Sequence[ExpectedTicks], due: Sequence[int]) -> list[ExpectedTicks]:
    """The decisions `found` with those on excepted ticks, which split ranges; up to the first tick left undecided.

    A tick that is decided already splits a range, too, and gets no second decision.
    """
    spec, decided = schedule.spec, _decided(schedule)
    if not spec.exceptions and not decided:
        return list(found)
    covered: list[ExpectedTicks] = []
    left: list[int] = []
    split = False
    for at in due:
        why = exception_reason(spec, at)
        cover = next((one for one in found if one.first <= at <= one.last), None)
        if at in decided:
            split = True
            continue
        grows = covered and covered[-1].last >= (cover.first if cover else at) and not split
        if why is not None:
            covered += [] if left else [ExpectedTicks(at, at, TickKind.SKIPPED, why)]
        elif cover is None:
            left.append(at)
        elif grows and covered[-1][2:] == cover[2:] and cover.first != cover.last:
            covered[-1] = covered[-1]._replace(last=at)
        else:
            covered.append(cover._replace(first=at, last=at))
        split = False
    return covered


def _sorted(oracle: Oracle, schedule: Schedule, *, now: int, by_change: bool, most: int) -> DueTicksSplit:
    spec = schedule.spec
    ahead = oracle(spec, schedule.mark_at, now + spec.jitter_ms)
    fires = {at: fire_at(oracle, spec, schedule.schedule_id, at) for at in ahead}
    late = {at: now - max(at, fire) for at, fire in fires.items()}
    ticks = [at for at, fire in fires.items() if fire <= now and not _left_out(schedule, at)]
    dropped, firing = _by_policy(spec, ticks, late, most)
    reasons = [(at, _why_fired(spec, late[at])) for at in firing]
    # A change decides every tick planned before it, also one that jitter delays beyond it; except if the catch-up cap
    # leaves earlier ticks undecided.
    left = bool(firing) and firing[-1] != ticks[-1]
    late_ones = [at for at, fire in fires.items() if at <= now < fire and not _left_out(schedule, at)]
    put_off = late_ones if by_change and not left else []
    return DueTicksSplit(dropped, reasons + [(at, Reason.ON_TIME) for at in put_off])


def _by_policy(
    spec: Spec, ticks: Sequence[int], late: Mapping[int, int], most: int
) -> tuple[list[ExpectedTicks], Sequence[int]]:
    match spec.catchup:
        case Catchup.NONE:
            missed = [at for at in ticks if late[at] > spec.misfire_grace_ms]
            rest = ticks[len(missed) :]
            dropped = _as_range(missed, TickKind.MISSED, Reason.CATCHUP_NONE)
            return dropped + _as_range(rest[:-1], TickKind.COALESCED, Reason.NEWER_TICK), rest[-1:]
        case Catchup.LATEST:
            return _as_range(ticks[:-1], TickKind.COALESCED, Reason.NEWER_TICK), ticks[-1:]
        case Catchup.ALL | Catchup.SPREAD:
            gone = [at for at in ticks if late[at] > spec.catchup_window_ms]
            return _as_range(gone, TickKind.MISSED, Reason.WINDOW), ticks[len(gone) :][:most]


def _why_fired(spec: Spec, late: int) -> Reason:
    if late > spec.misfire_grace_ms:
        return Reason.CAUGHT_UP
    return Reason.LATE if late >= _ON_TIME_MS else Reason.ON_TIME


def _as_range(ticks: Sequence[int], kind: TickKind, reason: Reason) -> list[ExpectedTicks]:
    return [ExpectedTicks(ticks[0], ticks[-1], kind, reason)] if ticks else []


def as_expected(decisions: Sequence[Decision]) -> list[ExpectedTicks]:
    """The decisions as ExpectedTicks, for comparison."""
    return [ExpectedTicks(d.planned_at, d.last_at, d.kind, d.reason) for d in decisions]


class StartWindows(NamedTuple):
    """For each planned time the earliest and the latest start, and until when overdue ticks are spread from now on."""

    windows: dict[int, tuple[int, int]]
    spread_until: int | None


def start_windows(
    oracle: Oracle,
    schedule: Schedule,
    *,
    now: int,
    decisions: Sequence[Decision],
    limit: CatchupLimit,
    spread_until: int | None,
) -> StartWindows:
    """When the runs of these decisions may start; overdue ticks were spread until `spread_until` so far."""
    spec, name = schedule.spec, schedule.schedule_id
    fires = {d.planned_at: fire_at(oracle, spec, name, d.planned_at) for d in decisions}
    places = {at: (fire, fire) for at, fire in fires.items()}
    if schedule.paused_at is not None:
        return StartWindows(places | _spread_after_pause(decisions, now=now), spread_until)
    begins = now
    if spec.catchup in (Catchup.ALL, Catchup.SPREAD) and (schedule.next_fire_at or now) > now:
        # A change decides ticks whose turn is later, because others start until then.
        begins = schedule.next_fire_at or now
        places = {at: (max(fire, begins), max(fire, begins + limit.interval_ms)) for at, fire in fires.items()}
    spread = _spread(oracle, schedule, now=now, begins=begins, limit=limit, spread_until=spread_until)
    if spread is None:
        return StartWindows(places, spread_until)
    # Jitter may put off a tick that a change decides: it follows the spread ones, or starts at its own time.
    places |= {at: (fire, max(fire, spread.until + limit.interval_ms)) for at, fire in fires.items()}
    return StartWindows(places | {at: (start, start) for at, start in spread.starts.items()}, spread.until)


class _Spread(NamedTuple):
    """The starts of spread ticks, and until when ticks are spread."""

    starts: dict[int, int]
    until: int


def _spread(
    oracle: Oracle, schedule: Schedule, *, now: int, begins: int, limit: CatchupLimit, spread_until: int | None
) -> _Spread | None:
    """The starts of due ticks that are spread, together with those that come due until the end; None if none is."""
    spec, jitter = schedule.spec, schedule.spec.jitter_ms
    if spec.catchup is not Catchup.SPREAD:
        return None
    dropped, firing = _sorted(oracle, schedule, now=now, by_change=False, most=limit.ticks)
    alone = len(firing) == 1 and not dropped and begins == now
    if not firing or (alone and len(_open_ticks(oracle, schedule, now, jitter)) == 1):
        return None
    if spread_until is None or spread_until <= begins:
        if firing[0][1] is not Reason.CAUGHT_UP:
            return None
        spread_until = begins + spec.lookahead_ms
    oldest, newest = firing[0][0], firing[-1][0]
    line = [at for at in oracle(spec, oldest - 1, max(spread_until, newest)) if not _left_out(schedule, at)]
    longest = max(spread_until - begins, -(-len(line) * limit.interval_ms // limit.ticks))
    starts = {at: begins + place * longest // len(line) for place, at in enumerate(line)}
    return _Spread({at: starts[at] for at, _ in firing}, begins + longest)


def _open_ticks(oracle: Oracle, schedule: Schedule, now: int, jitter: int) -> list[int]:
    ahead = [at for at in oracle(schedule.spec, schedule.mark_at, now + jitter) if not _left_out(schedule, at)]
    return [at for at in ahead if fire_at(oracle, schedule.spec, schedule.schedule_id, at) <= now]


def _spread_after_pause(decisions: Sequence[Decision], *, now: int) -> dict[int, tuple[int, int]]:
    """The start times of runs that an operator spread evenly at the end of a pause, within two milliseconds."""
    fires = [(d.planned_at, d.fire_at) for d in decisions if d.fire_at is not None]
    if not fires or fires[0][1] != now:
        return {}
    step = (fires[-1][1] - now) / max(1, len(fires) - 1)
    return {at: (round(now + i * step) - 2, round(now + i * step) + 2) for i, (at, _) in enumerate(fires)}


def fire_at(oracle: Oracle, spec: Spec, name: str, planned: int) -> int:
    """The planned time with its jitter, as documented: a fraction from the hash of the key, at most half the gap."""
    if not spec.jitter_ms or any(one.moved_to == planned for one in spec.exceptions):
        return planned
    second, rest = divmod(planned, 1000)
    epoch = f"{second}.{rest:03}".rstrip("0") if rest else f"{second}"
    digest = sha256(f"{name}:{epoch}".encode()).digest()
    share = (int.from_bytes(digest[:8], "big") >> 11) / 2**53
    offset = round((2 * share - 1) * spec.jitter_ms)
    reach = 3 * spec.jitter_ms
    if offset < 0:
        before = oracle(spec, planned - reach, planned - 1)
        return planned - min(-offset, (planned - before[-1]) // 2) if before else planned + offset
    after = oracle(spec, planned, planned + reach)
    return planned + min(offset, (after[0] - planned) // 2) if after else planned + offset
