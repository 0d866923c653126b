"""Announcements: the messages to channels, those that were sent and those that were not."""

from typing import Annotated

from msgspec import Meta, Struct

from gnomon.api.examples import ANNOUNCEMENT
from gnomon.api.requests import CursorName, CursorNumber, make_full_page, make_page, read_cursor, refuse_other_filters
from gnomon.api.route import (
    LIST_DEFAULTS,
    READ_DEFAULTS,
    ApiCall,
    ApiRoute,
    Cursor,
    Limit,
    Name,
    Permission,
    Prefix,
    Reply,
)
from gnomon.core.announcements.model import AnnouncementState
from gnomon.core.responses.announcements import AnnouncementSummary
from gnomon.core.responses.base import Page
from gnomon.services.operations.presenters.announcements import announcement_summary


class AnnouncementsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of announcements."""

    job: Annotated[Name | None, Meta(description="Only entries of this job.")] = None
    state: Annotated[AnnouncementState | None, Meta(description="Only announcements in this state.")] = None
    prefix: Annotated[
        Prefix | None, Meta(description="Only announcements whose ids begin so, by id; not with another filter.")
    ] = None
    limit: Limit = 100
    cursor: Cursor | None = None


async def list_announcements(call: ApiCall) -> Reply:
    """List announcements, newest first."""
    query: AnnouncementsQuery = call.query
    service = call.services.announcements
    if query.prefix is not None:
        refuse_other_filters(call)
        some = await service.by_prefix(query.prefix, limit=query.limit, tenant=call.tenant)
        return Reply(body=await make_page(call, announcement_summary, some, None))
    found = await service.page(
        job=query.job,
        state=query.state,
        after=await read_cursor(call, tuple[CursorNumber, CursorName]),
        limit=query.limit,
        tenant=call.tenant,
    )
    page = await make_full_page(call, announcement_summary, found, lambda one: (one.created_at, one.announcement_id))
    return Reply(body=page)


async def show(call: ApiCall) -> Reply:
    """Show an announcement."""
    found = await call.services.announcements.get(call.path["id"], tenant=call.tenant)
    return Reply(body=announcement_summary(found))


async def retry(call: ApiCall) -> Reply:
    """Try an announcement again that was given up, from the part where it stopped."""
    again = await call.services.announcements.retry(call.path["id"], actor=call.actor, tenant=call.tenant)
    call.services.changed()
    return Reply(body=announcement_summary(again), status=202)


_PENDING = {**ANNOUNCEMENT, "state": "pending", "next_try_at": "2026-03-02T15:00:00Z", "ended_at": None, "note": None}
ROUTES = (
    ApiRoute(
        path="/v1/announcements",
        name="list_announcements",
        handle=list_announcements,
        query=AnnouncementsQuery,
        answer=Page[AnnouncementSummary],
        example={"items": [ANNOUNCEMENT], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/announcements/{id}",
        name="show_announcement",
        handle=show,
        error_statuses=(404,),
        answer=AnnouncementSummary,
        example=ANNOUNCEMENT,
        **READ_DEFAULTS,
    ),
    ApiRoute(
        method="POST",
        path="/v1/announcements/{id}/retry",
        name="retry_announcement",
        permission=Permission.OPERATE,
        handle=retry,
        answer=AnnouncementSummary,
        success={202: "The announcement is tried again."},
        error_statuses=(404, 409),
        example=_PENDING,
    ),
)
