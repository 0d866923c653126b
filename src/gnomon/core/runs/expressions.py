"""Expressions in steps: references inside inputs, and the conditions of `if`.

References pass data between steps: `${steps.extract.output.path}`, `${input.mode}`, `${item}`, `${run.planned_at}`.
A text that consists of exactly one reference becomes the value itself; references inside a longer text become text.

A condition such as `steps.check.output.rows > 0 and input.mode == "full"` is a Python expression restricted to paths,
plain values, comparisons, `in`, `and`, `or` and `not`. It is interpreted, never executed; nothing can be called.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from gnomon.core.runs.secret_text import TextPart, escape_data, json_parts, parts_of, shown_data, text_of
from gnomon.errors import FieldError

#: A reference to a secret; the worker replaces it when an attempt starts.
SECRET = re.compile(r"\$\{secret:([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})\}")
SECRET_BEGINS = re.compile(r"\$\{\s*secret\b", re.IGNORECASE)
#: The first segment of a reference.
ROOTS = ("steps", "input", "item", "index", "run")
#: The roots whose values have the form of an input: they mark the places of secrets.
_INPUTS = ("input", "item")
_PATH = r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+|\[\d{1,9}\])*"
_REFERENCE = re.compile(r"\$\{(" + _PATH + r")\}")
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")
Scope = Mapping[str, Any]


def references(value: object) -> Iterator[str]:
    """The paths of all references in a value, however deep; references to secrets are not included."""
    if isinstance(value, str):
        yield from (found[1] for found in _REFERENCE.finditer(value))
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from references(entry)
    elif isinstance(value, Sequence):
        for entry in value:
            yield from references(entry)


def segments(path: str) -> list[str]:
    """The segments of a path."""
    return _SEGMENT.findall(path)


def check_references(field: str, value: object, steps: frozenset[str], *, item: bool) -> None:
    """Raise FieldError for a reference that cannot be resolved here: an unknown root, or a step that is not before."""
    for path in references(value):
        root, *rest = segments(path)
        if root not in ROOTS or (root in ("item", "index") and not item):
            raise FieldError(field, f"${{{path}}}", f"must begin with {', '.join(_roots(item=item))}")
        if root == "steps" and (len(rest) < 2 or rest[1] != "output"):
            raise FieldError(field, f"${{{path}}}", "must be steps.STEP.output, and perhaps a path within it")
        if root == "steps" and rest[0] not in steps:
            raise FieldError(field, f"${{{path}}}", f"names {rest[0]}, which this step does not come after")


def _roots(*, item: bool) -> tuple[str, ...]:
    return ROOTS if item else tuple(root for root in ROOTS if root not in ("item", "index"))


class DataAllowance:
    """The bytes of data that references may still put in their places: a definition can repeat them without bound."""

    def __init__(self, size: int) -> None:
        self._size = self._left = size

    def spend(self, path: str, data: object) -> None:
        """Count the data of one reference; raise FieldError if it is too much."""
        self._left -= len(msgspec.json.encode(data))
        if self._left < 0:
            reason = f"repeats too much data: references may put {self._size} bytes in their places here"
            raise FieldError(f"${{{path}}}", None, reason)


def replace_references(text: str, by: str) -> str:
    """The text with each reference replaced by the same text."""
    return _REFERENCE.sub(by, text)


def resolve_references(value: Any, scope: Scope, allowance: DataAllowance) -> Any:  # noqa: ANN401 - any JSON
    """The value with every reference replaced; raise FieldError for one that cannot be resolved.

    The data is not read again: it neither refers to anything nor marks the place of a secret.
    """
    if isinstance(value, str):
        whole = _REFERENCE.fullmatch(value)
        if whole:
            return _substitute(whole[1], scope, allowance)
        return resolve_text(value, scope, allowance, _data_parts) if _REFERENCE.search(value) else value
    if isinstance(value, Mapping):
        return {key: resolve_references(entry, scope, allowance) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [resolve_references(entry, scope, allowance) for entry in value]
    return value


def resolve_text(
    text: str, scope: Scope, allowance: DataAllowance, write: Callable[[Any, Sequence[TextPart]], list[TextPart]]
) -> str:
    """The text with every reference replaced by the parts that `write` makes of its data, after the parts before it."""
    parts: list[TextPart] = []
    end = 0
    for found in _REFERENCE.finditer(text):
        data = _substitute(found[1], scope, allowance)
        parts += parts_of(text[end : found.start()])
        parts += write(data, parts)
        end = found.end()
    return text_of([*parts, *parts_of(text[end:])])


def _data_parts(data: Any, _: Sequence[TextPart]) -> list[TextPart]:  # noqa: ANN401 - any JSON
    return parts_of(data) if isinstance(data, str) else json_parts(data)


def _substitute(path: str, scope: Scope, allowance: DataAllowance) -> Any:  # noqa: ANN401 - any JSON
    """The value at a path as a part of an input. The input of a run has that form already."""
    found = value_at(path, scope)
    allowance.spend(path, found)
    return found if _is_input(path) else escape_data(found)


def _is_input(path: str) -> bool:
    return segments(path)[0] in _INPUTS


def fill_references(text: str, text_at: Callable[[str], str]) -> str:
    """The text with the text that `text_at` returns for each path in the place of its reference."""
    return _REFERENCE.sub(lambda found: text_at(found[1]), text)


def value_at(path: str, scope: Scope) -> Any:  # noqa: ANN401 - any JSON
    """The value at a path; FieldError if there is none."""
    return _value_at(segments(path), path, scope)


def _value_at(parts: Sequence[str], path: str, scope: Scope) -> Any:  # noqa: ANN401 - any JSON
    found: Any = scope
    for part in parts:
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list | tuple) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            raise FieldError(f"${{{path}}}", None, f"cannot be resolved: there is no {part}")
    return found


# ---- conditions ----------------------------------------------------------------------------------

_LONGEST_CONDITION = 1000
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, values: value in values,
    ast.NotIn: lambda value, values: value not in values,
}
#: Constants as JSON spells them.
_NAMES = {"true": True, "false": False, "null": None}


#: A compiled condition, or a part of one: its value in a scope.
_Evaluator = Callable[[Scope], Any]


def check_condition(field: str, text: str) -> frozenset[str]:
    """The paths in a condition; raise FieldError if the text is no condition."""
    return frozenset(_paths(field, _parsed(field, text)))


def evaluate_condition(text: str, scope: Scope, *, field: str = "if") -> bool:
    """Whether the condition is true; raise FieldError if a path has no value or two values cannot be compared."""
    # Escaped texts are unescaped once, not for each path: a condition can name the same large input many times.
    shown = {**scope, **{root: shown_data(scope[root]) for root in _INPUTS if root in scope}}
    return evaluate_compiled(_compiled_condition(field, text), text, shown, field=field)


def compile_condition(field: str, text: str) -> _Evaluator:
    """The condition, compiled for `evaluate_compiled`; raise FieldError if the text is no condition."""
    check_condition(field, text)
    return _compiled_condition(field, text)


def evaluate_compiled(evaluator: _Evaluator, text: str, shown: Scope, *, field: str) -> bool:
    """Whether the compiled condition of that text is true in a scope without escapes; raise as evaluate_condition."""
    try:
        return bool(evaluator(shown))
    except TypeError as error:
        raise FieldError(field, text, f"cannot be answered: {error}") from None


@lru_cache(maxsize=4096)
def _compiled_condition(field: str, text: str) -> _Evaluator:
    return _compiled(_parsed(field, text))


@lru_cache(maxsize=4096)
def _parsed(field: str, text: str) -> ast.expr:
    if len(text) > _LONGEST_CONDITION:
        raise FieldError(field, text, f"has more than {_LONGEST_CONDITION} characters")
    plain = text.strip()
    if plain.startswith("${") and plain.endswith("}"):
        plain = plain[2:-1]
    try:
        return ast.parse(plain, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FieldError(field, text, "is no condition, such as steps.check.output.ok == true") from None


def _paths(field: str, node: ast.expr) -> list[str]:
    inner: Sequence[ast.expr] = ()
    match node:
        case ast.BoolOp(values=inner) | ast.List(elts=inner) | ast.Tuple(elts=inner):
            pass
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = [operand]
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARISONS for op in ops):
            inner = [left, *others]
        case ast.Constant(value=str() | int() | float() | None):
            pass
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            pass
        case ast.Name(id=name) if name in _NAMES:
            pass
        case ast.Name() | ast.Attribute() | ast.Subscript():
            return [_path(field, node)]
        case _:
            raise FieldError(field, ast.unparse(node), "is not allowed in a condition")
    return [path for child in inner for path in _paths(field, child)]


def _path(field: str, node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_path(field, value)}.{name}"
        case ast.Subscript(value=value, slice=ast.Constant(value=int() | str() as key)):
            return f"{_path(field, value)}.{key}"
        case _:
            raise FieldError(field, ast.unparse(node), "is no path")


def _compiled(node: ast.expr) -> _Evaluator:
    """The part of a condition as a function: the paths in it are split once, and not for every task."""
    found: _Evaluator
    match node:
        case ast.BoolOp(op=op, values=values):
            found = _junction(all if isinstance(op, ast.And) else any, list(map(_compiled, values)))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            found = _negation(_compiled(operand))
        case ast.UnaryOp(operand=ast.Constant(value=int() | float() as number)):
            found = _constant(-number)
        case ast.Compare(left=left, ops=ops, comparators=others):
            comparisons = [_COMPARISONS[type(op)] for op in ops]
            found = _comparison(_compiled(left), list(zip(comparisons, map(_compiled, others), strict=True)))
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            found = _list(list(map(_compiled, elements)))
        case ast.Constant(value=constant):
            found = _constant(constant)
        case ast.Name(id=name) if name in _NAMES:
            found = _constant(_NAMES[name])
        case _:
            found = _lookup(_path("if", node))
    return found


def _junction(combine: Callable[[Iterator[Any]], bool], operands: Sequence[_Evaluator]) -> _Evaluator:
    return lambda scope: combine(operand(scope) for operand in operands)


def _negation(operand: _Evaluator) -> _Evaluator:
    return lambda scope: not operand(scope)


def _list(members: Sequence[_Evaluator]) -> _Evaluator:
    return lambda scope: [member(scope) for member in members]


def _constant(value: object) -> _Evaluator:
    return lambda _: value


def _lookup(path: str) -> _Evaluator:
    parts = segments(path)
    return lambda scope: _value_at(parts, path, scope)


def _comparison(left: _Evaluator, others: Sequence[tuple[Callable[[Any, Any], bool], _Evaluator]]) -> _Evaluator:
    def compare(scope: Scope) -> bool:
        value = left(scope)
        for holds, other in others:
            right = other(scope)
            if not holds(value, right):
                return False
            value = right
        return True

    return compare
