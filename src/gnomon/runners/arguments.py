"""Turning the input of a task into the arguments of its function."""

import inspect
import re
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, get_type_hints

import msgspec
from msgspec import UNSET, Struct

from gnomon.core.model import Source
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.workflow import ONLY_STEP
from gnomon.errors import FieldError, UsageError
from gnomon.runners.context import Context

_CONTEXT_NAME = "ctx"
#: What a run that an event started is given besides its job's input.
_OF_EVENTS = ("event", "events")
_PLACE = re.compile(r" - at `(\$[^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")


class ArgumentBinder:
    """Knows the parameters of one function."""

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
        #: Whether it is called without anything.
        self.takes_nothing = not (self._context or fields or self._takes_any)

    def wanted(self, assignment: Assignment) -> Mapping[str, Any]:
        """What the function is given: what its step says, and of what every step is given what it has parameters for.

        A job with one function is given all of its input, so that a slip in it is noticed.
        """
        given = assignment.input
        if self._takes_any:
            return given
        if len(assignment.workflow.steps) > 1 or assignment.step.name != ONLY_STEP:
            kept = {*self._names, *assignment.step.input}
        elif assignment.run.source is Source.EVENT:
            kept = {*self._names, *(name for name in given if name not in _OF_EVENTS)}
        else:
            return given
        return {name: value for name, value in given.items() if name in kept}

    @property
    def takes_context(self) -> bool:
        """Whether the function wants to know about its attempt."""
        return self._context is not None

    def bind(
        self, given: Mapping[str, Any], context: Context | None, shown: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments for the function; FieldError names what does not fit, with the value that may be `shown`."""
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
    """Something that has one annotation."""


def _hint(body: Callable[..., Any], parameter: inspect.Parameter) -> Any:  # noqa: ANN401 - any type
    """What the annotation means. One that names what is not there at run time says nothing."""
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
    """The message of the library in our words, naming the parameter."""
    place = _PLACE.search(message)
    reason = _PLACE.sub("", message)
    if place is None and (missing := _MISSING.fullmatch(reason)):
        return FieldError(missing[1], None, "is missing: the function needs it")
    if place is None and (unknown := _UNKNOWN.fullmatch(reason)):
        return FieldError(unknown[1], shown.get(unknown[1]), "is no parameter of the function")
    path = place[1].removeprefix("$.") if place else "input"
    parameter = re.split(r"[.\[]", path, maxsplit=1)[0]
    return FieldError(path, shown.get(parameter), f"is refused: {reason}")
