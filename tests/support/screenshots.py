"""`make screenshots`: the pictures of docs/images, of the examples after a day, on a fixed clock."""

import asyncio
import sys
from pathlib import Path
from typing import NamedTuple

from playwright.async_api import Browser, Page, ViewportSize

from gnomon.api.server import address_of, listen
from gnomon.app.files import read_jobs_text
from gnomon.config.sections import DashboardColour, DashboardSettings, ServerSettings
from gnomon.config.settings import Settings
from gnomon.core.model import MINUTE_MS, Result
from support.api_fixture import ApiCaller
from support.api_server import serve_fixture_on
from support.browser_files import find_browser
from support.browser_reader import DESKTOP, Reader, reading, running_browser
from support.dashboard import DashboardFixture

ROOT = Path(__file__).parents[2]
_IMAGES = ROOT / "docs" / "images"
_WIDE = ViewportSize(width=1280, height=560)
_STEP_MINUTES = 15
_ERROR = "provider beta: connection refused"
#: The minutes of the day between which a job is paused, and those of the executions that fail.
_PAUSED, _FAILS = range(13 * 60, 17 * 60), (7 * 60, 9 * 60 + 15, 19 * 60 + 30)


class Picture(NamedTuple):
    """A page, and the file with its picture."""

    name: str
    path: str
    size: ViewportSize = DESKTOP


PICTURES = (
    Picture("calendar", "/ui/calendar?from=2026-03-02T22:00:00Z&to=2026-03-03T22:00:00Z", size=_WIDE),
    Picture("overview", "/ui/"),
    Picture("job", "/ui/jobs/provider-health-check"),
    Picture("why", "/ui/why?job=provider-health-check"),
)


async def a_day(dashboard: DashboardFixture) -> None:
    """Live through a day of the examples: executions succeed, fail and wait, and a job is paused for some hours."""
    text = (ROOT / "examples" / "jobs.yaml").read_text()
    jobs = read_jobs_text(text, dashboard.clock.now(), settings=Settings())
    async with dashboard.caller("admin") as admin:
        applied = await admin.post("/v1/apply", {"jobs": jobs})
        assert applied.status_code == 200, applied.text
        for minute in range(0, 24 * 60, _STEP_MINUTES):
            if minute == _PAUSED.start:
                await admin.post("/v1/jobs/queue-depth-probe/pause", {})
            if minute == _PAUSED.stop:
                await admin.post("/v1/jobs/queue-depth-probe/resume", {"missed": "latest"})
            dashboard.clock.advance(_STEP_MINUTES * MINUTE_MS)
            await dashboard.decide()
            await _end_executions(dashboard, admin, fails=minute in _FAILS)
        await admin.post("/v1/jobs/nightly-backup/trigger")


async def _end_executions(dashboard: DashboardFixture, admin: ApiCaller, *, fails: bool) -> None:
    for one in (await admin.get("/v1/executions?status=pending")).json()["items"]:
        if fails:
            await dashboard.finish_execution(
                one["execution_id"], Result.FAILED, error="provider beta: connection refused"
            )
        else:
            await dashboard.finish_execution(one["execution_id"])


async def take(browser: Browser, address: str, now: int, folder: Path) -> None:
    """Write all pictures."""
    for picture in PICTURES:
        async with reading(browser, address, "admin~ada~", size=picture.size, noted=True) as reader:
            page = await _page(reader, now)
            await page.goto(picture.path)
            await page.evaluate("document.fonts.ready")
            await page.screenshot(path=folder / f"{picture.name}.png")


async def _page(reader: Reader, now: int) -> Page:
    page = await reader.context.new_page()
    await page.emulate_media(color_scheme="light", reduced_motion="reduce")
    await page.clock.set_fixed_time(now)
    return page


async def main(folder: Path) -> None:
    """Serve the examples, and write the pictures of their pages into the folder."""
    files = find_browser()
    if files is None:
        sys.exit("there is no browser: run make setup, or set GNOMON_TEST_BROWSER to a Chromium")
    dashboard = DashboardFixture()
    dashboard.ui = DashboardSettings(title="Acme production", colour=DashboardColour.TEAL)
    await a_day(dashboard)
    listening, stop = listen(ServerSettings(port=0)), asyncio.Event()
    serving = asyncio.create_task(serve_fixture_on(dashboard, listening, stop, pages=dashboard.pages))
    async with running_browser(files) as browser:
        await take(browser, address_of(listening), dashboard.clock.now(), folder)
    stop.set()
    await serving


if __name__ == "__main__":
    _IMAGES.mkdir(exist_ok=True)
    asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else _IMAGES))
