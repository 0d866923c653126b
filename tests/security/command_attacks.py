"""Attacks with commands and URLs of jobs, sent over HTTP by the admin of a tenant."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from support.hostile_target import HostileTarget, problem

_PATIENCE = 20.0


def refuses_commands(*commands: str) -> Callable[[HostileTarget], None]:
    """Register each command; it is refused, and nothing is stored or started."""

    def attack(target: HostileTarget) -> None:
        for command in commands:
            refused = target.ask("POST", "/v1/jobs", {"name": "victim", "command": command})
            assert refused.status_code == 422, (command, refused.status_code)
            problem(refused)

    return attack


def refuses_urls(*urls: str, **fields: object) -> Callable[[HostileTarget], None]:
    """Register a call and a ping of each URL; both are refused."""

    def attack(target: HostileTarget) -> None:
        for url in urls:
            call = target.ask("POST", "/v1/jobs", {"name": "victim", "http": {"url": url, **fields}})
            ping = target.ask("POST", "/v1/jobs", {"name": "victim", "function": "f", "ping": url})
            assert (call.status_code, ping.status_code) == (422, 422), url
            problem(call)

    return attack


def refuses_headers(target: HostileTarget) -> None:
    """A job sets no header that the connection sets, and begins no second one."""
    for headers in (
        {"Host": "evil.example"}, {"Content-Length": "0"}, {"Transfer-Encoding": "chunked"}, {"Proxy-Connection": "x"},
        {"X-A": "a\r\nX-B: b"}, {"X-A\r\nX-B": "b"}, {"X-A": "a\u0000"}, {"a b": "c"}, {"X-A": "1", "x-a": "2"},
    ):  # fmt: skip
        call = {"url": "https://example.com/", "headers": headers}
        refused = target.ask("POST", "/v1/jobs", {"name": "victim", "http": call})
        assert refused.status_code in (400, 422), headers
    refuses_urls("https://example.com/\r\nX-A: b", "https://example.com/a b\n")(target)


def calls_nothing_inside(*hosts: str) -> Callable[[HostileTarget], None]:
    """Run a call of each host, where `{port}` is that of a listener of this machine; it fails, and nobody connects."""

    def attack(target: HostileTarget) -> None:
        with _listening() as (port, connected):
            for number, host in enumerate(hosts):
                url = f"http://{host.format(port=port) if '{port}' in host else host}/"
                name = f"inside{number}"
                assert target.ask("POST", "/v1/jobs", {"name": name, "http": {"url": url}}).status_code == 201, url
                error = _failure(target, name)
                target.delete(name)
                assert error.startswith("the URL "), (url, error)
            assert not connected.is_set()

    return attack


def _failure(target: HostileTarget, name: str) -> str:
    """The error of a run of the job."""
    execution = target.ask("POST", f"/v1/jobs/{name}/trigger").json()["execution_id"]
    deadline = time.monotonic() + _PATIENCE
    while (shown := target.ask("GET", f"/v1/executions/{execution}").json())["status"] != "failed":
        assert shown["status"] in ("pending", "running"), shown
        assert time.monotonic() < deadline, shown
        time.sleep(0.02)
    return str(shown["error"])


@contextmanager
def _listening() -> Iterator[tuple[int, threading.Event]]:
    """The port of a listener on this machine, and whether anybody has connected to it."""
    connected = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def accept() -> None:
            try:
                listener.accept()[0].close()
            except OSError:
                return
            connected.set()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1], connected
