"""Executions and dead letters: look, end, try again, put away; and running one function once."""

from typing import Annotated

from msgspec import Meta, Struct

from gnomon.api.examples import DEAD_LETTER, EXECUTION, ITEM, LINE, STARTED, TASK
from gnomon.api.requests import instant, page, place, said_in
from gnomon.api.route import KEY, LISTS, LOOKS, Body, Call, Cursor, Instant, Limit, Name, Permission, Reply, Route
from gnomon.api.routes.jobs import JOB_SCHEMA
from gnomon.core import responses
from gnomon.core.jobs.schedule_fields import schedule_name
from gnomon.core.model import RunStatus, Source
from gnomon.core.runs.states import TaskState
from gnomon.errors import FieldError
from gnomon.ports.runs import RunQuery
from gnomon.services.operations import presenters
from gnomon.services.operations.tasks import TASK_FIELDS

RESOLVE_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["resolved"],
    "properties": {"resolved": {"const": True, "description": "It is dealt with."}},
}


class ExecutionsAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which executions to list."""

    job: Annotated[Name | None, Meta(description="Only those of this job.")] = None
    status: Annotated[RunStatus | None, Meta(description="Only those in this status.")] = None
    trigger: Annotated[Source | None, Meta(description="Only those that this started.")] = None
    tag: Annotated[Name | None, Meta(description="Only those of jobs with this tag.")] = None
    since: Instant | None = None
    until: Instant | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


class ItemsAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which items of a step to list."""

    state: Annotated[TaskState | None, Meta(description="Only those in this state.")] = None
    limit: Limit = 100
    cursor: Cursor | None = None


class LogsAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which lines to list."""

    since: Instant | None = None
    limit: Limit = 1000
    cursor: Cursor | None = None


class LettersAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to list."""

    job: Annotated[Name | None, Meta(description="Only those of this job.")] = None
    resolved: Annotated[bool, Meta(description="Also those that were dealt with.")] = False
    limit: Limit = 100
    cursor: Cursor | None = None


class ReplayAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters to replay."""

    job: Annotated[Name | None, Meta(description="Only those of this job.")] = None
    limit: Limit = 500
    cursor: Cursor | None = None


async def list_executions(call: Call) -> Reply:
    """List executions, the newest first. A page may be short and still have a next one."""
    asked: ExecutionsAsked = call.query
    query = RunQuery(
        tenant=schedule_name("tenant", call.tenant),
        schedule_id=None if asked.job is None else schedule_name("job", asked.job),
        status=asked.status,
        source=asked.trigger,
        since=instant("since", asked.since),
        until=instant("until", asked.until),
        after=place(call, tuple[int, str]),
        limit=asked.limit,
    )
    found = await call.desk.search.executions(query, tag=asked.tag)
    return Reply(body=page(call, [presenters.execution(run) for run in found.items], found.after))


async def show(call: Call) -> Reply:
    """Show all there is to know about an execution: steps, attempts, what it was given and what it returned."""
    return Reply(body=presenters.execution_detail(await call.desk.executions.get(call.path["id"], tenant=call.tenant)))


async def cancel(call: Call) -> Reply:
    """End an execution: what waits at once, what runs as soon as it stops."""
    became = await call.desk.executions.cancel(call.path["id"], actor=call.actor, tenant=call.tenant)
    call.desk.changed()
    return Reply(body=responses.Ended(execution_id=call.path["id"], became=became.value), status=202)


async def logs(call: Call) -> Reply:
    """List what the steps of an execution have said, in the order of time."""
    asked: LogsAsked = call.query
    found = await call.desk.executions.logs(
        call.path["id"],
        after=place(call, tuple[int, str, int]),
        since=instant("since", asked.since),
        limit=asked.limit,
        tenant=call.tenant,
    )
    return Reply(body=page(call, [presenters.log_entry(one) for one in found.said], found.after))


async def list_items(call: Call) -> Reply:
    """List the items of a step that is done for each of many, in their order."""
    asked: ItemsAsked = call.query
    view, after = await call.desk.executions.get(call.path["id"], tenant=call.tenant), place(call, int)
    found = [
        one
        for one in view.steps
        if one.task.parent is not None and one.task.step == call.path["step"] and asked.state in (None, one.task.state)
    ]
    found.sort(key=lambda one: one.task.item or 0)
    ahead = [one for one in found if after is None or (one.task.item or 0) > after]
    shown = ahead[: asked.limit]
    more = shown[-1].task.item if len(ahead) > len(shown) else None
    return Reply(body=page(call, [presenters.item_detail(one) for one in shown], more))


async def submit(call: Call) -> Reply:
    """Run a function once, without a job."""
    done = await call.desk.tasks.submit(call.body, actor=call.actor, key=call.key, tenant=call.tenant)
    call.desk.changed()
    return Reply(body=presenters.started(done), status=202)


async def list_letters(call: Call) -> Reply:
    """List the dead letters that nobody has dealt with."""
    asked: LettersAsked = call.query
    found = await call.desk.dead_letters.page(
        job=asked.job,
        unresolved=not asked.resolved,
        after=place(call, str) or "",
        limit=asked.limit,
        tenant=call.tenant,
    )
    after = found[-1].dead_letter_id if len(found) == asked.limit else None
    return Reply(body=page(call, [presenters.dead_letter(letter) for letter in found], after))


async def show_letter(call: Call) -> Reply:
    """Show a dead letter with every attempt."""
    view = await call.desk.dead_letters.get(call.path["id"], tenant=call.tenant)
    return Reply(body=presenters.dead_letter_detail(view))


async def replay(call: Call) -> Reply:
    """Run what has failed again, as a new execution: one for each key, and one for all who name none."""
    done = await call.desk.dead_letters.replay(call.path["id"], actor=call.actor, key=call.key, tenant=call.tenant)
    call.desk.changed()
    return Reply(body=presenters.started(done), status=202)


async def replay_all(call: Call) -> Reply:
    """Replay the dead letters that nobody has dealt with; what became of each comes back, and `next` replays more."""
    asked: ReplayAsked = call.query
    done = await call.desk.dead_letters.replay_all(
        actor=call.actor, job=asked.job, after=place(call, tuple[str, int]), limit=asked.limit, tenant=call.tenant
    )
    call.desk.changed()
    return Reply(body=page(call, [presenters.replay(one) for one in done.items], done.after))


async def resolve(call: Call) -> Reply:
    """Mark a dead letter as dealt with."""
    said = said_in(call.body, "resolved")
    if said.required("resolved") is not True:
        raise FieldError("resolved", said["resolved"], "must be true: what is dealt with stays so")
    await call.desk.dead_letters.resolve(call.path["id"], actor=call.actor, tenant=call.tenant)
    return await show_letter(call)


def _task_schema() -> dict[str, object]:
    fields = {name: about for name, about in JOB_SCHEMA["properties"].items() if name in TASK_FIELDS}
    return {"type": "object", "additionalProperties": False, "required": ["function"], "properties": fields}


_REPLAYED = {"dead_letter_id": "dl_1", "job": "report", **STARTED, "refused": None}
_NO_MORE: dict[str, object] = {"input": {}, "parent_task": None, "cancel_requested_at": None, "steps": []}
ROUTES = (
    Route(
        path="/v1/executions", name="list_executions", handle=list_executions, query=ExecutionsAsked,
        answer=responses.Page[responses.Execution], example={"items": [EXECUTION], "next": None}, **LISTS,
    ),
    Route(
        path="/v1/executions/{id}", name="show_execution", handle=show, answer=responses.ExecutionDetail,
        refuses=(404,), example={**EXECUTION, **_NO_MORE}, **LOOKS,
    ),
    Route(
        method="POST", path="/v1/executions/{id}/cancel", name="cancel_execution", needs=Permission.OPERATE,
        handle=cancel, answer=responses.Ended, success={202: "It is over, or was asked to stop."}, refuses=(404, 409),
        example={"execution_id": "run_1", "became": "cancelled"},
    ),
    Route(
        path="/v1/executions/{id}/logs", name="list_log_entries", handle=logs, refuses=(404,),
        query=LogsAsked, answer=responses.Page[responses.LogEntry], example={"items": [LINE], "next": None}, **LOOKS,
    ),
    Route(
        path="/v1/executions/{id}/steps/{step}/items", name="list_items", handle=list_items, refuses=(404,),
        query=ItemsAsked, answer=responses.Page[responses.ItemDetail], example={"items": [ITEM], "next": None}, **LOOKS,
    ),
    Route(
        method="POST", path="/v1/tasks", name="submit_task", needs=Permission.ADMINISTER, handle=submit,
        answer=responses.Started, success={202: "It is started."}, body=Body(schema=_task_schema(), example=TASK),
        headers=(KEY,), refuses=(404, 409), example=STARTED,
    ),
    Route(
        path="/v1/dead-letters", name="list_dead_letters", handle=list_letters, query=LettersAsked,
        answer=responses.Page[responses.DeadLetterSummary], example={"items": [DEAD_LETTER], "next": None}, **LISTS,
    ),
    Route(
        path="/v1/dead-letters/{id}", name="show_dead_letter", handle=show_letter, refuses=(404,),
        answer=responses.DeadLetterDetail, example={**DEAD_LETTER, "attempt_history": [], "kept": True}, **LOOKS,
    ),
    Route(
        method="POST", path="/v1/dead-letters/replay-all", name="replay_dead_letters", needs=Permission.OPERATE,
        handle=replay_all, answer=responses.Page[responses.Replay], success={200: "What became of each is told."},
        query=ReplayAsked, example={"items": [_REPLAYED], "next": None},
    ),
    Route(
        method="POST", path="/v1/dead-letters/{id}/replay", name="replay_dead_letter", needs=Permission.OPERATE,
        handle=replay, answer=responses.Started, success={202: "It is tried again."}, headers=(KEY,),
        refuses=(404, 409), example=STARTED,
    ),
    Route(
        method="PATCH", path="/v1/dead-letters/{id}", name="resolve_dead_letter", needs=Permission.OPERATE,
        handle=resolve, answer=responses.DeadLetterDetail, success={200: "It is dealt with."},
        body=Body(schema=RESOLVE_SCHEMA, example={"resolved": True}), refuses=(404,),
        example={**DEAD_LETTER, "attempt_history": [], "kept": True},
    ),
)  # fmt: skip
