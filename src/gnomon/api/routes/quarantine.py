"""The quarantine: outputs that are held back, a look at them, their release and their deletion."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from gnomon.api.requests import CursorName, CursorNumber, body_fields, make_page, read_cursor
from gnomon.api.route import (
    ApiCall,
    ApiRoute,
    Cursor,
    Limit,
    Permission,
    Reply,
    RequestBody,
    model_of,
)
from gnomon.core.output_policy.ruling import HeldStatus
from gnomon.core.responses.base import Page
from gnomon.core.responses.quarantine import HeldOutputDetail, HeldOutputSummary
from gnomon.services.operations.presenters.quarantine import held_output_detail, held_output_summary


def _schema(*, required: bool) -> dict[str, Any]:
    reason = {"type": "string", "maxLength": 500, "description": "The reason, for the record."}
    schema: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": {"reason": reason}}
    return {**schema, "required": ["reason"]} if required else schema


RELEASE_SCHEMA, DISCARD_SCHEMA = _schema(required=True), _schema(required=False)


class HeldOutputsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of outputs that are held back."""

    status: Annotated[HeldStatus | None, Meta(description="Only outputs with this status.")] = None
    limit: Limit = 100
    cursor: Cursor | None = None


async def list_outputs(call: ApiCall) -> Reply:
    """List outputs that are or were held back, newest first, without their contents."""
    query: HeldOutputsQuery = call.query
    found = await call.services.quarantine.page(
        status=query.status,
        after=await read_cursor(call, tuple[CursorNumber, CursorName]),
        limit=query.limit,
        tenant=call.tenant,
    )
    last = (found[-1].ruling.ruled_at, found[-1].ruling.task_id) if len(found) == query.limit else None
    return Reply(body=await make_page(call, held_output_summary, found, last))


async def look(call: ApiCall) -> Reply:
    """Show an output that is held back, with its content. The audit trail records who has looked."""
    found = await call.services.quarantine.look(call.path["id"], actor=call.actor, tenant=call.tenant)
    return Reply(body=held_output_detail(found))


async def release(call: ApiCall) -> Reply:
    """Store an output as that of its task, and let the execution go on. The same content passes from now on."""
    fields = body_fields(call.body, "reason")
    after = await call.services.quarantine.release(
        call.path["id"],
        actor=call.actor,
        reason=fields.text("reason"),
        model=model_of(call.headers) is not None,
        tenant=call.tenant,
    )
    call.services.changed()
    return Reply(body=held_output_detail(after))


async def discard(call: ApiCall) -> Reply:
    """Delete an output that is held back. Its task and its execution stay as they ended."""
    fields = body_fields(call.body, "reason")
    after = await call.services.quarantine.discard(
        call.path["id"],
        actor=call.actor,
        reason=fields.text("reason", ""),
        model=model_of(call.headers) is not None,
        tenant=call.tenant,
    )
    return Reply(body=held_output_detail(after))


_HELD: dict[str, Any] = {
    "task_id": "task_1",
    "execution_id": "run_1",
    "job": "report",
    "step": "main",
    "status": "held",
    "phase": "inline",
    "rule": "no-keys-out",
    "version": 3,
    "reason": "looks like a credential",
    "findings": [{"scanner": "secret", "pattern": "aws_key_id", "severity": "critical", "offset": 8, "length": 20}],
    "content_digest": "5f0b2c1d7f0f6b7c6a0a4ad6b5bd0a8f9a6c2c6b4c0f3f5b6d5a1e7a3d0c9b8a",
    "size": 30,
    "held_at": "2026-03-02T14:00:00Z",
    "decided_by": None,
    "decided_at": None,
    "decided_why": "",
    "readers": [],
}
_DECIDED = {**_HELD, "decided_by": "ada", "decided_at": "2026-03-02T15:00:00Z", "content": None, "continued": False}

_WHY = "the example key of the documentation"

ROUTES = (
    ApiRoute(
        method="GET",
        path="/v1/quarantine",
        name="list_held_outputs",
        permission=Permission.ADMINISTER,
        handle=list_outputs,
        query=HeldOutputsQuery,
        answer=Page[HeldOutputSummary],
        success={200: "A page of outputs."},
        example={"items": [_HELD], "next": None},
    ),
    ApiRoute(
        method="GET",
        path="/v1/quarantine/{id}",
        name="show_held_output",
        permission=Permission.ADMINISTER,
        handle=look,
        error_statuses=(404,),
        answer=HeldOutputDetail,
        success={200: "The output."},
        example={**_HELD, "content": {"found": "the text"}, "continued": False},
    ),
    ApiRoute(
        method="POST",
        path="/v1/quarantine/{id}/release",
        name="release_held_output",
        permission=Permission.ADMINISTER,
        handle=release,
        error_statuses=(404, 409),
        answer=HeldOutputDetail,
        success={200: "The output is stored."},
        body=RequestBody(schema=RELEASE_SCHEMA, example={"reason": _WHY}),
        example={
            **_DECIDED,
            "status": "released",
            "decided_why": _WHY,
            "continued": True,
        },
    ),
    ApiRoute(
        method="POST",
        path="/v1/quarantine/{id}/discard",
        name="discard_held_output",
        permission=Permission.ADMINISTER,
        handle=discard,
        error_statuses=(404, 409),
        answer=HeldOutputDetail,
        success={200: "The content is deleted."},
        body=RequestBody(schema=DISCARD_SCHEMA, example={"reason": "the key was revoked"}),
        example={**_DECIDED, "status": "discarded", "decided_why": "the key was revoked"},
    ),
)
