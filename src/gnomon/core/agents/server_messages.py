"""The messages of the Model Context Protocol, as a client of servers with tools writes and reads them.

A server may be hostile: what it sends is bounded, and nothing of it is believed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from gnomon.core.agents.rules import framed_data
from gnomon.core.jobs.inputs import check_size, read_schema
from gnomon.errors import FieldError, UsageError, truncate

#: The version that is asked for, and those that a server may answer with.
PROTOCOL_VERSION = "2025-06-18"
PROTOCOL_VERSIONS = frozenset((PROTOCOL_VERSION, "2025-03-26", "2024-11-05"))
#: The longest message of a server.
LONGEST_MESSAGE = 4 << 20
#: How many pages of tools are read, how many tools of a page, how many parts of a result, and how many messages of a
#: stream. Each takes time in the loop that watches all processes.
MOST_PAGES, _MOST_TOOLS, _MOST_PARTS, _MOST_EVENTS = 20, 10_000, 1_000, 10_000
_LONGEST_DESCRIPTION, _LONGEST_REASON, _LONGEST_NUMBER = 1_024, 500, 200
_NO_SUCH_METHOD = -32_601
_JSON_RPC, _NO_MESSAGE = "2.0", "it sent what is no message"
_NOTHING = Raw(b"")
_ENCODER = msgspec.json.Encoder()


class _Message(Struct, frozen=True):
    """A message of a server, in which nothing is read that nobody needs. A field that it lacks is empty."""

    number: Raw = msgspec.field(name="id", default=_NOTHING)
    method: Raw = _NOTHING
    result: Raw = _NOTHING
    error: Raw = _NOTHING


_DECODER = msgspec.json.Decoder(_Message)


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
    #: As JSON.
    result: Raw | None = None
    error: str = ""

    def checked_result(self) -> Mapping[str, Any]:
        """The result; UsageError if the server has refused the request."""
        if self.result is None:
            raise UsageError(f"it refused: {truncate(self.error)}")
        result = _decoded(self.result)
        return result if isinstance(result, dict) else {}


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
        message = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UsageError(_NO_MESSAGE) from None
    number = _decoded(message.number) if 0 < len(bytes(message.number)) <= _LONGEST_NUMBER else None
    if not isinstance(number, int | str) or isinstance(number, bool):
        return None
    if bytes(message.method):
        return _demand(number, bytes(message.method))
    if isinstance(number, str):
        return None
    if bytes(message.error) not in (b"", b"null"):
        return ServerAnswer(number, error=_error_of(message.error))
    return ServerAnswer(number, result=message.result)


def _error_of(error: Raw) -> str:
    found = _decoded(error)
    said = found.get("message") if isinstance(found, dict) else None
    return one_line(said) if isinstance(said, str) and said else "it gave no reason"


def _decoded(body: Raw) -> Any:  # noqa: ANN401 - any JSON
    """The value; None if there is none. UsageError if it cannot be read."""
    if not bytes(body):
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UsageError(_NO_MESSAGE) from None


def _demand(number: int | str, method: bytes) -> ServerDemand:
    if method == b'"ping"':
        return ServerDemand(_ENCODER.encode({"jsonrpc": _JSON_RPC, "id": number, "result": {}}))
    error = {"code": _NO_SUCH_METHOD, "message": "this client answers no requests"}
    return ServerDemand(_ENCODER.encode({"jsonrpc": _JSON_RPC, "id": number, "error": error}))


def event_messages(body: bytes) -> Sequence[bytes]:
    """The messages in a stream of server-sent events; UsageError if there are too many lines."""
    found: list[bytes] = []
    data: list[bytes] = []
    lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    if len(lines) > _MOST_EVENTS:
        raise UsageError("it sent too many messages")
    for line in [*lines, b""]:
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

    UsageError if there are too many, or if one of the wanted has a schema that is none, or costs too much.
    """
    tools, cursor = result.get("tools"), result.get("nextCursor")
    found: dict[str, ServerTool] = {}
    listed = tools if isinstance(tools, list) else []
    if len(listed) > _MOST_TOOLS:
        raise UsageError(f"it lists more than {_MOST_TOOLS} tools at once")
    for tool in listed:
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
    found = result.get("content")
    content = found if isinstance(found, list) else []
    for part in content[:_MOST_PARTS]:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("text") if kind == "text" else None
        parts.append(text if isinstance(text, str) else f"[{truncate(str(kind), 40)} left out]")
    if len(content) > _MOST_PARTS:
        parts.append(f"[{len(content) - _MOST_PARTS} more parts left out]")
    if not parts and "structuredContent" in result:
        parts.append(msgspec.json.encode(result["structuredContent"]).decode())
    return ToolOutput(truncate("\n".join(parts), most), result.get("isError") is True)


def one_line(text: str) -> str:
    """The beginning of a text of the server, without characters that are not shown."""
    beginning = text[: 4 * _LONGEST_REASON]
    line = " ".join("".join(char if char.isprintable() else " " for char in beginning).split())
    return truncate(line, _LONGEST_REASON)
