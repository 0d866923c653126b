"""A TCP proxy that can reset, delay and swallow the traffic between a client and a server."""

import asyncio
import contextlib
import socket
import struct
from enum import StrEnum

from support.tcp_relay import TcpRelay

_CHUNK = 65_536


class WireFault(StrEnum):
    """A fault of the connection."""

    NONE = "none"
    #: Connections are reset, and new ones refused.
    CUT = "cut"
    #: Data is accepted and lost in both directions, without an error.
    DEAF = "deaf"
    #: Data from the client arrives; data from the server is lost.
    MUTE = "mute"
    #: Data from the client is lost; data from the server arrives.
    UNHEARD = "unheard"


#: The faults that swallow data from the client, and those that swallow data from the server.
_SWALLOWS = {
    True: frozenset({WireFault.DEAF, WireFault.UNHEARD}),
    False: frozenset({WireFault.DEAF, WireFault.MUTE}),
}


class FaultProxy(TcpRelay):
    """A proxy from its port to a server. Swallowed data never arrives."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._fault = WireFault.NONE
        self._delay = 0.0
        self._open: set[asyncio.StreamWriter] = set()

    # ---- faults ------------------------------------------------------------------------------

    def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        self._run_on_loop(self._change(WireFault.CUT))

    def black_hole(self, fault: WireFault = WireFault.DEAF) -> None:
        """Keep connections and accept new ones, but lose their data as the fault says."""
        self._run_on_loop(self._change(fault))

    def slow_down(self, seconds: float) -> None:
        """Delay all data by so much."""
        self._delay = seconds

    def retarget(self, port: int) -> None:
        """Send new connections to another server, and reset the existing ones."""
        self._to = port
        self._run_on_loop(self._cut_off())

    def restore(self) -> None:
        """End the fault. A connection that has lost data is reset: no protocol could continue on it."""
        self._run_on_loop(self._change(WireFault.NONE))

    # ---- inside ------------------------------------------------------------------------------

    async def _change(self, fault: WireFault) -> None:
        if fault is self._fault:
            return
        lossy = self._fault not in (WireFault.NONE, WireFault.CUT)
        self._fault = fault
        if fault is WireFault.CUT or (lossy and fault is WireFault.NONE):
            self._reset_all()

    async def _cut_off(self) -> None:
        self._reset_all()

    async def _close(self) -> None:
        await self._change(WireFault.CUT)
        await super()._close()

    def _reset_all(self) -> None:
        for writer in self._open:
            _reset(writer)
        self._open.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._fault is WireFault.CUT:
            _reset(writer)
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            _reset(writer)
            return
        self._open |= {writer, back}
        try:
            await asyncio.gather(self._carry(reader, back, client=True), self._carry(there, writer, client=False))
        finally:
            self._open -= {writer, back}
            # An end that failed during a write is not closed yet.
            for end in (writer, back):
                end.close()

    async def _carry(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                if self._fault in _SWALLOWS[client]:
                    continue
                if self._delay:
                    await asyncio.sleep(self._delay)
                to.write(data)
                await to.drain()
        # A close or reset is information, too, and is lost where nothing arrives.
        if self._fault not in _SWALLOWS[client]:
            to.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Reset the connection, so that the other end learns at once that it has ended."""
    raw: socket.socket = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
