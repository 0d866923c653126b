"""The two doors of the command line: a store at hand, or a server elsewhere. Both take the same requests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar, cast

from msgspec import Struct

from gnomon.adapters.auth.policies import NoTokens
from gnomon.adapters.host import SystemClock
from gnomon.adapters.structured_log import LoggedEvents
from gnomon.api.local import Request, answered
from gnomon.api.route import Desk
from gnomon.client.transport import Ask
from gnomon.core.health import Report
from gnomon.core.model import Source
from gnomon.desks import desk_on
from gnomon.errors import UsageError
from gnomon.office import Office
from gnomon.ports.auth import Caller, Role
from gnomon.services.observability.change_stream import Hub
from gnomon.settings import Settings

T = TypeVar("T")


class Door(Protocol):
    """Where requests go."""

    async def ask(self, ask: Ask[T]) -> T:
        """The answer; the error that there is instead of one."""
        ...


class Who(Struct, frozen=True):
    """Who asks, and whose things they are about."""

    actor: str
    tenant: str = "default"


class Indoors:
    """The store at hand: who can open it may do everything."""

    def __init__(self, desk: Desk, who: Who) -> None:
        self._desk = desk
        self._caller = Caller(who.actor, frozenset({Role.ADMIN}), who.tenant)

    async def ask(self, ask: Ask[T]) -> T:
        """See Door.ask."""
        request = Request(method=ask.method, target=ask.target, content=ask.content, headers=ask.headers)
        return cast("T", await answered(self._desk, self._caller, request, source=Source.MANUAL))


@asynccontextmanager
async def indoors(settings: Settings, who: Who, *, make: bool = False) -> AsyncIterator[Door]:
    """The door to the store that the settings name. A file is made only if `make` says so."""
    async with Office.open(settings, make=make) as office:
        hub = Hub(SystemClock(), LoggedEvents(), most=0)
        yield Indoors(desk_on(office, settings, tokens=NoTokens(), hub=hub, health=_unknown), who)


@asynccontextmanager
async def nowhere(who: Who) -> AsyncIterator[Door]:
    """The door to a store in which nothing stands yet, and nothing will."""
    from gnomon.adapters.memory import MemoryStore

    clock = SystemClock()
    office = Office(cast("Any", MemoryStore(clock.now)), Settings())
    hub = Hub(clock, LoggedEvents(), most=0)
    yield Indoors(desk_on(office, Settings(), tokens=NoTokens(), hub=hub, health=_unknown), who)


async def _unknown() -> Report:
    raise UsageError("how a scheduler is knows only the one that runs: ask it with --server")
