"""What operators do to a schedule: each begins with a verdict on what is due, so that nothing is lost by it."""

from msgspec.structs import replace

from gnomon.core.exceptions import fitting
from gnomon.core.keys import shard_of
from gnomon.core.model import Catchup, Decision, Overlap, Reason, Schedule, ScheduleUid, Spec, TickKind, Verdict
from gnomon.core.plan import paused_range, plan_ahead, plan_kept, settled
from gnomon.core.skipping import with_skipped
from gnomon.core.ticks import Ticks
from gnomon.core.triggers import Every

#: Who acts when a one-shot has done its work.
CARETAKER = "gnomon"


def fresh(uid: ScheduleUid, tenant: str, schedule_id: str, spec: Spec, *, now: int) -> Schedule:
    """A schedule that begins now: ticks before that are none."""
    return Schedule(
        uid=uid,
        tenant=tenant,
        schedule_id=schedule_id,
        spec=spec,
        shard=shard_of(uid),
        mark_at=now,
        next_fire_at=Ticks(schedule_id, spec).next_fire_at(now),
        created_at=now,
        updated_at=now,
    )


def same_spec(current: Spec, said: Spec) -> bool:
    """Whether an operator said what is already there. Saying an interval again does not move its grid."""
    return current == kept_grid(current, said)


def kept_grid(current: Spec, said: Spec) -> Spec:
    """What was said, on the grid of an interval that already counts and with the exceptions that still fit it."""
    said = _on_the_grid(current, said)
    return replace(said, exceptions=fitting(current, said)) if current.exceptions else said


def _on_the_grid(current: Spec, said: Spec) -> Spec:
    old, new = current.trigger, said.trigger
    if (
        isinstance(old, Every)
        and isinstance(new, Every)
        and old.period == new.period
        and said.start_at == current.start_at
    ):
        return replace(said, trigger=old)
    return said


def verdict_before(schedule: Schedule, *, now: int) -> Verdict:
    """The verdict on every tick planned up to now, to be carried out before an operator changes the schedule.

    A tick whose jitter puts it off a little longer is decided, too: its run waits for its time, but a change that comes
    after the planned time does not undo it.
    """
    if schedule.paused_at is not None:
        return _swallowed(schedule, now)
    ticks = Ticks(schedule.schedule_id, schedule.spec)
    verdict = _with_put_off(schedule, ticks.kept, now)
    return with_skipped(ticks, verdict, until=max(now, ticks.newest_due(now) or now)) if ticks.skipped else verdict


def _with_put_off(schedule: Schedule, ticks: Ticks, now: int) -> Verdict:
    verdict = plan_kept(schedule, ticks, now=now)
    put_off = ticks.after(verdict.mark_at)
    if leaves_some_due(verdict, now=now) or put_off is None or put_off > now:
        return verdict
    if schedule.spec.overlap is Overlap.REPLACE:
        verdict = _standing_back(verdict)
    later = plan_ahead(settled(verdict), ticks, put_off)
    return replace(
        later,
        schedule=schedule,
        decisions=verdict.decisions + later.decisions,
        replaces=verdict.replaces or later.replaces,
    )


def _standing_back(verdict: Verdict) -> Verdict:
    """The verdict without its run, which a newer tick is about to replace: one stretch, coalesced into that."""
    before = verdict.schedule
    let_go = [d for d in verdict.decisions if not _stands_back(before, d)]
    back = [d for d in verdict.decisions if _stands_back(before, d)]
    coalesced = [
        Decision(
            kind=TickKind.COALESCED,
            reason=Reason.NEWER_TICK,
            planned_at=back[0].planned_at,
            last_at=back[-1].last_at,
            count=sum(d.count for d in back),
        )
        for _ in back[:1]
    ]
    return replace(
        verdict,
        decisions=(*let_go, *coalesced),
        active_runs=before.active_runs,
        queued_runs=before.queued_runs,
        replaces=False,
    )


def _stands_back(schedule: Schedule, decision: Decision) -> bool:
    """Whether it has a run, or gave its own up to a tick that has."""
    gave_up = decision.kind is TickKind.COALESCED and schedule.spec.catchup in (Catchup.ALL, Catchup.SPREAD)
    return decision.starts_a_run or gave_up


def _swallowed(schedule: Schedule, now: int) -> Verdict:
    verdict = Verdict(
        schedule=schedule,
        decisions=paused_range(schedule, until=now),
        mark_at=max(schedule.mark_at, now),
        next_fire_at=None,
        active_runs=schedule.active_runs,
        queued_runs=schedule.queued_runs,
    )
    ticks = Ticks(schedule.schedule_id, schedule.spec)
    return replace(with_skipped(ticks, verdict, until=now), next_fire_at=None) if ticks.skipped else verdict


def leaves_some_due(verdict: Verdict, *, now: int) -> bool:
    """Whether the catch-up cap has left ticks for another pass."""
    return verdict.next_fire_at is not None and verdict.next_fire_at <= now


def edited(verdict: Verdict, spec: Spec, *, now: int) -> Schedule:
    """The schedule with a new spec, which counts from now on. A pause goes on."""
    after = settled(verdict)
    mark = max(after.mark_at, now)
    return replace(
        after,
        spec=spec,
        revision=after.revision + 1,
        mark_at=mark,
        next_fire_at=None if after.paused_at is not None else Ticks(after.schedule_id, spec).next_fire_at(mark),
        updated_at=now,
    )


def paused(verdict: Verdict, *, now: int) -> Schedule:
    """The schedule, paused from now on."""
    after = settled(verdict)
    return replace(after, mark_at=max(after.mark_at, now), next_fire_at=None, paused_at=now, updated_at=now)


def resumed(verdict: Verdict, *, now: int) -> Schedule:
    """The schedule, going on from now; what the pause swallowed has been decided by the verdict."""
    after = settled(verdict)
    upcoming = Ticks(after.schedule_id, after.spec).next_fire_at(after.mark_at)
    return replace(after, next_fire_at=upcoming, paused_at=None, updated_at=now)
