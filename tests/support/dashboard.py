"""The dashboard in this process, on the API fixture, and a browser without JavaScript."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from html import unescape
from typing import Any, cast

import httpx
from litestar.handlers import HTTPRouteHandler

from gnomon.api.app import create_app
from gnomon.api.middleware import App, with_request_checks, with_security_headers
from gnomon.api.route_runner import RouteRunner
from gnomon.app.auth import IssuerSessions
from gnomon.app.files import read_jobs_text
from gnomon.config.sections import DashboardSettings
from gnomon.config.settings import Settings
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import plan
from gnomon.core.model import Schedule as StoredSchedule
from gnomon.ports.auth import SessionTokens
from gnomon.ui.error_pages import with_error_pages
from gnomon.ui.handlers import Dashboard
from support.api_fixture import ApiFixture

ORIGIN = "http://gnomon"
#: A link in the middle of a sentence.
_SHORT_ID = re.compile(r'<a class="id short"[^>]*>([^<]*)</a>')
_TOKEN = re.compile(r'name="form_token" value="([0-9a-f]{64})"')


class DashboardFixture(ApiFixture):
    """The API and the pages that are made of it."""

    session_tokens: SessionTokens = IssuerSessions()
    #: How the pages name the installation.
    ui = DashboardSettings()

    def built_app(self) -> App:
        """The application with its pages."""
        app = create_app(self.services, on_unexpected_error=self.unhandled_errors.append, pages=self.pages)
        return with_security_headers(with_error_pages(with_request_checks(cast("App", app), self.services.busy)))

    def pages(self, runner: RouteRunner) -> Sequence[HTTPRouteHandler]:
        """The handlers of the pages."""
        return Dashboard(
            runner,
            self.session_tokens,
            self.ui,
            read_jobs=partial(read_jobs_text, settings=Settings()),
            on_unexpected_error=self.unhandled_errors.append,
        ).handlers()

    async def decide(self) -> None:
        """Decide everything that is due."""
        store, now = self.store, self.clock.now()
        terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS, by_force=True)
        due: list[StoredSchedule] = list(await store.ledger.due(now, shards=frozenset(range(SHARDS)), limit=100))
        await store.ledger.decide([plan(one, now=now) for one in due], now=now, terms=terms)

    @asynccontextmanager
    async def visitor(self, token: str | None = None) -> AsyncIterator["Visitor"]:
        """A browser; signed in if there is a token."""
        transport = httpx.ASGITransport(cast("Any", self.app))
        async with httpx.AsyncClient(transport=transport, base_url=ORIGIN) as client:
            found = Visitor(client)
            if token is not None:
                signed_in = await found.sign_in(token)
                assert signed_in.status_code == 303, signed_in.text
            yield found


class Visitor:
    """A person at a browser."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client

    async def get(self, path: str) -> httpx.Response:
        return await self.client.get(path)

    async def sign_in(self, token: str, *, origin: str = ORIGIN, **fields: str) -> httpx.Response:
        return await self.client.post("/ui/login", data={"token": token, **fields}, headers={"Origin": origin})

    async def form_token(self) -> str:
        """The form token of this session, from a page that has a form for everybody who may operate."""
        return await self.any_form_token("/ui/jobs/report")

    async def any_form_token(self, path: str) -> str:
        """The form token of this session, from a page with a form."""
        page = await self.get(path)
        found = _TOKEN.search(page.text)
        return "" if found is None else found[1]

    async def send(self, path: str, *, origin: str = ORIGIN, token: str | None = None, **fields: str) -> httpx.Response:
        """Send a form; with its token unless another one is given."""
        token = await self.form_token() if token is None else token
        return await self.client.post(path, data={"form_token": token, **fields}, headers={"Origin": origin})


def text_of(page: httpx.Response) -> str:
    """The text of a page, without markup, with single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", _SHORT_ID.sub(r"\1", page.text))).split())
