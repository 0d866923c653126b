"""A wire between a client and a server that can be cut, slowed down, and made to swallow what it is given."""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from enum import StrEnum
from typing import Any, Self

_CHUNK = 65_536
_PATIENCE = 10.0


class Fault(StrEnum):
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
    True: frozenset({Fault.DEAF, Fault.UNHEARD}),
    False: frozenset({Fault.DEAF, Fault.MUTE}),
}


class Proxy:
    """Between its port and another one, on a thread of its own. What it has swallowed never arrives."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._fault = Fault.NONE
        self._delay = 0.0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_PATIENCE)
        self._loop.close()

    # ---- what can be wrong -------------------------------------------------------------------

    def cut(self) -> None:
        """Every connection is reset, and none can be had."""
        self._do(self._change(Fault.CUT))

    def swallow(self, fault: Fault = Fault.DEAF) -> None:
        """Connections stay, new ones are taken, and what they carry is lost as the fault says."""
        self._do(self._change(fault))

    def slow_down(self, seconds: float) -> None:
        """Whatever arrives arrives later by so much."""
        self._delay = seconds

    def lead_to(self, port: int) -> None:
        """Whoever connects from now on comes to another server; all who are connected are cut off."""
        self._to = port
        self._do(self._cut_off())

    def mend(self) -> None:
        """All is well again. A connection that has lost something is reset: no protocol could go on with it."""
        self._do(self._change(Fault.NONE))

    # ---- inside ------------------------------------------------------------------------------

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(_PATIENCE)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _change(self, fault: Fault) -> None:
        if fault is self._fault:
            return
        lossy = self._fault not in (Fault.NONE, Fault.CUT)
        self._fault = fault
        if fault is Fault.CUT or (lossy and fault is Fault.NONE):
            self._reset_all()

    async def _cut_off(self) -> None:
        self._reset_all()

    async def _close(self) -> None:
        self._fault = Fault.CUT
        if self._server is not None:
            self._server.close()
        self._reset_all()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        # Transports let go of their sockets in turns of their own, which a loop that is stopped would not give them.
        for _ in range(3):
            await asyncio.sleep(0)

    def _reset_all(self) -> None:
        for writer in self._open:
            _reset(writer)
        self._open.clear()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._fault is Fault.CUT:
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
