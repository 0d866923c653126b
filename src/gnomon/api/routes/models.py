"""The route of models: the Model Context Protocol over HTTP."""

from typing import Any

import msgspec
from msgspec import Struct

from gnomon.api.route import ApiCall, ApiRoute, Permission, Reply, RequestBody
from gnomon.errors import FieldError, Forbidden, NotFound

_SCHEMA = {
    "type": "object",
    "required": ["jsonrpc", "method"],
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": {"type": ["integer", "string"]},
        "method": {"type": "string"},
        "params": {"type": "object"},
    },
}
#: The largest message in bytes: it is read on the event loop.
LARGEST_MESSAGE = 65_536
#: Methods whose answer has no end.
_STREAMING = ("subscriptions/listen",)
_EXAMPLE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


class _ToolName(Struct):
    name: str


class _ToolCall(Struct):
    """As much of a message as tells which tool it calls."""

    parameters: _ToolName = msgspec.field(name="params")


async def answer(call: ApiCall) -> Reply:
    """Answer a message of the Model Context Protocol (streamable HTTP without sessions), if `server.mcp` is set."""
    if call.services.model_server is None:
        raise NotFound("address", call.url)
    _refuse_other_origin(call)
    if call.body.get("jsonrpc") != "2.0":
        raise FieldError("jsonrpc", call.body.get("jsonrpc"), "must be 2.0")
    if call.body.get("method") in _STREAMING:
        raise FieldError("method", call.body["method"], "opens a stream, and this server opens none")
    return await call.services.model_server.answer(call)


def _refuse_other_origin(call: ApiCall) -> None:
    """Raise Forbidden if a page of another origin sends the message, also with a token."""
    origin = call.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != call.headers.get("host"):
        raise Forbidden("the request comes from a page of another site")


def _called_route(raw: bytes) -> str | None:
    """The route of the tool that the message calls, if it calls one: tools have the names of their routes."""
    if len(raw) > LARGEST_MESSAGE:
        return None
    try:
        return msgspec.json.decode(raw, type=_ToolCall).parameters.name
    except msgspec.MsgspecError:
        return None


ROUTES = (
    ApiRoute(
        method="POST",
        path="/mcp",
        name="answer_model",
        permission=Permission.READ,
        handle=answer,
        answer=dict[str, Any],
        success={200: "The answer to the message.", 202: "The message needs no answer."},
        body=RequestBody(schema=_SCHEMA, example=_EXAMPLE, works_as=_called_route),
        error_statuses=(404,),
        example={"jsonrpc": "2.0", "id": 1, "result": {"tools": []}},
    ),
)
