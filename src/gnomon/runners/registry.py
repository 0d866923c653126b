"""The registry of functions by name, and of the jobs that `@gnomon.job` and `@gnomon.workflow` declare."""

import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, overload

from msgspec import Struct

from gnomon.core.cron import Cron, Dst
from gnomon.core.triggers import At, Every
from gnomon.errors import FieldError
from gnomon.runners.arguments import ArgumentBinder

_LONGEST_NAME = 200
Body = TypeVar("Body", bound=Callable[..., Any])
#: A span of time: "30s", a number of seconds, or a timedelta.
Span = str | float | timedelta


class LoadingStopped(BaseException):
    """Ends the loading of a program in a child process, which only needs one function of it."""


class Retry(Struct, frozen=True, kw_only=True):
    """How often failed attempts are retried, and after which delays."""

    #: All attempts together, the first included.
    max_attempts: int = 3
    initial_delay: Span = "30s"
    multiplier: float = 2
    max_delay: Span = "300s"
    #: The fraction by which a delay may be longer or shorter; a text or timedelta is the most that is added to it.
    jitter: float | str | timedelta = 0.1


#: When a job runs: cron or a sentence, or a trigger as a value.
Schedule = str | Cron | Every | At


class JobOptions(TypedDict, total=False):
    """The options of a job, with the field names of a jobs file."""

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
    deadline: Span
    budget: Mapping[str, Any]
    retry: Retry | Mapping[str, Any]
    lock: bool
    dead_letter: bool
    rollback_on: Sequence[str]
    delivery: str
    isolation: str
    sandbox: str
    network: bool
    pool: str
    topic: str
    requires: Sequence[str]
    labels: Mapping[str, str]
    priority: str
    capability: str
    risk_tags: Sequence[str]
    breaker: Mapping[str, Any]
    tags: Sequence[str]
    delete_after_run: bool
    enabled: bool
    retention: Span | Mapping[str, Any]
    ping: str | Mapping[str, Any]
    announce: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
    user_id: str


class Function:
    """A callable that was registered under a name."""

    def __init__(self, name: str, body: Callable[..., Any]) -> None:
        self.name = name
        self.body = body
        self.is_coroutine = _is_coroutine(body)
        plain = _plain_function(body)
        if _is_generator(plain) or _is_generator(getattr(plain, "__call__", None)):  # noqa: B004 - as for coroutines
            raise FieldError("function", name, "is a generator, which Gnomon does not run: return the results instead")
        #: Where it is defined: a module, the path to it there, and the file and line, as far as they are known.
        self.module: str = getattr(plain, "__module__", "")
        self.qualname: str = getattr(plain, "__qualname__", type(plain).__qualname__)
        self.source = _source_of(plain)

    @cached_property
    def binder(self) -> ArgumentBinder:
        """Binds inputs to arguments. Built at first use, when all names in the annotations are defined."""
        return ArgumentBinder(self.body)

    def same_as(self, other: "Function") -> bool:
        """Whether both are the same function, which may have been loaded twice."""
        return (self.module, self.qualname) == (other.module, other.qualname)


def _plain_function(body: Callable[..., Any]) -> Any:  # noqa: ANN401 - a function, or an object that can be called
    while isinstance(body, partial):
        body = body.func
    return body


def _source_of(plain: object) -> str:
    """The file and the line of a function, decorators included; empty for other callables."""
    code = getattr(inspect.unwrap(plain) if callable(plain) else plain, "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _is_coroutine(body: Callable[..., Any]) -> bool:
    plain = _plain_function(body)
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(getattr(plain, "__call__", None))  # noqa: B004 - an object may have an async __call__


def _is_generator(body: object) -> bool:
    return inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body)


class Functions(Collection[str]):
    """A registry of functions and jobs. Iterates over the names of the functions."""

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}
        self._declared: dict[str, DeclaredJob] = {}
        #: The module that is being imported by its name, if one is.
        self._importing: str | None = None
        self._loading = False

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
    def declared(self) -> list["DeclaredJob"]:
        """The declared jobs; not validated yet."""
        return list(self._declared.values())

    @property
    def jobs(self) -> list[Mapping[str, Any]]:
        """The definitions of the declared jobs, with the fields of a jobs file; not validated yet."""
        return [one.definition for one in self.declared]

    @contextmanager
    def importing(self, module: str) -> Iterator[None]:
        """The jobs that are declared meanwhile belong to this module, whichever others it imports."""
        before, self._importing = self._importing, module
        try:
            yield
        finally:
            self._importing = before

    @property
    def loading(self) -> bool:
        """Whether this is the child process of one function."""
        return self._loading

    def load_only(self) -> None:
        """Start no scheduler: this is the child process of one function, and loads programs to find it."""
        self._loading = True

    def stop_loading(self) -> None:
        """Raise LoadingStopped if this process loads the program only for its functions."""
        if self._loading:
            raise LoadingStopped("no scheduler is started in the process of an isolated function")

    def add(self, body: Callable[..., Any], name: str | None = None) -> Function:
        """Register the function under the name; FieldError if another function has it."""
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

    def declare(self, definition: Mapping[str, Any], declared_by: Function) -> None:
        """Register a job that a decorated function declares; FieldError if another job has its name."""
        name, known = definition["name"], self._declared.get(definition["name"])
        if known is not None and not known.function.same_as(declared_by):
            raise FieldError("name", name, f"is already the name of the job of {known.place}")
        self._declared[name] = DeclaredJob(definition, declared_by, self._importing or module_name(declared_by))

    @overload
    def function(self, name: Body, /) -> Body: ...
    @overload
    def function(self, name: str | None = None) -> Callable[[Body], Body]: ...
    def function(self, name: Body | str | None = None) -> Body | Callable[[Body], Body]:
        """Register the decorated function, and return it unchanged. The default name is its own, with dashes."""
        if callable(name):
            self.add(name)
            return name

        def registered(body: Body) -> Body:
            self.add(body, name)
            return body

        return registered

    def job(
        self, schedule: Schedule | None = None, *, name: str | None = None, **options: Unpack[JobOptions]
    ) -> Callable[[Body], Body]:
        """Register the decorated function, and a job that runs it: at its times, or when it is triggered."""
        fields = job_fields(schedule, options)

        def registered(body: Body) -> Body:
            added = self.add(body, name)
            self.declare({"name": added.name, "function": added.name, **job_file_value(fields)}, added)
            return body

        return registered


class DeclaredJob(Struct, frozen=True):
    """A job that a decorated function declares."""

    #: With the fields of a jobs file; not validated yet.
    definition: Mapping[str, Any]
    function: Function
    #: The module that was imported by its name when the job was declared, or else the module of the function.
    module: str

    @property
    def place(self) -> str:
        """The function that declares it, with its file and line if they are known."""
        name = f"{self.function.module}.{self.function.qualname}"
        return f"{name} ({self.function.source})" if self.function.source else name


def module_name(function: Function) -> str:
    """The module of the function; of a script that is run, the name under which it could be imported."""
    if function.module != "__main__":
        return function.module
    main = sys.modules.get("__main__")
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return str(spec.name) if spec is not None else Path(file).stem if file else function.module


def job_fields(schedule: Schedule | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a job with the fields of its schedule; FieldError if a field is given twice."""
    fields: dict[str, Any] = dict(options)
    for field, value in _schedule_fields(schedule).items():
        if field in options:
            raise FieldError(field, options[field], "is given by the schedule, too")
        fields[field] = value
    return fields


def _schedule_fields(schedule: Schedule | None) -> dict[str, Any]:
    match schedule:
        case None:
            return {}
        case Cron():
            clock_changes = {} if schedule.dst == Dst() else {"dst": schedule.dst}
            dialect = {} if schedule.dialect == "standard" else {"dialect": schedule.dialect}
            return {"schedule": schedule.expression, "timezone": schedule.timezone, **dialect, **clock_changes}
        case Every():
            return {"every": schedule.period, "start_at": schedule.anchor}
        case At():
            return {"at": schedule.instant}
        case _:
            return {"schedule": schedule}


def registered_name(body: Callable[..., Any], name: str | None) -> str:
    """The name to register the callable under: the given one, or its own with dashes."""
    if not callable(body):
        raise FieldError("function", body, "cannot be called")
    if name is None:
        own: str | None = getattr(_plain_function(body), "__name__", None)
        if own is None or not own.isidentifier():
            raise FieldError("name", own, "is missing: a callable without a name of its own must be given one")
        name = own.replace("_", "-")
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
        raise FieldError("name", name, f"must be a text of 1 to {_LONGEST_NAME} printable characters")
    return name


def job_file_value(value: Any) -> Any:  # noqa: ANN401 - any value of a job field
    """The value as it is written in a jobs file."""
    match value:
        case timedelta():
            written: Any = _span(value)
        case datetime():
            written = value.isoformat()
        case Enum():
            written = value.value
        case Retry():
            written = {field: job_file_value(getattr(value, field)) for field in value.__struct_fields__}
        case Mapping():
            written = {key: job_file_value(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            written = [job_file_value(each) for each in value]
        case _ if is_dataclass(value) and not isinstance(value, type):
            written = job_file_value(asdict(value))
        case _:
            written = value
    return written


def _span(span: timedelta) -> str:
    ms = round(span / timedelta(milliseconds=1))
    return f"{ms}ms" if ms % 1000 else f"{ms // 1000}s"


#: The registry that `gnomon.function`, `gnomon.job` and `gnomon.workflow` fill.
FUNCTIONS = Functions()
function = FUNCTIONS.function
job = FUNCTIONS.job
