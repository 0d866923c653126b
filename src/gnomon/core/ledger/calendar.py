"""The ledger as a calendar: columns of hours or days of a time zone, and the kinds of ticks in their cells.

Left of the mark of a schedule stands what was decided, right of it what is planned. A tick is in one cell, under one
kind. A column is an hour or a day as clocks of the zone show it: a day has 23 or 25 hours if clocks change in it, an
hour that comes twice has two columns, and one in which clocks change by half an hour is longer or shorter.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise

from msgspec import Struct

from gnomon.core.instants import DAY_SECONDS, FIRST_SECOND, LAST_SECOND
from gnomon.core.ledger.ticks import Ticks, ticks_of
from gnomon.core.model import Reason, Schedule, ScheduleUid, Spec, Tick, TickKind, TickStatus
from gnomon.core.timezones import Zone
from gnomon.errors import FieldError

_HOUR_SECONDS = 3600
#: A zone has no two clock changes in so many days.
_QUIET_SECONDS = 3 * DAY_SECONDS
#: A calendar has no more columns.
MOST_COLUMNS = 200


class CellKind(StrEnum):
    """The kinds of ticks in a cell. Every tick has one of them."""

    FIRED = "fired"
    #: Its execution failed, or was cancelled while it ran.
    FAILED = "failed"
    #: It fired late, and its execution has not failed.
    LATE = "late"
    #: It waited behind another execution, and its own has not failed.
    QUEUED = "queued"
    #: It did not run, or its execution was cancelled before it started.
    SKIPPED = "skipped"
    COALESCED = "coalesced"
    MISSED = "missed"
    #: It is planned, and not decided.
    COMING = "coming"
    #: The same, but it is skipped or moved, or its job is paused.
    HELD = "held"


class ColumnSpan(StrEnum):
    """How much time a column shows."""

    HOUR = "hour"
    DAY = "day"

    @property
    def seconds(self) -> int:
        """Its length without a clock change."""
        return _HOUR_SECONDS if self is ColumnSpan.HOUR else DAY_SECONDS


class Column(Struct, frozen=True, kw_only=True):
    """An hour or a day of a zone, in milliseconds; the end is not in it."""

    from_at: int
    until_at: int
    #: By how many seconds clocks are put forward in it; negative if they are put back.
    clock_change: int


class CellCount(Struct, frozen=True):
    """How many ticks of one kind are in a column."""

    uid: ScheduleUid
    column: int
    kind: CellKind
    count: int


#: The number of ticks of each kind, by column.
Cells = dict[int, dict[CellKind, int]]


# ---- columns -------------------------------------------------------------------------------------


def columns(from_at: int, until_at: int, by: ColumnSpan, zone: Zone) -> list[Column]:
    """The columns of all hours or days of which some part is in this time.

    FieldError if there are too many, or none.
    """
    first, last = from_at // 1000, -(-until_at // 1000)
    if first < FIRST_SECOND + 3 * _QUIET_SECONDS:
        raise FieldError("from", from_at, "lies outside the calendar")
    if last > LAST_SECOND - 3 * _QUIET_SECONDS:
        raise FieldError("to", until_at, "lies outside the calendar")
    if last <= first:
        raise FieldError("to", until_at, "is not after `from`")
    if last - first > MOST_COLUMNS * by.seconds:
        raise FieldError("to", until_at, f"is more than {MOST_COLUMNS} {by}s after `from`")
    edges: list[int] = []
    for edge in _edges(zone, by, first):
        edges.append(edge)
        if edge >= last:
            break
    return [
        Column(from_at=one * 1000, until_at=end * 1000, clock_change=_clock_change(zone, one, end))
        for one, end in pairwise(edges)
    ]


def _clock_change(zone: Zone, first: int, end: int) -> int:
    return zone.span_at(end - 1).offset - zone.span_at(first - 1).offset


def _edges(zone: Zone, by: ColumnSpan, second: int) -> Iterator[int]:
    """The begin of the column in which `second` lies, and of all that follow."""
    begin = _some_edge(zone, by, second)
    for edge in _edges_after(zone, by, begin):
        if edge > second:
            yield begin
        begin = edge
        if edge > second:
            break
    yield begin
    yield from _edges_after(zone, by, begin)


def _some_edge(zone: Zone, by: ColumnSpan, second: int) -> int:
    """The begin of a column some days before `second`."""
    while True:
        second -= _QUIET_SECONDS
        span = zone.span_at(second)
        edge = (second + span.offset) // by.seconds * by.seconds - span.offset
        # Columns are regular long after a clock change.
        if edge - _QUIET_SECONDS >= span.start or not (span.skipped or span.repeated):
            return max(edge, span.start)


def _edges_after(zone: Zone, by: ColumnSpan, begin: int) -> Iterator[int]:
    """The begins of the columns after the one that begins at `begin`."""
    unit, at = by.seconds, begin
    span = zone.span_at(at)
    number = (at + span.offset) // unit
    while True:
        at = (at + span.offset) // unit * unit + unit - span.offset
        repeats = False
        if at >= span.end:
            at = span.end
            before, span = span, zone.span_at(at)
            # A whole hour comes again. A day never does.
            put_back = span.offset < before.offset
            repeats = put_back and by is ColumnSpan.HOUR and (at + span.offset) % unit == 0
        shown = (at + span.offset) // unit
        if shown > number or repeats:
            number = shown
            yield at


# ---- what was decided ----------------------------------------------------------------------------


def cell_kind(kind: TickKind, reason: Reason, status: TickStatus) -> CellKind:
    """The kind under which a decided tick is counted."""
    if kind not in (TickKind.FIRED, TickKind.QUEUED):
        return CellKind(kind.value)
    if status is TickStatus.FAILED:
        return CellKind.FAILED
    if status is TickStatus.SKIPPED:
        return CellKind.SKIPPED
    if kind is TickKind.QUEUED:
        return CellKind.QUEUED
    return CellKind.LATE if reason in (Reason.LATE, Reason.CAUGHT_UP) else CellKind.FIRED


def add(cells: Cells, column: int, kind: CellKind, count: int) -> None:
    """Count ticks in a cell."""
    if count:
        cell = cells.setdefault(column, {})
        cell[kind] = cell.get(kind, 0) + count


def add_range(
    cells: Cells, shown: Sequence[Column], tick: Tick, specs: Mapping[int, Spec]
) -> Generator[None, None, None]:
    """Count the ticks of a row that stands for several: those in these columns.

    `specs` are the definitions of its schedule by revision. If they do not give as many ticks as the row says, as after
    a change of the time zone data, all are counted at the first of them.
    """
    made = tick.decision
    kind = cell_kind(made.kind, made.reason, tick.status)
    column = _column_of(tuple(enumerate(shown)), made.planned_at)
    if column is not None and made.last_at < shown[column].until_at:
        add(cells, column, kind, made.count)
        return
    spec = specs.get(tick.revision)
    ticks = None if spec is None else Ticks(tick.schedule_id, spec).unskipped
    if ticks is None or ticks.count(after=made.planned_at - 1, until=made.last_at) != made.count:
        if column is not None:
            add(cells, column, kind, made.count)
        return
    for number, one in enumerate(shown):
        first, last = max(one.from_at, made.planned_at), min(one.until_at - 1, made.last_at)
        if first <= last:
            add(cells, number, kind, ticks.count(after=first - 1, until=last))
            yield


# ---- what is planned -----------------------------------------------------------------------------


def add_planned(cells: Cells, shown: Sequence[Column], schedule: Schedule) -> Generator[None, None, None]:
    """Count the ticks in these columns that are not decided: a few are walked, many are counted column by column."""
    ticks, mark = ticks_of(schedule), schedule.mark_at
    coming = CellKind.COMING if schedule.paused_at is None else CellKind.HELD
    ahead = [(number, one) for number, one in enumerate(shown) if one.until_at - 1 > mark]
    if not ahead:
        return
    begin, end = max(mark, ahead[0][1].from_at - 1), ahead[-1][1].until_at - 1
    planned = ticks.unskipped.count(after=begin, until=end)
    yield
    if planned < len(ahead):
        yield from _walk(cells, ahead, ticks.unskipped, begin, coming)
    else:
        for number, column in ahead:
            first = max(mark, column.from_at - 1)
            add(cells, number, coming, ticks.unskipped.count(after=first, until=column.until_at - 1))
            yield
    for at, reason in ticks.skipped.items():
        if reason is not None and at > mark:
            place = _column_of(ahead, at)
            if place is not None:
                add(cells, place, CellKind.HELD, 1)


def _walk(
    cells: Cells, ahead: Sequence[tuple[int, Column]], ticks: Ticks, begin: int, kind: CellKind
) -> Generator[None, None, None]:
    at = ticks.after(begin)
    while at is not None and (number := _column_of(ahead, at)) is not None:
        add(cells, number, kind, 1)
        yield
        at = ticks.after(at)


def _column_of(ahead: Sequence[tuple[int, Column]], at: int) -> int | None:
    return next((number for number, one in ahead if one.from_at <= at < one.until_at), None)
