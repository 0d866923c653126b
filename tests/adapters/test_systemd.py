"""The messages that a service manager receives, on a socket as it would make it."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.adapters.systemd import SystemdNotifier


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Where the manager listens, and how it names that."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@gnomon-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(name.replace("@", "\0", 1) if request.param == "abstract" else name)
        line.settimeout(30)
        yield line, name


def test_the_manager_hears_of_the_start_the_life_and_the_stop(manager: tuple[socket.socket, str]) -> None:
    line, name = manager
    notifier = SystemdNotifier.from_environment({"NOTIFY_SOCKET": name})
    notifier.ready("scheduling")
    notifier.alive()
    notifier.stopping()

    heard = [line.recv(1000).decode().splitlines()[0] for _ in range(3)]

    assert heard == ["READY=1", "WATCHDOG=1", "STOPPING=1"]


@pytest.mark.parametrize("address", ["", "/nowhere/at/all"])
def test_without_a_manager_nothing_happens(address: str) -> None:
    SystemdNotifier(address).ready("scheduling")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 10),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 10),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_a_watchdog_hears_of_us_three_times_in_its_span(environment: dict[str, str], expected: float | None) -> None:
    assert SystemdNotifier.from_environment(environment).watchdog_interval_seconds == expected
