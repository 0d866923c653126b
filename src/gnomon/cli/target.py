"""Where commands go: to the store at hand, or to a server elsewhere."""

import asyncio
import getpass
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from gnomon.app.gateway import Door, Who, indoors
from gnomon.app.operations import Office, database_url, read_settings
from gnomon.cli.flags import typed
from gnomon.cli.remote import Elsewhere, chosen, outdoors
from gnomon.client.transport import Ask, after
from gnomon.config.settings import Settings
from gnomon.core.responses import ExecutionDetail, Page
from gnomon.errors import Unauthenticated, UsageError

T = TypeVar("T")
#: How long to wait between two looks at an execution that goes on: soon at first, then less and less often.
_FIRST_LOOK_SECONDS, _SELDOM_SECONDS = 0.05, 1.0
#: How many are asked for at once.
_PAGE = 1000


class Where(NamedTuple):
    """Which store a command is about, as far as its flags say."""

    database: str | None = None
    config: Path | None = None

    def settings(self) -> Settings:
        """All settings, of which a flag is the strongest."""
        flags = {"database.url": database_url(self.database)} if self.database else {}
        return read_settings(self.config, flags=flags, environment=os.environ)

    def elsewhere(self) -> Elsewhere | None:
        """The server that the command is for; None if it is for the store at hand."""
        said = typed()
        if self.database is not None:
            if said.server or said.profile:
                raise UsageError("--database is for the store at hand, --server and --profile for one elsewhere")
            return None
        return chosen(said, os.environ, self.settings)


def in_office(where: Where, work: Callable[[Office], Awaitable[T]], *, make: bool = False) -> T:
    """What the work comes to, which needs the store itself. One that is not there is made only if `make` says so."""

    async def done() -> T:
        async with Office.open(where.settings(), make=make) as office:
            return await work(office)

    return asyncio.run(done())


def at_door(where: Where, work: Callable[[Door], Awaitable[T]], *, make: bool = False, tenant: str | None = None) -> T:
    """What the work comes to, at a server or at the store. One that is not there is made only if `make` says so."""
    elsewhere = where.elsewhere()
    if elsewhere is not None and tenant is not None:
        raise UsageError("--tenant is for the store at hand: at a server, the token says whose things it is about")

    if elsewhere is not None:
        _warn(elsewhere)

    async def done() -> T:
        who = Who(actor(), tenant or "default")
        door = indoors(where.settings(), who, make=make) if elsewhere is None else outdoors(elsewhere)
        async with door as found:
            return await work(found)

    try:
        return asyncio.run(done())
    except Unauthenticated as error:
        if elsewhere is None or elsewhere.token is not None:
            raise
        hint = "--token-file, GNOMON_TOKEN and profiles name one"
        raise Unauthenticated(f"no token was shown to {elsewhere.server}: {hint}") from error


def answer_to(where: Where, ask: Ask[T], *, make: bool = False) -> T:
    """The answer to one request."""
    return at_door(where, lambda door: door.ask(ask), make=make)


async def some_of(door: Door, ask: Ask[Page[T]], most: int | None = None) -> list[T]:
    """What there is, one page after the other; the first so many."""
    return [one async for one in _pages(door, ask, most)]


async def _pages(door: Door, ask: Ask[Page[T]], most: int | None) -> AsyncIterator[T]:
    more: Ask[Page[T]] | None = ask
    while more is not None:
        page = await door.ask(more)
        for one in page.items:
            if most == 0:
                return
            yield one
            most = None if most is None else most - 1
        more = after(page, more) if most != 0 else None


def page_of(limit: int | None = None) -> int:
    """How many to ask for at once if so many are wanted."""
    return _PAGE if limit is None else min(limit, _PAGE)


async def looks(door: Door, ask: Ask[ExecutionDetail]) -> AsyncIterator[ExecutionDetail]:
    """An execution as it is now, and again and again until it is over; the last one is."""
    patience = _FIRST_LOOK_SECONDS
    while (found := await door.ask(ask)).completed_at is None:
        yield found
        await asyncio.sleep(patience)
        patience = min(2 * patience, _SELDOM_SECONDS)
    yield found


def actor() -> str:
    """Who types."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def _warn(elsewhere: Elsewhere) -> None:
    """Who types a command is told who else can have the token."""
    if elsewhere.in_the_open:
        sys.stderr.write(f"warning: anybody on the way to {elsewhere.server} can read the token: https keeps it\n")
    if elsewhere.exposed_file:
        file = elsewhere.exposed_file
        sys.stderr.write(f"warning: {file} holds a token and can be read by others: chmod 600 {file}\n")


def say(line: str) -> None:
    """Print a line for a person."""
    sys.stdout.write(f"{line}\n")
