"""Conditions of steps: `steps.check.output.rows > 0 and input.mode == "full"`.

Python's own grammar, of which only comparisons, `and`, `or`, `not`, `in`, paths and plain values are allowed.
Nothing can be called.
"""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from gnomon.core.references import Scope, looked_up
from gnomon.errors import FieldError

_LONGEST = 1000
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
#: As JSON spells them.
_NAMES = {"true": True, "false": False, "null": None}


def check_condition(field: str, text: str) -> frozenset[str]:
    """The paths that a condition asks for; FieldError if it is none."""
    return frozenset(_paths(field, _parsed(field, text)))


def holds(text: str, scope: Scope) -> bool:
    """Whether the condition is true; FieldError if it asks for what is not there or compares what cannot be."""
    try:
        return bool(_value(_parsed("if", text), scope))
    except TypeError as error:
        raise FieldError("if", text, f"cannot be answered: {error}") from None


@lru_cache(maxsize=4096)
def _parsed(field: str, text: str) -> ast.expr:
    if len(text) > _LONGEST:
        raise FieldError(field, text, f"has more than {_LONGEST} characters")
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
    return [path for one in inner for path in _paths(field, one)]


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


def _value(node: ast.expr, scope: Scope) -> Any:  # noqa: ANN401 - any JSON
    found: Any
    match node:
        case ast.BoolOp(op=op, values=values):
            found = (all if isinstance(op, ast.And) else any)(_value(one, scope) for one in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            found = not _value(operand, scope)
        case ast.UnaryOp(operand=ast.Constant(value=int() | float() as number)):
            found = -number
        case ast.Compare():
            found = _compared(node, scope)
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            found = [_value(one, scope) for one in elements]
        case ast.Constant(value=found):
            pass
        case ast.Name(id=name) if name in _NAMES:
            found = _NAMES[name]
        case _:
            found = looked_up(_path("if", node), scope)
    return found


def _compared(node: ast.Compare, scope: Scope) -> bool:
    left = _value(node.left, scope)
    for op, other in zip(node.ops, node.comparators, strict=True):
        right = _value(other, scope)
        if not _COMPARISONS[type(op)](left, right):
            return False
        left = right
    return True
