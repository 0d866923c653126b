"""The page of an execution in a browser: with its drawings and a long log it is accessible, small, and never wide."""

import re
from typing import Any

import pytest
from playwright.async_api import Browser, expect

from contracts.store import NOON
from gnomon.core.model import LogLine, RunId
from gnomon.core.runs.graph_layout import MOST_STEPS
from gnomon.core.runs.progress import AttemptProgress
from support.browser_reader import PHONE, bytes_received, reading, violations
from support.browser_server import RunningServer
from support.dashboard_pages import ServedPages
from support.task_steps import take_task

pytestmark = pytest.mark.asyncio(loop_scope="session")
_MOST_ELEMENTS, _MOST_BYTES = 5_000, 150_000


async def running(served: ServedPages, name: str, steps: int, lines: int) -> str:
    """The address of an execution whose first step goes on and has logged so many lines."""
    dag: list[dict[str, Any]] = [{"step": "first", "function": "reports.make"}]
    for number in range(1, steps):
        before = ["first"] + ([f"step_{number - 9}"] if number > 9 else [])
        dag.append({"step": f"step_{number}", "function": "reports.make", "depends_on": before})
    async with served.dashboard.caller("admin") as admin:
        assert (await admin.post("/v1/jobs", {"name": name, "dag": dag})).status_code == 201
        execution = str((await admin.post(f"/v1/jobs/{name}/trigger")).json()["execution_id"])
    store = served.dashboard.store
    run = await store.executions.find_run(RunId(execution))
    assert run is not None
    held = await take_task(store, "worker-1", run, now=served.dashboard.clock.now())
    said = tuple(LogLine(NOON + number, "info", f"line {number} {'x' * 300}") for number in range(lines))
    progress = AttemptProgress(task_id=held.task.task_id, fence=held.task.fence, lines=said)
    await store.attempts.keep_progress(progress, worker=None, now=NOON)
    return f"/ui/executions/{execution}"


async def test_the_largest_graph_with_a_long_log_is_accessible_and_small(
    browser: Browser, served_pages: ServedPages
) -> None:
    address = await running(served_pages, "large", MOST_STEPS, 1_000)
    async with reading(browser, served_pages.address, "admin") as reader:
        page = await reader.open(address)

        assert await violations(page) == []
        await page.emulate_media(color_scheme="dark")
        assert await violations(page, rules=["color-contrast"]) == []
        assert await page.locator("*").count() <= _MOST_ELEMENTS
        assert await bytes_received(page) <= _MOST_BYTES
        last = page.locator("[role=log] p").last
        await expect(last).to_contain_text("line 999")
        await page.locator("[role=log]").scroll_into_view_if_needed()
        await expect(last).to_be_in_viewport()


async def test_a_step_of_the_graph_leads_to_its_row_by_keyboard(browser: Browser, served_pages: ServedPages) -> None:
    address = await running(served_pages, "linked", 3, 1)
    async with reading(browser, served_pages.address, "viewer") as reader:
        page = await reader.open(address)
        await page.locator("svg.graph a").nth(1).focus()
        await page.keyboard.press("Enter")

        await expect(page).to_have_url(re.compile("#step-2$"))
        assert await violations(page) == []


async def test_drawings_and_log_fit_a_window_of_320_pixels(browser: Browser, served_pages: ServedPages) -> None:
    address = await running(served_pages, "narrow", 12, 30)
    async with reading(browser, served_pages.address, "operator", size=PHONE) as reader:
        page = await reader.open(address)

        assert await page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"]


async def test_lines_appear_while_the_step_goes_on_and_stay_at_the_end(browser: Browser, server: RunningServer) -> None:
    job = server.registered("talker", function="pages/slow")
    with server.client() as client:
        execution = client.trigger(job).execution_id
    async with reading(browser, server.address, server.token) as reader:
        page = await reader.open(f"/ui/executions/{execution}")
        lines = page.locator("[role=log] p")
        # No load of the page in between.
        await expect(lines.nth(0)).to_contain_text("line 0")
        seen = await lines.count()
        await expect(lines.nth(seen + 20)).to_be_attached()
        await page.locator("[role=log]").scroll_into_view_if_needed()
        await expect(lines.last).to_be_in_viewport()

        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator("main .state").first).to_have_text("cancelled")
        numbers = [int(text.rpartition(" ")[2]) for text in await lines.all_inner_texts()]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
