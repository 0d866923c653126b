"""Requests to the services of channels over HTTP, and what their answers mean."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from gnomon.adapters.channels.configured_channel import short_reason
from gnomon.adapters.http_client import HttpClient
from gnomon.core.instants import ms_of
from gnomon.errors import ChannelFailed, ChannelRefused
from gnomon.ports.http import HttpAnswer, HttpRequest

_LARGEST_ANSWER = 1 << 20
_GOOD = range(200, 300)
#: Answers after which the same request may succeed later.
_LATER = frozenset((408, 425, 429))
_SERVER_ERRORS = range(500, 600)
_REDIRECTS = range(300, 400)
TOO_MANY = 429


class ChannelRequests:
    """Sends JSON to the services of channels."""

    def __init__(self, client: HttpClient, *, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms

    async def post(
        self, url: str, body: Mapping[str, Any] | bytes, headers: Mapping[str, str] | None = None
    ) -> HttpAnswer:
        """The answer of the service. RequestFailed if there is none in time."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        sent = {"Content-Type": "application/json; charset=utf-8", "Accept-Encoding": "identity", **(headers or {})}
        request = HttpRequest(method="POST", url=url, headers=sent, body=content)
        return await self._client.send(request, timeout_ms=self._timeout_ms, max_bytes=_LARGEST_ANSWER)


def answer_fields(answer: HttpAnswer) -> Mapping[str, Any]:
    """The fields of an answer in JSON; none if it is something else."""
    try:
        found = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return found if isinstance(found, Mapping) else {}


def is_good(answer: HttpAnswer) -> bool:
    """Whether the service has accepted the request."""
    return answer.status in _GOOD


def check_answer(answer: HttpAnswer, *, now: int, reason: str = "") -> None:
    """Raise ChannelFailed or ChannelRefused unless the service has accepted the request."""
    if is_good(answer):
        return
    stated = reason or answer_reason(answer)
    if answer.status in _LATER or answer.status in _SERVER_ERRORS:
        raise ChannelFailed(stated, retry_after_ms=retry_after_ms(answer, now=now))
    if answer.status in _REDIRECTS:
        raise ChannelRefused(f"{stated}: redirects are not followed")
    raise ChannelRefused(stated)


def answer_reason(answer: HttpAnswer) -> str:
    """The status of an answer, with what the service says about it."""
    fields = answer_fields(answer)
    stated = next((fields[name] for name in ("description", "message", "error") if fields.get(name)), None)
    return f"answered {answer.status}" + (f": {short_reason(stated)}" if isinstance(stated, str) else "")


def retry_after_ms(answer: HttpAnswer, *, now: int) -> int | None:
    """How long the service asks to wait: by its header, or as Telegram and Discord say it in their answers."""
    asked = answer.headers.get("retry-after", "").strip()
    fields = answer_fields(answer)
    nested = fields.get("parameters")
    in_body = [fields.get("retry_after"), nested.get("retry_after") if isinstance(nested, Mapping) else None]
    seconds = [_number(asked), *(float(one) for one in in_body if isinstance(one, int | float))]
    longest = max((one for one in seconds if one is not None and one >= 0), default=None)
    if longest is not None:
        # Beyond a day no answer is plausible.
        return int(min(longest, 86_400) * 1000)
    try:
        return max(0, ms_of(parsedate_to_datetime(asked)) - now) if asked else None
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str) -> float | None:
    return float(text) if text.replace(".", "", 1).isdecimal() and text.isascii() else None
