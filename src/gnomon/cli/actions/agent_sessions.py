"""`gnomon sessions`: list the sessions of agents, show their turns, and clear them."""

import msgspec

from gnomon.app.gateway import Gateway
from gnomon.cli.output import Format, format_instant, print_data, print_table
from gnomon.cli.target import Target, echo, with_gateway
from gnomon.client import requests
from gnomon.core.responses.agents import SessionCleared, SessionListed, SessionTurnShown

_ZONE = "UTC"


def list_sessions(target: Target, form: Format) -> None:
    """Print the sessions with history."""

    async def work(gateway: Gateway) -> list[SessionListed]:
        return (await gateway.send(requests.sessions())).items

    found = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(found, form)
        return
    if not found:
        echo("no sessions")
        return
    rows = [[one.session, str(one.turns), str(one.tokens), format_instant(one.updated_at, _ZONE)] for one in found]
    print_table(["session", "turns", "tokens", "updated"], rows)


def show(session: str, limit: int, target: Target, form: Format) -> None:
    """Print the newest turns of a session, newest first."""

    async def work(gateway: Gateway) -> list[SessionTurnShown]:
        return (await gateway.send(requests.session(session, page=limit))).items

    found = with_gateway(target, work)
    if form is not Format.TABLE:
        print_data(found, form)
        return
    for one in found:
        echo(f"{one.number}  {one.job}  {one.execution_id}  {format_instant(one.ended_at, _ZONE)}")
        for message in one.messages:
            echo(f"  {msgspec.json.encode(message).decode()}")


def clear(session: str, target: Target, form: Format) -> None:
    """Forget the history of a session."""

    async def work(gateway: Gateway) -> SessionCleared:
        return await gateway.send(requests.clear_session(session))

    done = with_gateway(target, work)
    if form is Format.TABLE:
        echo(f"{done.session} is cleared: {done.turns} turns are forgotten")
    else:
        print_data(done, form)
