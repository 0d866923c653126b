"""The proxy of the fault tests injects the faults that it promises."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from support.fault_proxy import FaultProxy, WireFault


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of an echo server."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer(conn: socket.socket) -> None:
            with conn:
                try:
                    while heard := conn.recv(1024):
                        conn.sendall(heard)
                except OSError:
                    return

        def serve() -> None:
            while True:
                try:
                    conn, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(conn,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def wire(echo: int) -> Iterator[FaultProxy]:
    with FaultProxy(echo) as proxy:
        yield proxy


@contextmanager
def dialled(wire: FaultProxy) -> Iterator[socket.socket]:
    """A connection through the proxy."""
    with socket.create_connection(("127.0.0.1", wire.port), timeout=10) as client:
        client.sendall(b"?")
        client.recv(1024)
        yield client


def test_a_sound_wire_carries_everything_both_ways(wire: FaultProxy) -> None:
    with dialled(wire) as client:
        client.sendall(b"hello")
        assert client.recv(1024) == b"hello"


def test_a_cut_wire_resets_connections_and_takes_no_new_ones(wire: FaultProxy) -> None:
    with dialled(wire) as client:
        wire.cut()
        with pytest.raises(ConnectionError):
            assert not client.recv(1024), "closed in good order"
    with pytest.raises(ConnectionError), dialled(wire):
        pass


@pytest.mark.parametrize("fault", [WireFault.DEAF, WireFault.MUTE, WireFault.UNHEARD])
def test_a_wire_that_swallows_says_nothing_of_it(wire: FaultProxy, fault: WireFault) -> None:
    with dialled(wire) as client:
        wire.black_hole(fault)
        client.settimeout(0.3)
        client.sendall(b"hello")
        with pytest.raises(TimeoutError):
            client.recv(1024)


def test_a_mended_wire_carries_new_connections(wire: FaultProxy) -> None:
    wire.cut()
    wire.restore()
    with dialled(wire) as client:
        client.sendall(b"hello")
        assert client.recv(1024) == b"hello"


def test_a_connection_of_which_something_was_swallowed_is_reset_when_the_wire_is_mended(wire: FaultProxy) -> None:
    with dialled(wire) as client:
        wire.black_hole()
        client.sendall(b"lost")
        wire.restore()
        with pytest.raises(ConnectionError):
            assert not client.recv(1024), "closed in good order"
