"""The policy of tasks: its versions, the file in force, and what another file would change.

There is one policy for all tenants, so only callers of the operator's tenant see or change it.
"""

from typing import Annotated, Any

from msgspec import Meta, Struct

from gnomon.api.requests import CursorName, CursorNumber, body_fields, make_full_page, make_page, read_cursor
from gnomon.api.route import ApiCall, ApiRoute, PageQuery, Permission, Reply, RequestBody
from gnomon.core.jobs.fields import FieldReader, printable
from gnomon.core.policy.version import LARGEST_POLICY, PolicyVersion
from gnomon.core.responses.base import Page
from gnomon.core.responses.policy import (
    BudgetDetail,
    JobPolicy,
    PolicyApplied,
    PolicyDetail,
    PolicyDifference,
    PolicyVersionDetail,
    TaskDecisions,
)
from gnomon.core.responses.policy_replay import PolicyReplayed
from gnomon.errors import Forbidden, NotFound
from gnomon.services.operations.presenters.policy import (
    budget_detail,
    job_policy,
    policy_applied,
    policy_detail,
    policy_difference,
    policy_version_detail,
    task_decisions,
)
from gnomon.services.operations.presenters.policy_replay import policy_replayed

_BODY: dict[str, Any] = {
    "type": "string",
    "maxLength": LARGEST_POLICY,
    "description": "The text of a policy file, in YAML.",
}
APPLY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["body"],
    "properties": {
        "body": _BODY,
        "expected": {
            "type": "integer",
            "minimum": 0,
            "description": "The version that the file was compared with, 0 for none: refused if another is in force.",
        },
    },
}
DIFF_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["body"],
    "properties": {"body": _BODY},
}
MOST_VERSIONS = 2**31 - 1
#: The position behind a window of a budget: its name has the values of several facts.
CursorWindow = Annotated[str, Meta(max_length=4_000)]
#: How many tasks of the history one request may look at.
_MOST_REPLAYED = 10_000
_REPLAYED = 5_000
_LONGEST_POSITION = 300
REPLAY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["body", "since"],
    "properties": {
        "body": _BODY,
        "since": {
            "type": ["integer", "string"],
            "maxLength": 100,
            "description": "From when on tasks were created: an instant, or milliseconds since 1970.",
        },
        "after": {
            "type": "string",
            "maxLength": _LONGEST_POSITION,
            "description": "The place after which to continue, from the part before.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": _MOST_REPLAYED,
            "description": f"How many tasks to look at; {_REPLAYED} by default.",
        },
    },
}


class PolicyQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the policy."""

    version: (
        Annotated[int, Meta(ge=1, le=MOST_VERSIONS, description="Another version than the one in force.")] | None
    ) = None


async def show(call: ApiCall) -> Reply:
    """Show the policy in force, or another version, with its file."""
    refuse_tenants(call)
    query: PolicyQuery = call.query
    newest = await call.services.policy.in_force()
    if newest is None:
        raise NotFound("policy", "in force")
    found = newest if query.version is None else await call.services.policy.get(query.version)
    return Reply(body=policy_detail(found, newest=newest.version))


async def list_versions(call: ApiCall) -> Reply:
    """List the versions of the policy, newest first."""
    refuse_tenants(call)
    query: PageQuery = call.query
    policy = call.services.policy
    newest = await policy.in_force()
    found = await policy.page(before=await read_cursor(call, CursorNumber), limit=query.limit)

    def shown(one: PolicyVersion) -> PolicyVersionDetail:
        return policy_version_detail(one, newest=0 if newest is None else newest.version)

    return Reply(body=await make_full_page(call, shown, found, lambda one: one.version))


async def list_budgets(call: ApiCall) -> Reply:
    """List how much is left of the budgets of the policy in their current windows: the used ones first."""
    refuse_tenants(call)
    query: PageQuery = call.query
    after = await read_cursor(call, CursorWindow)
    found = await call.services.policy.budgets(after=after or "", limit=query.limit)
    return Reply(body=await make_page(call, budget_detail, found.states, found.after))


async def apply(call: ApiCall) -> Reply:
    """Put a policy file in force. The same file again changes nothing."""
    refuse_tenants(call)
    fields = body_fields(call.body, "body", "expected")
    expected = fields.whole("expected", 0, low=0, high=MOST_VERSIONS) if "expected" in fields else None
    made = await call.services.policy.apply(read_policy_body(fields), actor=call.actor, expected=expected)
    call.services.changed()
    return Reply(body=policy_applied(made))


async def diff(call: ApiCall) -> Reply:
    """Compare a policy file with the one in force, rule by rule, without changing anything."""
    refuse_tenants(call)
    version, changes = await call.services.policy.diff(read_policy_body(body_fields(call.body, "body")))
    return Reply(body=policy_difference(version, changes))


async def replay(call: ApiCall) -> Reply:
    """Judge the next tasks of the history by a policy file; nothing is written. Each request answers for one part."""
    refuse_tenants(call)
    fields = body_fields(call.body, "body", "since", "after", "limit")
    fields.required("since")
    since = fields.instant("since")
    part = await call.services.policy.replay(
        read_policy_body(fields),
        since=0 if since is None else since,
        after=printable("after", fields["after"], longest=_LONGEST_POSITION) if "after" in fields else "",
        limit=fields.whole("limit", _REPLAYED, low=1, high=_MOST_REPLAYED),
    )
    return Reply(body=await call.services.compute.run_in_thread(lambda: policy_replayed(part)))


async def explain(call: ApiCall) -> Reply:
    """Show what the policy would decide about the steps of a job, if it started now; nothing starts."""
    fields = body_fields(call.body, "input", "body")
    name, given, body = call.path["name"], None, None
    if "input" in fields:
        given = fields["input"]
        if not isinstance(given, dict):
            raise fields.refused("input", "must be a mapping")
    if "body" in fields:
        refuse_tenants(call)
        body = read_policy_body(fields)
    found = await call.services.policy.explain(name, given=given, body=body, tenant=call.tenant)
    return Reply(body=job_policy(name, found))


async def decisions(call: ApiCall) -> Reply:
    """List the decisions of the policy about the tasks of an execution, task by task."""
    query: PageQuery = call.query
    after = await read_cursor(call, CursorName)
    found = await call.services.policy.decisions(
        call.path["id"], after=after or "", limit=query.limit, tenant=call.tenant
    )
    return Reply(body=await make_full_page(call, task_decisions, found, lambda one: one.task_id))


def read_policy_body(fields: FieldReader) -> str:
    """The text of the policy file in a body."""
    text = fields.required("body")
    if not isinstance(text, str):
        raise fields.refused("body", "must be the text of a policy file")
    return text


def refuse_tenants(call: ApiCall) -> None:
    """Raise Forbidden for callers of any tenant but that of the operator."""
    if not call.caller.is_operator:
        raise Forbidden("the policy is one for all tenants: only callers of the tenant default see and change it")


FILE_EXAMPLE = (
    'default_decision: deny\nrules:\n  - id: reports\n    match: {topics: ["reports.*"]}\n    decision: allow\n'
)
VERSION_EXAMPLE = {
    "version": 3,
    "digest": "5f0b2c1d7f0f6b7c6a0a4ad6b5bd0a8f9a6c2c6b4c0f3f5b6d5a1e7a3d0c9b8a",
    "author": "ada",
    "applied_at": "2026-03-02T14:00:00Z",
    "in_force": True,
}
EXPLAIN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "input": {"type": "object", "description": "The input of the run, instead of that of the job."},
        "body": {**_BODY, "description": "The text of another policy file than the one in force."},
    },
}
_DECIDED: dict[str, Any] = {
    "task_id": "task_1",
    "step": "main",
    "item": None,
    "decisions": [
        {
            "decision": "allow",
            "rule": "reports",
            "version": 3,
            "reason": "",
            "code": None,
            "constraints": None,
            "ruled_by": "policy",
            "digest": VERSION_EXAMPLE["digest"],
            "at": "2026-03-02T14:00:00Z",
            "last_at": "2026-03-02T14:00:00Z",
            "count": 1,
        }
    ],
}
_BUDGET: dict[str, Any] = {
    "budget": "transfers-per-hour",
    "scope": "tenant default, job pay",
    "meter": "tasks",
    "limit": 20,
    "per": "1h",
    "over": "throttle",
    "starts_at": "2026-03-02T14:00:00Z",
    "ends_at": "2026-03-02T15:00:00Z",
    "spent": 12,
    "reserved": 3,
    "left": 5,
}
_REPLAYED_EXAMPLE: dict[str, Any] = {
    "tasks": 31,
    "unchanged": 30,
    "changed": 1,
    "not_known": 0,
    "not_asked": 2,
    "changes": [
        {
            "tenant": "default",
            "job": "cleanup",
            "before": {"decision": "allow", "rule": "everything", "constraints": None},
            "after": {"decision": "deny", "rule": "default", "constraints": None},
            "tasks": 1,
            "execution_id": "run_1",
            "step": "main",
        }
    ],
    "left_out": 0,
    "rules": [{"rule": "reports", "tasks": 30}, {"rule": "default", "tasks": 1}],
    "unknown": [],
    "after": None,
}
ROUTES = (
    ApiRoute(
        method="GET",
        path="/v1/policy",
        name="show_policy",
        permission=Permission.READ,
        handle=show,
        answer=PolicyDetail,
        query=PolicyQuery,
        success={200: "The policy."},
        error_statuses=(404,),
        example={**VERSION_EXAMPLE, "body": FILE_EXAMPLE},
    ),
    ApiRoute(
        method="GET",
        path="/v1/policy/versions",
        name="list_policy_versions",
        permission=Permission.READ,
        handle=list_versions,
        answer=Page[PolicyVersionDetail],
        query=PageQuery,
        success={200: "A page of versions."},
        example={"items": [VERSION_EXAMPLE], "next": None},
    ),
    ApiRoute(
        method="GET",
        path="/v1/policy/budgets",
        name="list_budgets",
        permission=Permission.READ,
        handle=list_budgets,
        answer=Page[BudgetDetail],
        query=PageQuery,
        success={200: "A page of budgets."},
        example={"items": [_BUDGET], "next": None},
    ),
    ApiRoute(
        method="POST",
        path="/v1/policy",
        name="apply_policy",
        permission=Permission.ADMINISTER,
        handle=apply,
        answer=PolicyApplied,
        success={200: "The policy is in force."},
        error_statuses=(412,),
        body=RequestBody(schema=APPLY_SCHEMA, example={"body": FILE_EXAMPLE}, many=True),
        example={**VERSION_EXAMPLE, "rules": 1, "default_decision": "deny"},
    ),
    ApiRoute(
        method="POST",
        path="/v1/policy/diff",
        name="diff_policy",
        permission=Permission.READ,
        handle=diff,
        answer=PolicyDifference,
        success={200: "The changes that the file would make."},
        body=RequestBody(schema=DIFF_SCHEMA, example={"body": FILE_EXAMPLE}, many=True),
        example={
            "version": 3,
            "changes": [{"rule": "reports", "change": "added", "before": None, "after": "allow", "fields": []}],
        },
    ),
    ApiRoute(
        method="POST",
        path="/v1/policy/replay",
        name="replay_policy",
        permission=Permission.READ,
        handle=replay,
        answer=PolicyReplayed,
        success={200: "The decisions about this part of the history."},
        body=RequestBody(
            schema=REPLAY_SCHEMA,
            example={"body": FILE_EXAMPLE, "since": "2026-02-01T00:00:00Z", "limit": 5000},
            many=True,
        ),
        example=_REPLAYED_EXAMPLE,
    ),
    ApiRoute(
        method="GET",
        path="/v1/executions/{id}/decisions",
        name="list_decisions",
        permission=Permission.READ,
        handle=decisions,
        answer=Page[TaskDecisions],
        query=PageQuery,
        success={200: "A page of tasks with the decisions about them."},
        error_statuses=(404,),
        example={"items": [_DECIDED], "next": None},
    ),
    ApiRoute(
        method="POST",
        path="/v1/jobs/{name}/policy",
        name="explain_policy",
        permission=Permission.READ,
        handle=explain,
        answer=JobPolicy,
        success={200: "The decisions."},
        error_statuses=(404,),
        body=RequestBody(schema=EXPLAIN_SCHEMA, example={"input": {"day": "monday"}}, many=True, required=False),
        example={
            "job": "report",
            "version": 3,
            "steps": [
                {
                    "step": "main",
                    "decision": "allow",
                    "rule": "reports",
                    "reason": "",
                    "constraints": None,
                    "rules": ["reports"],
                }
            ],
        },
    ),
)
