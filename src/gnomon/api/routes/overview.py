"""The overview: what is due, late or failed, what did not run, and what waits for people."""

from typing import Annotated

from msgspec import Meta, Struct

from gnomon.api.examples import OVERVIEW
from gnomon.api.route import LIST_DEFAULTS, ApiCall, ApiRoute, Reply
from gnomon.core.model import MINUTE_MS
from gnomon.core.responses.overview import Overview
from gnomon.services.operations.presenters.overview import overview

_HOUR_MS = 60 * MINUTE_MS


class OverviewQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the overview."""

    hours: Annotated[int, Meta(ge=1, le=24 * 31, description="Hours to look back.")] = 24


async def show(call: ApiCall) -> Reply:
    """Show what needs attention, each number with the path of the rows that it counts."""
    query: OverviewQuery = call.query
    found = await call.services.overview.read(query.hours * _HOUR_MS, tenant=call.tenant)
    return Reply(body=overview(found))


ROUTES = (
    ApiRoute(
        path="/v1/overview",
        name="show_overview",
        handle=show,
        query=OverviewQuery,
        answer=Overview,
        example=OVERVIEW,
        **LIST_DEFAULTS,
    ),
)
