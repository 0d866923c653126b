"""The frame in a browser: one stream for all tabs, live parts that disturb nobody, the palette, and keys."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Route, expect

from gnomon.core.instants import instant_of
from gnomon.ports.change_log import Change
from support.browser_reader import reading
from support.browser_server import RunningServer, running_server
from support.dashboard_pages import ServedPages

pytestmark = pytest.mark.asyncio(loop_scope="session")
#: A page with a part of which each answer says how often it was asked for.
_PAGE = "/ui/health"
_LIVE = re.compile("^Live$")


def part(number: int, more: str = "") -> str:
    """The answer for a part with rows, a field, and a box to tick."""
    rows = "".join(f'<tr><td><a href="/ui/jobs/{name}">{name}</a></td></tr>' for name in ("a", "b", "c"))
    return (
        f'<p id="count">asked {number}</p>{more}<table><tbody>{rows}</tbody></table>'
        '<label>Note <input name="note" value=""></label><label>Tick <input type="checkbox" name="tick"></label>'
    )


@asynccontextmanager
async def parts_of(page: Page, more: str = "") -> AsyncIterator[None]:
    """Answer for the part of the page with numbered texts."""
    asked = 0

    async def answer(route: Route) -> None:
        nonlocal asked
        asked += 1
        await route.fulfill(body=part(asked, more), content_type="text/html")

    await page.route("**/ui/health?part=*", answer)
    yield
    await page.unroute_all(behavior="wait")


# ---- live parts ----------------------------------------------------------------------------------


async def test_a_part_is_shown_again_without_losing_focus_text_selection_or_ticks(
    browser: Browser, served_pages: ServedPages
) -> None:
    async with reading(browser, served_pages.address, "viewer") as reader:
        page = await reader.context.new_page()
        await page.clock.install()
        async with parts_of(page, '<p id="new">new above</p>'):
            await page.goto(_PAGE)
            await page.clock.run_for(6_000)
            await expect(page.locator("#count")).to_have_text("asked 1")
            field = page.get_by_label("Note")
            await field.fill("half a senten")
            await field.evaluate("one => one.setSelectionRange(2, 6)")
            await page.get_by_label("Tick").check()
            await field.focus()

            await page.clock.run_for(6_000)
            await expect(page.locator("#count")).to_have_text("asked 2")

            assert await field.evaluate("one => [one.value, one.selectionStart, one.selectionEnd]") == [
                "half a senten", 2, 6,
            ]  # fmt: skip
            assert await page.evaluate("document.activeElement.name") == "note"
            assert await page.get_by_label("Tick").is_checked()


@pytest.mark.parametrize("changes", [True, False])
async def test_a_change_between_the_page_and_its_stream_is_shown_once_the_stream_begins(
    browser: Browser, served_pages: ServedPages, *, changes: bool
) -> None:
    dashboard, arrived, go_on = served_pages.dashboard, asyncio.Event(), asyncio.Event()

    async def hold_back(route: Route) -> None:
        arrived.set()
        await go_on.wait()
        await route.continue_()

    async with reading(browser, served_pages.address, "viewer") as reader:
        page = await reader.context.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        # Parts are asked for again after a while, too: not in the two seconds that pass here.
        await page.clock.install()
        await page.route("**/ui/stream", hold_back)
        await page.goto("/ui/jobs")
        await arrived.wait()
        if changes:
            dashboard.change_stream.publish([Change("tick", "default", instant_of(0), {"job": "report"})])
        go_on.set()
        await expect(page.locator("#live")).to_have_text(_LIVE)
        await page.clock.run_for(2_000)
        assert sum("part=jobs" in one for one in asked) == changes


async def test_a_hidden_tab_asks_for_nothing_and_shows_the_newest_when_it_is_seen_again(
    browser: Browser, served_pages: ServedPages
) -> None:
    async with reading(browser, served_pages.address, "viewer") as reader:
        page = await reader.context.new_page()
        await page.clock.install()
        await page.goto(_PAGE)
        await expect(page.locator("#live")).to_have_text(_LIVE)
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))

        await hide(page, hidden=True)
        await expect(page.locator("#live")).to_have_text("Paused while hidden")
        await page.clock.run_for(60_000)
        assert requests == []

        async with page.expect_request("**/ui/health?part=components"):
            await hide(page, hidden=False)
        await expect(page.locator("#live")).to_have_text(_LIVE)


async def hide(page: Page, *, hidden: bool) -> None:
    """Tell the page that the reader looks at another tab, or comes back."""
    script = """(hidden) => {
      Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    await page.evaluate(script, hidden)


# ---- one stream for all tabs ---------------------------------------------------------------------


def streams(served_pages: ServedPages, subject: str) -> int:
    """How many streams the browser of a caller has open."""
    tenants = served_pages.dashboard.change_stream._tenants.values()  # noqa: SLF001 - the server's own view of them
    return sum(one.subject == subject for tenant in tenants for one in tenant.subscribers)


async def test_eight_tabs_share_one_stream_and_another_one_leads_when_the_first_is_closed(
    browser: Browser, served_pages: ServedPages
) -> None:
    async with reading(browser, served_pages.address, "viewer~eve~") as reader:
        tabs = [await reader.open(_PAGE) for _ in range(8)]
        for tab in tabs:
            await expect(tab.locator("#live")).to_have_text(_LIVE)
        assert streams(served_pages, "eve") == 1

        async with reader.context.expect_event("request", lambda request: request.url.endswith("/ui/stream")):
            await tabs[0].close()
        for tab in tabs[1:]:
            await expect(tab.locator("#live")).to_have_text(_LIVE)
        assert streams(served_pages, "eve") == 1


# ---- palette and keys ----------------------------------------------------------------------------


async def test_the_palette_jumps_to_a_page_by_a_few_letters(browser: Browser, served_pages: ServedPages) -> None:
    async with reading(browser, served_pages.address, "viewer") as reader:
        page = await reader.open("/ui/")
        for key in ("Control+k", "/"):
            await page.goto("/ui/")
            await page.keyboard.press(key)
            await expect(page.locator("#palette")).to_be_visible()
            await page.keyboard.type("dead")
            await expect(page.locator("#palette a[data-chosen]")).to_contain_text("Dead letters")
            await page.keyboard.press("Enter")
            await page.wait_for_url("**/ui/dead-letters")


async def test_keys_move_through_rows_and_open_them(browser: Browser, served_pages: ServedPages) -> None:
    async with reading(browser, served_pages.address, "viewer") as reader:
        page = await reader.open("/ui/jobs")
        first = await page.locator("main tbody a[href^='/ui/jobs/']").first.get_attribute("href")
        await page.keyboard.press("j")
        await page.keyboard.press("k")
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**{first}")

        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.locator("#help")).to_be_hidden()


async def test_keys_are_letters_while_one_types(browser: Browser, served_pages: ServedPages) -> None:
    async with reading(browser, served_pages.address, "viewer") as reader:
        page = await reader.open("/ui/why")
        field = page.locator("main input[name=job]")
        await field.press_sequentially("j/k?")
        assert await field.input_value() == "j/k?"


async def test_the_theme_and_the_zone_of_the_browser_are_chosen_in_a_menu(
    browser: Browser, served_pages: ServedPages
) -> None:
    async with reading(browser, served_pages.address, "viewer") as reader:
        page = await reader.open("/ui/jobs")
        light = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        await page.locator("details.drop summary").first.click()
        await page.get_by_label("dark", exact=True).check()
        await page.get_by_label("mine", exact=True).check()
        await page.get_by_label("My time zone").fill("Asia/Kolkata")
        await page.get_by_role("button", name="Show so").click()

        await expect(page.locator("details.drop summary").first).to_contain_text("Asia/Kolkata")
        assert await page.evaluate("getComputedStyle(document.body).backgroundColor") != light
        assert "IST" in await page.locator("main").inner_text()


# ---- a server that goes and comes back -----------------------------------------------------------


async def test_a_lost_connection_is_told_and_heals(browser: Browser, tmp_path: Path) -> None:
    with running_server(tmp_path / "gnomon.db") as first:
        async with reading(browser, first.address, first.token, noted=True) as reader:
            page = await reader.open(_PAGE)
            await expect(page.locator("#live")).to_have_text(_LIVE)

            first.process.kill()
            await expect(page.locator("#live")).to_contain_text("Connection lost since")
            await expect(page.locator("#live")).to_have_attribute("role", "status")

            with running_server(tmp_path / "gnomon.db", port=int(first.address.rpartition(":")[2])):
                await expect(page.locator("#live")).to_have_text(_LIVE)
                assert all("ERR_" in text for text in reader.noted), reader.noted


async def test_a_session_that_ends_is_told(browser: Browser, server: RunningServer) -> None:
    async with reading(browser, server.address, server.token, noted=True) as reader:
        page = await reader.open(_PAGE)
        await expect(page.locator("#live")).to_have_text(_LIVE)

        await reader.context.clear_cookies()
        await expect(page.locator("#live")).to_contain_text("Signed out")
