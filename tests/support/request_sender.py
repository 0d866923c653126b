"""Sends requests from a process of its own, so that the client does not hold the interpreter of the server."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from multiprocessing import get_context
from typing import Any
from urllib.parse import urlsplit

_PATIENCE_SECONDS = 120
_JSON = {"Content-Type": "application/json"}


class RequestSender:
    """Sends requests to one address."""

    def __init__(self, address: str, process: ProcessPoolExecutor) -> None:
        self._address = address
        self._process = process

    def send(self, method: str, path: str, content: bytes | None = None) -> tuple[int, bytes]:
        """The status and the body of the response; of a long body only the beginning."""
        return self._process.submit(_send, self._address, method, path, content, _JSON).result()

    def send_form(self, path: str, content: bytes) -> tuple[int, bytes]:
        """The same for an encoded form, as if a page of that server sent it."""
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self._address}
        return self._process.submit(_send, self._address, "POST", path, content, headers).result()

    def sent_json(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - any JSON
        """The body of the response, decoded; the status must be one of success."""
        status, answer = self.send(method, path, None if body is None else json.dumps(body).encode())
        assert status < 300, answer[:500]
        return json.loads(answer)


def _send(address: str, method: str, path: str, content: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
    connection = HTTPConnection(urlsplit(address).netloc, timeout=_PATIENCE_SECONDS)
    connection.request(method, path, content, headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body[:1_000_000]


@contextmanager
def request_sender(address: str) -> Iterator[RequestSender]:
    """A sender of requests to the address."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        yield RequestSender(address, process)
