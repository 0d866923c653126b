"""Bind the input of a task to the arguments of its function."""

import inspect
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET, Struct

from gnomon.core.model import RunSource
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.workflow import ONLY_STEP
from gnomon.errors import FieldError, UsageError
from gnomon.runners.context import Context

_CONTEXT_NAME = "ctx"
#: Fields that a run started by an event has besides the input of its job.
_OF_EVENTS = ("event", "events")
_PLACE = re.compile(r" - at `(\$[^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")


class ArgumentBinder:
    """The parameters of one function, and the conversion of inputs to them."""

    def __init__(self, body: Callable[..., Any]) -> None:
        self._context: inspect.Parameter | None = None
        self._takes_any = False
        fields: list[Any] = []
        for parameter in inspect.signature(body).parameters.values():
            hint = _hint(body, parameter)
            if _is_context(parameter, hint):
                self._context = parameter
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._takes_any = True
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                fields.append(_field(parameter, hint))
        self._names = tuple(field[0] for field in fields)
        self._kind = _struct(fields, open_=self._takes_any)
        #: Whether the function is called without arguments.
        self.takes_nothing = not (self._context or fields or self._takes_any)

    def wanted(self, assignment: Assignment) -> Mapping[str, Any]:
        """The part of the input that the function receives.

        A step of a workflow receives its own input, and those fields of the shared input that it has parameters for.
        The function of a single-step job receives the whole input, so that a misspelt field is an error.
        """
        given = assignment.input
        if self._takes_any:
            return given
        if len(assignment.workflow.steps) > 1 or assignment.step.name != ONLY_STEP:
            kept = {*self._names, *assignment.step.input}
        elif assignment.run.source is RunSource.EVENT:
            kept = {*self._names, *(name for name in given if name not in _OF_EVENTS)}
        else:
            return given
        return {name: value for name, value in given.items() if name in kept}

    @property
    def takes_context(self) -> bool:
        """Whether the function has a parameter for the Context."""
        return self._context is not None

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the input; UsageError if a type of a parameter has none."""
        try:
            found = msgspec.json.schema(self._kind)
        except TypeError as error:
            reason = str(error).splitlines()[-1]
            raise UsageError(f"the parameters of the function have no JSON Schema: {reason}") from None
        types: dict[str, Any] = found["$defs"]
        own: dict[str, Any] = types.pop(found["$ref"].rpartition("/")[2])
        return own | ({"$defs": types} if types else {})

    def bind(
        self, given: Mapping[str, Any], context: Context | None, shown: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for the function; FieldError names a field that does not fit, with its value as in `shown`."""
        named = self._converted(given, shown)
        if self._context is None:
            return (), named
        if self._context.kind is self._context.POSITIONAL_ONLY:
            return (context,), named
        named[self._context.name] = context
        return (), named

    def _converted(self, given: Mapping[str, Any], shown: Mapping[str, Any]) -> dict[str, Any]:
        if not self._names and not given:
            return {}
        try:
            read = msgspec.convert(given, self._kind)
        except msgspec.ValidationError as error:
            raise _argument_error(str(error), shown) from None
        except TypeError as error:
            raise UsageError(f"the parameters of the function cannot be checked: {error}") from None
        named = {name: value for name in self._names if (value := getattr(read, name)) is not UNSET}
        if self._takes_any:
            named |= {name: value for name, value in given.items() if name not in self._names}
            if self._context is not None and self._context.name in named:
                raise FieldError(self._context.name, shown.get(self._context.name), "cannot be given as input")
        return named


class _HintNamespace(SimpleNamespace):
    """An object with one annotation, for get_type_hints."""


def _hint(body: Callable[..., Any], parameter: inspect.Parameter) -> Any:  # noqa: ANN401 - any type
    """The type of the parameter; Any if its annotation cannot be resolved at run time."""
    if parameter.annotation is parameter.empty:
        return Any
    plain = inspect.unwrap(getattr(body, "func", body))
    names = getattr(plain, "__globals__", {})
    try:
        hints = get_type_hints(
            _HintNamespace(__annotations__={"it": parameter.annotation}), globalns=names, include_extras=True
        )
    except (NameError, AttributeError, TypeError, SyntaxError):
        return Any
    return hints["it"]


def _is_context(parameter: inspect.Parameter, hint: Any) -> bool:  # noqa: ANN401 - any type
    return hint is Context or (parameter.name == _CONTEXT_NAME and hint is Any)


def _field(parameter: inspect.Parameter, hint: Any) -> Any:  # noqa: ANN401 - as defstruct wants it
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise UsageError(f"parameter {parameter.name} is positional only: an input cannot name it")
    if parameter.default is parameter.empty:
        return (parameter.name, hint)
    return (parameter.name, hint, UNSET)


def _struct(fields: list[Any], *, open_: bool) -> type[Struct]:
    return msgspec.defstruct("Input", fields, kw_only=True, forbid_unknown_fields=not open_)


def _argument_error(message: str, shown: Mapping[str, Any]) -> FieldError:
    """The validation error of msgspec as a FieldError that names the parameter."""
    place = _PLACE.search(message)
    reason = _PLACE.sub("", message)
    if place is None and (missing := _MISSING.fullmatch(reason)):
        return FieldError(missing[1], None, "is missing: the function needs it")
    if place is None and (unknown := _UNKNOWN.fullmatch(reason)):
        return FieldError(unknown[1], shown.get(unknown[1]), "is not a parameter of the function")
    path = place[1].removeprefix("$.") if place else "input"
    parameter = re.split(r"[.\[]", path, maxsplit=1)[0]
    return FieldError(path, shown.get(parameter), f"is refused: {reason}")
