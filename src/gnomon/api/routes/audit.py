"""The audit trail: which actor changed which object."""

from functools import partial
from typing import Annotated

from msgspec import Meta, Struct

from gnomon.api.requests import CursorName, concealed_number, make_page, parse_instant, read_cursor, revealed_number
from gnomon.api.route import ApiCall, ApiRoute, Cursor, Instant, Limit, Name, Permission, Reply
from gnomon.core.responses.audit import AuditRecord
from gnomon.core.responses.base import Page
from gnomon.ports.audit import AuditQuery
from gnomon.services.operations.presenters.audit import audit_record

_EXAMPLE = {
    "number": 7,
    "at": "2026-03-02T14:00:00Z",
    "actor": "ada",
    "tenant": "default",
    "action": "pause",
    "kind": "job",
    "name": "report",
    "before": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "after": "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",
    "details": {"revision": 2},
    "seq": 7,
    "prev_hash": "fd61a03af4f77d870fc21e05e7e80678095c92d808cfb3b5c279ee04c74aca13",
    "hash": "a4e624d686e03ed2767c0abd85c14426b0b1157d2ce81d27bb4fe4f6f01d688a",
}


class AuditEntriesQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of audit entries."""

    actor: Annotated[Name | None, Meta(description="Only entries by this actor.")] = None
    action: Annotated[Name | None, Meta(description="Only this action, such as `pause`.")] = None
    kind: Annotated[Name | None, Meta(description="Only changes to this kind of object, such as `job`.")] = None
    name: Annotated[Name | None, Meta(description="Only changes to the object with this name.")] = None
    since: Instant | None = None
    until: Instant | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


async def list_entries(call: ApiCall) -> Reply:
    """List audit entries, newest first."""
    query: AuditEntriesQuery = call.query
    filters = AuditQuery(
        tenant=call.tenant,
        actor=query.actor,
        action=query.action,
        kind=query.kind,
        name=query.name,
        since_at=parse_instant("since", query.since),
        until_at=parse_instant("until", query.until),
        before=await revealed_number(call, await read_cursor(call, CursorName)),
        limit=query.limit,
    )
    found = await call.services.audit.page(filters)
    # Numbers count the entries of all tenants: the cursor does not show them.
    more = await concealed_number(call, found[-1].number) if len(found) == query.limit else None
    return Reply(body=await make_page(call, partial(audit_record, place=call.caller.is_operator), found, more))


ROUTES = (
    ApiRoute(
        method="GET",
        path="/v1/audit",
        name="list_audit_entries",
        permission=Permission.ADMINISTER,
        handle=list_entries,
        query=AuditEntriesQuery,
        answer=Page[AuditRecord],
        success={200: "A page of entries."},
        example={"items": [_EXAMPLE], "next": None},
    ),
)
