"""Executions and single tasks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from gnomon.api.examples import EXECUTION, ITEM, LINE, STARTED, TASK
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
from gnomon.api.routes.jobs import JOB_SCHEMA, tick_query, ticks_page
from gnomon.core.jobs.fields import schedule_name
from gnomon.core.model import ExecutionStatus, RunSource, RunStatus, TickStatus
from gnomon.core.responses.base import Page
from gnomon.core.responses.executions import (
    Ended,
    Execution,
    ExecutionDetail,
    ItemDetail,
    LogEntry,
    RollbackStarted,
    Started,
)
from gnomon.core.runs.states import TaskState, WaitReason
from gnomon.ports.runs import RunQuery
from gnomon.services.operations.executions import ListedRun
from gnomon.services.operations.presenters.executions import (
    execution_detail,
    item_detail,
    launch_response,
    listed_execution,
    log_entry,
    skipped_execution,
    with_usage,
)
from gnomon.services.operations.tasks import TASK_FIELDS


class ExecutionsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of executions."""

    job: Annotated[Name | None, Meta(description="Only entries of this job.")] = None
    status: Annotated[
        ExecutionStatus | None,
        Meta(description="Only executions with this status; `skipped` lists the ticks that had none."),
    ] = None
    trigger: Annotated[RunSource | None, Meta(description="Only executions started this way.")] = None
    waiting: Annotated[
        WaitReason | None,
        Meta(description="Only executions of which a step waits for this reason; `queue` for those behind another."),
    ] = None
    tag: Annotated[Name | None, Meta(description="Only executions of jobs with this tag.")] = None
    prefix: Annotated[
        Prefix | None, Meta(description="Only executions whose ids begin so, by id; not with another filter.")
    ] = None
    since: Instant | None = None
    until: Instant | None = None
    limit: Limit = 100
    cursor: Cursor | None = None


class ItemsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of items of a step."""

    state: Annotated[TaskState | None, Meta(description="Only items in this state.")] = None
    limit: Limit = 100
    cursor: Cursor | None = None


class LogsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the log of an execution."""

    since: Instant | None = None
    order: Annotated[Literal["asc", "desc"], Meta(description="`desc` lists the last lines first.")] = "asc"
    step: Annotated[Name | None, Meta(description="Only lines of this step.")] = None
    after: Annotated[
        int,
        Meta(ge=0, le=2**31, description="Only lines with a higher number: each step and item counts its own from 1."),
    ] = 0
    find: Annotated[str, Meta(min_length=1, max_length=200, description="Only lines with this text.")] | None = None
    limit: Limit = 1000
    cursor: Cursor | None = None


async def list_executions(call: ApiCall) -> Reply:
    """List executions, newest first. A page may have fewer items than `limit` and still have a `next`."""
    query: ExecutionsQuery = call.query
    if query.prefix is not None:
        refuse_other_filters(call)
        some = await call.services.search.executions_by_prefix(query.prefix, limit=query.limit, tenant=call.tenant)
        return Reply(body=await make_page(call, await _shown_with_usage(call, some), some, None))
    if query.status is ExecutionStatus.SKIPPED:
        return await _list_skipped(call, query)
    filters = RunQuery(
        tenant=schedule_name("tenant", call.tenant),
        schedule_id=None if query.job is None else schedule_name("job", query.job),
        status=None if query.status is None else RunStatus(query.status),
        source=query.trigger,
        wait_reason=query.waiting,
        since=parse_instant("since", query.since),
        until=parse_instant("until", query.until),
        after=await read_cursor(call, tuple[CursorNumber, CursorName]),
        limit=query.limit,
    )
    found = await call.services.search.executions(filters, tag=query.tag)
    return Reply(body=await make_page(call, await _shown_with_usage(call, found.items), found.items, found.after))


async def _shown_with_usage(call: ApiCall, listed: Sequence[ListedRun]) -> Callable[[ListedRun], Execution]:
    """Presents executions with the usage of their agents."""
    used = await call.services.agent_usage.of_runs([one.run for one in listed], tenant=call.tenant)
    return partial(listed_execution, used=used)


async def _list_skipped(call: ApiCall, query: ExecutionsQuery) -> Reply:
    """List skipped ticks as executions, newest first."""
    if query.trigger not in (None, RunSource.CRON) or query.waiting is not None:
        # Only a schedule has ticks, and a tick without an execution waits for nothing.
        return Reply(body=await make_page(call, skipped_execution, (), None))
    filters = tick_query(since=query.since, until=query.until, limit=query.limit, status=TickStatus.SKIPPED)
    return Reply(body=await ticks_page(call, skipped_execution, filters, job=query.job, tag=query.tag))


async def show(call: ApiCall) -> Reply:
    """Show an execution with its input, steps, attempts and outputs."""
    view = await call.services.executions.get(call.path["id"], tenant=call.tenant)
    used = await call.services.agent_usage.of_runs([view.run], tenant=call.tenant)
    return Reply(body=with_usage(execution_detail(view), used))


async def cancel(call: ApiCall) -> Reply:
    """Cancel an execution: pending steps at once, running steps as soon as they stop."""
    became = await call.services.executions.cancel(call.path["id"], actor=call.actor, tenant=call.tenant)
    call.services.changed()
    return Reply(body=Ended(execution_id=call.path["id"], became=became.value), status=202)


async def roll_back(call: ApiCall) -> Reply:
    """Undo the steps of an execution that has ended: those that succeeded, the last one first."""
    fields = body_fields(call.body, "reason")
    execution = call.path["id"]
    await call.services.executions.roll_back(
        execution, reason=fields.text("reason"), actor=call.actor, tenant=call.tenant
    )
    call.services.changed()
    return Reply(body=RollbackStarted(execution_id=execution, rollback="running"), status=202)


async def logs(call: ApiCall) -> Reply:
    """List the log lines of an execution in order of time, also those of attempts that go on."""
    query: LogsQuery = call.query
    found = await call.services.executions.logs(
        call.path["id"],
        after=await read_cursor(call, tuple[CursorNumber, CursorName, CursorNumber]),
        since=parse_instant("since", query.since),
        newest_first=query.order == "desc",
        step=query.step,
        after_line=query.after,
        find=query.find,
        limit=query.limit,
        tenant=call.tenant,
    )
    return Reply(body=await make_page(call, log_entry, found.lines, found.after))


async def list_items(call: ApiCall) -> Reply:
    """List the items of a `foreach` step, in order."""
    query: ItemsQuery = call.query
    after = await read_cursor(call, CursorNumber)
    found = await call.services.executions.items(
        call.path["id"], call.path["step"], state=query.state, after=after, limit=query.limit, tenant=call.tenant
    )
    return Reply(body=await make_page(call, item_detail, found.items, found.after))


async def submit(call: ApiCall) -> Reply:
    """Run a function once, without a job."""
    done = await call.services.tasks.submit(
        call.body, actor=call.actor, groups=call.caller.groups, key=call.key, tenant=call.tenant
    )
    call.services.changed()
    return Reply(body=launch_response(done), status=202)


def _task_schema() -> dict[str, object]:
    fields = {name: about for name, about in JOB_SCHEMA["properties"].items() if name in TASK_FIELDS}
    return {"type": "object", "additionalProperties": False, "required": ["function"], "properties": fields}


_NO_MORE: dict[str, object] = {
    "input": {}, "parent_task": None, "cancel_requested_at": None, "rollback": None, "rollback_cause": None,
    "steps": [], "announcements": [],
}  # fmt: skip
_ROLLBACK: dict[str, object] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["reason"],
    "properties": {"reason": {"type": "string", "minLength": 1}},
}
ROUTES = (
    ApiRoute(
        path="/v1/executions",
        name="list_executions",
        handle=list_executions,
        query=ExecutionsQuery,
        answer=Page[Execution],
        example={"items": [EXECUTION], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/executions/{id}",
        name="show_execution",
        handle=show,
        answer=ExecutionDetail,
        error_statuses=(404,),
        example={**EXECUTION, **_NO_MORE},
        **READ_DEFAULTS,
    ),
    ApiRoute(
        method="POST",
        path="/v1/executions/{id}/cancel",
        name="cancel_execution",
        permission=Permission.OPERATE,
        handle=cancel,
        answer=Ended,
        success={202: "The execution is cancelled, or is stopping."},
        error_statuses=(404, 409),
        example={"execution_id": "run_1", "became": "cancelled"},
    ),
    ApiRoute(
        method="POST",
        path="/v1/executions/{id}/rollback",
        name="roll_back_execution",
        permission=Permission.OPERATE,
        handle=roll_back,
        body=RequestBody(schema=_ROLLBACK, example={"reason": "booked for the wrong customer"}),
        answer=RollbackStarted,
        success={202: "The execution is under way again until its steps are undone."},
        error_statuses=(404, 409),
        example={"execution_id": "run_1", "rollback": "running"},
    ),
    ApiRoute(
        path="/v1/executions/{id}/logs",
        name="list_log_entries",
        handle=logs,
        error_statuses=(404,),
        query=LogsQuery,
        answer=Page[LogEntry],
        example={"items": [LINE], "next": None},
        **READ_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/executions/{id}/steps/{step}/items",
        name="list_items",
        handle=list_items,
        error_statuses=(404,),
        query=ItemsQuery,
        answer=Page[ItemDetail],
        example={"items": [ITEM], "next": None},
        **READ_DEFAULTS,
    ),
    ApiRoute(
        method="POST",
        path="/v1/tasks",
        name="submit_task",
        permission=Permission.ADMINISTER,
        handle=submit,
        answer=Started,
        success={202: "The execution has started."},
        body=RequestBody(schema=_task_schema(), example=TASK),
        headers=(IDEMPOTENCY_KEY,),
        error_statuses=(404, 409),
        example=STARTED,
    ),
)
