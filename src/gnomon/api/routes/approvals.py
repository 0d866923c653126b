"""Approvals: what waits for the consent of people, their votes, and overrides."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from gnomon.api.requests import CursorName, body_fields, make_full_page, read_cursor
from gnomon.api.route import (
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
    model_of,
    short_roles,
)
from gnomon.core.approvals.model import ApprovalKind, ApprovalStatus, VoteKind
from gnomon.core.approvals.terms import Voter
from gnomon.core.responses.approvals import ApprovalDetail, ApprovalSummary
from gnomon.core.responses.base import Page
from gnomon.services.operations.presenters.approvals import approval_detail, approval_summary

_REASON_SCHEMA = {"type": "string", "maxLength": 500}
ASK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["job"],
    "properties": {
        "job": {"type": "string", "minLength": 1, "maxLength": 200, "description": "The job, or a workflow."},
        "reason": {**_REASON_SCHEMA, "description": "Why its commands should run."},
    },
}
VOTE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["digest"],
    "properties": {
        "digest": {
            "type": "string",
            "pattern": "^[0-9a-f]{64}$",
            "description": "The digest of the approval as the voter saw it; 409 if it is about something else by now.",
        },
        "reason": {**_REASON_SCHEMA, "description": "Why. An override needs a reason."},
    },
}


class ApprovalsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of approvals."""

    status: Annotated[ApprovalStatus | None, Meta(description="Only approvals with this status.")] = None
    kind: Annotated[ApprovalKind | None, Meta(description="Only approvals of this kind.")] = None
    job: Annotated[Name | None, Meta(description="Only approvals of this job.")] = None
    limit: Limit = 100
    cursor: Cursor | None = None


async def list_approvals(call: ApiCall) -> Reply:
    """List approvals, newest first."""
    query: ApprovalsQuery = call.query
    found = await call.services.approvals.page(
        status=query.status,
        kind=query.kind,
        job=query.job,
        before=await read_cursor(call, CursorName),
        limit=query.limit,
        tenant=call.tenant,
    )
    return Reply(body=await make_full_page(call, approval_summary, found, lambda one: one.approval_id))


async def show(call: ApiCall) -> Reply:
    """Show an approval, with the input of its task, or with its commands."""
    return Reply(body=approval_detail(await call.services.approvals.get(call.path["id"], tenant=call.tenant)))


async def ask(call: ApiCall) -> Reply:
    """Ask for an approval of the commands of a job as they are now. A changed command has none."""
    fields = body_fields(call.body, "job", "reason")
    found = await call.services.approvals.ask(
        fields.name("job"), actor=call.actor, reason=fields.text("reason", ""), tenant=call.tenant
    )
    return Reply(body=approval_detail(found))


async def revoke(call: ApiCall) -> Reply:
    """Revoke an approval of commands: they do not run any more."""
    return Reply(
        body=approval_detail(
            await call.services.approvals.revoke(call.path["id"], actor=call.actor, tenant=call.tenant)
        )
    )


async def approve(call: ApiCall) -> Reply:
    """Vote for a task or for commands that wait for an approval. With enough votes they may run."""
    return await _vote(call, VoteKind.APPROVE)


async def reject(call: ApiCall) -> Reply:
    """Vote against a task or commands that wait for an approval. A task ends, whoever has approved it before."""
    return await _vote(call, VoteKind.REJECT)


async def override(call: ApiCall) -> Reply:
    """Let a task run without its approval: for members of the groups in policy.break_glass."""
    return await _vote(call, VoteKind.OVERRIDE)


async def _vote(call: ApiCall, kind: VoteKind) -> Reply:
    fields = body_fields(call.body, "digest", "reason")
    caller = call.caller
    voter = Voter(name=caller.subject, roles=frozenset(short_roles(caller)), groups=caller.groups)
    after = await call.services.approvals.vote(
        call.path["id"],
        kind,
        voter,
        digest=fields.text("digest"),
        reason=fields.text("reason", ""),
        model=model_of(call.headers) is not None,
        tenant=call.tenant,
    )
    call.services.changed()
    return Reply(body=approval_detail(after))


_DIGEST = "5f0b2c1d7f0f6b7c6a0a4ad6b5bd0a8f9a6c2c6b4c0f3f5b6d5a1e7a3d0c9b8a"
_WAITING: dict[str, Any] = {
    "approval_id": "apr_019c0c2b50001f0b2c1d7f0f6b7c6a0a",
    "kind": "task",
    "status": "waiting",
    "job": "pay",
    "digest": _DIGEST,
    "reason": "money moves only with two signatures",
    "execution_id": "run_1",
    "task_id": "task_1",
    "step": "main",
    "item": None,
    "items": None,
    "rule": "payments",
    "version": 3,
    "needs": {
        "roles": [],
        "groups": ["finance"],
        "voters": [],
        "quorum": 2,
        "self_approval": False,
        "text": "2 persons in finance within 24h",
    },
    "votes": [{"voter": "ada", "vote": "approve", "at": "2026-03-02T14:05:00Z", "reason": ""}],
    "asked_at": "2026-03-02T14:00:00Z",
    "expires_at": "2026-03-03T14:00:00Z",
    "decided_by": None,
    "decided_at": None,
    "overridden": False,
    "note": None,
}
_SHOWN = {**_WAITING, "constraints": None, "input": {"amount": 5000}, "commands": None}
_OF_COMMANDS: dict[str, Any] = {
    **_SHOWN,
    **dict.fromkeys(("execution_id", "task_id", "step", "rule", "version", "asked_at", "expires_at", "input")),
    "approval_id": "apr_019c0c2b60001f0b2c1d7f0f6b7c6a0a",
    "kind": "command",
    "job": "publish",
    "reason": "it only pushes the report",
    "needs": {
        "roles": ["admin"],
        "groups": [],
        "voters": [],
        "quorum": 1,
        "self_approval": True,
        "text": "1 person with the role admin",
    },
    "votes": [],
    "commands": {"main": "git push origin report"},
}
_REVOKED = {
    **_OF_COMMANDS,
    "status": "revoked",
    "votes": [{"voter": "ada", "vote": "approve", "at": "2026-03-02T14:05:00Z", "reason": ""}],
    "decided_by": "ada",
    "decided_at": "2026-03-02T14:05:00Z",
}


def _decided(status: str, vote: str, reason: str = "") -> dict[str, Any]:
    votes = [*_WAITING["votes"], {"voter": "bob", "vote": vote, "at": "2026-03-02T14:10:00Z", "reason": reason}]
    return {
        **_SHOWN,
        "status": status,
        "votes": votes,
        "decided_by": "bob",
        "decided_at": "2026-03-02T14:10:00Z",
        "overridden": vote == "override",
    }


def _vote_route(name: str, verb: str, example: dict[str, Any], about: str, *, reason: str | None = None) -> ApiRoute:
    handlers = {"approve": approve, "reject": reject, "override": override}
    body = {"digest": _DIGEST} if reason is None else {"digest": _DIGEST, "reason": reason}
    return ApiRoute(
        method="POST",
        path=f"/v1/approvals/{{id}}/{verb}",
        name=name,
        permission=Permission.OPERATE,
        handle=handlers[verb],
        answer=ApprovalDetail,
        success={200: about},
        error_statuses=(404, 409),
        body=RequestBody(schema=VOTE_SCHEMA, example=body),
        example=example,
    )


ROUTES = (
    ApiRoute(
        path="/v1/approvals",
        name="list_approvals",
        handle=list_approvals,
        query=ApprovalsQuery,
        answer=Page[ApprovalSummary],
        example={"items": [_WAITING], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/approvals/{id}",
        name="show_approval",
        handle=show,
        error_statuses=(404,),
        answer=ApprovalDetail,
        example=_SHOWN,
        **READ_DEFAULTS,
    ),
    ApiRoute(
        method="POST",
        path="/v1/approvals",
        name="ask_for_approval",
        permission=Permission.OPERATE,
        handle=ask,
        answer=ApprovalDetail,
        success={200: "The approval that waits for votes, or that counts already."},
        error_statuses=(404, 409),
        body=RequestBody(schema=ASK_SCHEMA, example={"job": "publish", "reason": "it only pushes the report"}),
        example=_OF_COMMANDS,
    ),
    _vote_route("approve", "approve", _decided("approved", "approve"), "The vote counts."),
    _vote_route("reject", "reject", _decided("rejected", "reject", "wrong account"), "The vote counts."),
    ApiRoute(
        method="POST",
        path="/v1/approvals/{id}/revoke",
        name="revoke_approval",
        permission=Permission.ADMINISTER,
        handle=revoke,
        answer=ApprovalDetail,
        success={200: "The commands do not run any more."},
        error_statuses=(404, 409),
        example=_REVOKED,
    ),
    _vote_route(
        "override_approval",
        "override",
        _decided("approved", "override", "the bank closes at five"),
        "The task goes on.",
        reason="the bank closes at five",
    ),
)
