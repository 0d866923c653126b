"""Every page in a browser: accessible in both themes, small, and without a message, an error or a foreign request."""

import re

import pytest
from playwright.async_api import Browser

from gnomon.ui.pages import PAGES
from support.browser_reader import PHONE, TABLET, bytes_received, reading, violations
from support.dashboard_pages import ServedPages

pytestmark = pytest.mark.asyncio(loop_scope="session")
_MOST_ELEMENTS = 5_000
_MOST_BYTES = 150_000
#: Looks for the element that makes a page wider than the window.
_WIDE = """() => {
  const most = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= most) return "";
  return [...document.querySelectorAll("body *")].filter((one) => one.getBoundingClientRect().right > most + 1)
    .map((one) => one.outerHTML.slice(0, 100)).slice(0, 3).join("\\n") || "wide";
}"""


@pytest.mark.parametrize("path", [page.path for page in PAGES])
async def test_a_page_is_accessible_small_and_fits_narrow_windows(
    browser: Browser, served_pages: ServedPages, path: str
) -> None:
    async with reading(browser, served_pages.address, "admin") as reader:
        page = await reader.open(served_pages.places[path])

        assert await violations(page) == []
        await page.emulate_media(color_scheme="dark")
        assert await violations(page, rules=["color-contrast"]) == []
        assert await page.locator("*").count() <= _MOST_ELEMENTS
        assert await bytes_received(page) <= _MOST_BYTES
        for size in (TABLET, PHONE):
            await page.set_viewport_size(size)
            assert await page.evaluate(_WIDE) == ""


@pytest.mark.parametrize("role", ["viewer", "operator", "admin", "admin/other"])
async def test_a_caller_finds_no_link_and_no_form_that_the_api_would_refuse(
    browser: Browser, served_pages: ServedPages, role: str
) -> None:
    async with reading(browser, served_pages.address, role) as reader:
        page = await reader.open("/ui/")
        for address in await page.locator("nav.menu a[href^='/ui/']").evaluate_all("all => all.map((one) => one.href)"):
            answer = await page.goto(address)
            assert answer is not None
            assert answer.status == 200, address


async def test_the_sign_in_is_accessible(browser: Browser, served_pages: ServedPages) -> None:
    async with reading(browser, served_pages.address, None) as reader:
        page = await reader.open("/ui/login")
        assert await violations(page) == []
        await page.emulate_media(color_scheme="dark")
        assert await violations(page, rules=["color-contrast"]) == []


@pytest.mark.parametrize("path", ["/ui/jobs/nothing", "/ui/executions?cursor=forged"])
async def test_a_page_about_an_error_is_accessible(browser: Browser, served_pages: ServedPages, path: str) -> None:
    async with reading(browser, served_pages.address, "viewer", noted=True) as reader:
        page = await reader.open(path)
        assert await violations(page) == []
        # A browser writes each status of an error to the console.
        assert all(re.search("status of 4(04|22)", text) for text in reader.noted)
