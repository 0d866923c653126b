"""Workflows as Python functions: `@gnomon.workflow` calls the function once, with references instead of values.

The function only declares steps. They run later, each when its dependencies have ended, with the values that the
references have by then.
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
    Schedule,
    Span,
    job_fields,
    job_file_value,
    registered_name,
)

Definition = TypeVar("Definition", bound=Callable[..., Any])
_REFERENCE = re.compile(r"\$\{[^}]*\}")
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_TIMES = ("schedule", "at", "every")


class Reference:
    """A value that a run will have: an input, an output, or a part of one. Its text is `${…}`."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        self._path = path

    def __getitem__(self, key: str | int) -> "Reference":
        if isinstance(key, str) and _KEY.fullmatch(key):
            return Reference(f"{self._path}.{key}")
        if isinstance(key, int) and not isinstance(key, bool) and key >= 0:
            return Reference(f"{self._path}[{key}]")
        raise FieldError(
            str(self), key, "cannot be a part of it: parts are texts of letters, digits, _ and -, or numbers"
        )

    def __str__(self) -> str:
        return f"${{{self._path}}}"

    def __format__(self, spec: str) -> str:
        if spec:
            raise FieldError(str(self), spec, "cannot format it: it has no value before its run")
        return str(self)

    def __repr__(self) -> str:
        return f"<reference {self}>"

    def _refuse(self, *_: object) -> NoReturn:
        raise UsageError(f"{self} has no value before its run: test it in condition=, or iterate over it with foreach=")

    __bool__ = __iter__ = __len__ = __contains__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __eq__ = __ne__ = _refuse
    __hash__ = object.__hash__


class StepHandle:
    """A declared step: later steps may depend on it and take its output."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def output(self) -> Reference:
        """A reference to the value that the step will return."""
        if "." in self.name:
            raise FieldError("name", self.name, "has a dot, so no reference can name it")
        return Reference(f"steps.{self.name}.output")

    def compensate(
        self,
        function: Callable[..., Any] | str | None = None,
        /,
        *,
        command: str | None = None,
        http: Mapping[str, Any] | None = None,
        timeout: Span | None = None,
        retry: Retry | Mapping[str, Any] | None = None,
        isolation: str | None = None,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - its name in jobs files
        **arguments: Any,  # noqa: ANN401 - any argument of the function
    ) -> None:
        """Declare how the step is undone if its run is rolled back: by a function, a command or a call.

        Arguments are given as to `step`. They may take the output of this step, and of those before it.
        """
        builder = _current_builder()
        fields: dict[str, Any] = {"timeout": timeout, "retry": retry, "isolation": isolation}
        action = builder.action(function, command=command, http=http)
        builder.add_compensation(self.name, action, fields, {**(input or {}), **arguments})

    def __repr__(self) -> str:
        return f"<step {self.name}>"


#: The current item of a step with `foreach`, and its index, counted from 0.
item = Reference("item")
index = Reference("index")
_building: ContextVar["_Builder | None"] = ContextVar("gnomon_workflow", default=None)


def step(  # noqa: PLR0913 - as many parameters as a step has fields
    function: Callable[..., Any] | str | None = None,
    /,
    *,
    name: str | None = None,
    command: str | None = None,
    http: Mapping[str, Any] | None = None,
    agent: Mapping[str, Any] | None = None,
    workflow: str | None = None,
    after: Iterable[StepHandle | str] = (),
    when: str | None = None,
    condition: str | Reference | None = None,
    foreach: Reference | Iterable[Any] | None = None,
    max_parallel: int | None = None,
    delay: Span | None = None,
    delay_until: Reference | datetime | str | None = None,
    timeout: Span | None = None,
    deadline: Span | None = None,
    retry: Retry | Mapping[str, Any] | None = None,
    isolation: str | None = None,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - its name in jobs files
    **arguments: Any,  # noqa: ANN401 - any argument of the function
) -> StepHandle:
    """Declare a step of the workflow that is being built: a function, command, call, agent, workflow, or a wait.

    Arguments of a function whose names are parameters of `step` go into `input`. A command takes `env`, `workdir` and
    `stdin`; `http` is a mapping with `url` and so on, `agent` one with `prompt`. A step that takes the output of
    another depends on it.
    """
    builder = _current_builder()
    fields: dict[str, Any] = {
        "when": when,
        "if": None if condition is None else _condition_text(condition),
        "foreach": foreach,
        "max_parallel": max_parallel,
        "delay": delay,
        "delay_until": delay_until,
        "timeout": timeout,
        "deadline": deadline,
        "retry": retry,
        "isolation": isolation,
    }
    action = builder.action(function, command=command, http=http, agent=agent, workflow=workflow)
    return builder.add(name, action, fields, {**(input or {}), **arguments}, after)


def _current_builder() -> "_Builder":
    builder = _building.get()
    if builder is None:
        raise UsageError("gnomon.step was called outside of a workflow: call it in a function under @gnomon.workflow")
    return builder


class _Builder:
    """Collects the steps of one workflow."""

    def __init__(self, functions: Functions, workflows: Mapping[Callable[..., Any], str]) -> None:
        self._functions = functions
        self._workflows = workflows
        self.steps: dict[str, dict[str, Any]] = {}

    def action(self, function: Callable[..., Any] | str | None, **alternatives: object) -> dict[str, Any]:
        """The function, command, call or workflow of a step as fields of a jobs file; empty for a wait."""
        named = {field: value for field, value in alternatives.items() if value is not None}
        if function is not None and named:
            field, value = next(iter(named.items()))
            raise FieldError(field, value, "cannot be combined with a function: give one of them")
        if named:
            return named
        if function is None:
            return {}
        if isinstance(function, str):
            return {"function": function}
        if function in self._workflows:
            return {"workflow": self._workflows[function]}
        known = self._functions.name_of(function) if callable(function) else None
        if known is None:
            reason = "is not a registered function: put @gnomon.function above it, or give its name"
            raise FieldError("step", function, reason)
        return {"function": known}

    def add(
        self,
        name: str | None,
        action: Mapping[str, Any],
        fields: Mapping[str, Any],
        arguments: Mapping[str, Any],
        after: Iterable[StepHandle | str],
    ) -> StepHandle:
        """Add a step that depends on the steps in `after` and on those whose outputs it takes."""
        name = self._free_name(name, action)
        written = _written(name, action, fields, arguments)
        needs = [one.name if isinstance(one, StepHandle) else one for one in after]
        needs += [path[1] for path in _paths(written) if path[0] == "steps" and len(path) > 1]
        self.steps[name] = {"step": name, "depends_on": list(dict.fromkeys(needs)), **written}
        return StepHandle(name)

    def add_compensation(
        self, name: str, action: Mapping[str, Any], fields: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> None:
        """Add the compensation of a step. It depends on nothing: it starts only if the run is rolled back."""
        if name not in self.steps:
            raise FieldError("compensate", name, "is no step of the workflow that is being built")
        if "compensate" in self.steps[name]:
            raise FieldError(f"{name}.compensate", None, "is declared a second time")
        if not action:
            raise FieldError(f"{name}.compensate", None, "is missing: give a function, a command or an http call")
        self.steps[name]["compensate"] = _written(f"{name}.compensate", action, fields, arguments)

    def _free_name(self, name: str | None, action: Mapping[str, Any]) -> str:
        if name is None:
            source = action.get("function") or action.get("workflow") or (action.get("command") or "").partition(" ")[0]
            if not source:
                raise FieldError(
                    "name", None, "is missing: a step that only waits, calls a URL or a model, has none of its own"
                )
            name = re.sub(r"[^a-z0-9_-]", "-", re.split(r"[/.:@]", source)[-1].lower())
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise FieldError("name", name, "must be 1 to 128 of a-z, 0-9, dot, dash and underscore")
        if name in self.steps:
            raise FieldError("name", name, "is the name of an earlier step: give this one another with name=")
        return name


def _written(
    name: str, action: Mapping[str, Any], fields: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a step or compensation as they are written in a jobs file."""
    said = {**action, **{field: value for field, value in fields.items() if value is not None}}
    written = {field: _with_references(f"{name}.{field}", value) for field, value in said.items()}
    if "command" in action:
        return written | {field: _with_references(f"{name}.{field}", value) for field, value in arguments.items()}
    if arguments:
        written["input"] = read_input(f"{name}.input", _with_references(f"{name}.input", arguments))
    return written


def _with_references(field: str, value: Any) -> Any:  # noqa: ANN401 - any JSON with references in it
    """The value as it is written in a jobs file, with references as texts."""
    if isinstance(value, Reference):
        return str(value)
    if isinstance(value, StepHandle):
        raise FieldError(field, value, "is a step and no value: take its .output")
    if isinstance(value, Mapping):
        return {key: _with_references(f"{field}.{key}", one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_with_references(f"{field}[{number}]", one) for number, one in enumerate(value)]
    return job_file_value(value)


def _paths(fields: Mapping[str, Any]) -> Iterator[list[str]]:
    """The path of every reference in the fields of a step, in their order; those of the condition come last."""
    yield from (segments(path) for path in references({key: one for key, one in fields.items() if key != "if"}))
    yield from (list(found) for found in _STEP_IN_CONDITION.findall(fields.get("if", "")))


#: A step in a condition, as `steps.NAME` or `steps["NAME"]`.
_STEP_IN_CONDITION = re.compile(r"""\b(steps)(?:\.|\[["'])([A-Za-z0-9_-]+)""")


def _condition_text(condition: str | Reference) -> str:
    """The condition, with each `${…}` replaced by a path."""

    def path(found: re.Match[str]) -> str:
        root, *rest = segments(found[0])
        return root + "".join(f"[{part}]" if part.isdecimal() else f'["{part}"]' for part in rest)

    return _REFERENCE.sub(path, str(condition))


class Workflows:
    """Registers workflows in a registry of functions."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._known: dict[Callable[..., Any], str] = {}

    @overload
    def workflow(self, schedule: Definition, /) -> Definition: ...
    @overload
    def workflow(
        self, schedule: Schedule | None = None, *, name: str | None = None, **options: Unpack[JobOptions]
    ) -> Callable[[Definition], Definition]: ...
    def workflow(
        self, schedule: Definition | Schedule | None = None, *, name: str | None = None, **options: Unpack[JobOptions]
    ) -> Definition | Callable[[Definition], Definition]:
        """Register a job whose steps the decorated function declares. It is called once, now, and returned unchanged.

        Its parameters are the input of a run, and their defaults the default input.
        """
        if callable(schedule):
            self._declare(schedule, name, options)
            return schedule
        fields = job_fields(schedule, options)

        def declared(definition: Definition) -> Definition:
            self._declare(definition, name, fields)
            return definition

        return declared

    def _declare(self, definition: Callable[..., Any], name: str | None, fields: Mapping[str, Any]) -> None:
        name = registered_name(definition, name)
        if inspect.iscoroutinefunction(definition):
            raise FieldError("workflow", name, "is a coroutine: a workflow only declares steps, and awaits nothing")
        given = {**_defaults(name, definition), **fields.get("input", {})}
        parameters = inspect.signature(definition).parameters
        missing = [one for one in parameters if one not in given]
        if missing and any(field in fields for field in _TIMES):
            raise FieldError(missing[0], None, f"has no default, which the schedule of the workflow {name} needs")
        builder = _Builder(self._functions, self._known)
        token = _building.set(builder)
        try:
            definition(**{parameter: Reference(f"input.{parameter}") for parameter in parameters})
        finally:
            _building.reset(token)
        if not builder.steps:
            raise FieldError("workflow", name, "has no steps: declare them with gnomon.step")
        written = job_file_value({**fields, "input": given} if given else fields)
        self._functions.declare(
            {"name": name, **written, "dag": list(builder.steps.values())}, Function(name, definition)
        )
        self._known[definition] = name


def _defaults(name: str, definition: Callable[..., Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for parameter in inspect.signature(definition).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise FieldError("workflow", name, f"has the parameter {parameter}, which an input cannot name")
        if parameter.default is not parameter.empty:
            found[parameter.name] = parameter.default
    return read_input("input", job_file_value(found))


workflow = Workflows(FUNCTIONS).workflow
