"""Where commands go: to the store at hand, or to a server elsewhere."""

import asyncio
import getpass
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from gnomon.app.gateway import Gateway, RequestActor, open_local
from gnomon.app.operations import Operations, database_url, load_settings
from gnomon.cli.flags import parsed_server_flags
from gnomon.cli.remote import RemoteServer, choose_server, open_remote
from gnomon.client.transport import ApiRequest, next_page_request
from gnomon.config.settings import Settings
from gnomon.core.responses import ExecutionDetail, Page
from gnomon.errors import Unauthenticated, UsageError

T = TypeVar("T")
#: How long to wait between two looks at an execution that goes on: soon at first, then less and less often.
_MIN_POLL_SECONDS, _MAX_POLL_SECONDS = 0.05, 1.0
#: How many are asked for at once.
_MAX_PAGE_SIZE = 1000


class Target(NamedTuple):
    """Which store a command is about, as far as its flags say."""

    database: str | None = None
    config: Path | None = None

    def settings(self) -> Settings:
        """All settings, of which a flag is the strongest."""
        flags = {"database.url": database_url(self.database)} if self.database else {}
        return load_settings(self.config, flags=flags, environment=os.environ)

    def remote_server(self) -> RemoteServer | None:
        """The server that the command is for; None if it is for the store at hand."""
        said = parsed_server_flags()
        if self.database is not None:
            if said.server or said.profile:
                raise UsageError("--database is for the store at hand, --server and --profile for one elsewhere")
            return None
        return choose_server(said, os.environ, self.settings)


def with_operations(target: Target, work: Callable[[Operations], Awaitable[T]], *, make: bool = False) -> T:
    """What the work comes to, which needs the store itself. One that is not there is made only if `make` says so."""

    async def done() -> T:
        async with Operations.open(target.settings(), make=make) as operations:
            return await work(operations)

    return asyncio.run(done())


def with_gateway(
    target: Target, work: Callable[[Gateway], Awaitable[T]], *, make: bool = False, tenant: str | None = None
) -> T:
    """What the work comes to, at a server or at the store. One that is not there is made only if `make` says so."""
    remote_server = target.remote_server()
    if remote_server is not None and tenant is not None:
        raise UsageError("--tenant is for the store at hand: at a server, the token says whose things it is about")

    if remote_server is not None:
        _warn_exposed_token(remote_server)

    async def done() -> T:
        who = RequestActor(current_user(), tenant or "default")
        gateway = open_local(target.settings(), who, make=make) if remote_server is None else open_remote(remote_server)
        async with gateway as found:
            return await work(found)

    try:
        return asyncio.run(done())
    except Unauthenticated as error:
        if remote_server is None or remote_server.token is not None:
            raise
        hint = "--token-file, GNOMON_TOKEN and profiles name one"
        raise Unauthenticated(f"no token was shown to {remote_server.server}: {hint}") from error


def send(target: Target, request: ApiRequest[T], *, make: bool = False) -> T:
    """The answer to one request."""
    return with_gateway(target, lambda gateway: gateway.send(request), make=make)


async def list_all(gateway: Gateway, request: ApiRequest[Page[T]], most: int | None = None) -> list[T]:
    """What there is, one page after the other; the first so many."""
    return [one async for one in _pages(gateway, request, most)]


async def _pages(gateway: Gateway, request: ApiRequest[Page[T]], most: int | None) -> AsyncIterator[T]:
    more: ApiRequest[Page[T]] | None = request
    while more is not None:
        page = await gateway.send(more)
        for one in page.items:
            if most == 0:
                return
            yield one
            most = None if most is None else most - 1
        more = next_page_request(page, more) if most != 0 else None


def page_size(limit: int | None = None) -> int:
    """How many to request for at once if so many are wanted."""
    return _MAX_PAGE_SIZE if limit is None else min(limit, _MAX_PAGE_SIZE)


async def poll_until_done(gateway: Gateway, request: ApiRequest[ExecutionDetail]) -> AsyncIterator[ExecutionDetail]:
    """An execution as it is now, and again and again until it is over; the last one is."""
    patience = _MIN_POLL_SECONDS
    while (found := await gateway.send(request)).completed_at is None:
        yield found
        await asyncio.sleep(patience)
        patience = min(2 * patience, _MAX_POLL_SECONDS)
    yield found


def current_user() -> str:
    """Who types."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def _warn_exposed_token(remote_server: RemoteServer) -> None:
    """Who types a command is told who else can have the token."""
    if remote_server.sends_token_in_clear:
        sys.stderr.write(f"warning: anybody on the way to {remote_server.server} can read the token: https keeps it\n")
    if remote_server.exposed_file:
        file = remote_server.exposed_file
        sys.stderr.write(f"warning: {file} holds a token and can be read by others: chmod 600 {file}\n")


def echo(line: str) -> None:
    """Print a line for a person."""
    sys.stdout.write(f"{line}\n")
