"""The calendar: the ledger behind and the plan ahead in one table, and one cell of it with its reasons."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from gnomon.errors import FieldError
from gnomon.ui.pages.page import DashboardPage, Values, page_part
from gnomon.ui.requests import PageRequest, address, segment, utc_moment

_PAGE = "/ui/calendar"
#: The kinds of ticks. A cell looks like the first of them that it has.
_KINDS = ("failed", "missed", "late", "skipped", "coalesced", "queued", "held", "coming", "fired")
#: How many jobs a page has, and how many elements its table.
_MOST_JOBS, _MOST_ELEMENTS = 50, 4_500
#: How many columns there are if the reader does not say from when to when.
_USUAL_COLUMNS = {"hour": 48, "day": 29}
_MOST_COLUMNS = 200
#: The kind of an explanation of a moment at which nothing was planned.
_NO_TICK = "no_tick"
#: How many ticks a cell explains.
_MOST_EXPLAINED = 10


class CalendarStretch(Struct, frozen=True):
    """A cell with ticks, or an empty stretch of several columns."""

    columns: int
    at: str
    until: str
    #: The kind that it looks like; empty if there is no tick.
    kind: str
    counts: Sequence[tuple[str, int]]
    #: Its ticks in words.
    words: str
    #: The quarter of the column in which it is now; -1 in any other column.
    now: int


class ShownCalendarRow(Struct, frozen=True):
    """A job and its cells."""

    job: str
    timezone: str
    paused: bool
    cells: Sequence[CalendarStretch]


class CalendarHead(Struct, frozen=True):
    """Columns of the same day or month."""

    columns: int
    text: str
    #: A note about a day of a clock change.
    note: str


async def _calendar(request: PageRequest) -> Values:
    filters = {name: request.query.get(name, "").strip() for name in ("from", "to", "by", "tz", "job", "tag")}
    by, zone = filters["by"] or "hour", filters["tz"] or request.view.zone
    asked = {**filters, "by": by, "tz": zone, "from": utc_moment(filters["from"]), "to": utc_moment(filters["to"])}
    usual = _MOST_COLUMNS if filters["from"] or filters["to"] else _USUAL_COLUMNS.get(by, _MOST_COLUMNS)
    # Two elements a cell, four a row: an address that names a range may have more columns, and then fewer jobs.
    limit = min(_MOST_JOBS, _MOST_ELEMENTS // (2 * _columns_between(filters, by, usual) + 4))
    found = await request.get("/v1/calendar", **asked, cursor=request.query.get("cursor"), limit=max(1, limit))
    columns, now = found["columns"], found["now"]
    rows = await request.runner.services.compute.map(lambda one: _row(one, columns, now), found["items"])
    first, last = columns[0]["from_at"], columns[-1]["until_at"]
    return {
        "calendar": found,
        "rows": rows,
        "heads": list(_heads(columns, by)),
        "labels": [_label(one, by, now) for one in columns],
        "filters": filters,
        "kinds": _KINDS,
        "by": by,
        "tz": zone,
        "first": first,
        "last": last,
        "earlier": _moved(filters, columns, earlier=True),
        "later": _moved(filters, columns, earlier=False),
    }


def _columns_between(filters: Mapping[str, str], by: str, usual: int) -> int:
    """About how many columns the address asks for: the API refuses those that are no moments."""
    try:
        begin, end = (datetime.fromisoformat(utc_moment(filters[name])) for name in ("from", "to"))
        seconds = (end - begin).total_seconds()
    except (ValueError, TypeError):
        return usual
    return max(1, min(_MOST_COLUMNS, int(seconds / (86_400 if by == "day" else 3_600)) + 2))


def _moved(filters: Mapping[str, str], columns: Sequence[Values], *, earlier: bool) -> str:
    """The address of as much time before or after this page; empty where time ends."""
    first, last = (_instant(columns[0]["from_at"]), _instant(columns[-1]["until_at"]))
    begin, end = (first - (last - first), first) if earlier else (last, last + (last - first))
    try:
        bounds = {"from": _text(begin), "to": _text(end)}
    except OverflowError:
        return ""
    return address(_PAGE, **{**filters, **bounds})


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


# ---- the table -----------------------------------------------------------------------------------


def _heads(columns: Sequence[Values], by: str) -> Iterator[CalendarHead]:
    """The days of hours, or the months of days."""
    groups: dict[str, list[Values]] = {}
    for one in columns:
        groups.setdefault(one["local"][: 10 if by == "hour" else 7], []).append(one)
    for members in groups.values():
        local = _instant(members[0]["local"])
        text = f"{local:%a %Y-%m-%d}" if by == "hour" else f"{local:%B %Y}"
        change = sum(one["clock_change"] for one in members)
        note = f"clocks are put {'forward' if change > 0 else 'back'} by {abs(change)} min" if change else ""
        if change and by == "hour":
            hours = 24 - change / 60
            note = f"{hours:g} hours, {note}"
        yield CalendarHead(len(members), text, note)


def _label(column: Values, by: str, now: str) -> dict[str, Any]:
    """The head of a column."""
    local, hours = _instant(column["local"]), column["hours"]
    odd = f"{hours:g} h" if hours != (1 if by == "hour" else 24) else ""
    text = f"{local:%H:%M}" if local.minute else f"{local:%H}"
    return {
        "text": text if by == "hour" else f"{local:%a %d}",
        "full": f"{local:%a %Y-%m-%d %H:%M}",
        "odd": odd,
        "now": _quarter(column, now),
    }


def _quarter(column: Values, now: str) -> int:
    """The quarter of the column in which it is now; -1 if it is not in this column."""
    begin, end, at = _instant(column["from_at"]), _instant(column["until_at"]), _instant(now)
    return int(4 * ((at - begin) / (end - begin))) if begin <= at < end else -1


def _row(job: Values, columns: Sequence[Values], now: str) -> ShownCalendarRow:
    counts = {cell["column"]: cell["counts"] for cell in job["cells"]}
    at_now = next((number for number, one in enumerate(columns) if _quarter(one, now) >= 0), -1)
    cells = list[CalendarStretch]()
    empty_from = 0
    for number in range(len(columns)):
        # The column of this moment stands alone, so that the line through it has no gap.
        if number not in counts and number != at_now:
            continue
        cells += _stretch(columns, empty_from, number)
        cells.append(_cell(columns[number], counts.get(number, {}), now if number == at_now else None))
        empty_from = number + 1
    cells += _stretch(columns, empty_from, len(columns))
    return ShownCalendarRow(job["job"], job["timezone"], job["paused"], cells)


def _stretch(columns: Sequence[Values], first: int, end: int) -> list[CalendarStretch]:
    if first == end:
        return []
    begin, until = columns[first]["from_at"], columns[end - 1]["until_at"]
    return [CalendarStretch(end - first, begin, until, "", (), "no tick", -1)]


def _cell(column: Values, counts: Mapping[str, int], now: str | None) -> CalendarStretch:
    there = [(kind, counts[kind]) for kind in _KINDS if kind in counts]
    return CalendarStretch(
        1,
        column["from_at"],
        column["until_at"],
        there[0][0] if there else "",
        there,
        ", ".join(f"{count} {kind}" for kind, count in there) or "no tick",
        -1 if now is None else _quarter(column, now),
    )


# ---- one cell ------------------------------------------------------------------------------------


async def _show_cell(request: PageRequest) -> Values:
    """The ticks of a job between two moments, each with its reason, and what can be changed about it."""
    query = {name: request.query.get(name, "").strip() for name in ("job", "at", "until")}
    for name, value in query.items():
        if not value:
            raise FieldError(name, value, "is missing in the address")
    path = f"/v1/jobs/{segment(query['job'])}"
    answer = await request.get(f"{path}/why", at=utc_moment(query["at"]))
    until, told, more = utc_moment(query["until"]), list[Values](), False
    found = answer["explanations"][0]
    while True:
        if found["kind"] != _NO_TICK:
            told.append(found)
        following = found["next_at"]
        if following is None or not _earlier(following, until):
            break
        if len(told) == _MOST_EXPLAINED:
            more = True
            break
        found = (await request.get(f"{path}/why", at=following))["explanations"][0]
    job = await page_part(request, path)
    return {
        "title": query["job"],
        "answer": answer,
        # A moment without a tick is explained only if the whole cell has none.
        "told": told or answer["explanations"][:1],
        "more": more,
        "cell": {**query, "until": until},
        "exceptions": {one["planned_at"]: one for one in (job["found"] or {}).get("exceptions", ())},
        "may_change": request.allows("skip_tick") and job["found"] is not None,
    }


def _earlier(one: str, other: str) -> bool:
    try:
        return _instant(one) < _instant(other)
    except (ValueError, TypeError):
        raise FieldError("until", other, "is no moment with a zone, such as 2026-03-02T12:00:00Z") from None


PAGES: tuple[DashboardPage, ...] = (
    DashboardPage(path=_PAGE, title="Calendar", template="calendar.html", load=_calendar, route="show_calendar"),
    DashboardPage(
        path="/ui/calendar/cell",
        title="Cell",
        template="calendar_cell.html",
        load=_show_cell,
        route="show_calendar",
        in_menu=False,
    ),
)
