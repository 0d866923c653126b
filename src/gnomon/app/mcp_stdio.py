"""MCP over standard input and output. Only `gnomon[mcp]` can import this module."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from io import TextIOWrapper
from typing import IO, Any, cast

import anyio
from anyio import to_thread
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

#: A longer line is not read into memory, and answered as one that is no JSON.
LONGEST_LINE = 4 * 1024 * 1024
_PARENT_SECONDS = 2.0
_NO_JSON = "\n"


async def serve_stdio(server: Server[Any]) -> None:
    """Serve the process that started this one until it closes the standard input, or has ended."""
    # The output belongs to the protocol: anything else that this process prints goes to standard error.
    moved_in, moved_out = _moved(0, os.open(os.devnull, os.O_RDONLY)), _moved(1, os.dup(2))
    with os.fdopen(moved_in, "rb") as wire_in, os.fdopen(moved_out, "wb") as wire_out:
        lines = cast("anyio.AsyncFile[str]", _BoundedLines(wire_in))
        written = anyio.wrap_file(TextIOWrapper(wire_out, encoding="utf-8", write_through=True))
        parent = asyncio.create_task(_end_with_parent(os.getppid()))
        try:
            async with stdio_server(lines, written) as (received, sent):
                await server.run(received, sent, server.create_initialization_options())
        finally:
            parent.cancel()


def _moved(descriptor: int, instead: int) -> int:
    """A new descriptor of this stream, which is replaced by `instead`."""
    kept = os.dup(descriptor)
    os.dup2(instead, descriptor)
    os.close(instead)
    return kept


async def _end_with_parent(parent: int) -> None:
    """End this process when its parent has ended: another process may hold the standard input open."""
    while os.getppid() == parent:  # noqa: ASYNC110 - no event tells of it
        await asyncio.sleep(_PARENT_SECONDS)
    # A thread waits for the standard input, and would keep the process alive.
    sys.stderr.flush()
    os._exit(0)


class _BoundedLines:
    """The lines of a stream; a line that is too long is skipped, and given as one that is no JSON."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[str]:
        with suppress(ValueError):  # the stream was closed
            while line := await to_thread.run_sync(self._line, abandon_on_cancel=True):
                yield line

    def _line(self) -> str:
        line = self._stream.readline(LONGEST_LINE)
        if len(line) < LONGEST_LINE or line.endswith(b"\n"):
            return line.decode("utf-8", errors="replace")
        while (rest := self._stream.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
            pass
        return _NO_JSON
