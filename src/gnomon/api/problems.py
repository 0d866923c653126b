"""Errors as problem documents: one table says which error is which status."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gnomon import errors
from gnomon.errors import CronError, FieldError, GnomonError

MEDIA_TYPE = "application/problem+json"
_LONGEST_VALUE = 120

#: The nearest class of an error counts.
STATUSES: Mapping[type[BaseException], int] = {
    errors.UsageError: 422,
    errors.BodyError: 400,
    errors.TooLarge: 413,
    errors.WrongType: 415,
    errors.NotFound: 404,
    errors.Unauthenticated: 401,
    errors.Refused: 409,
    errors.Forbidden: 403,
    errors.TooMany: 429,
    errors.Stale: 412,
    errors.Superseded: 503,
    errors.Unavailable: 503,
}
TITLES = {
    400: "The request cannot be read",
    401: "It is not known who asks",
    403: "The caller may not do this",
    404: "There is nothing of that name",
    405: "That cannot be done here",
    409: "The rules say no",
    412: "It has changed in the meantime",
    413: "The body is too large",
    415: "The body is of the wrong type",
    422: "Something that was said is wrong",
    429: "The caller asks too often",
    500: "Something went wrong here",
    503: "The world failed; trying again may help",
}
#: What goes along with a status.
_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": 'Bearer realm="gnomon"'},
    503: {"Retry-After": "1"},
}


class Fault(Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a request."""

    field: str
    value: Any
    reason: str


class Problem(Struct, frozen=True, kw_only=True):
    """What went wrong, as RFC 9457 has it."""

    #: A name for the kind of problem, which does not change.
    type: str
    title: str
    status: int
    detail: str
    errors: list[Fault] = []


def problem_of(error: GnomonError) -> Problem:
    """The error as a document."""
    status = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 500)
    return problem(status, str(error), code=error.code, faults=_faults(error))


def problem(status: int, detail: str, *, code: str, faults: list[Fault] | None = None) -> Problem:
    """A document about a problem."""
    title = TITLES.get(status, TITLES[500 if status >= 500 else 400])
    return Problem(type=f"urn:gnomon:problem:{code}", title=title, status=status, detail=detail, errors=faults or [])


def headers_of(status: int) -> dict[str, str]:
    """What goes along with a problem of that status."""
    return dict(_HEADERS.get(status, {}))


def _faults(error: GnomonError) -> list[Fault]:
    if isinstance(error, FieldError):
        return [Fault(field=error.field, value=_shown(error.value), reason=error.reason)]
    if isinstance(error, CronError):
        field = "schedule" if error.in_the_text else error.field
        hint = f'; did you mean "{error.suggestion}"?' if error.suggestion else ""
        return [Fault(field=field, value=_shown(error.expression), reason=f"{error.subject} {error.reason}{hint}")]
    return []


def _shown(value: object) -> Any:  # noqa: ANN401 - as varied as what was said
    """The value as far as it helps to see what is meant; never all of something large."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**53):
        return value
    try:
        text = value if isinstance(value, str) else repr(value)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} without end"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
