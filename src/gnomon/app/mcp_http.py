"""MCP over HTTP, as a route of the API. Only `gnomon[mcp]` can import this module.

No session is kept: each message is a request with a token of its own, so that nothing has to be bounded, handed to
another server or ended with the token. The answer is one JSON document; no stream is opened.
"""

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from gnomon.api.local import LocalRequest, handle_locally
from gnomon.api.route import ApiCall, Reply, acting, model_of
from gnomon.api.routes.models import LARGEST_MESSAGE
from gnomon.app.mcp_server import ModelAccess, mcp_server
from gnomon.client.transport import ApiRequest
from gnomon.core.jobs.origins import OriginKind
from gnomon.errors import Forbidden, TooLarge

#: The key of the call in the scope of a request.
_CALL = "gnomon.call"
#: The headers of the protocol. The route has handled all others.
_HEADERS = ("mcp-protocol-version", "mcp-method", "mcp-name")


class McpRoute:
    """Implements ModelServer: answers the messages of models with the verbs that the server allows."""

    def __init__(self, *, allow_changes: bool, on_unexpected_error: Callable[[BaseException], None]) -> None:
        self._allow_changes = allow_changes
        server = mcp_server(self._access, on_unexpected_error=on_unexpected_error)
        self._manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["McpRoute"]:
        """Answer messages until the context is left."""
        # The library logs texts of callers, who could fill the log.
        logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
        async with self._manager.run():
            yield self

    async def answer(self, call: ApiCall) -> Reply:
        """See ModelServer.answer."""
        content = msgspec.json.encode(call.body)
        if len(content) > LARGEST_MESSAGE:
            raise TooLarge(LARGEST_MESSAGE)
        exchange = _Exchange(content)
        headers = [(b"content-type", b"application/json"), (b"accept", b"application/json")]
        headers += [(name.encode(), call.headers[name].encode()) for name in _header_names(call)]
        scope = {
            "type": "http",
            "method": "POST",
            "path": call.url,
            "raw_path": call.url.encode(),
            "query_string": b"",
            "headers": headers,
            _CALL: call,
        }
        await self._manager.handle_request(scope, exchange.receive, exchange.send)
        return exchange.reply()

    def _access(self, request: Any) -> ModelAccess:  # noqa: ANN401 - of the library
        call: ApiCall = request.scope[_CALL]

        async def send(sent: ApiRequest[Any]) -> Any:  # noqa: ANN401 - each route has its own response type
            return await _send(call, sent)

        return ModelAccess(send, self._allow_changes, model_of(call.headers))


def _header_names(call: ApiCall) -> list[str]:
    """The headers of the protocol that the request has."""
    return [name for name in call.headers if name in _HEADERS or name.startswith("mcp-param-")]


async def _send(call: ApiCall, sent: ApiRequest[Any]) -> Any:  # noqa: ANN401 - each route has its own response type
    """Handle the request of a verb for the caller of the message. A refusal for lack of a role is audited."""
    services, caller = call.services, call.caller
    request = LocalRequest(method=sent.method, target=sent.target, content=sent.content, headers=sent.headers)
    try:
        return await handle_locally(services, caller, request, source=call.source, origin=OriginKind.MCP)
    except Forbidden as error:
        named, headers = f"{sent.method} {sent.path}", {name.lower(): one for name, one in sent.headers.items()}
        await services.audit.refused(
            "mcp", named, str(error), actor=acting(caller, headers), tenant=caller.tenant, now=services.clock.now()
        )
        raise


class _Exchange:
    """One request to the library, and its response."""

    def __init__(self, content: bytes) -> None:
        self._content: bytes | None = content
        self._status = 500
        self._body = bytearray()

    async def receive(self) -> dict[str, Any]:
        content, self._content = self._content, None
        if content is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(self, message: Any) -> None:  # noqa: ANN401 - of ASGI
        if message["type"] == "http.response.start":
            self._status = message["status"]
        else:
            self._body += message.get("body", b"")

    def reply(self) -> Reply:
        return Reply(body=msgspec.Raw(bytes(self._body)) if self._body else None, status=self._status)
