"""Dead letters: list and group them, replay and resolve one or many."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from gnomon.api.examples import DEAD_LETTER, STARTED
from gnomon.api.requests import (
    CursorName,
    CursorNumber,
    body_fields,
    make_page,
    parse_instant,
    read_cursor,
    refuse_other_filters,
)
from gnomon.api.route import (
    IDEMPOTENCY_KEY,
    LIST_DEFAULTS,
    READ_DEFAULTS,
    ApiCall,
    ApiRoute,
    Cursor,
    Instant,
    Limit,
    Name,
    Permission,
    Prefix,
    Reply,
    RequestBody,
)
from gnomon.core.jobs.fields import printable, schedule_name
from gnomon.core.model import LONGEST_ERROR_LINE
from gnomon.core.responses.base import Page
from gnomon.core.responses.dead_letters import (
    DeadLetterDetail,
    DeadLetterGroup,
    DeadLetterResolved,
    DeadLetterSummary,
    Replay,
)
from gnomon.core.responses.executions import Started
from gnomon.errors import FieldError
from gnomon.ports.runs import LetterQuery
from gnomon.services.operations.presenters.dead_letters import (
    dead_letter_detail,
    dead_letter_group,
    dead_letter_resolved,
    dead_letter_summary,
    replay_response,
)
from gnomon.services.operations.presenters.executions import launch_response

#: The maximum number of dead letters that a request names.
_MOST_NAMED = 500
_RESOLVE_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["resolved"],
    "properties": {"resolved": {"const": True, "description": "Marks the dead letter as resolved."}},
}
_THESE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "ids": {
            "type": "array",
            "minItems": 1,
            "maxItems": _MOST_NAMED,
            "items": {"type": "string", "minLength": 1, "maxLength": 200},
            "description": "Only these dead letters; not with a filter of the query.",
        }
    },
}


_ErrorText = Annotated[str, Meta(max_length=1000)]
_ErrorLine = Annotated[str, Meta(max_length=LONGEST_ERROR_LINE)]


class LetterFilters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The filters of dead letters, in lists and for changes of many."""

    job: Annotated[Name | None, Meta(description="Only entries of this job.")] = None
    step: Annotated[Name | None, Meta(description="Only entries of this step.")] = None
    reason: Annotated[Name | None, Meta(description="Only entries with this reason.")] = None
    error: Annotated[_ErrorText | None, Meta(description="Only entries whose error begins so.")] = None
    error_line: Annotated[
        _ErrorLine | None,
        Meta(
            description=f"Only entries with this first line of their error, of which {LONGEST_ERROR_LINE} characters"
            " count; empty for entries without an error."
        ),
    ] = None
    since: Annotated[Instant | None, Meta(description="Only entries created at this instant or later.")] = None
    until: Annotated[Instant | None, Meta(description="Only entries created before this instant.")] = None


class DeadLettersQuery(LetterFilters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of dead letters."""

    resolved: Annotated[bool, Meta(description="Include resolved dead letters.")] = False
    prefix: Annotated[
        Prefix | None,
        Meta(description="Only dead letters whose ids begin so, by id, resolved or not; not with another filter."),
    ] = None
    limit: Limit = 100
    cursor: Cursor | None = None


class DeadLetterGroupsQuery(LetterFilters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the groups of dead letters."""

    cursor: Cursor | None = None


class ManyLettersQuery(LetterFilters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of a change of many dead letters."""

    limit: Limit = 500
    cursor: Cursor | None = None


def _selected(call: ApiCall, filters: LetterFilters, **more: Any) -> LetterQuery:  # noqa: ANN401 - fields of the query
    """The dead letters of the tenant that the filters select."""
    return LetterQuery(
        tenant=schedule_name("tenant", call.tenant),
        job=filters.job,
        step=filters.step,
        reason=filters.reason,
        error=filters.error,
        error_line=filters.error_line,
        since=parse_instant("since", filters.since),
        until=parse_instant("until", filters.until),
        **more,
    )


async def list_letters(call: ApiCall) -> Reply:
    """List unresolved dead letters, newest first; with `resolved`, all of them."""
    query: DeadLettersQuery = call.query
    if query.prefix is not None:
        refuse_other_filters(call)
        some = await call.services.dead_letters.by_prefix(query.prefix, limit=query.limit, tenant=call.tenant)
        return Reply(body=await make_page(call, dead_letter_summary, some, None))
    after = await read_cursor(call, tuple[CursorNumber, CursorName])
    wanted = _selected(call, query, unresolved=not query.resolved, after=after, limit=query.limit)
    found = await call.services.dead_letters.search(wanted)
    return Reply(body=await make_page(call, dead_letter_summary, found.letters, found.after))


async def list_groups(call: ApiCall) -> Reply:
    """List groups of unresolved dead letters by job, step and first line of the error, that of the newest one first.

    A page counts a limited number of dead letters; a group of more has another entry on the next page.
    """
    query: DeadLetterGroupsQuery = call.query
    after = await read_cursor(call, tuple[CursorNumber, CursorName])
    found = await call.services.dead_letters.groups(_selected(call, query, unresolved=True, after=after))
    return Reply(body=await make_page(call, dead_letter_group, found.groups, found.after))


async def show_letter(call: ApiCall) -> Reply:
    """Show a dead letter and its attempts."""
    view = await call.services.dead_letters.get(call.path["id"], tenant=call.tenant)
    return Reply(body=dead_letter_detail(view))


async def replay(call: ApiCall) -> Reply:
    """Run the failed task of a dead letter again as a new execution: once per idempotency key, and once without one."""
    done = await call.services.dead_letters.replay(
        call.path["id"], actor=call.actor, groups=call.caller.groups, key=call.key, tenant=call.tenant
    )
    call.services.changed()
    return Reply(body=launch_response(done), status=202)


async def replay_all(call: ApiCall) -> Reply:
    """Replay the executions of unresolved dead letters: each once, and after each other where they may not overlap.

    The result of each letter is returned; requesting `next` replays more.
    """
    these, service, groups = _these(call), call.services.dead_letters, call.caller.groups
    if these is not None:
        done = await service.replay_these(these, actor=call.actor, groups=groups, key=call.key, tenant=call.tenant)
    else:
        wanted, after = _selected(call, call.query, limit=call.query.limit), await _many_after(call)
        done = await service.replay_all(wanted, actor=call.actor, groups=groups, key=call.key, after=after)
    call.services.changed()
    return Reply(body=await make_page(call, replay_response, done.items, done.after))


async def resolve_all(call: ApiCall) -> Reply:
    """Mark unresolved dead letters as resolved and return those; requesting `next` resolves more."""
    these = _these(call)
    if these is not None:
        done = await call.services.dead_letters.resolve_these(these, actor=call.actor, tenant=call.tenant)
    else:
        wanted = _selected(call, call.query, limit=call.query.limit)
        done = await call.services.dead_letters.resolve_all(wanted, actor=call.actor, after=await _many_after(call))
    call.services.changed()
    return Reply(body=await make_page(call, dead_letter_resolved, done.items, done.after))


async def _many_after(call: ApiCall) -> Any:  # noqa: ANN401 - a position, or None
    return await read_cursor(call, tuple[CursorNumber, CursorName, CursorNumber])


def _these(call: ApiCall) -> list[str] | None:
    """The ids in the body; None without any."""
    fields = body_fields(call.body, "ids")
    if "ids" not in fields:
        return None
    for field, value in call.raw_query.items():
        raise FieldError(field, value, "cannot be used with ids")
    found = [printable(path, one, longest=200) for path, one in fields.entries("ids", most=_MOST_NAMED)]
    if not found:
        raise FieldError("ids", fields["ids"], "is empty")
    return list(dict.fromkeys(found))


async def resolve(call: ApiCall) -> Reply:
    """Mark a dead letter as resolved."""
    fields = body_fields(call.body, "resolved")
    if fields.required("resolved") is not True:
        raise FieldError("resolved", fields["resolved"], "must be true: a resolved dead letter cannot be reopened")
    await call.services.dead_letters.resolve(call.path["id"], actor=call.actor, tenant=call.tenant)
    return await show_letter(call)


_REPLAYED = {"dead_letter_id": "dl_1", "job": "report", **STARTED, "refused": None}
_GROUP = {
    "job": "report",
    "step": "main",
    "error_line": "disk full",
    "count": 12,
    "oldest_at": "2026-03-01T14:00:00Z",
    "newest_at": "2026-03-02T14:00:00Z",
}
ROUTES = (
    ApiRoute(
        path="/v1/dead-letters",
        name="list_dead_letters",
        handle=list_letters,
        query=DeadLettersQuery,
        answer=Page[DeadLetterSummary],
        example={"items": [DEAD_LETTER], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/dead-letters/groups",
        name="list_dead_letter_groups",
        handle=list_groups,
        query=DeadLetterGroupsQuery,
        answer=Page[DeadLetterGroup],
        example={"items": [_GROUP], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/dead-letters/{id}",
        name="show_dead_letter",
        handle=show_letter,
        error_statuses=(404,),
        answer=DeadLetterDetail,
        example={**DEAD_LETTER, "attempt_history": [], "kept": True},
        **READ_DEFAULTS,
    ),
    ApiRoute(
        method="POST",
        path="/v1/dead-letters/replay-all",
        name="replay_dead_letters",
        permission=Permission.OPERATE,
        handle=replay_all,
        answer=Page[Replay],
        success={200: "The result of each replay."},
        query=ManyLettersQuery,
        body=RequestBody(schema=_THESE_SCHEMA, example={}, required=False),
        headers=(IDEMPOTENCY_KEY,),
        error_statuses=(404,),
        example={"items": [_REPLAYED], "next": None},
    ),
    ApiRoute(
        method="POST",
        path="/v1/dead-letters/resolve-all",
        name="resolve_dead_letters",
        permission=Permission.OPERATE,
        handle=resolve_all,
        answer=Page[DeadLetterResolved],
        success={200: "The dead letters that are resolved now."},
        query=ManyLettersQuery,
        body=RequestBody(schema=_THESE_SCHEMA, example={}, required=False),
        error_statuses=(404,),
        example={"items": [{"dead_letter_id": "dl_1", "job": "report"}], "next": None},
    ),
    ApiRoute(
        method="POST",
        path="/v1/dead-letters/{id}/replay",
        name="replay_dead_letter",
        permission=Permission.OPERATE,
        handle=replay,
        answer=Started,
        success={202: "The new execution has started."},
        headers=(IDEMPOTENCY_KEY,),
        error_statuses=(404, 409),
        example=STARTED,
    ),
    ApiRoute(
        method="PATCH",
        path="/v1/dead-letters/{id}",
        name="resolve_dead_letter",
        permission=Permission.OPERATE,
        handle=resolve,
        answer=DeadLetterDetail,
        success={200: "The dead letter is resolved."},
        body=RequestBody(schema=_RESOLVE_SCHEMA, example={"resolved": True}),
        error_statuses=(404,),
        example={**DEAD_LETTER, "attempt_history": [], "kept": True},
    ),
)
