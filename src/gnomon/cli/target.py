"""The target of a command: the local database, or a server over HTTP."""

import asyncio
import os
import re
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from gnomon.app.gateway import Gateway, RequestActor, open_local
from gnomon.app.local_user import local_user
from gnomon.app.operations import Operations
from gnomon.app.remote_server import RemoteServer, choose_server, open_remote
from gnomon.app.settings import database_name, database_url, load_settings
from gnomon.cli.flags import parsed_server_flags
from gnomon.client import requests
from gnomon.client.transport import ApiRequest, iterate_items
from gnomon.config.settings import Settings
from gnomon.core.jobs.origins import OriginKind
from gnomon.core.responses.base import Page
from gnomon.core.spelling import nearest
from gnomon.errors import GnomonError, NotFound, Unauthenticated, UsageError

T = TypeVar("T")
#: The largest page that the API returns.
_MAX_PAGE_SIZE = 1000
#: How many names of jobs a misspelt one is compared with.
_MOST_COMPARED = 5000
#: The message about a job that does not exist: a server sends no more than that.
_NO_JOB = re.compile("there is no job '([^']+)'")


class Target(NamedTuple):
    """The database or server that the flags of a command select."""

    database: str | None = None
    config: Path | None = None

    def settings(self, **flags: object) -> Settings:
        """All settings; flags override the environment and the file."""
        named = {"database.url": database_url(self.database)} if self.database else {}
        return load_settings(self.config, flags=named | flags, environment=os.environ)

    def place(self) -> str:
        """Where the command writes to, as the end of a sentence; a database that it would create is called new."""
        remote = self.remote_server()
        if remote is not None:
            return f"at {remote.server}"
        name, is_new = database_name(self.settings().database.url)
        return f"in the new database {name}" if is_new else f"in {name}"

    def remote_server(self) -> RemoteServer | None:
        """The server to send requests to; None for the local database."""
        flags = parsed_server_flags()
        if self.database is not None:
            if flags.server or flags.profile:
                raise UsageError("--database is for a local database; it cannot be used with --server or --profile")
            return None
        return choose_server(flags, os.environ, self.settings)


def with_operations(target: Target, work: Callable[[Operations], Awaitable[T]], *, make: bool = False) -> T:
    """Run `work` on the operations of the local database and return its result. `make` creates a missing database."""

    async def done() -> T:
        async with Operations.open(target.settings(), make=make) as operations:
            return await work(operations)

    return asyncio.run(done())


def with_gateway(
    target: Target,
    work: Callable[[Gateway], Awaitable[T]],
    *,
    make: bool = False,
    tenant: str | None = None,
    origin: OriginKind = OriginKind.CLI,
) -> T:
    """Run `work` on a gateway to the target and return its result. `make` creates a missing database.

    `origin` is that of jobs registered on a local database; a server records its own.
    """
    remote_server = target.remote_server()
    if remote_server is not None and tenant is not None:
        raise UsageError("--tenant is for a local database: at a server, the token determines the tenant")

    if remote_server is not None:
        _warn_exposed_token(remote_server)

    async def done() -> T:
        if remote_server is not None:
            opened: AbstractAsyncContextManager[Gateway] = open_remote(remote_server)
        else:
            actor = RequestActor(local_user(), tenant or "default", origin)
            opened = open_local(target.settings(), actor, make=make)
        async with opened as gateway:
            try:
                return await work(gateway)
            except NotFound as error:
                await _add_suggestion(gateway, error)
                raise

    try:
        return asyncio.run(done())
    except Unauthenticated as error:
        if remote_server is None or remote_server.token is not None:
            raise
        hint = "pass one with --token-file, GNOMON_TOKEN or a profile"
        raise Unauthenticated(f"no token was sent to {remote_server.server}: {hint}") from error


async def _add_suggestion(gateway: Gateway, error: NotFound) -> None:
    """Add the job that was probably meant to the message about one that does not exist."""
    missing = _NO_JOB.fullmatch(str(error))
    if missing is None:
        return
    with suppress(GnomonError):
        jobs = await list_all(gateway, requests.jobs(page=page_size()), _MOST_COMPARED)
        meant = nearest(missing[1], [one.job for one in jobs])
        if meant is not None:
            error.args = (f"{error}; did you mean {meant}?",)


def send(target: Target, request: ApiRequest[T], *, make: bool = False) -> T:
    """Send one request and return its response."""
    return with_gateway(target, lambda gateway: gateway.send(request), make=make)


async def list_all(gateway: Gateway, request: ApiRequest[Page[T]], most: int | None = None) -> list[T]:
    """The items of all pages, at most `most`; pages beyond those are not requested."""
    found: list[T] = []
    async for item in iterate_items(gateway.send, request):
        found.append(item)
        if len(found) == most:
            break
    return found


async def zone_of_job(gateway: Gateway, name: str | None) -> str | None:
    """The time zone of the job; None if there is none of that name, or no name."""
    if name is None:
        return None
    try:
        return (await gateway.send(requests.job(name, coming=0, last=0))).timezone
    except NotFound:
        return None


def page_size(limit: int | None = None) -> int:
    """The page size for a list of at most `limit` items."""
    return _MAX_PAGE_SIZE if limit is None else min(limit, _MAX_PAGE_SIZE)


def _warn_exposed_token(remote_server: RemoteServer) -> None:
    """Print a warning if others can read the token, on the network or in its file."""
    if remote_server.sends_token_in_clear:
        sys.stderr.write(f"warning: the token is sent to {remote_server.server} without TLS: use https\n")
    if remote_server.exposed_file:
        file = remote_server.exposed_file
        sys.stderr.write(f"warning: {file} contains a token and others can read it: chmod 600 {file}\n")


def echo(line: str) -> None:
    """Print a line to standard output."""
    sys.stdout.write(f"{line}\n")
