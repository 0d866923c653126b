"""The route of models: the Model Context Protocol over HTTP."""

from typing import Any
from urllib.parse import urlsplit

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
#: Methods whose answer has no end.
_STREAMING = ("subscriptions/listen",)
_EXAMPLE = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}


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
    if origin is not None and urlsplit(origin).netloc != call.headers.get("host"):
        raise Forbidden("the request comes from a page of another site")


ROUTES = (
    ApiRoute(
        method="POST",
        path="/mcp",
        name="answer_model",
        permission=Permission.READ,
        handle=answer,
        answer=dict[str, Any],
        success={200: "The answer to the message.", 202: "The message needs no answer."},
        body=RequestBody(schema=_SCHEMA, example=_EXAMPLE),
        error_statuses=(404,),
        example={"jsonrpc": "2.0", "id": 1, "result": {"tools": []}},
    ),
)
