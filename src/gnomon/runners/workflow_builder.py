"""Workflows as Python functions: called once, when they are written down, with references instead of values.

What such a function does is to name its steps. They run later, each when its turn has come, with what the references
lead to by then.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn, TypeVar, Unpack, overload

from gnomon.core.jobs.fields import NAME
from gnomon.core.jobs.inputs import read_input
from gnomon.core.runs.expressions import references, segments
from gnomon.errors import FieldError, UsageError
from gnomon.runners.registry import (
    FUNCTIONS,
    Function,
    Functions,
    JobOptions,
    Retry,
    Span,
    job_file_value,
    registered_name,
)

Definition = TypeVar("Definition", bound=Callable[..., Any])
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TIMES = ("schedule", "at", "every")


class Reference:
    """A value that a run will have: an input, an output, or a part of one. As a text it is `${…}`."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __getitem__(self, key: str | int) -> "Reference":
        if isinstance(key, str) and _KEY.fullmatch(key):
            return Reference(f"{self._path}.{key}")
        if isinstance(key, int) and not isinstance(key, bool) and key >= 0:
            return Reference(f"{self._path}[{key}]")
        raise FieldError(
            str(self), key, "can be no part of it: parts are texts of letters, digits, _ and -, or numbers"
        )

    def __str__(self) -> str:
        return f"${{{self._path}}}"

    def __format__(self, spec: str) -> str:
        if spec:
            raise FieldError(str(self), spec, "is no way to write it: it has no value before its run")
        return str(self)

    def __repr__(self) -> str:
        return f"<reference {self}>"

    def _refuse(self, *_: object) -> NoReturn:
        raise UsageError(
            f"{self} has no value before its run: ask for it in condition=, or go through it with foreach="
        )

    __bool__ = __iter__ = __len__ = __contains__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __eq__ = __ne__ = _refuse
    __hash__ = object.__hash__


class StepHandle:
    """A step that was named: others may come after it and take its output."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def output(self) -> Reference:
        """What it will have returned."""
        if "." in self.name:
            raise FieldError("name", self.name, "has a dot, so that nothing can refer to it")
        return Reference(f"steps.{self.name}.output")

    def __repr__(self) -> str:
        return f"<step {self.name}>"


#: The item of a step that is done for each of many, and its number, counted from 0.
item = Reference("item")
index = Reference("index")
_building: ContextVar["_Builder | None"] = ContextVar("gnomon_workflow", default=None)


def step(  # noqa: PLR0913 - as many parameters as a step has fields
    what: Callable[..., Any] | str | None = None,
    /,
    *,
    name: str | None = None,
    command: str | None = None,
    workflow: str | None = None,
    after: Iterable[StepHandle | str] = (),
    when: str | None = None,
    condition: str | Reference | None = None,
    foreach: Reference | Iterable[Any] | None = None,
    max_parallel: int | None = None,
    delay: Span | None = None,
    delay_until: Reference | datetime | str | None = None,
    timeout: Span | None = None,
    retry: Retry | Mapping[str, Any] | None = None,
    isolation: str | None = None,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the word that job files have for it
    **given: Any,  # noqa: ANN401 - whatever the function takes
) -> StepHandle:
    """Name a step of the workflow that is being written: a function, a command, another workflow, or only a wait.

    What a function is given under names that mean something here goes into `input`. A command is given `env`, `workdir`
    and `stdin`. Taking the output of a step makes this one come after it.
    """
    builder = _current_builder()
    said: dict[str, Any] = {
        "when": when,
        "if": None if condition is None else _condition_text(condition),
        "foreach": foreach,
        "max_parallel": max_parallel,
        "delay": delay,
        "delay_until": delay_until,
        "timeout": timeout,
        "retry": retry,
        "isolation": isolation,
    }
    doing = builder.doing(what, command=command, workflow=workflow)
    return builder.add(name, doing, said, {**(input or {}), **given}, after)


def _current_builder() -> "_Builder":
    builder = _building.get()
    if builder is None:
        raise UsageError("gnomon.step was called outside of a workflow: call it in a function under @gnomon.workflow")
    return builder


class _Builder:
    """The steps of a workflow while it is being written."""

    def __init__(self, functions: Functions, workflows: Mapping[Callable[..., Any], str]) -> None:
        self._functions = functions
        self._workflows = workflows
        self.steps: dict[str, dict[str, Any]] = {}

    def doing(self, what: Callable[..., Any] | str | None, **instead: str | None) -> dict[str, str]:
        """What is to be done, in the words of a jobs file."""
        named = {field: value for field, value in instead.items() if value is not None}
        if what is not None and named:
            field, value = next(iter(named.items()))
            raise FieldError(field, value, "cannot be beside a function: say one of them")
        if named:
            return named
        if what is None:
            return {}
        if isinstance(what, str):
            return {"function": what}
        if what in self._workflows:
            return {"workflow": self._workflows[what]}
        known = self._functions.name_of(what) if callable(what) else None
        if known is None:
            raise FieldError("step", what, "is no registered function: put @gnomon.function above it, or give its name")
        return {"function": known}

    def add(
        self,
        name: str | None,
        doing: Mapping[str, str],
        said: Mapping[str, Any],
        given: Mapping[str, Any],
        after: Iterable[StepHandle | str],
    ) -> StepHandle:
        """One more step, after those that it names and those whose outputs it takes."""
        name = self._free_name(name, doing)
        words = {
            field: _with_references(f"{name}.{field}", value) for field, value in said.items() if value is not None
        }
        if "command" in doing:
            words |= {field: _with_references(f"{name}.{field}", value) for field, value in given.items()}
        elif given:
            words["input"] = read_input(f"{name}.input", _with_references(f"{name}.input", given))
        needs = [one.name if isinstance(one, StepHandle) else one for one in after]
        needs += [path[1] for path in _paths(words) if path[0] == "steps" and len(path) > 1]
        self.steps[name] = {"step": name, **doing, "depends_on": list(dict.fromkeys(needs)), **words}
        return StepHandle(name)

    def _free_name(self, name: str | None, doing: Mapping[str, str]) -> str:
        if name is None:
            does = doing.get("function") or doing.get("workflow") or (doing.get("command") or "").partition(" ")[0]
            if not does:
                raise FieldError("name", None, "is missing: a step that only waits has none of its own")
            name = re.sub(r"[^a-z0-9_-]", "-", re.split(r"[/.:@]", does)[-1].lower())
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise FieldError("name", name, "must be 1 to 128 of a-z, 0-9, dot, dash and underscore")
        if name in self.steps:
            raise FieldError("name", name, "is the name of an earlier step: give this one another with name=")
        return name


def _with_references(field: str, value: Any) -> Any:  # noqa: ANN401 - any JSON with references in it
    """The value in the words of a jobs file, with references as texts."""
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, StepHandle):
        raise FieldError(field, value, "is a step and no value: take its .output")
    if isinstance(value, Mapping):
        return {key: _with_references(f"{field}.{key}", one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_references(f"{field}[{number}]", one) for number, one in enumerate(value)]
    return job_file_value(value)


def _paths(words: Mapping[str, Any]) -> Iterator[list[str]]:
    """Every path that the words of a step lead along, in the order in which they are said."""
    yield from (segments(path) for path in references({key: one for key, one in words.items() if key != "if"}))
    yield from (list(found) for found in _ASKED.findall(words.get("if", "")))


#: A step in a condition, however it is written.
_ASKED = re.compile(r"""\b(steps)(?:\.|\[["'])([A-Za-z0-9_-]+)""")


def _condition_text(condition: str | Reference) -> str:
    """The condition, with references spelled as paths in it."""

    def path(found: re.Match[str]) -> str:
        root, *rest = segments(found[0])
        return root + "".join(f"[{part}]" if part.isdecimal() else f'["{part}"]' for part in rest)

    return _REFERENCE.sub(path, str(condition))


class Workflows:
    """Writes workflows into a registry."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._known: dict[Callable[..., Any], str] = {}

    @overload
    def workflow(self, schedule: Definition, /) -> Definition: ...
    @overload
    def workflow(
        self, schedule: str | None = None, *, name: str | None = None, **words: Unpack[JobOptions]
    ) -> Callable[[Definition], Definition]: ...
    def workflow(
        self, schedule: Definition | str | None = None, *, name: str | None = None, **words: Unpack[JobOptions]
    ) -> Definition | Callable[[Definition], Definition]:
        """Register a job whose steps the decorated function names. It is called once, now, and stays as it is.

        Its parameters are what a run is given; their defaults are what it is given if nobody says anything else.
        """
        said: dict[str, Any] = dict(words)
        if isinstance(schedule, str):
            said["schedule"] = schedule
        if callable(schedule):
            self._declare(schedule, name, said)
            return schedule

        def declared(definition: Definition) -> Definition:
            self._declare(definition, name, said)
            return definition

        return declared

    def _declare(self, definition: Callable[..., Any], name: str | None, said: Mapping[str, Any]) -> None:
        name = registered_name(definition, name)
        if inspect.iscoroutinefunction(definition):
            raise FieldError("workflow", name, "is a coroutine: a workflow only names its steps, and waits for nothing")
        given = {**_defaults(name, definition), **said.get("input", {})}
        parameters = inspect.signature(definition).parameters
        missing = [one for one in parameters if one not in given]
        if missing and any(field in said for field in _TIMES):
            raise FieldError(missing[0], None, f"has no default, and no clock could give it to the workflow {name}")
        builder = _Builder(self._functions, self._known)
        token = _building.set(builder)
        try:
            definition(**{parameter: Reference(f"input.{parameter}") for parameter in parameters})
        finally:
            _building.reset(token)
        if not builder.steps:
            raise FieldError("workflow", name, "has no steps: name them with gnomon.step")
        words = job_file_value({**said, "input": given} if given else said)
        self._functions.declare(
            {"name": name, **words, "dag": list(builder.steps.values())}, Function(name, definition)
        )
        self._known[definition] = name


def _defaults(name: str, definition: Callable[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for parameter in inspect.signature(definition).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise FieldError("workflow", name, f"has the parameter {parameter}, which no input could be named after")
        if parameter.default is not parameter.empty:
            found[parameter.name] = parameter.default
    return read_input("input", job_file_value(found))


workflow = Workflows(FUNCTIONS).workflow
