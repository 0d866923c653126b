"""HTTP calls: the request that a step makes, and the decision on each answer: success, redirect, retry or failure."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gnomon.core.instants import ms_of
from gnomon.core.model import MINUTE_MS, SECOND_MS
from gnomon.core.pings import is_http_url
from gnomon.core.runs.http_urls import ascii_url, final_url
from gnomon.errors import FieldError, truncate

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
#: The methods that send no body, and that may be sent again to the target of any redirect.
WITHOUT_BODY = ("GET", "HEAD")
DEFAULT_EXPECT = "200-299"
DEFAULT_FOLLOW, MOST_REDIRECTS = 5, 20
STATUS_RANGE = re.compile(r"([1-5][0-9][0-9])(?:-([1-5][0-9][0-9]))?")
#: The longest time that an answer can put off the next attempt.
LONGEST_RETRY_AFTER_MS = 60 * MINUTE_MS
_MOST_DIGITS = 12
_LONGEST_SHOWN_HOST = 100
_TOO_MANY = HTTPStatus.TOO_MANY_REQUESTS
_SERVER_ERRORS = range(500, 600)
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
#: Redirects after which the same request is sent again, with its body.
_SAME_REQUEST = frozenset((307, 308))


class HttpCall(Struct, frozen=True, kw_only=True):
    """One request of a step, complete. It may hold secrets."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes = b""
    #: The statuses that count as success.
    expect: tuple[range, ...]
    #: How many redirects may still be followed.
    follow: int


class AnswerEffect(StrEnum):
    """The effect of an answer on its attempt."""

    SUCCESS = "success"
    REDIRECT = "redirect"
    #: A later attempt may succeed.
    RETRY = "retry"
    FAILURE = "failure"


class AnswerVerdict(Struct, frozen=True, kw_only=True):
    """The decision on one answer."""

    effect: AnswerEffect
    reason: str = ""
    #: For RETRY: how long the server asks to wait.
    after_ms: int = 0
    #: For REDIRECT: the next request.
    call: HttpCall | None = None


def read_expect(value: int | str | Sequence[int | str]) -> tuple[range, ...]:
    """The statuses of the field `expect`, whose values are statuses and ranges such as `200-299`.

    ValueError names a value that is neither.
    """
    values = [value] if isinstance(value, int | str) else value
    return tuple(map(_statuses, values))


def _statuses(value: object) -> range:
    found = STATUS_RANGE.fullmatch(str(value))
    if found is None or isinstance(value, bool):
        raise ValueError(f"{value!r}")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise ValueError(f"{value!r}")
    return range(first, last + 1)


def http_call(
    template: Mapping[str, Any], filled: Mapping[str, Any], *, key: str, read_secret: Callable[[str], str]
) -> HttpCall:
    """The call of a step, whose fields are `filled` with references and secrets; FieldError if one does not fit.

    `template` still has the places of secrets, which the URL fills by rules of its own.
    """
    headers = {name: _header(name, value) for name, value in filled.get("headers", {}).items()}
    body, kind = _body(filled)
    named = {name.lower() for name in headers}
    if kind and "content-type" not in named:
        headers["Content-Type"] = kind
    if "idempotency-key" not in named:
        headers["Idempotency-Key"] = key
    return HttpCall(
        method=usual_method(filled),
        url=final_url("http.url", template["url"], read_secret),
        headers=headers,
        body=body,
        expect=read_expect(filled.get("expect", DEFAULT_EXPECT)),
        follow=filled.get("follow", DEFAULT_FOLLOW),
    )


def usual_method(call: Mapping[str, Any]) -> str:
    """The method of a call: POST with a body and GET without one, unless it names another."""
    method: str = call.get("method", "POST" if "json" in call or "body" in call else "GET")
    return method


def _body(filled: Mapping[str, Any]) -> tuple[bytes, str]:
    """The body and its content type; empty without a body."""
    if "json" in filled:
        return msgspec.json.encode(filled["json"]), "application/json"
    if "body" in filled:
        return _text(filled["body"]).encode(), "text/plain; charset=utf-8"
    return b"", ""


def _header(name: str, value: object) -> str:
    text = _text(value)
    # A line break would begin another header.
    if not text.isprintable():
        raise FieldError(f"http.headers.{name}", "[hidden]", "has a character that no header can have")
    return text


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def judge_answer(call: HttpCall, status: int, headers: Mapping[str, str], *, now: int) -> AnswerVerdict:
    """The decision on an answer; the names of its headers are in lower case. The reason says nothing of its body."""
    if any(status in statuses for statuses in call.expect):
        return AnswerVerdict(effect=AnswerEffect.SUCCESS)
    if status in _REDIRECTS and "location" in headers:
        return _redirect(call, status, headers["location"])
    reason = f"answered {status_text(status)}"
    if status == _TOO_MANY or status in _SERVER_ERRORS:
        after_ms = retry_after_ms(headers.get("retry-after", ""), headers.get("date", ""), now=now)
        return AnswerVerdict(effect=AnswerEffect.RETRY, reason=reason, after_ms=after_ms)
    return AnswerVerdict(effect=AnswerEffect.FAILURE, reason=reason)


def status_text(status: int) -> str:
    """The status with its usual name, if it has one."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _redirect(call: HttpCall, status: int, location: str) -> AnswerVerdict:
    target = _redirect_target(call, location)
    reason = _redirect_problem(call, status, target)
    if reason:
        return AnswerVerdict(effect=AnswerEffect.FAILURE, reason=f"answered {status_text(status)}: {reason}")
    following = replace(call, url=target, follow=call.follow - 1)
    if status not in _SAME_REQUEST and call.method not in WITHOUT_BODY:
        following = _as_get(following)
    return AnswerVerdict(effect=AnswerEffect.REDIRECT, call=following)


def _redirect_target(call: HttpCall, location: str) -> str:
    """The URL to which a redirect leads; empty if it is none."""
    try:
        return urljoin(call.url, ascii_url(location.strip())).partition("#")[0]
    except ValueError:
        return ""


def _redirect_problem(call: HttpCall, status: int, target: str) -> str:
    """The reason for which a redirect is not followed; empty if it is."""
    if call.follow < 1:
        return "it redirects more often than follow allows"
    if not is_http_url(target):
        return "it redirects to a URL that is no http or https URL without credentials"
    if not _same_host(call.url, target):
        return f"it redirects to another host ({_shown_host(target)}), which is not followed"
    if status in (301, 302) and call.method not in WITHOUT_BODY:
        return f"it does not say whether {call.method} is to be repeated: use the new URL"
    return ""


def _same_host(url: str, target: str) -> bool:
    """Whether the target is on the same host and port; an http URL may also move to https on the default ports."""
    old, new = urlsplit(url), urlsplit(target)
    if old.hostname != new.hostname:
        return False
    if old.scheme == new.scheme:
        return _port(url) == _port(target)
    return (old.scheme, _port(url), _port(target)) == ("http", 80, 443)


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def _shown_host(url: str) -> str:
    return truncate(urlsplit(url).hostname or "", _LONGEST_SHOWN_HOST)


def _as_get(call: HttpCall) -> HttpCall:
    """The request that asks for the result of another one: without its body."""
    headers = {name: value for name, value in call.headers.items() if name.lower() != "content-type"}
    return replace(call, method="GET", headers=headers, body=b"")


def retry_after_ms(value: str, date: str, *, now: int) -> int:
    """The header `Retry-After` as a delay of at most an hour; 0 without a valid one.

    It is a number of seconds or an instant, which counts from the `date` of the answer: the clocks may differ.
    """
    text = value.strip()
    if text.isascii() and text.isdecimal():
        # No delay up to the limit has so many digits.
        long = len(text) > _MOST_DIGITS
        return LONGEST_RETRY_AFTER_MS if long else min(int(text) * SECOND_MS, LONGEST_RETRY_AFTER_MS)
    until, since = _http_date(text), _http_date(date)
    if until is None:
        return 0
    return min(max(0, until - (now if since is None else since)), LONGEST_RETRY_AFTER_MS)


def _http_date(text: str) -> int | None:
    try:
        found: datetime = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return ms_of(found if found.tzinfo else found.replace(tzinfo=UTC))
