"""Circuit breakers: which services the tasks of the tenant wait for, and the end of that wait by hand."""

from typing import Any

from gnomon.api.requests import CursorName, make_full_page, read_cursor
from gnomon.api.route import LIST_DEFAULTS, READ_DEFAULTS, ApiCall, ApiRoute, PageQuery, Permission, Reply
from gnomon.core.named_breakers import NamedBreaker
from gnomon.core.responses.base import Page
from gnomon.core.responses.breakers import BreakerDetail
from gnomon.services.operations.presenters.breakers import breaker_detail


async def list_breakers(call: ApiCall) -> Reply:
    """List the circuit breakers that tasks have used, by name."""
    query: PageQuery = call.query
    after = await read_cursor(call, CursorName)
    found = await call.services.breakers.page(after=after or "", limit=query.limit, tenant=call.tenant)
    return Reply(body=await make_full_page(call, lambda one: _shown(call, one), found, lambda one: one.name))


async def show(call: ApiCall) -> Reply:
    """Show a circuit breaker."""
    return Reply(body=_shown(call, await call.services.breakers.get(call.path["name"], tenant=call.tenant)))


async def reset(call: ApiCall) -> Reply:
    """Close a circuit breaker: the tasks that wait for it start now."""
    after = await call.services.breakers.reset(call.path["name"], actor=call.actor, tenant=call.tenant)
    call.services.changed()
    return Reply(body=_shown(call, after))


def _shown(call: ApiCall, named: NamedBreaker) -> BreakerDetail:
    return breaker_detail(named, now=call.services.clock.now())


_OPEN: dict[str, Any] = {
    "name": "stripe",
    "state": "open",
    "failures": 5,
    "open_until": "2026-03-02T15:10:00Z",
    "opened_by": "task_1",
    "probes": [],
    "changed_at": "2026-03-02T15:00:00Z",
    "definitions": [{"user": "pay", "failures": 5, "open": "10m", "probes": 1, "successes": 1}],
}
_CLOSED = {**_OPEN, "state": "closed", "failures": 0, "open_until": None, "opened_by": None}
ROUTES = (
    ApiRoute(
        path="/v1/breakers",
        name="list_breakers",
        handle=list_breakers,
        query=PageQuery,
        answer=Page[BreakerDetail],
        example={"items": [_OPEN], "next": None},
        **LIST_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/breakers/{name}",
        name="show_breaker",
        handle=show,
        error_statuses=(404,),
        answer=BreakerDetail,
        example=_OPEN,
        **READ_DEFAULTS,
    ),
    ApiRoute(
        method="POST",
        path="/v1/breakers/{name}/reset",
        name="reset_breaker",
        permission=Permission.OPERATE,
        handle=reset,
        answer=BreakerDetail,
        success={200: "The breaker is closed."},
        error_statuses=(404,),
        example=_CLOSED,
    ),
)
