"""The calendar: what was decided and what is planned, by job and hour or day."""

from functools import partial
from typing import Annotated

from msgspec import Meta, Struct

from gnomon.api.examples import CALENDAR
from gnomon.api.requests import CursorName, make_page, parse_instant, read_cursor
from gnomon.api.route import LIST_DEFAULTS, ApiCall, ApiRoute, Cursor, Instant, Name, Reply
from gnomon.core.instants import instant_of
from gnomon.core.ledger.calendar import ColumnSpan
from gnomon.core.responses.calendar import Calendar
from gnomon.services.operations.calendar import CalendarQuery
from gnomon.services.operations.presenters.calendar import calendar_column, calendar_job


class CalendarFilters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """The query of the calendar."""

    from_: Annotated[Instant | None, Meta(description="Start at the hour or day of this instant.")] = None
    to: Annotated[
        Instant | None, Meta(description="End with the hour or day before this instant, or in which it is.")
    ] = None
    by: Annotated[ColumnSpan, Meta(description="The time of a column.")] = ColumnSpan.HOUR
    tz: Annotated[Name, Meta(description="The time zone of the columns.")] = "UTC"
    job: Annotated[Name | None, Meta(description="Only this job.")] = None
    tag: Annotated[Name | None, Meta(description="Only jobs with this tag.")] = None
    limit: Annotated[int, Meta(ge=1, le=100, description="Maximum number of jobs.")] = 50
    cursor: Cursor | None = None


async def show(call: ApiCall) -> Reply:
    """Show the ticks of jobs by hour or day: decided up to now, and planned from now on."""
    query: CalendarFilters = call.query
    found = await call.services.calendar.read(
        CalendarQuery(
            tenant=call.tenant,
            from_at=parse_instant("from", query.from_),
            until_at=parse_instant("to", query.to),
            by=query.by,
            timezone=query.tz,
            job=query.job,
            tag=query.tag,
            after=await read_cursor(call, CursorName) or "",
            limit=query.limit,
        )
    )
    page = await make_page(call, calendar_job, found.rows, found.after)
    columns = await call.services.compute.map(partial(calendar_column, timezone=found.timezone), found.columns)
    body = Calendar(
        items=page.items,
        next=page.next,
        now=instant_of(found.now),
        by=found.by.value,
        timezone=found.timezone,
        columns=columns,
    )
    return Reply(body=body)


ROUTES = (
    ApiRoute(
        path="/v1/calendar",
        name="show_calendar",
        handle=show,
        query=CalendarFilters,
        answer=Calendar,
        error_statuses=(404,),
        example=CALENDAR,
        **LIST_DEFAULTS,
    ),
)
