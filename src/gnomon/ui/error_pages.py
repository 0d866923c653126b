"""Answers under `/ui/` that no page has made, such as that of an unknown address, as pages that lead on.

They are made without templates and without a session: the router and the checks before it know neither.
"""

from html import escape
from typing import Any

import msgspec

from gnomon.api.middleware import App
from gnomon.api.problems import MEDIA_TYPE, Problem
from gnomon.core.security_headers import PAGE_SECURITY_HEADERS
from gnomon.ui.rendering import cut_text, static_address
from gnomon.ui.sessions import ROOT

#: Headers of the problem document that the page has otherwise.
_REPLACED = frozenset({b"content-type", b"content-length", *(name.encode() for name in PAGE_SECURITY_HEADERS)})
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="{icon}">
<link rel="stylesheet" href="{style}">
</head>
<body class="alone">
<main id="main">
<h1>{title}</h1>
<p class="problem" role="alert">{detail}</p>
<p class="actions"><a class="button" href="/ui/">Overview</a> <a class="button" href="/ui/search">Search</a></p>
</main>
</body>
</html>
"""


def with_error_pages(app: App) -> App:
    """The application, whose problem documents under `/ui/` become pages."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - of ASGI
        shown = scope["type"] == "http" and scope["path"].startswith(ROOT)
        await app(scope, receive, _PageSender(send).send if shown else send)

    return serve


class _PageSender:
    """Sends one response; a problem document as a page."""

    def __init__(self, send: Any) -> None:  # noqa: ANN401 - of ASGI
        self._send = send
        self._start: Any = None
        self._body = b""

    async def send(self, message: Any) -> None:  # noqa: ANN401 - of ASGI
        """Send a part of the response, or keep it until the document is complete."""
        if message["type"] == "http.response.start" and _is_problem(message):
            self._start = message
        elif self._start is None:
            await self._send(message)
        else:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_page()

    async def _send_page(self) -> None:
        page = error_page(msgspec.json.decode(self._body, type=Problem)) if self._body else b""
        kept = [header for header in self._start["headers"] if header[0].lower() not in _REPLACED]
        own = {**PAGE_SECURITY_HEADERS, "content-type": "text/html; charset=utf-8"}
        # The answer to HEAD has no body, and no length that would be another one.
        length = [(b"content-length", str(len(page)).encode())] if page else []
        headers = [*kept, *length, *((name.encode(), value.encode()) for name, value in own.items())]
        await self._send({**self._start, "headers": headers})
        await self._send({"type": "http.response.body", "body": page})


def error_page(problem: Problem) -> bytes:
    """The problem as a page."""
    return _PAGE.format(
        title=escape(problem.title),
        detail=escape(cut_text(problem.detail)),
        icon=static_address("icon.svg"),
        style=static_address("gnomon.css"),
    ).encode()


def _is_problem(message: Any) -> bool:  # noqa: ANN401 - of ASGI
    kinds = [value for name, value in message.get("headers", ()) if name.lower() == b"content-type"]
    return any(kind.startswith(MEDIA_TYPE.encode()) for kind in kinds)
