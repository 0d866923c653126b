"""A reader of the dashboard in a real browser, and everything that a page must never do there."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, ViewportSize, async_playwright

from support.browser_files import BrowserFiles

#: In milliseconds: a loaded machine is slow, and nothing is wrong with the page.
PATIENCE = 60_000
DESKTOP, TABLET, PHONE = (
    ViewportSize(width=width, height=height) for width, height in ((1280, 800), (768, 1024), (320, 640))
)
_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
_AXE = Axe()


@asynccontextmanager
async def running_browser(files: BrowserFiles) -> AsyncIterator[Browser]:
    """A browser without windows."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=files.program,
            env={**os.environ, **files.environment},
            # The tests run as root in containers, where the sandbox of Chromium cannot.
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        try:
            yield browser
        finally:
            await browser.close()


class Reader:
    """A signed-in person: one session with its tabs. It notes each message, error and foreign request of its pages."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.context = context
        self.address = address
        self.noted: list[str] = []
        context.on("console", self._console)
        context.on("weberror", lambda error: self.noted.append(f"error: {error.error}"))
        context.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        self.noted.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.noted.append(f"request to {request.url}")

    async def sign_in(self, token: str) -> None:
        """Sign in as the form does, without showing it."""
        headers = {"Origin": self.address}
        answer = await self.context.request.post("/ui/login", form={"token": token}, headers=headers, max_redirects=0)
        assert answer.status == 303, await answer.text()

    async def open(self, path: str) -> Page:
        """A new tab with a page."""
        page = await self.context.new_page()
        await page.goto(path)
        return page


@asynccontextmanager
async def reading(
    browser: Browser,
    address: str,
    token: str | None,
    *,
    javascript: bool = True,
    size: ViewportSize = DESKTOP,
    noted: bool = False,
) -> AsyncIterator[Reader]:
    """A reader with a session; its pages must write nothing to the console, unless `noted` is what the test expects."""
    context = await browser.new_context(base_url=address, java_script_enabled=javascript, viewport=size)
    context.set_default_timeout(PATIENCE)
    reader = Reader(context, address)
    try:
        if token is not None:
            await reader.sign_in(token)
        yield reader
        assert noted or reader.noted == [], reader.noted
    finally:
        await context.close()


async def violations(page: Page, *, rules: list[str] | None = None) -> list[str]:
    """The rules of WCAG 2.1 AA that the page breaks, with the elements; only these rules if there are some."""
    only = {"type": "tag", "values": _RULES} if rules is None else {"type": "rule", "values": rules}
    found = await _AXE.run(page, options={"runOnly": only, "resultTypes": ["violations"]})
    return [
        f"{one['id']}: {node['html']} ({node.get('failureSummary', '')})"
        for one in found.response["violations"]
        for node in one["nodes"]
    ]


async def bytes_received(page: Page) -> int:
    """The bytes on the wire of the page and all that it has loaded."""
    script = """() => ["navigation", "resource"].flatMap((kind) => performance.getEntriesByType(kind))
      .reduce((all, one) => all + one.transferSize, 0)"""
    return int(await page.evaluate(script))
