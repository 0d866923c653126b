"""Events, workers, the stream of changes, and health."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from gnomon.api.examples import EVENT, EXTERNAL_EVENT, HEALTH, WORKER
from gnomon.api.requests import body_fields, make_page, read_cursor
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
from gnomon.core import responses
from gnomon.core.responses import HealthReport
from gnomon.errors import Unauthenticated, Unavailable
from gnomon.services.observability.change_stream import ChangeStream
from gnomon.services.operations import presenters
from gnomon.services.operations.presenters import health_report

#: A stream without changes sends a comment after this time, so that the client knows that the server is alive.
_KEEPALIVE_SECONDS = 15.0
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
    return Reply(body=presenters.event_detail(done), status=201)


async def list_events(call: ApiCall) -> Reply:
    """List events and their effects, newest first."""
    query: EventsQuery = call.query
    after = read_cursor(call, tuple[int, str])
    found = await call.services.events.page(name=query.name, after=after, limit=query.limit, tenant=call.tenant)
    last = found[-1].event if len(found) == query.limit else None
    more = None if last is None else (last.emitted_at, last.event_id)
    return Reply(body=make_page(call, [presenters.event_detail(one) for one in found], more))


async def show_event(call: ApiCall) -> Reply:
    """Show an event and its effect on every job that listens to it."""
    return Reply(body=presenters.event_detail(await call.services.events.get(call.path["id"], tenant=call.tenant)))


async def list_workers(call: ApiCall) -> Reply:
    """List live workers, their load and their functions."""
    found = await call.services.workers.alive()
    return Reply(body=responses.Page(items=[presenters.worker_detail(worker) for worker in found]))


async def stream(call: ApiCall) -> Reply:
    """Stream changes of ticks, executions, tasks and dead letters as server-sent events."""
    change_stream = call.services.change_stream
    change_stream.reject_if_full()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Reply(stream=_event_stream(change_stream, call.tenant), headers=headers)


async def _event_stream(change_stream: ChangeStream, tenant: str) -> AsyncIterator[bytes]:
    # Subscribe on the first read: a client that disconnects earlier is never reported, and would keep its place.
    subscriber = change_stream.subscribe(tenant)
    try:
        yield b": listening\n\n"
        async for change in subscriber.changes(_KEEPALIVE_SECONDS):
            if change is None:
                yield b": still here\n\n"
            else:
                facts = msgspec.json.encode(change.facts).decode()
                yield f"id: {change.number}\nevent: {change.kind}\ndata: {facts}\n\n".encode()
    finally:
        change_stream.unsubscribe(subscriber)


async def health(call: ApiCall) -> Reply:
    """Report the health of the scheduler and of each component."""
    report = await _report(call)
    return Reply(body=report, status=200 if report.status == "ok" else 503)


async def _report(call: ApiCall) -> HealthReport:
    return health_report(await call.services.health(), messages=await _may_read(call))


async def _may_read(call: ApiCall) -> bool:
    """Whether the caller, who may be anonymous, has a role that may read."""
    scheme, _, token = call.headers.get("authorization", "").partition(" ")
    try:
        caller = await call.services.tokens.caller(token.strip() if scheme.lower() == "bearer" else "")
    except (Unauthenticated, Unavailable):
        return False
    return bool(caller.roles & Permission.READ.value)


async def ready(call: ApiCall) -> Reply:
    """Report whether this node is ready to serve requests."""
    report = await _report(call)
    return Reply(body=report, status=200 if report.ready else 503)


async def alive(call: ApiCall) -> Reply:
    """Report whether this process is alive or should be restarted."""
    report = await _report(call)
    return Reply(body=report, status=200 if report.alive else 503)


_HEALTH_DEFAULTS: dict[str, Any] = {
    "method": "GET",
    "permission": Permission.EVERYBODY,
    "answer": HealthReport,
    "example": HEALTH,
    "success": {200: "Healthy.", 503: "A component is not healthy."},
}
ROUTES = (
    ApiRoute(
        method="POST",
        path="/v1/events",
        name="emit_event",
        permission=Permission.OPERATE,
        handle=emit,
        answer=responses.EventDetail,
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
        answer=responses.Page[responses.EventDetail],
        query=EventsQuery,
        example={"items": [EXTERNAL_EVENT], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/events/{id}",
        name="show_event",
        handle=show_event,
        answer=responses.EventDetail,
        error_statuses=(404,),
        example=EXTERNAL_EVENT,
        **READ_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/workers",
        name="list_workers",
        handle=list_workers,
        answer=responses.Page[responses.WorkerDetail],
        example={"items": [WORKER], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/stream",
        name="follow_changes",
        handle=stream,
        answer=None,
        media_type="text/event-stream",
        **READ_DEFAULTS,
    ),
    ApiRoute(path="/v1/health", name="show_health", handle=health, **_HEALTH_DEFAULTS),
    ApiRoute(path="/readyz", name="show_readiness", handle=ready, **_HEALTH_DEFAULTS),
    ApiRoute(path="/livez", name="show_liveness", handle=alive, **_HEALTH_DEFAULTS),
)
