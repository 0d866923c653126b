"""What both clients offer: one table, from which each makes methods of its own kind."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

from gnomon.client import requests
from gnomon.client.transport import ApiRequest
from gnomon.core.responses import Page

if TYPE_CHECKING:
    from gnomon.client.async_client import AsyncClient
    from gnomon.client.sync_client import Client

T = TypeVar("T")
P = ParamSpec("P")


class SingleMethod(Generic[P, T]):
    """A method that asks and gives back the answer."""

    def __init__(self, make: Callable[P, ApiRequest[T]]) -> None:
        self.make, self.__doc__, self.__wrapped__ = make, make.__doc__, make

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> object:
        """The method of that client."""
        return self if client is None else client.bind_single(self.make)


class ListMethod(Generic[P, T]):
    """A method that asks and gives back all that there is, however many pages that takes."""

    def __init__(self, make: Callable[P, ApiRequest[Page[T]]]) -> None:
        self.make, self.__doc__, self.__wrapped__ = make, make.__doc__, make

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, list[T]]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, Coroutine[Any, Any, list[T]]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> object:
        """The method of that client."""
        return self if client is None else client.bind_list(self.make)


class PagedMethod(Generic[P, T]):
    """A method that asks and gives back what is on one page after the other, as it is asked for."""

    def __init__(self, make: Callable[P, ApiRequest[Page[T]]]) -> None:
        self.make, self.__doc__, self.__wrapped__ = make, make.__doc__, make

    @overload
    def __get__(self, client: None, owner: type) -> Self: ...
    @overload
    def __get__(self, client: "Client", owner: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: "Client | AsyncClient | None", owner: type) -> object:
        """The method of that client."""
        return self if client is None else client.bind_pages(self.make)


class ClientMethods:
    """Everything that can be asked for."""

    health = SingleMethod(requests.health)

    register = SingleMethod(requests.register)
    update = SingleMethod(requests.update)
    apply = ListMethod(requests.apply)
    plan = SingleMethod(requests.plan)
    jobs = PagedMethod(requests.jobs)
    job = SingleMethod(requests.job)
    delete = SingleMethod(requests.delete)
    trigger = SingleMethod(requests.trigger)
    pause = SingleMethod(requests.pause)
    resume = SingleMethod(requests.resume)
    skip = SingleMethod(requests.skip)
    unskip = SingleMethod(requests.unskip)
    planned = PagedMethod(requests.planned)
    ticks = PagedMethod(requests.ticks)
    why = SingleMethod(requests.why)

    backfill = SingleMethod(requests.backfill)
    preview_backfill = SingleMethod(requests.preview_backfill)
    backfills = PagedMethod(requests.backfills)
    backfill_state = SingleMethod(requests.backfill_state)
    cancel_backfill = SingleMethod(requests.cancel_backfill)

    executions = PagedMethod(requests.executions)
    execution = SingleMethod(requests.execution)
    items = PagedMethod(requests.items)
    cancel = SingleMethod(requests.cancel)
    logs = PagedMethod(requests.logs)
    submit = SingleMethod(requests.submit)

    dead_letters = PagedMethod(requests.dead_letters)
    dead_letter = SingleMethod(requests.dead_letter)
    replay = SingleMethod(requests.replay)
    replay_all = ListMethod(requests.replay_all)
    resolve = SingleMethod(requests.resolve)

    emit = SingleMethod(requests.emit)
    events = PagedMethod(requests.events)
    event = SingleMethod(requests.event)
    deploy = SingleMethod(requests.deploy)
    workflows = PagedMethod(requests.workflows)
    workflow = SingleMethod(requests.workflow)
    upsert_schedule = SingleMethod(requests.upsert_schedule)
    pause_schedule = SingleMethod(requests.pause_schedule)
    schedule = SingleMethod(requests.schedule)
    delete_schedule = SingleMethod(requests.delete_schedule)
    start = SingleMethod(requests.start)
    workers = ListMethod(requests.workers)
    audit = PagedMethod(requests.audit)
