"""Outgoing HTTP requests, as the parts of the program that make them see them."""

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct


class HttpRequest(Struct, frozen=True, kw_only=True):
    """A request whose URL is sent exactly as it is written."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes = b""


class HttpAnswer(Struct, frozen=True):
    """The answer to a request. The names of its headers are in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}
    #: The body was longer, and the rest was not read.
    cut: bool = False


class HttpSender(Protocol):
    """Sends requests to addresses that jobs may reach. It follows no redirect."""

    async def send(
        self, request: HttpRequest, *, timeout_ms: int, max_bytes: int, cut_body: bool = False
    ) -> HttpAnswer:
        """The answer to a request.

        AddressRefused if the URL leads to an address that jobs may not reach, RequestFailed if there is no answer
        within `timeout_ms`, or its body is larger than `max_bytes`; with `cut_body` such a body is cut instead.
        """
        ...
