"""A wire between a client and a server that can be cut, slowed down, and made to swallow what it is given."""

import asyncio
import contextlib
import socket
import struct
from enum import StrEnum

from support.tcp_relay import TcpRelay

_CHUNK = 65_536


class WireFault(StrEnum):
    """What is wrong with the wire."""

    NONE = "none"
    #: Connections are reset, and new ones refused.
    CUT = "cut"
    #: Everything is taken and nothing arrives, in neither direction: nobody is told.
    DEAF = "deaf"
    #: What the client says arrives; what the server answers is lost.
    MUTE = "mute"
    #: What the client says is lost; what the server says by itself arrives.
    UNHEARD = "unheard"


#: Which faults swallow what comes from the client, and what comes from the server.
_SWALLOWS = {
    True: frozenset({WireFault.DEAF, WireFault.UNHEARD}),
    False: frozenset({WireFault.DEAF, WireFault.MUTE}),
}


class FaultProxy(TcpRelay):
    """Between its port and another one. What it has swallowed never arrives."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._fault = WireFault.NONE
        self._delay = 0.0
        self._open: set[asyncio.StreamWriter] = set()

    # ---- what can be wrong -------------------------------------------------------------------

    def cut(self) -> None:
        """Every connection is reset, and none can be had."""
        self._run_on_loop(self._change(WireFault.CUT))

    def black_hole(self, fault: WireFault = WireFault.DEAF) -> None:
        """Connections stay, new ones are taken, and what they carry is lost as the fault says."""
        self._run_on_loop(self._change(fault))

    def slow_down(self, seconds: float) -> None:
        """Whatever arrives arrives later by so much."""
        self._delay = seconds

    def retarget(self, port: int) -> None:
        """Whoever connects from now on comes to another server; all who are connected are cut off."""
        self._to = port
        self._run_on_loop(self._cut_off())

    def restore(self) -> None:
        """All is well again. A connection that has lost something is reset: no protocol could go on with it."""
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
            # An end that broke off while it was written to has not been closed by anybody.
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
        # An end that was closed or reset is news, too, and is lost where nothing arrives.
        if self._fault not in _SWALLOWS[client]:
            to.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """The other end learns at once that it is over, as when a host is gone."""
    raw: socket.socket = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
