"""Explanations of why a job ran or did not run."""

from typing import Annotated

from msgspec import Meta, Struct

from gnomon.api.examples import WHY
from gnomon.api.route import READ_DEFAULTS, ApiCall, ApiRoute, Reply
from gnomon.core.responses import WhyAnswer
from gnomon.errors import FieldError
from gnomon.services.operations.presenters import why_response

_USUAL = 3
_ABOUT = "A time, such as 2026-03-02T09:00Z, or 09:00 in the time zone of the schedule."
Moment = Annotated[str, Meta(max_length=100, description=_ABOUT)]


class WhyQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of an explanation: a time, or the number of most recent ticks."""

    at: Moment | None = None
    last: (
        Annotated[int, Meta(ge=1, le=100, description="Number of most recent ticks to explain; 3 by default.")] | None
    ) = None


async def why(call: ApiCall) -> Reply:
    """Explain why a job ran or did not run at a time, or at its last ticks, and when it runs next."""
    query: WhyQuery = call.query
    if query.at is not None and query.last is not None:
        raise FieldError("last", query.last, "cannot be used with at: name a time, or a number of ticks")
    name, explainer = call.path["name"], call.services.explainer
    if query.at is None:
        found = await explainer.last(name, query.last or _USUAL, tenant=call.tenant)
    else:
        found = await explainer.at(name, query.at, tenant=call.tenant)
    return Reply(body=why_response(found))


ROUTES = (
    ApiRoute(
        path="/v1/jobs/{name}/why",
        name="explain_job",
        handle=why,
        answer=WhyAnswer,
        query=WhyQuery,
        error_statuses=(404,),
        example=WHY,
        **READ_DEFAULTS,
    ),
)
