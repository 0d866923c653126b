"""The messages of the Model Context Protocol, as a client of servers with tools writes and reads them.

A server may be hostile: what it sends is bounded, and nothing of it is believed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from gnomon.core.agents.rules import framed_data
from gnomon.core.jobs.inputs import check_size, read_schema
from gnomon.errors import FieldError, UsageError, truncate

#: The version that is asked for, and those that a server may answer with.
PROTOCOL_VERSION = "2025-06-18"
PROTOCOL_VERSIONS = frozenset((PROTOCOL_VERSION, "2025-03-26", "2024-11-05"))
#: The longest message of a server.
LONGEST_MESSAGE = 4 << 20
#: How many pages of tools are read.
MOST_PAGES = 20
_LONGEST_DESCRIPTION, _LONGEST_REASON = 1_024, 500
_NO_SUCH_METHOD = -32_601
_JSON_RPC = "2.0"
_ENCODER = msgspec.json.Encoder()


class ServerTool(Struct, frozen=True, kw_only=True):
    """A tool as its server describes it."""

    name: str
    #: In a frame: a description is data, too.
    description: str
    schema: dict[str, Any]


class ToolOutput(Struct, frozen=True):
    """The result of a call. `failed` says that the tool reports an error."""

    text: str
    failed: bool = False


class ServerAnswer(Struct, frozen=True):
    """The answer to a request: a result, or the error of the server."""

    number: int
    result: Mapping[str, Any] | None = None
    error: str = ""


class ServerDemand(Struct, frozen=True):
    """A request of the server, and the answer that it gets: it may ask whether the client lives, and nothing else."""

    answer: bytes


# ---- to a server ---------------------------------------------------------------------------------


def request_message(number: int, method: str, parameters: Mapping[str, object]) -> bytes:
    """A request, which the server answers under its number."""
    return _ENCODER.encode({"jsonrpc": _JSON_RPC, "id": number, "method": method, "params": dict(parameters)})


def notification_message(method: str) -> bytes:
    """A message without an answer."""
    return _ENCODER.encode({"jsonrpc": _JSON_RPC, "method": method})


def greeting(version: str) -> dict[str, object]:
    """The parameters of the first request. The client offers the server nothing."""
    client = {"name": "gnomon", "version": version}
    return {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": client}


# ---- from a server -------------------------------------------------------------------------------


def read_message(body: bytes) -> ServerAnswer | ServerDemand | None:
    """The message of a server; None for one that needs nothing. UsageError if it is none."""
    try:
        message = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UsageError("it sent what is no message") from None
    if not isinstance(message, dict):
        raise UsageError("it sent what is no message")
    number = message.get("id")
    if "method" in message:
        return None if number is None else _demand(number, message["method"])
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    if "error" in message:
        error = message["error"]
        said = error.get("message") if isinstance(error, dict) else None
        return ServerAnswer(number, error=one_line(said) if isinstance(said, str) and said else "it gave no reason")
    result = message.get("result")
    return ServerAnswer(number, result=result if isinstance(result, dict) else {})


def _demand(number: object, method: object) -> ServerDemand | None:
    if not isinstance(number, int | str):
        return None
    if method == "ping":
        return ServerDemand(_ENCODER.encode({"jsonrpc": _JSON_RPC, "id": number, "result": {}}))
    error = {"code": _NO_SUCH_METHOD, "message": "this client answers no requests"}
    return ServerDemand(_ENCODER.encode({"jsonrpc": _JSON_RPC, "id": number, "error": error}))


def event_messages(body: bytes) -> Sequence[bytes]:
    """The messages in a stream of server-sent events."""
    found: list[bytes] = []
    data: list[bytes] = []
    for line in [*body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"), b""]:
        if line.startswith(b"data:"):
            data.append(line.removeprefix(b"data:").removeprefix(b" "))
        elif not line and data:
            found.append(b"\n".join(data))
            data = []
    return found


def checked_greeting(result: Mapping[str, Any]) -> str:
    """The version of the protocol that the server speaks; UsageError for one that is not known."""
    version = result.get("protocolVersion")
    if version not in PROTOCOL_VERSIONS:
        raise UsageError(f"it speaks an unknown version of the protocol: {truncate(repr(version), 40)}")
    return str(version)


def tools_of(result: Mapping[str, Any], wanted: frozenset[str]) -> tuple[dict[str, ServerTool], str]:
    """The wanted tools of a page, by name, and the cursor of the next page; it is empty for the last one.

    FieldError if one of them has a schema that is none, or costs too much.
    """
    tools, cursor = result.get("tools"), result.get("nextCursor")
    found: dict[str, ServerTool] = {}
    for tool in tools if isinstance(tools, list) else ():
        name = tool.get("name") if isinstance(tool, dict) else None
        if isinstance(name, str) and name in wanted and name not in found:
            found[name] = _tool(name, tool)
    return found, cursor if isinstance(cursor, str) else ""


def _tool(name: str, tool: Mapping[str, Any]) -> ServerTool:
    described, given = tool.get("description"), tool.get("inputSchema")
    if not isinstance(given, dict) or given.get("type") != "object":
        raise FieldError(f"tools.{name}.inputSchema", truncate(repr(given), 100), "must describe an object")
    check_size(f"tools.{name}.inputSchema", given)
    schema = read_schema(f"tools.{name}.inputSchema", given)
    text = described if isinstance(described, str) else ""
    return ServerTool(name=name, description=framed_data(_visible(truncate(text, _LONGEST_DESCRIPTION))), schema=schema)


def _visible(text: str) -> str:
    """The text with characters that people do not see, but models read, as escapes."""
    return "".join(char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1] for char in text)


def output_of(result: Mapping[str, Any], most: int) -> ToolOutput:
    """The text of a result; other content is named, and left out."""
    parts: list[str] = []
    content = result.get("content")
    for part in content if isinstance(content, list) else ():
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if kind == "text" else None
        parts.append(text if isinstance(text, str) else f"[{truncate(str(kind), 40)} left out]")
    if not parts and "structuredContent" in result:
        parts.append(msgspec.json.encode(result["structuredContent"]).decode())
    return ToolOutput(truncate("\n".join(parts), most), result.get("isError") is True)


def one_line(text: str) -> str:
    """The beginning of a text of the server, without characters that are not shown."""
    return truncate(" ".join("".join(char if char.isprintable() else " " for char in text).split()), _LONGEST_REASON)
