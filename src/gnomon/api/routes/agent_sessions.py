"""The sessions of agents: list them, show their turns, and clear them."""

from msgspec import Struct

from gnomon.api.examples import SESSION, SESSION_TURN
from gnomon.api.route import READ_DEFAULTS, ApiCall, ApiRoute, Limit, Permission, Reply
from gnomon.core.responses.agents import SessionCleared, SessionListed, SessionTurnShown
from gnomon.core.responses.base import Page
from gnomon.services.operations.presenters.agents import session_listed, session_turn_shown


class SessionsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the list of sessions."""

    limit: Limit = 1000


class SessionTurnsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The query of the turns of a session."""

    limit: Limit = 20


async def list_sessions(call: ApiCall) -> Reply:
    """List the sessions of agents with history, by name."""
    query: SessionsQuery = call.query
    found = await call.services.agent_sessions.list_sessions(limit=query.limit, tenant=call.tenant)
    return Reply(body=Page(items=[session_listed(one) for one in found]))


async def show(call: ApiCall) -> Reply:
    """Show the newest turns of a session, newest first."""
    query: SessionTurnsQuery = call.query
    found = await call.services.agent_sessions.turns(call.path["id"], limit=query.limit, tenant=call.tenant)
    return Reply(body=Page(items=[session_turn_shown(one) for one in found]))


async def clear(call: ApiCall) -> Reply:
    """Forget the history of a session."""
    name = call.path["id"]
    count = await call.services.agent_sessions.clear(name, actor=call.actor, tenant=call.tenant)
    return Reply(body=SessionCleared(session=name, turns=count))


ROUTES = (
    ApiRoute(
        path="/v1/sessions",
        name="list_sessions",
        handle=list_sessions,
        query=SessionsQuery,
        answer=Page[SessionListed],
        example={"items": [SESSION], "next": None},
        **READ_DEFAULTS,
    ),
    ApiRoute(
        path="/v1/sessions/{id}",
        name="show_session",
        handle=show,
        query=SessionTurnsQuery,
        error_statuses=(404,),
        answer=Page[SessionTurnShown],
        example={"items": [SESSION_TURN], "next": None},
        **READ_DEFAULTS,
    ),
    ApiRoute(
        method="POST",
        path="/v1/sessions/{id}/clear",
        name="clear_session",
        permission=Permission.OPERATE,
        handle=clear,
        answer=SessionCleared,
        success={200: "The session has no history any more."},
        error_statuses=(404,),
        example={"session": "triage", "turns": 3},
    ),
)
