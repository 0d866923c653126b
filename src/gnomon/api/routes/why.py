"""Why a job did what it did, or did nothing."""

from typing import Annotated

from msgspec import Meta, Struct

from gnomon.api.examples import WHY
from gnomon.api.route import READ_DEFAULTS, ApiCall, ApiRoute, Reply
from gnomon.core.responses import WhyAnswer
from gnomon.errors import FieldError
from gnomon.services.operations.presenters import why_response

_USUAL = 3
_ABOUT = "A moment, such as 2026-03-02T09:00Z, or 09:00 on the clocks of the schedule."
Moment = Annotated[str, Meta(max_length=100, description=_ABOUT)]


class WhyAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """About which moment, or how many of the last."""

    at: Moment | None = None
    last: Annotated[int, Meta(ge=1, le=100, description="How many of the newest.")] | None = None


async def why(call: ApiCall) -> Reply:
    """Explain a moment of a job, or what it did last and will do next."""
    asked: WhyAsked = call.query
    if asked.at is not None and asked.last is not None:
        raise FieldError("last", asked.last, "is said beside at: ask about a moment, or about the newest")
    name, explainer = call.path["name"], call.services.explainer
    if asked.at is None:
        found = await explainer.last(name, asked.last or _USUAL, tenant=call.tenant)
    else:
        found = await explainer.at(name, asked.at, tenant=call.tenant)
    return Reply(body=why_response(found))


ROUTES = (
    ApiRoute(
        path="/v1/jobs/{name}/why",
        name="explain_job",
        handle=why,
        answer=WhyAnswer,
        query=WhyAsked,
        error_statuses=(404,),
        example=WHY,
        **READ_DEFAULTS,
    ),
)
