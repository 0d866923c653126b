"""Issued tokens, and their revocation. A caller sees and revokes those of its own tenant."""

from typing import Any

from gnomon.api.requests import CursorName, body_fields, make_full_page, read_cursor
from gnomon.api.route import ApiCall, ApiRoute, PageQuery, Permission, Reply, RequestBody
from gnomon.core.responses.base import Page
from gnomon.core.responses.tokens import TokenDetail, TokensRevoked
from gnomon.errors import FieldError
from gnomon.services.operations.presenters.tokens import token_detail

REVOKE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "oneOf": [{"required": ["token_id"]}, {"required": ["all"]}],
    "properties": {
        "token_id": {
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "description": "The claim `jti` of a token of any issuer, or what `gnomon token inspect` shows as its id.",
        },
        "all": {"const": True, "description": "Revoke every token of the tenant that was issued until now."},
    },
}
_EXAMPLE = {
    "token_id": "tok_019cae6c50607a1b8c2d3e4f5a6b7c8d",
    "subject": "ci",
    "role": "scheduler-viewer",
    "issued_at": "2026-03-02T14:00:00Z",
    "issued_by": "ada",
    "expires_at": "2026-04-01T14:00:00Z",
    "revoked_at": None,
    "revoked_by": "",
}


async def list_tokens(call: ApiCall) -> Reply:
    """List the tokens that were issued or revoked here and have not expired, newest first."""
    query: PageQuery = call.query
    found = await call.services.issued_tokens.page(
        before=await read_cursor(call, CursorName), limit=query.limit, tenant=call.tenant
    )
    return Reply(body=await make_full_page(call, token_detail, found, lambda one: one.token_id))


async def revoke(call: ApiCall) -> Reply:
    """Revoke a token by its id, or all that were issued until now. Every server refuses them within seconds."""
    fields = body_fields(call.body, "token_id", "all")
    tokens, everything = call.services.issued_tokens, fields.flag("all", default=False)
    if everything == ("token_id" in call.body):
        raise FieldError("token_id", call.body.get("token_id"), "name a token, or set all to true: one of them")
    if everything:
        await tokens.revoke_all(actor=call.actor, tenant=call.tenant)
        return Reply(body=TokensRevoked(revoked=True))
    done = await tokens.revoke(fields.text("token_id"), actor=call.actor, tenant=call.tenant)
    return Reply(body=TokensRevoked(revoked=done))


ROUTES = (
    ApiRoute(
        method="GET",
        path="/v1/tokens",
        name="list_tokens",
        permission=Permission.ADMINISTER,
        handle=list_tokens,
        query=PageQuery,
        answer=Page[TokenDetail],
        success={200: "A page of tokens."},
        example={"items": [_EXAMPLE], "next": None},
    ),
    ApiRoute(
        method="POST",
        path="/v1/tokens/revoke",
        name="revoke_tokens",
        permission=Permission.ADMINISTER,
        handle=revoke,
        answer=TokensRevoked,
        success={200: "The tokens are revoked; `revoked` is false if the token was revoked before."},
        body=RequestBody(schema=REVOKE_SCHEMA, example={"token_id": _EXAMPLE["token_id"]}),
        example={"revoked": True},
    ),
)
