"""One browser and one server for all tests of a worker. They share an event loop, which lasts as long as the worker."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from msgspec.structs import replace
from playwright.async_api import Browser, expect

from gnomon.api.server import address_of, listen
from gnomon.config.sections import ServerSettings
from gnomon.services.observability.change_stream import ChangeStream
from support.api_server import serve_fixture_on
from support.browser_files import find_browser
from support.browser_reader import PATIENCE, running_browser
from support.browser_server import RunningServer, running_server
from support.dashboard import DashboardFixture
from support.dashboard_pages import ServedPages, places

expect.set_options(timeout=PATIENCE)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """The browser of this worker; without one, the test is skipped, and fails where CI is set."""
    files = find_browser()
    if files is None:
        reason = "there is no browser: run `make setup`, or set GNOMON_TEST_BROWSER to a Chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    async with running_browser(files) as running:
        yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def served_pages() -> AsyncIterator[ServedPages]:
    """Every page with something on it, on a clock that stands still."""
    dashboard = DashboardFixture()
    # Each tab of these readers may follow.
    dashboard.change_stream = ChangeStream()
    dashboard.put(replace(dashboard.services, change_stream=dashboard.change_stream))
    async with dashboard.caller("admin") as admin:
        await admin.registered()
    found = await places(dashboard)
    listening = listen(ServerSettings(port=0))
    stop = asyncio.Event()
    serving = asyncio.create_task(serve_fixture_on(dashboard, listening, stop, pages=dashboard.pages))
    address = address_of(listening, dashboard.services.server)
    yield ServedPages(dashboard, address, dict(found))
    stop.set()
    dashboard.change_stream.close()
    await serving
    assert dashboard.unhandled_errors == []


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A scheduler with a worker, as `gnomon up` starts it."""
    with running_server(tmp_path_factory.mktemp("dashboard") / "gnomon.db") as found:
        yield found
