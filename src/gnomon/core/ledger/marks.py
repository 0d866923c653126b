"""Marks that lie ahead of the clock, and how they are set back.

A mark says that every tick up to it is decided. It is ahead of the clock if ticks were decided by a clock that was
ahead: the schedule would be silent until the clock has passed the mark. So the mark is set back to the clock. The
decision on a tick that has not come is withdrawn if it started no run: the tick is decided when its time comes. A
decision that started a run stays, so that no tick runs twice. If retention has removed such a decision, because the
clock was ahead by more than the retention, the mark is set back to the last one that it removed, and no further.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.ledger.ticks import Ticks, ticks_of
from gnomon.core.model import Decision, MarkCorrection, Schedule, Spec, Tick

#: A mark that is ahead by less is passed soon. Jitter may put a mark ahead by itself, too.
MARK_TOLERANCE_MS = 2_000


class CorrectedMark(Struct, frozen=True):
    """A schedule whose mark was set back, and the changes of the ledger that this takes."""

    schedule: Schedule
    #: The planned times of the rows to delete.
    withdrawn: tuple[int, ...]
    #: A range that reaches into the future: it ends at the last tick that has come.
    shortened: Decision | None


def is_mark_ahead(schedule: Schedule, *, now: int) -> bool:
    """Whether the mark is farther ahead of the clock than jitter explains."""
    return schedule.mark_at > now + schedule.spec.jitter_ms + MARK_TOLERANCE_MS


def reaching_range(ahead: Sequence[Tick], *, to_at: int) -> Tick | None:
    """The range among the ticks after `to_at` that begins before, if there is one."""
    return next((one for one in ahead if not one.decision.starts_run and one.decision.planned_at <= to_at), None)


def corrected_mark(
    schedule: Schedule, ahead: Sequence[Tick], *, now: int, to_at: int, range_spec: Spec | None
) -> CorrectedMark:
    """The schedule with its mark at `to_at`; `ahead` are the ticks after that, oldest first.

    `range_spec` is the spec by which the range that reaches into the future was decided; None if it is not known.
    """
    decisions = [one.decision for one in ahead]
    withdrawn = [one for one in decisions if not one.starts_run and one.planned_at > to_at]
    found = reaching_range(ahead, to_at=to_at)
    reaching = None if found is None else found.decision
    shortened = None if reaching is None else _shortened(schedule, range_spec or schedule.spec, reaching, to_at)
    count = sum(one.count for one in withdrawn)
    if reaching is not None and shortened is not None:
        count += reaching.count - shortened.count
    after = replace(
        schedule,
        mark_at=to_at,
        spread_until=None,
        mark_correction=MarkCorrection(
            corrected_at=now,
            from_at=schedule.mark_at,
            withdrawn=count,
            decided=tuple(one.planned_at for one in decisions if one.starts_run),
        ),
    )
    coming = None if after.paused_at is not None else ticks_of(after).next_fire_at(to_at)
    return CorrectedMark(replace(after, next_fire_at=coming), tuple(one.planned_at for one in withdrawn), shortened)


def _shortened(schedule: Schedule, spec: Spec, reaching: Decision, to_at: int) -> Decision:
    before = schedule.mark_correction
    ticks = Ticks(schedule.schedule_id, spec, () if before is None else before.decided).unskipped
    last = ticks.up_to(to_at)
    if last is None or last < reaching.planned_at:
        # Its spec is not known any more; the first tick of the range has come.
        return replace(reaching, last_at=reaching.planned_at, count=1)
    return replace(reaching, last_at=last, count=ticks.count(after=reaching.planned_at - 1, until=last))
