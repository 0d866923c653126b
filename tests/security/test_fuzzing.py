"""Random input for everything that reads what others write: parsers, messages, files, tokens and HTTP.

`make test` runs a bounded number of examples, the same in every run. `make fuzz` goes on with new ones until one fails.
"""

import contextlib
import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings

from security.fuzz_targets import TARGETS, FuzzTarget, edited_bytes
from support.api_fixture import ApiFixture
from support.api_server import serve_api_fixture

_RELAXED = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


@pytest.mark.req("H-22")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_random_input_is_accepted_or_refused_with_our_errors(target: FuzzTarget) -> None:
    _RELAXED(given(target.inputs)(target.check))()


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_target_begins_with_something_that_it_accepts(target: FuzzTarget) -> None:
    assert any(map(target.accepts, target.seeds))


# ---- HTTP ----------------------------------------------------------------------------------------

_HEADERS = b"Host: 127.0.0.1\r\nAuthorization: Bearer admin\r\nContent-Type: application/json\r\n"
REQUESTS = (
    b"GET /v1/jobs?limit=1&cursor=WyJhIiwiYiJd HTTP/1.1\r\n" + _HEADERS + b"\r\n",
    b"GET /v1/executions?status=failed&since=2026-01-01T00:00:00Z HTTP/1.1\r\n" + _HEADERS + b"\r\n",
    b"POST /v1/plan HTTP/1.1\r\nContent-Length: 38\r\n" + _HEADERS + b'\r\n{"jobs":[{"name":"a","function":"f"}]}',
    b"POST /v1/plan HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + _HEADERS + b"\r\n2\r\n{}\r\n0\r\nX: y\r\n\r\n",
    b"HEAD /v1/jobs/report HTTP/1.1\r\n" + _HEADERS + b"If-None-Match: x\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\n" + _HEADERS + b"\r\n",
)  # fmt: skip


class WireFuzzer:
    """Sends bytes to an API on a real socket."""

    def __init__(self, api_setup: ApiFixture, address: str) -> None:
        self._api = api_setup
        self._parts = urlsplit(address)

    def check(self, sent: bytes) -> None:
        """Send the bytes: every answer is a response other than a failure, and nothing is stored."""
        statuses = self._statuses(sent)

        # 503: a limit is reached. 505: another version of HTTP.
        assert all(status < 500 or status in (503, 505) for status in statuses), statuses
        assert self._api.unhandled_errors == []
        assert self._api.changes == 0

    def _statuses(self, sent: bytes) -> list[int]:
        place = (self._parts.hostname or "", self._parts.port or 0)
        heard = b""
        with socket.create_connection(place, timeout=10) as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(sent)
                # The end of what is sent, so that the server need not wait for more.
                connection.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while more := connection.recv(65_536):
                    heard += more
        return [int(status) for status in re.findall(rb"^HTTP/1\.1 (\d{3}) ", heard, re.MULTILINE)]


@pytest.fixture(scope="module")
def wire() -> Iterator[WireFuzzer]:
    api_setup = ApiFixture()
    with serve_api_fixture(api_setup) as address:
        yield WireFuzzer(api_setup, address)


@pytest.mark.req("H-22")
def test_random_requests_are_answered_or_refused_and_change_nothing(wire: WireFuzzer) -> None:
    _RELAXED(given(edited_bytes(*REQUESTS))(wire.check))()
