"""The shadow of the policy: a file that is judged beside the policy in force, and decides nothing.

There is one for all tenants, so only callers of the operator's tenant see or change it.
"""

from typing import Any

from msgspec import Struct

from gnomon.api.requests import body_fields
from gnomon.api.route import ApiCall, ApiRoute, Limit, Permission, Reply, RequestBody
from gnomon.api.routes.policy import (
    DIFF_SCHEMA,
    FILE_EXAMPLE,
    MOST_VERSIONS,
    VERSION_EXAMPLE,
    read_policy_body,
    refuse_tenants,
)
from gnomon.core.responses.policy import PolicyApplied
from gnomon.core.responses.policy_shadow import PolicyShadowDetail, PolicyShadowReport
from gnomon.services.operations.presenters.policy import policy_applied
from gnomon.services.operations.presenters.policy_shadow import policy_shadow_detail, policy_shadow_report

PROMOTE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "expected": {
            "type": "integer",
            "minimum": 0,
            "description": "The version that is in force, 0 for none: refused if another one is.",
        },
    },
}
STOP_SCHEMA: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": {}}


class ShadowQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the shadow."""

    limit: Limit = 100


async def show(call: ApiCall) -> Reply:
    """Show the shadow of the policy, and the most frequent ways in which its rulings differ from those in force."""
    refuse_tenants(call)
    query: ShadowQuery = call.query
    return Reply(body=policy_shadow_report(await call.services.policy.shadow(limit=query.limit)))


async def start(call: ApiCall) -> Reply:
    """Judge by a policy file beside the one in force, from now on. It decides nothing; another shadow ends."""
    refuse_tenants(call)
    made = await call.services.policy.start_shadow(read_policy_body(body_fields(call.body, "body")), actor=call.actor)
    call.services.changed()
    return Reply(body=policy_shadow_detail(made))


async def stop(call: ApiCall) -> Reply:
    """End the shadow. Its counts stay until another one starts."""
    refuse_tenants(call)
    body_fields(call.body)
    ended = await call.services.policy.stop_shadow(actor=call.actor)
    call.services.changed()
    return Reply(body=policy_shadow_detail(ended))


async def promote(call: ApiCall) -> Reply:
    """End the shadow, and put its file in force as the next version."""
    refuse_tenants(call)
    fields = body_fields(call.body, "expected")
    expected = fields.whole("expected", 0, low=0, high=MOST_VERSIONS) if "expected" in fields else None
    made = await call.services.policy.promote(actor=call.actor, expected=expected)
    call.services.changed()
    return Reply(body=policy_applied(made))


_SHADOW: dict[str, Any] = {
    "number": 2,
    "digest": VERSION_EXAMPLE["digest"],
    "author": "ada",
    "started_at": "2026-03-02T14:00:00Z",
    "ended_at": None,
    "same": 2102,
    "different": 31,
    "not_judged": 0,
    "left_out": 0,
}
_DIFFERENCE: dict[str, Any] = {
    "tenant": "default",
    "job": "cleanup",
    "before": "allow",
    "before_rule": "everything",
    "after": "deny",
    "after_rule": "no-destruction",
    "count": 31,
    "first_at": "2026-03-02T14:00:00Z",
    "last_at": "2026-03-02T15:00:00Z",
    "execution_id": "run_1",
    "step": "main",
}
ROUTES = (
    ApiRoute(
        method="GET",
        path="/v1/policy/shadow",
        name="show_policy_shadow",
        permission=Permission.READ,
        handle=show,
        answer=PolicyShadowReport,
        query=ShadowQuery,
        success={200: "The shadow, and its differences."},
        error_statuses=(404,),
        example={**_SHADOW, "body": FILE_EXAMPLE, "differences": [_DIFFERENCE]},
    ),
    ApiRoute(
        method="POST",
        path="/v1/policy/shadow",
        name="start_policy_shadow",
        permission=Permission.ADMINISTER,
        handle=start,
        answer=PolicyShadowDetail,
        success={200: "The shadow runs."},
        body=RequestBody(schema=DIFF_SCHEMA, example={"body": FILE_EXAMPLE}, many=True),
        example=_SHADOW,
    ),
    ApiRoute(
        method="POST",
        path="/v1/policy/shadow/stop",
        name="stop_policy_shadow",
        permission=Permission.ADMINISTER,
        handle=stop,
        answer=PolicyShadowDetail,
        success={200: "The shadow has ended."},
        error_statuses=(404,),
        body=RequestBody(schema=STOP_SCHEMA, example={}, required=False),
        example={**_SHADOW, "ended_at": "2026-03-03T14:00:00Z"},
    ),
    ApiRoute(
        method="POST",
        path="/v1/policy/shadow/promote",
        name="promote_policy_shadow",
        permission=Permission.ADMINISTER,
        handle=promote,
        answer=PolicyApplied,
        success={200: "The file of the shadow is in force."},
        error_statuses=(404, 412),
        body=RequestBody(schema=PROMOTE_SCHEMA, example={"expected": 0}, required=False),
        example={**VERSION_EXAMPLE, "rules": 1, "default_decision": "deny"},
    ),
)
