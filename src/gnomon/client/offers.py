"""What both clients offer: one table, from which each makes methods of its own kind."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, overload

from gnomon.client import asks, operating_asks, schedule_asks
from gnomon.client.asking import Ask
from gnomon.core.responses import Page

if TYPE_CHECKING:
    from gnomon.client.asynchronous import AsyncClient
    from gnomon.client.synchronous import Client

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

    health = Answered(asks.health)

    register = Answered(asks.register)
    update = Answered(asks.update)
    apply = Listed(asks.apply)
    plan = Answered(operating_asks.plan)
    jobs = Paged(asks.jobs)
    job = Answered(asks.job)
    delete = Answered(asks.delete)
    trigger = Answered(asks.trigger)
    pause = Answered(asks.pause)
    resume = Answered(operating_asks.resume)
    skip = Answered(operating_asks.skip)
    unskip = Answered(operating_asks.unskip)
    planned = Paged(asks.planned)
    ticks = Paged(asks.ticks)
    why = Answered(asks.why)

    backfill = Answered(operating_asks.backfill)
    preview_backfill = Answered(operating_asks.preview_backfill)
    backfills = Paged(operating_asks.backfills)
    backfill_state = Answered(operating_asks.backfill_state)
    cancel_backfill = Answered(operating_asks.cancel_backfill)

    executions = Paged(asks.executions)
    execution = Answered(asks.execution)
    items = Paged(asks.items)
    cancel = Answered(asks.cancel)
    logs = Paged(asks.logs)
    submit = Answered(asks.submit)

    dead_letters = Paged(asks.dead_letters)
    dead_letter = Answered(asks.dead_letter)
    replay = Answered(asks.replay)
    replay_all = Listed(asks.replay_all)
    resolve = Answered(asks.resolve)

    emit = Answered(asks.emit)
    events = Paged(asks.events)
    event = Answered(asks.event)
    deploy = Answered(asks.deploy)
    workflows = Paged(asks.workflows)
    workflow = Answered(asks.workflow)
    upsert_schedule = Answered(schedule_asks.upsert_schedule)
    pause_schedule = Answered(schedule_asks.pause_schedule)
    schedule = Answered(schedule_asks.schedule)
    delete_schedule = Answered(schedule_asks.delete_schedule)
    start = Answered(schedule_asks.start)
    workers = Listed(asks.workers)
    audit = Paged(operating_asks.audit)
