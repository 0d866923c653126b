"""The dashboard as people use it, against a running `gnomon up`."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Browser, Page, expect

from support.browser_reader import reading
from support.browser_server import RunningServer
from support.dashboard_pages import ServedPages

pytestmark = pytest.mark.asyncio(loop_scope="session")
_SIGN_IN = re.compile("/ui/login")


# ---- sign in -------------------------------------------------------------------------------------


@pytest.mark.req("H-26")
@pytest.mark.parametrize("javascript", [True, False])
async def test_a_person_signs_in_with_a_token_and_out_again(
    browser: Browser, server: RunningServer, *, javascript: bool
) -> None:
    async with reading(browser, server.address, None, javascript=javascript, noted=True) as reader:
        page = await reader.open("/ui/jobs?tag=a")
        await expect(page).to_have_url(_SIGN_IN)
        await page.get_by_label("Token").fill("nonsense")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_be_visible()

        await page.goto("/ui/jobs?tag=a")
        await page.get_by_label("Token").fill(server.token)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page).to_have_url(f"{server.address}/ui/jobs?tag=a")

        await page.get_by_text("local-admin").first.click()
        await page.get_by_role("button", name="Sign out").click()
        await expect(page).to_have_url(_SIGN_IN)
        await page.goto("/ui/jobs")
        await expect(page).to_have_url(_SIGN_IN)
        # A browser writes the status of the refused token to the console.
        assert all("status of 401" in text for text in reader.noted)


@pytest.mark.parametrize("javascript", [True, False])
async def test_an_address_with_a_code_signs_in_once(
    browser: Browser, server: RunningServer, *, javascript: bool
) -> None:
    with server.client() as api:
        address = f"{server.address}{api.sign_in_code().path}"

    async with reading(browser, server.address, None, javascript=javascript) as reader:
        page = await reader.open(address)
        if not javascript:
            await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        assert page.url == f"{server.address}/ui/"

    async with reading(browser, server.address, None, javascript=javascript, noted=True) as late:
        page = await late.open(address)
        if not javascript:
            await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("has been used or has expired")


# ---- why, pause, resume, skip and move -----------------------------------------------------------


@pytest.mark.req("H-25")
async def test_a_reader_goes_from_the_overview_to_the_sentence_of_a_job_that_did_not_run(
    browser: Browser, server: RunningServer
) -> None:
    job = server.registered("not-run", function="pages/slow", schedule="* * * * * *", overlap="skip")
    async with reading(browser, server.address, server.token) as reader:
        page = await reader.open("/ui/")
        told = page.locator("#not-run .told", has_text=job)
        await expect(told).to_contain_text("It was skipped")
        shown = await told.locator(".sentence-of").inner_text()
        await told.get_by_role("link", name=re.compile("UTC")).click()

        await expect(page.get_by_role("heading", name="Why")).to_be_visible()
        at = re.search("at=([^&]+)", page.url)
        assert at is not None
        with server.client() as api:
            api.pause(job)
            [one] = api.why(job, at=at[1].replace("%3A", ":")).explanations
            assert one.sentence in await page.locator("main").inner_text()
            assert shown.startswith("It was skipped")
            api.delete(job)


@pytest.mark.parametrize("javascript", [True, False])
async def test_an_admin_pauses_a_job_and_resumes_it_with_a_choice(
    browser: Browser, server: RunningServer, *, javascript: bool
) -> None:
    job = server.registered(f"paused-{javascript}".lower(), schedule="0 0 1 1 *")
    async with reading(browser, server.address, server.token, javascript=javascript) as reader:
        page = await reader.open(f"/ui/jobs/{job}")
        await page.get_by_role("button", name="Pause").click()
        await expect(page.locator(".state").first).to_have_text("paused")

        await page.get_by_label("They").select_option("latest")
        await page.get_by_role("button", name="Resume").click()
        await expect(page.locator(".state").first).to_have_text("active")
        await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    with server.client() as api:
        assert not api.job(job).paused
        actions = [one.action for one in api.audit(name=job)]
        assert actions.count("pause") == actions.count("resume") == 1


async def test_an_admin_skips_one_fire_and_moves_another(browser: Browser, server: RunningServer) -> None:
    job = server.registered("moved", schedule="0 9 * * *")
    async with reading(browser, server.address, server.token) as reader:
        page = await reader.open(f"/ui/jobs/{job}?tab=plan")
        fires = await page.locator("tr[data-at]").evaluate_all("all => all.map((row) => row.dataset.at)")
        first, second = fires[:2]
        await page.locator(f"tr[data-at='{first}']").get_by_role("button", name="Skip").click()
        await page.goto(f"/ui/jobs/{job}?tab=plan")
        await expect(page.locator("main")).to_contain_text("is skipped")

        row = page.locator(f"tr[data-at='{second}']")
        await row.get_by_text("Move", exact=True).first.click()
        later = (datetime.fromisoformat(second) + timedelta(hours=1)).astimezone(UTC)
        await row.get_by_label("to (UTC)").fill(f"{later:%Y-%m-%dT%H:%M}")
        await row.get_by_role("button", name="Move").click()
        await page.goto(f"/ui/jobs/{job}?tab=plan")
        await expect(page.locator("main")).to_contain_text("is moved to")
    with server.client() as api:
        found = api.job(job).exceptions
        assert [(one.planned_at, one.moved_to) for one in found] == [
            (datetime.fromisoformat(first), None),
            (datetime.fromisoformat(second), later),
        ]


# ---- plan and apply ------------------------------------------------------------------------------


async def planned(page: Page, job: str, schedule: str) -> None:
    """Show the plan of a file with this job."""
    await page.goto("/ui/plan")
    text = f"jobs:\n  - name: {job}\n    function: pages/quick\n    schedule: '{schedule}'\n"
    await page.get_by_label("Jobs file (YAML)").fill(text)
    await page.locator("main form.card button:not([formaction])").last.click()
    await expect(page.locator(f"[data-job='{job}']")).to_be_visible()


async def test_an_admin_applies_exactly_the_plan_that_was_shown(browser: Browser, server: RunningServer) -> None:
    async with reading(browser, server.address, server.token, noted=True) as reader:
        page = await reader.context.new_page()
        await planned(page, "from-a-plan", "0 9 * * *")
        await page.get_by_role("button", name="Apply exactly this").click()
        await page.wait_for_load_state()
        with server.client() as api:
            assert api.job("from-a-plan").cron == "0 9 * * *"

        await planned(page, "from-a-plan", "0 10 * * *")
        with server.client() as api:
            api.update("from-a-plan", {"name": "from-a-plan", "function": "pages/quick", "schedule": "0 11 * * *"})
        await page.get_by_role("button", name="Apply exactly this").click()
        await expect(page.get_by_role("alert")).to_contain_text("Nothing was applied")
        with server.client() as api:
            assert api.job("from-a-plan").cron == "0 11 * * *"


# ---- live ----------------------------------------------------------------------------------------


async def test_a_page_shows_a_job_that_fails_as_it_happens(browser: Browser, server: RunningServer) -> None:
    job = server.registered("fails", function="pages/broken", dead_letter=True)
    async with reading(browser, server.address, server.token) as reader:
        page, letters = await reader.open(f"/ui/jobs/{job}?tab=executions"), await reader.open("/ui/dead-letters")
        for tab in (page, letters):
            await expect(tab.locator("#live")).to_have_text("Live")
        with server.client() as api:
            api.trigger(job)

        await expect(page.locator("tbody .state")).to_have_text("failed")
        await expect(letters.locator("main")).to_contain_text("the disk is full")


async def test_a_form_that_is_sent_twice_starts_one_execution(browser: Browser, server: RunningServer) -> None:
    job = server.registered("clicked-twice")
    async with reading(browser, server.address, server.token) as reader:
        page = await reader.open(f"/ui/jobs/{job}")
        await page.get_by_text("Trigger", exact=True).click()
        await page.get_by_role("button", name="Start an execution").dblclick()
        await page.wait_for_url("**/ui/executions/**")
    with server.client() as api:
        assert len(list(api.executions(job=job))) == 1


async def test_dead_letters_are_replayed_once_however_often_one_clicks(browser: Browser, server: RunningServer) -> None:
    job, count = server.registered("breaks", function="pages/broken", dead_letter=True, overlap="allow"), 250
    with server.client() as api:
        for _ in range(count):
            api.trigger(job)
    async with reading(browser, server.address, server.token) as reader:
        page = await reader.open(f"/ui/dead-letters?job={job}")
        group = page.locator(f"tr[data-group='{job}'][data-count='{count}']")
        await expect(group).to_be_visible()
        button = group.get_by_role("button", name="Replay")
        await button.click()
        await expect(page.locator("#confirm")).to_contain_text(f"Replay {count} dead letters of {job}?")
        await page.get_by_role("button", name="Leave it").click()
        await button.click()
        await page.locator("#confirm").get_by_role("button", name="Replay").dblclick()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Replayed")

    with server.client() as api:
        found = list(api.dead_letters(job=job, resolved=True))
        replays = [one.replayed_by for one in found if one.replayed_by is not None]
        assert len(replays) == len(set(replays)) == count
        assert len(list(api.executions(job=job))) == 2 * count


# ---- roles, tenants, keyboard --------------------------------------------------------------------


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
async def test_a_page_has_the_forms_that_the_role_allows(
    browser: Browser, served_pages: ServedPages, role: str
) -> None:
    async with reading(browser, served_pages.address, role) as reader:
        page = await reader.open("/ui/jobs/report")
        shown = {name: await page.get_by_text(name, exact=True).count() > 0 for name in ("Trigger", "Pause")}
        assert shown == {"Trigger": role != "viewer", "Pause": role == "admin"}


async def test_another_tenant_finds_no_job_of_this_one(browser: Browser, served_pages: ServedPages) -> None:
    async with reading(browser, served_pages.address, "admin/other", noted=True) as reader:
        page = await reader.context.new_page()
        for path in served_pages.places.values():
            answer = await page.goto(path)
            assert answer is not None
            assert answer.status in (200, 403, 404), path
            assert await page.locator("main a[href*='/ui/jobs/report']").count() == 0, path


async def test_a_job_is_paused_by_the_keyboard_alone(browser: Browser, server: RunningServer) -> None:
    job = server.registered("by-keyboard", schedule="0 0 1 1 *")
    async with reading(browser, server.address, server.token) as reader:
        page = await reader.open("/ui/")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"

        await page.keyboard.press("/")
        await page.keyboard.type(job)
        await expect(page.locator("#palette a[data-chosen]")).to_contain_text(job)
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/ui/jobs/{job}")
        for _ in range(60):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.textContent.trim()") == "Pause":
                break
        await page.keyboard.press("Enter")
        await expect(page.locator("main .state").first).to_have_text("paused")
