"""Servers and workers under a service manager, as far as that hears of them; and beside someone who has their port."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from support.fleet_processes import remote_worker
from support.gnomon_processes import TESTS, GnomonProcess, server, up, worker
from support.nats_users import nats_with_users


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.bind(str(tmp_path / "notify"))
        line.settimeout(30)
        yield line


def heard(manager: socket.socket) -> str:
    return manager.recv(1000).decode().splitlines()[0]


@contextmanager
def a_server(folder: Path, environment: dict[str, str]) -> Iterator[GnomonProcess]:
    with up(folder / "gnomon.db", environment=environment) as running:
        yield running


@contextmanager
def a_worker(folder: Path, environment: dict[str, str]) -> Iterator[GnomonProcess]:
    with server(folder / "gnomon.db"), worker(folder / "gnomon.db", environment=environment) as running:
        yield running


@contextmanager
def a_worker_over_nats(folder: Path, environment: dict[str, str]) -> Iterator[GnomonProcess]:
    del folder
    with nats_with_users() as nats, remote_worker(nats, **environment) as running:
        yield running


@pytest.mark.req("H-17")
@pytest.mark.parametrize("process", [a_server, a_worker, a_worker_over_nats])
def test_the_manager_hears_of_the_start_then_again_and_again_and_of_the_stop(
    manager: socket.socket,
    tmp_path: Path,
    process: Callable[[Path, dict[str, str]], AbstractContextManager[GnomonProcess]],
) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
    with process(tmp_path, environment) as running:
        assert heard(manager) == "READY=1"
        assert [heard(manager) for _ in range(3)] == ["WATCHDOG=1"] * 3

        running.signal(signal.SIGTERM)
        while (word := heard(manager)) == "WATCHDOG=1":
            pass

        assert word == "STOPPING=1"
        assert running.ended() == 0


@pytest.mark.req("H-17")
def test_a_node_that_stands_by_is_ready_and_says_that_it_is_idle(tmp_path: Path) -> None:
    with up(tmp_path / "gnomon.db") as leading:
        leading.line_with("scheduling on")
        port = free_port()
        environment = {"GNOMON_METRICS__PORT": str(port)}
        with up(tmp_path / "gnomon.db", environment=environment) as standing_by:
            standing_by.line_with("standing by")
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
                said = json.load(answer)

    assert (said["status"], said["ready"], said["components"]["ticker"]) == ("ok", True, "idle")


def test_a_port_that_is_taken_is_a_mistake_that_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "gnomon", "up", "--port", "0", "--database", str(tmp_path / "gnomon.db")]
        config = tmp_path / "gnomon.yaml"
        port = taken.getsockname()[1]
        config.write_text(f"metrics: {{port: {port}}}")
        refused = subprocess.run(
            [*command, "--config", str(config)],
            cwd=TESTS,
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: metrics.port: {port} on 127.0.0.1 is taken")
    assert "Traceback" not in refused.stderr


def free_port() -> int:
    """One that was free a moment ago."""
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        found: int = line.getsockname()[1]
        return found
