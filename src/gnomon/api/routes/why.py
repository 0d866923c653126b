"""Explanations of why a job ran or did not run."""

from typing import Annotated

from msgspec import Meta, Struct

from gnomon.api.examples import WHY
from gnomon.api.route import READ_DEFAULTS, ApiCall, ApiRoute, Name, Reply
from gnomon.core.cron import Cron
from gnomon.core.explain.schedules import next_fires, parsed_schedule
from gnomon.core.instants import in_zone, instant_of
from gnomon.core.responses.schedules import ScheduleExplained
from gnomon.core.responses.why import WhyAnswer
from gnomon.errors import FieldError
from gnomon.services.operations.presenters.why import why_response

_USUAL = 3
_ABOUT = "A time, such as 2026-03-02T09:00Z, or 09:00 in the time zone of the schedule."
Moment = Annotated[str, Meta(max_length=100, description=_ABOUT)]


class WhyQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of an explanation: a time, or the number of most recent ticks."""

    at: Moment | None = None
    last: (
        Annotated[int, Meta(ge=1, le=100, description="Number of most recent ticks to explain; 3 by default.")] | None
    ) = None


class ExplainQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of an explanation of a schedule."""

    schedule: Annotated[str, Meta(max_length=1000, description="Cron, a macro, a sentence or an instant.")] = ""
    timezone: Annotated[Name | None, Meta(description="An IANA time zone.")] = None
    coming: Annotated[int, Meta(ge=0, le=50, description="Number of next fires.")] = 5


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


async def explain_schedule(call: ApiCall) -> Reply:
    """Explain a schedule in words and as cron, and list its next fires."""
    query: ExplainQuery = call.query
    now = instant_of(call.services.clock.now())

    def explained() -> ScheduleExplained:
        trigger = parsed_schedule(query.schedule, timezone=query.timezone, dialect="standard", now=now)
        cron = trigger if isinstance(trigger, Cron) else None
        zone = query.timezone or "UTC" if cron is None else cron.timezone
        fires = list(next_fires(trigger, now, query.coming))
        return ScheduleExplained(
            schedule=query.schedule,
            sentence=trigger.describe(),
            cron=None if cron is None else cron.canonical,
            timezone=zone,
            fires=fires,
            local_fires=[in_zone(fire, zone).isoformat() for fire in fires],
        )

    # In a thread: a schedule may be long, and its next fire far away.
    return Reply(body=await call.services.compute.run_in_thread(explained))


_EXPLAINED = {
    "schedule": "every weekday at 9am",
    "sentence": "every weekday at 09:00",
    "cron": "0 9 * * 1-5",
    "timezone": "UTC",
    "fires": ["2026-03-03T09:00:00Z"],
    "local_fires": ["2026-03-03T09:00:00+00:00"],
}
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
    ApiRoute(
        path="/v1/explain",
        name="explain_schedule",
        handle=explain_schedule,
        answer=ScheduleExplained,
        query=ExplainQuery,
        example=_EXPLAINED,
        **READ_DEFAULTS,
    ),
)
