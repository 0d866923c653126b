"""External events: emitted, listed and shown."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from gnomon.api.examples import EVENT, EXTERNAL_EVENT
from gnomon.api.requests import CursorName, CursorNumber, body_fields, make_full_page, read_cursor
from gnomon.api.route import (
    IDEMPOTENCY_KEY,
    LIST_DEFAULTS,
    READ_DEFAULTS,
    ApiCall,
    ApiRoute,
    Cursor,
    Limit,
    Name,
    Permission,
    Reply,
    RequestBody,
)
from gnomon.core.responses.base import Page
from gnomon.core.responses.events import EventDetail
from gnomon.services.operations.presenters.events import event_detail

EMIT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,127}$", "description": "Name of the event."},
        "body": {"description": "Body of the event; at most 64 KiB as JSON."},
        "key": {
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "description": "Idempotency key, instead of the header.",
        },
    },
}


class EventsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of events."""

    name: Annotated[Name | None, Meta(description="Only events with this name.")] = None
    limit: Limit = 100
    cursor: Cursor | None = None


async def emit(call: ApiCall) -> Reply:
    """Emit an event and start the jobs that listen to it."""
    fields = body_fields(call.body, "name", "body", "key")
    key = fields.text("key") if "key" in fields else call.key
    body, services = call.body.get("body"), call.services
    done = await services.events.emit(fields.name("name"), body, actor=call.actor, key=key, tenant=call.tenant)
    services.changed()
    return Reply(body=event_detail(done), status=201)


async def list_events(call: ApiCall) -> Reply:
    """List events and their effects, newest first."""
    query: EventsQuery = call.query
    after = await read_cursor(call, tuple[CursorNumber, CursorName])
    found = await call.services.events.page(name=query.name, after=after, limit=query.limit, tenant=call.tenant)
    page = await make_full_page(call, event_detail, found, lambda one: (one.event.emitted_at, one.event.event_id))
    return Reply(body=page)


async def show_event(call: ApiCall) -> Reply:
    """Show an event and its effect on every job that listens to it."""
    return Reply(body=event_detail(await call.services.events.get(call.path["id"], tenant=call.tenant)))


ROUTES = (
    ApiRoute(
        method="POST",
        path="/v1/events",
        name="emit_event",
        permission=Permission.OPERATE,
        handle=emit,
        answer=EventDetail,
        success={201: "The event is stored."},
        body=RequestBody(schema=EMIT_SCHEMA, example=EVENT),
        headers=(IDEMPOTENCY_KEY,),
        error_statuses=(409,),
        example=EXTERNAL_EVENT,
    ),
    ApiRoute(
        path="/v1/events",
        name="list_events",
        handle=list_events,
        answer=Page[EventDetail],
        query=EventsQuery,
        example={"items": [EXTERNAL_EVENT], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/events/{id}",
        name="show_event",
        handle=show_event,
        answer=EventDetail,
        error_statuses=(404,),
        example=EXTERNAL_EVENT,
        **READ_DEFAULTS,
    ),
)
