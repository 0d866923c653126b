"""Errors as problem documents (RFC 9457): one table maps error classes to statuses."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gnomon import errors
from gnomon.errors import CronError, FieldError, GnomonError, literal

MEDIA_TYPE = "application/problem+json"
_LONGEST_VALUE = 120

#: An error has the status of its nearest base class in this table.
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
    400: "The request is malformed",
    401: "The caller is not authenticated",
    403: "The caller is not allowed to do this",
    404: "There is no such resource",
    405: "The method is not supported here",
    409: "The request conflicts with the current state",
    412: "The resource has changed in the meantime",
    413: "The body is too large",
    415: "The body has the wrong media type",
    422: "A value in the request is invalid",
    429: "The caller sends too many requests",
    500: "An internal error occurred",
    503: "A dependency is unavailable; retry later",
}
#: The headers of a status.
_HEADERS: Mapping[int, Mapping[str, str]] = {
    401: {"WWW-Authenticate": 'Bearer realm="gnomon"'},
    503: {"Retry-After": "1"},
}


class Fault(Struct, frozen=True, kw_only=True):
    """One invalid field of a request."""

    field: str
    value: Any
    reason: str


class Problem(Struct, frozen=True, kw_only=True):
    """An error, as a problem document of RFC 9457."""

    #: A stable identifier of the kind of problem.
    type: str
    title: str
    status: int
    detail: str
    errors: list[Fault] = []


def problem_of(error: GnomonError) -> Problem:
    """The problem document of an error."""
    status = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 500)
    return problem(status, str(error), code=error.code, faults=_faults(error))


def problem(status: int, detail: str, *, code: str, faults: list[Fault] | None = None) -> Problem:
    """A problem document."""
    title = TITLES.get(status, TITLES[500 if status >= 500 else 400])
    return Problem(type=f"urn:gnomon:problem:{code}", title=title, status=status, detail=detail, errors=faults or [])


def headers_of(status: int) -> dict[str, str]:
    """The headers of a problem with that status."""
    return dict(_HEADERS.get(status, {}))


def _faults(error: GnomonError) -> list[Fault]:
    if isinstance(error, FieldError):
        return [Fault(field=error.field, value=_shown(error.value), reason=error.reason)]
    if isinstance(error, CronError):
        field = "schedule" if error.in_the_text else error.field
        hint = f'; did you mean "{error.suggestion}"?' if error.suggestion else ""
        return [Fault(field=field, value=_shown(error.expression), reason=f"{error.subject} {error.reason}{hint}")]
    return []


def _shown(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """The value, truncated if it is long."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**53):
        return value
    try:
        text = value[: _LONGEST_VALUE + 1] if isinstance(value, str) else literal(value, _LONGEST_VALUE)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} without end"
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"
