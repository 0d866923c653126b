"""Backfills: runs for past planned times that had none."""

from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from gnomon.api.requests import CursorName, CursorNumber, body_fields, make_full_page, read_cursor
from gnomon.api.route import (
    IDEMPOTENCY_KEY,
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
from gnomon.core.jobs.fields import FieldReader
from gnomon.core.responses.backfills import BackfillDetail, BackfillPreview
from gnomon.core.responses.base import Page
from gnomon.services.operations.presenters.backfills import backfill_detail, backfill_preview

_INSTANT = {"type": ["string", "integer"]}
_RANGE: dict[str, Any] = {
    "from": {**_INSTANT, "description": "First planned time to run: an ISO 8601 instant, or milliseconds since 1970."},
    "to": {**_INSTANT, "description": "Last planned time to run."},
    "again": {"type": "boolean", "description": "Also run planned times that already had a run."},
}
PREVIEW_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["from", "to"],
    "properties": _RANGE,
}
START_SCHEMA: dict[str, Any] = {
    **PREVIEW_SCHEMA,
    "properties": {
        **_RANGE,
        "max_parallel": {
            "type": "integer",
            "minimum": 1,
            "maximum": 1000,
            "description": "Maximum number of runs of this backfill at a time; 1 by default.",
        },
    },
}


class BackfillsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of backfills."""

    job: Annotated[Name | None, Meta(description="Only backfills of this job.")] = None
    limit: Limit = 100
    cursor: Cursor | None = None


async def preview(call: ApiCall) -> Reply:
    """List the planned times that a backfill would run, without running them."""
    fields, name = body_fields(call.body, "from", "to", "again"), call.path["name"]
    again = fields.flag("again", default=False)
    found = await call.services.backfills.preview(name, *_bounds(fields), again=again, tenant=call.tenant)
    # In a thread: a long list takes too long to build on the event loop, which the ticker shares.
    return Reply(body=await call.services.compute.run_in_thread(partial(backfill_preview, name, found)))


async def start(call: ApiCall) -> Reply:
    """Run past planned times that had no run, `max_parallel` at a time; once per idempotency key."""
    fields = body_fields(call.body, "from", "to", "again", "max_parallel")
    started = await call.services.backfills.start(
        call.path["name"],
        *_bounds(fields),
        actor=call.actor,
        max_parallel=fields.whole("max_parallel", 1, low=1, high=1000),
        again=fields.flag("again", default=False),
        key=call.key,
        tenant=call.tenant,
    )
    call.services.changed()
    return Reply(body=backfill_detail(started), status=202)


def _bounds(fields: FieldReader) -> tuple[int, int]:
    found = []
    for field in ("from", "to"):
        fields.required(field)
        at = fields.instant(field)
        if at is None:
            raise fields.refused(field, "is missing")
        found.append(at)
    return found[0], found[1]


async def list_backfills(call: ApiCall) -> Reply:
    """List backfills and their progress, newest first."""
    query: BackfillsQuery = call.query
    after = await read_cursor(call, tuple[CursorNumber, CursorName])
    found = await call.services.backfills.page(job=query.job, after=after, limit=query.limit, tenant=call.tenant)
    page = await make_full_page(
        call, backfill_detail, found, lambda one: (one.backfill.created_at, one.backfill.backfill_id)
    )
    return Reply(body=page)


async def show(call: ApiCall) -> Reply:
    """Show a backfill and its progress."""
    return Reply(body=backfill_detail(await call.services.backfills.get(call.path["id"], tenant=call.tenant)))


async def cancel(call: ApiCall) -> Reply:
    """Cancel a backfill: no more of its runs start, active runs continue."""
    done = await call.services.backfills.cancel(call.path["id"], actor=call.actor, tenant=call.tenant)
    call.services.changed()
    return Reply(body=backfill_detail(done))


_BACKFILL = {
    "backfill_id": "bf_1",
    "job": "report",
    "from": "2026-02-01T00:00:00Z",
    "to": "2026-02-28T00:00:00Z",
    "state": "under way",
    "max_parallel": 2,
    "again": False,
    "planned": 20,
    "fired": 4,
    "skipped": 1,
    "under_way": 2,
    "failed": 0,
    "created_at": "2026-03-02T14:00:00Z",
    "actor": "ada",
    "ended_at": None,
}
_REQUESTED = {"from": "2026-02-01T00:00:00Z", "to": "2026-02-28T00:00:00Z", "max_parallel": 2}
_PREVIEWED = {"job": "report", "to_run": ["2026-02-02T14:00:00Z"], "had_a_run": 19}
ROUTES = (
    ApiRoute(
        method="POST",
        path="/v1/jobs/{name}/backfill",
        name="start_backfill",
        permission=Permission.OPERATE,
        handle=start,
        answer=BackfillDetail,
        success={202: "The backfill has started."},
        error_statuses=(404, 409),
        example=_BACKFILL,
        headers=(IDEMPOTENCY_KEY,),
        body=RequestBody(schema=START_SCHEMA, example=_REQUESTED),
    ),
    ApiRoute(
        method="POST",
        path="/v1/jobs/{name}/backfill/preview",
        name="preview_backfill",
        permission=Permission.READ,
        handle=preview,
        answer=BackfillPreview,
        success={200: "The planned times."},
        error_statuses=(404,),
        example=_PREVIEWED,
        body=RequestBody(schema=PREVIEW_SCHEMA, example={"from": _REQUESTED["from"], "to": _REQUESTED["to"]}),
    ),
    ApiRoute(
        path="/v1/backfills",
        name="list_backfills",
        handle=list_backfills,
        query=BackfillsQuery,
        answer=Page[BackfillDetail],
        example={"items": [_BACKFILL], "next": None},
        **READ_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/backfills/{id}",
        name="show_backfill",
        handle=show,
        answer=BackfillDetail,
        error_statuses=(404,),
        example=_BACKFILL,
        **READ_DEFAULTS,
    ),
    ApiRoute(
        method="POST",
        path="/v1/backfills/{id}/cancel",
        name="cancel_backfill",
        permission=Permission.OPERATE,
        handle=cancel,
        answer=BackfillDetail,
        success={200: "The backfill is cancelled."},
        error_statuses=(404,),
        example={**_BACKFILL, "state": "cancelled"},
    ),
)
