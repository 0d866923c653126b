"""The functions that can run here, by name, and the jobs that were written beside them."""

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property, partial
from typing import Any, TypedDict, TypeVar, Unpack, overload

from msgspec import Struct

from gnomon.errors import FieldError, UsageError
from gnomon.runners.arguments import ArgumentBinder

_LONGEST_NAME = 200
Body = TypeVar("Body", bound=Callable[..., Any])
#: A span of time: "30s", a number of seconds, or a timedelta.
Span = str | float | timedelta


class LoadingStopped(BaseException):
    """Ends the reading of a program by a process that only looks for a function in it."""


class Retry(Struct, frozen=True, kw_only=True):
    """How often and when a failed attempt is followed by another."""

    #: All attempts together, the first included.
    max_attempts: int = 3
    initial_delay: Span = "30s"
    multiplier: float = 2
    max_delay: Span = "300s"
    #: By which share a delay may be longer or shorter.
    jitter: float = 0.1


class JobOptions(TypedDict, total=False):
    """What may be said about a job, in the words of a jobs file."""

    description: str
    timezone: str
    dialect: str
    at: datetime | str
    every: Span
    on: Mapping[str, Any]
    dst: Any
    start_at: datetime | str
    end_at: datetime | str
    jitter: Span
    catchup: str
    misfire_grace: Span
    catchup_window: Span
    overlap: str
    queue_limit: int
    input: Mapping[str, Any]
    input_schema: Mapping[str, Any]
    max_parallel: int
    timeout: Span
    retry: Retry | Mapping[str, Any]
    lock: bool
    dead_letter: bool
    delivery: str
    isolation: str
    pool: str
    topic: str
    requires: Sequence[str]
    labels: Mapping[str, str]
    priority: str
    tags: Sequence[str]
    delete_after_run: bool
    enabled: bool
    retention: Span
    ping: str | Mapping[str, Any]
    user_id: str


class Function:
    """Something that can run, under its name."""

    def __init__(self, name: str, body: Callable[..., Any]) -> None:
        self.name = name
        self.body = body
        self.is_coroutine = _is_coroutine(body)
        plain = _plain_function(body)
        if _is_generator(plain) or _is_generator(getattr(plain, "__call__", None)):  # noqa: B004 - as for coroutines
            raise FieldError("function", name, "is a generator: nobody would run it; return the results instead")
        #: Where it is defined: a module, and the path to it there.
        self.module: str = getattr(plain, "__module__", "")
        self.qualname: str = getattr(plain, "__qualname__", type(plain).__qualname__)

    @cached_property
    def binder(self) -> ArgumentBinder:
        """What turns inputs into arguments. Made at first use, when all that annotations name is defined."""
        return ArgumentBinder(self.body)

    def same_as(self, other: "Function") -> bool:
        """Whether both are one function, perhaps loaded again."""
        return (self.module, self.qualname) == (other.module, other.qualname)


def _plain_function(body: Callable[..., Any]) -> Any:  # noqa: ANN401 - a function, or an object that can be called
    while isinstance(body, partial):
        body = body.func
    return body


def _is_coroutine(body: Callable[..., Any]) -> bool:
    plain = _plain_function(body)
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(getattr(plain, "__call__", None))  # noqa: B004 - an object may have an async __call__


def _is_generator(body: object) -> bool:
    return inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body)


class Functions(Collection[str]):
    """A registry. Iterates over names."""

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}
        self._jobs: dict[str, Mapping[str, Any]] = {}
        #: Where each job was written.
        self._origins: dict[str, str] = {}
        #: Whether this process is that of one function: programs are read to find it, and nothing else is started.
        self.loading = False

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def get(self, name: str) -> Function | None:
        """The function of that name."""
        return self._functions.get(name)

    def __getitem__(self, name: str) -> Function:
        return self._functions[name]

    @property
    def jobs(self) -> list[Mapping[str, Any]]:
        """The jobs that were written with `job`, in the words of a jobs file; not checked yet."""
        return list(self._jobs.values())

    def stop_loading(self) -> None:
        """End the reading of the program here, if it is only read for its functions."""
        if self.loading:
            raise LoadingStopped("no scheduler is started in the process of an isolated function")

    def add(self, body: Callable[..., Any], name: str | None = None) -> Function:
        """Let the function run under the name. Another function under the same name is refused."""
        added = Function(registered_name(body, name), body)
        known = self._functions.get(added.name)
        if known is not None and not known.same_as(added):
            where = f"{known.module}.{known.qualname}"
            raise FieldError("function", added.name, f"is already the name of {where}")
        self._functions[added.name] = added
        return added

    def name_of(self, body: Callable[..., Any]) -> str | None:
        """The name under which the function itself was registered."""
        return next((name for name, known in self._functions.items() if known.body is body), None)

    def declare(self, said: Mapping[str, Any], written: Function) -> None:
        """Keep a job that was written as a function, or beside one. Another one of the same name is refused."""
        name, origin = said["name"], f"{written.module}.{written.qualname}"
        if self._origins.setdefault(name, origin) != origin:
            raise FieldError("name", name, f"is already the name of the job at {self._origins[name]}")
        self._jobs[name] = said

    @overload
    def function(self, name: Body, /) -> Body: ...
    @overload
    def function(self, name: str | None = None) -> Callable[[Body], Body]: ...
    def function(self, name: Body | str | None = None) -> Body | Callable[[Body], Body]:
        """Register the decorated function, which stays as it is. Without a name it is called by its own."""
        if callable(name):
            self.add(name)
            return name

        def registered(body: Body) -> Body:
            self.add(body, name)
            return body

        return registered

    def job(
        self, schedule: str | None = None, *, name: str | None = None, **words: Unpack[JobOptions]
    ) -> Callable[[Body], Body]:
        """Register the decorated function, and a job that runs it."""
        said: dict[str, Any] = dict(words)
        if schedule is not None:
            said["schedule"] = schedule
        if not said.keys() & {"schedule", "at", "every", "on"}:
            raise UsageError("a job needs a schedule, such as schedule='every day at 7am', or an event")

        def registered(body: Body) -> Body:
            added = self.add(body, name)
            self.declare({"name": added.name, "function": added.name, **job_file_value(said)}, added)
            return body

        return registered


def registered_name(body: Callable[..., Any], name: str | None) -> str:
    """The name it is given, or its own with dashes."""
    if not callable(body):
        raise FieldError("function", body, "cannot be called")
    if name is None:
        own: str | None = getattr(_plain_function(body), "__name__", None)
        if own is None or not own.isidentifier():
            raise FieldError("name", own, "is missing: what has no name of its own must be given one")
        name = own.replace("_", "-")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise FieldError("name", name, f"must be a text of 1 to {_LONGEST_NAME} printable characters")
    return name


def job_file_value(value: Any) -> Any:  # noqa: ANN401 - whatever someone says about a job
    """The value as a jobs file would say it."""
    match value:
        case timedelta():
            said: Any = _span(value)
        case datetime():
            said = value.isoformat()
        case Enum():
            said = value.value
        case Retry():
            said = {field: job_file_value(getattr(value, field)) for field in value.__struct_fields__}
        case Mapping():
            said = {key: job_file_value(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            said = [job_file_value(each) for each in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            said = job_file_value(asdict(value))
        case _:
            said = value
    return said


def _span(span: timedelta) -> str:
    ms = round(span / timedelta(milliseconds=1))
    return f"{ms}ms" if ms % 1000 else f"{ms // 1000}s"


#: What `gnomon.function` and `gnomon.job` fill.
FUNCTIONS = Functions()
function = FUNCTIONS.function
job = FUNCTIONS.job
