"""Events, workers, the stream of changes, and how the scheduler is."""

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

#: How long a stream may be silent before it says that it is still there.
_KEEPALIVE_SECONDS = 15.0
EMIT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,127}$", "description": "What happened."},
        "body": {"description": "What is to be known about it; at most 64 KiB as JSON."},
        "key": {"type": "string", "minLength": 1, "maxLength": 255, "description": "Instead of an Idempotency-Key."},
    },
}


class EventsAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events to list."""

    name: Annotated[Name | None, Meta(description="Only those of this name.")] = None
    limit: Limit = 100
    cursor: Cursor | None = None


async def emit(call: ApiCall) -> Reply:
    """Say that something happened, and start the jobs that listen to it."""
    said = body_fields(call.body, "name", "body", "key")
    key = said.text("key") if "key" in said else call.key
    body, services = call.body.get("body"), call.services
    done = await services.events.emit(said.name("name"), body, actor=call.actor, key=key, tenant=call.tenant)
    services.changed()
    return Reply(body=presenters.event_detail(done), status=201)


async def list_events(call: ApiCall) -> Reply:
    """List events, the newest first, each with what became of it."""
    asked: EventsAsked = call.query
    after = read_cursor(call, tuple[int, str])
    found = await call.services.events.page(name=asked.name, after=after, limit=asked.limit, tenant=call.tenant)
    last = found[-1].event if len(found) == asked.limit else None
    more = None if last is None else (last.emitted_at, last.event_id)
    return Reply(body=make_page(call, [presenters.event_detail(one) for one in found], more))


async def show_event(call: ApiCall) -> Reply:
    """Show an event, and what became of it for every job that listens."""
    return Reply(body=presenters.event_detail(await call.services.events.get(call.path["id"], tenant=call.tenant)))


async def list_workers(call: ApiCall) -> Reply:
    """List the workers that are alive, and the functions they know."""
    found = await call.services.workers.alive()
    return Reply(body=responses.Page(items=[presenters.worker_detail(card) for card in found]))


async def stream(call: ApiCall) -> Reply:
    """Follow what changes, as server-sent events: ticks, executions, tasks and dead letters."""
    change_stream = call.services.change_stream
    change_stream.reject_if_full()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Reply(stream=_event_stream(change_stream, call.tenant), headers=headers)


async def _event_stream(change_stream: ChangeStream, tenant: str) -> AsyncIterator[bytes]:
    # Not before somebody takes something in: of who has gone by then nobody would be told, and their place be kept.
    listener = change_stream.subscribe(tenant)
    try:
        yield b": listening\n\n"
        async for change in listener.changes(_KEEPALIVE_SECONDS):
            if change is None:
                yield b": still here\n\n"
            else:
                facts = msgspec.json.encode(change.facts).decode()
                yield f"id: {change.number}\nevent: {change.kind}\ndata: {facts}\n\n".encode()
    finally:
        change_stream.unsubscribe(listener)


async def health(call: ApiCall) -> Reply:
    """Tell how the scheduler is, part by part."""
    report = await _report(call)
    return Reply(body=report, status=200 if report.status == "ok" else 503)


async def _report(call: ApiCall) -> HealthReport:
    return health_report(await call.services.health(), messages=await _may_read(call))


async def _may_read(call: ApiCall) -> bool:
    """Whether the caller, who need not be anybody, may look at everything else, too."""
    scheme, _, token = call.headers.get("authorization", "").partition(" ")
    try:
        caller = await call.services.tokens.caller(token.strip() if scheme.lower() == "bearer" else "")
    except (Unauthenticated, Unavailable):
        return False
    return bool(caller.roles & Permission.READ.value)


async def ready(call: ApiCall) -> Reply:
    """Tell whether this node can be worked with."""
    report = await _report(call)
    return Reply(body=report, status=200 if report.ready else 503)


async def alive(call: ApiCall) -> Reply:
    """Tell whether this process is worth keeping."""
    report = await _report(call)
    return Reply(body=report, status=200 if report.alive else 503)


_WELL: dict[str, Any] = {
    "method": "GET",
    "permission": Permission.EVERYBODY,
    "answer": HealthReport,
    "example": HEALTH,
    "success": {200: "All is well.", 503: "Some part is not."},
}
ROUTES = (
    ApiRoute(
        method="POST",
        path="/v1/events",
        name="emit_event",
        permission=Permission.OPERATE,
        handle=emit,
        answer=responses.EventDetail,
        success={201: "It is kept."},
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
        query=EventsAsked,
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
    ApiRoute(path="/v1/health", name="show_health", handle=health, **_WELL),
    ApiRoute(path="/readyz", name="show_readiness", handle=ready, **_WELL),
    ApiRoute(path="/livez", name="show_liveness", handle=alive, **_WELL),
)
