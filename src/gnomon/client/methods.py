"""What both clients offer: one table, from which each makes methods of its own kind."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

from gnomon.client import requests
from gnomon.client.transport import Ask
from gnomon.core.responses import Page

if TYPE_CHECKING:
    from gnomon.client.async_client import AsyncClient
    from gnomon.client.sync_client import Client

T = TypeVar("T")
P = ParamSpec("P")


class Answered(Generic[P, T]):
    """A method that asks and gives back the answer."""

    def __init__(self, make: Callable[P, Ask[T]]) -> None:
        self.make, self.__doc__, self.__wrapped__ = make, make.__doc__, make

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> object:
        """The method of that client."""
        return self if client is None else client.answering(self.make)


class Listed(Generic[P, T]):
    """A method that asks and gives back all that there is, however many pages that takes."""

    def __init__(self, make: Callable[P, Ask[Page[T]]]) -> None:
        self.make, self.__doc__, self.__wrapped__ = make, make.__doc__, make

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, list[T]]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, list[T]]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> object:
        """The method of that client."""
        return self if client is None else client.listing(self.make)


class Paged(Generic[P, T]):
    """A method that asks and gives back what is on one page after the other, as it is asked for."""

    def __init__(self, make: Callable[P, Ask[Page[T]]]) -> None:
        self.make, self.__doc__, self.__wrapped__ = make, make.__doc__, make

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> object:
        """The method of that client."""
        return self if client is None else client.paging(self.make)


class Offers:
    """Everything that can be asked for."""

    health = Answered(requests.health)

    register = Answered(requests.register)
    update = Answered(requests.update)
    apply = Listed(requests.apply)
    plan = Answered(requests.plan)
    jobs = Paged(requests.jobs)
    job = Answered(requests.job)
    delete = Answered(requests.delete)
    trigger = Answered(requests.trigger)
    pause = Answered(requests.pause)
    resume = Answered(requests.resume)
    skip = Answered(requests.skip)
    unskip = Answered(requests.unskip)
    planned = Paged(requests.planned)
    ticks = Paged(requests.ticks)
    why = Answered(requests.why)

    backfill = Answered(requests.backfill)
    preview_backfill = Answered(requests.preview_backfill)
    backfills = Paged(requests.backfills)
    backfill_state = Answered(requests.backfill_state)
    cancel_backfill = Answered(requests.cancel_backfill)

    executions = Paged(requests.executions)
    execution = Answered(requests.execution)
    items = Paged(requests.items)
    cancel = Answered(requests.cancel)
    logs = Paged(requests.logs)
    submit = Answered(requests.submit)

    dead_letters = Paged(requests.dead_letters)
    dead_letter = Answered(requests.dead_letter)
    replay = Answered(requests.replay)
    replay_all = Listed(requests.replay_all)
    resolve = Answered(requests.resolve)

    emit = Answered(requests.emit)
    events = Paged(requests.events)
    event = Answered(requests.event)
    deploy = Answered(requests.deploy)
    workflows = Paged(requests.workflows)
    workflow = Answered(requests.workflow)
    upsert_schedule = Answered(requests.upsert_schedule)
    pause_schedule = Answered(requests.pause_schedule)
    schedule = Answered(requests.schedule)
    delete_schedule = Answered(requests.delete_schedule)
    start = Answered(requests.start)
    workers = Listed(requests.workers)
    audit = Paged(requests.audit)
