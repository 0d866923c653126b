"""Dispatch within one process: the interfaces between the services that create, admit and take tasks."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from gnomon.core.runs.admission import ReadyTask
from gnomon.services.execution.admission_cache import AdmissionCache, NoAdmissionCache

Done = TypeVar("Done")
#: The outputs of tasks as JSON, by task id. An output that is missing here is read from the store.
Outputs = Mapping[str, bytes | None]
NO_OUTPUTS: Outputs = {}


class WriteAndAdmit(Protocol):
    """Writes something that makes tasks, and admits these tasks in the same commit if it can."""

    def __call__(
        self, made: Sequence[ReadyTask], write: Callable[[], Awaitable[Done]], outputs: Outputs = NO_OUTPUTS
    ) -> Awaitable[Done]:
        """Return what `write` returns. `made` are the tasks that it makes, `outputs` those that it writes."""
        ...


class LocalDispatch(Struct, frozen=True, kw_only=True):
    """The dispatcher of a process, as the services that make tasks ready see it."""

    #: Asks for a step of the dispatcher soon, since tasks may be ready.
    wake: Callable[[], None]
    #: None where the dispatcher finds all tasks in its own steps.
    write_and_admit: WriteAndAdmit | None = None


class TaskTaker(Protocol):
    """The consumer of admitted tasks in the dispatcher's process: its worker, or its publisher to remote workers."""

    @property
    def admission_cache(self) -> AdmissionCache:
        """The admitted tasks that the taker need not read again."""
        ...

    async def take_with_admission(self) -> None:
        """Take tasks whose admission is being written: called together with it, the take shares its commit."""
        ...

    def tasks_admitted(self) -> None:
        """Look for tasks soon: some were admitted."""
        ...

    def expect_directed_tasks(self) -> None:
        """Look for directed tasks soon: one is about to be placed that not every worker may take."""
        ...


class NoTaker:
    """The taker of a process in which nothing takes tasks; workers of other processes find them in the store."""

    def __init__(self, on_admitted: Callable[[], None] = lambda: None) -> None:
        self.admission_cache: AdmissionCache = NoAdmissionCache()
        self._on_admitted = on_admitted

    async def take_with_admission(self) -> None:
        """Take nothing."""

    def tasks_admitted(self) -> None:
        """See TaskTaker.tasks_admitted."""
        self._on_admitted()

    def expect_directed_tasks(self) -> None:
        """Expect nothing."""


class TakerLink:
    """The taker as its dispatcher sees it.

    Dispatcher and worker need each other, and a publisher exists only once its message bus is connected. So a
    dispatcher is built with a link, and the taker is connected to it later; until then there is none.
    """

    def __init__(self) -> None:
        self._taker: TaskTaker = NoTaker()

    def connect(self, taker: TaskTaker) -> None:
        """Hand everything to this taker from now on."""
        self._taker = taker

    @property
    def admission_cache(self) -> AdmissionCache:
        """See TaskTaker.admission_cache."""
        return self._taker.admission_cache

    async def take_with_admission(self) -> None:
        """See TaskTaker.take_with_admission."""
        await self._taker.take_with_admission()

    def tasks_admitted(self) -> None:
        """See TaskTaker.tasks_admitted."""
        self._taker.tasks_admitted()

    def expect_directed_tasks(self) -> None:
        """See TaskTaker.expect_directed_tasks."""
        self._taker.expect_directed_tasks()
