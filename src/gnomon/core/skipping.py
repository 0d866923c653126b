"""Ticks that an operator has skipped or moved: decided as such, whatever becomes of those around them."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from gnomon.core.model import Decision, Reason, TickKind, Verdict
from gnomon.core.ticks import Ticks


def with_skipped(ticks: Ticks, verdict: Verdict, *, until: int | None) -> Verdict:
    """The verdict on the kept ticks together with the skipped ones among them, and with those behind up to `until`."""
    mark = verdict.mark_at
    left = ticks.kept.after(mark)
    if until is not None:
        # What the cap has left over is decided before what is skipped behind it.
        mark = max(mark, until if left is None else min(until, left - 1))
    due = {at: why for at, why in ticks.skipped.items() if verdict.schedule.mark_at < at <= mark}
    reached = max([verdict.mark_at, *due])
    return replace(
        verdict,
        decisions=tuple(_merged(ticks.kept, verdict.decisions, due)),
        mark_at=reached,
        next_fire_at=ticks.next_fire_at(reached),
    )


def _merged(kept: Ticks, decisions: Sequence[Decision], skipped: Mapping[int, Reason]) -> Iterator[Decision]:
    rest = dict(skipped)
    for decision in decisions:
        for at in [at for at in rest if at < decision.planned_at]:
            yield _skip(at, rest.pop(at))
        inside = [at for at in rest if at <= decision.last_at]
        for at in inside:
            before = kept.up_to(at)
            if before is not None and before >= decision.planned_at:
                count = kept.count(after=decision.planned_at - 1, until=at)
                yield replace(decision, last_at=before, count=count)
                behind = kept.after(at)
                assert behind is not None  # noqa: S101 - the last of the stretch is behind
                decision = replace(decision, planned_at=behind, count=decision.count - count)  # noqa: PLW2901 - the rest of it
            yield _skip(at, rest.pop(at))
        yield decision
    for at, why in rest.items():
        yield _skip(at, why)


def _skip(at: int, why: Reason) -> Decision:
    return Decision(kind=TickKind.SKIPPED, reason=why, planned_at=at, last_at=at)
