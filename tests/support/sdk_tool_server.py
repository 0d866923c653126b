"""A server with tools on the library of the protocol: `sdk_tool_server.py stdio`, or `sdk_tool_server.py http`."""

import os
import sys
from pathlib import Path

from mcp.server import MCPServer

server = MCPServer("notes")


@server.tool()
def add(first: int, second: int) -> str:
    """Add two numbers."""
    return str(first + second)


@server.tool()
def look_around(path: str) -> str:
    """Say what the server can read, and the variables that it has."""
    try:
        found = Path(path).read_text()
    except OSError as error:
        found = str(error)
    return f"{found} {sorted(os.environ)} {os.environ.get('NOTES_TOKEN', '')}"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("the disk is full")


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        import socket

        import uvicorn

        listening = socket.create_server(("127.0.0.1", 0))
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        config = uvicorn.Config(server.streamable_http_app(), log_level="error", lifespan="on")
        uvicorn.Server(config).run(sockets=[listening])
