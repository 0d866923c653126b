"""Judging runs beside each other: which may be under way together, and in which order they begin."""

from collections import defaultdict
from collections.abc import Iterator

from gnomon.core.model import Overlap, ScheduleUid
from gnomon.testing.evidence import Evidence
from gnomon.testing.history import Flight, Violation, Witnessed


def judged_overlaps(evidence: Evidence) -> Iterator[Violation]:
    """Every violation of K11 and K12."""
    by_schedule: dict[ScheduleUid, list[Flight]] = defaultdict(list)
    for flight in evidence.history.flights.values():
        by_schedule[flight.uid].append(flight)
    for flights in by_schedule.values():
        yield from _alone_by_record(flights)
        yield from _alone_by_witness(flights, evidence)
        yield from _in_order(flights, evidence)


def _free(flight: Flight) -> bool:
    """Whether it may go on beside others."""
    return flight.forced or (flight.overlap is Overlap.ALLOW)


def _alone_by_record(flights: list[Flight]) -> Iterator[Violation]:
    """K11: when a run goes on that may not be beside others, all that went on before it are over."""
    under_way: list[Flight] = []
    for flight in sorted((one for one in flights if one.went_on is not None), key=lambda one: one.went_on or 0):
        went_on = flight.went_on or 0
        under_way = [one for one in under_way if one.over is None or one.over > went_on]
        if under_way and not _free(flight):
            yield Violation("K11", flight.uid, f"{flight} went on beside {under_way}")
        under_way.append(flight)


def _alone_by_witness(flights: list[Flight], evidence: Evidence) -> Iterator[Violation]:
    """K11: no body begins beside one of another run, unless that was declared lost or over time before."""
    given_up = {one.held: one.moment for one in evidence.history.reports if one.counted}
    seen: list[tuple[Witnessed, Flight]] = []
    ours = {flight.run_id: flight for flight in flights}
    starts = sorted((one for name in ours for one in evidence.starts_of[name]), key=lambda one: one.moment)
    for start in starts:
        flight = ours[start.run_id]
        seen = [(one, other) for one, other in seen if _open(one, evidence, start.moment)]
        # A body of an attempt that was given up itself is nobody's fault but its worker's, who stood still.
        stale = given_up.get(start.held, start.moment) < start.moment
        for one, other in seen:
            lost = given_up.get(one.held, start.moment) < start.moment
            newer = max(flight, other, key=lambda one: one.went_on or 0)
            if other is not flight and not _free(newer) and not lost and not stale:
                yield Violation("K11", flight.uid, f"a body of {start.run_id} began beside one of {one.run_id}")
        seen.append((start, flight))


def _open(start: Witnessed, evidence: Evidence, moment: int) -> bool:
    end = evidence.ends.get(start.held)
    return end is None or end.moment > moment


def _in_order(flights: list[Flight], evidence: Evidence) -> Iterator[Violation]:
    """K12: of runs that waited together, the one planned first begins first, unless it was over before."""
    first = {one.run_id: evidence.starts_of[one.run_id][0].moment for one in flights if evidence.starts_of[one.run_id]}
    waited = [one for one in flights if one.overlap is Overlap.QUEUE and not one.forced and one.went_on != one.made + 1]
    for later in waited:
        began = first.get(later.run_id)
        if began is None:
            continue
        for earlier in waited:
            if (earlier.planned_at, earlier.run_id) >= (later.planned_at, later.run_id):
                continue
            together = earlier.made < (later.went_on or began) and (earlier.went_on or began) > later.made
            over = earlier.over is not None and earlier.over < began
            if together and not over and first.get(earlier.run_id, began) >= began:
                yield Violation("K12", later.uid, f"{later} began before {earlier}")
