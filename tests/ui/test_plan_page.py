"""The page of plans: what a jobs file would change, its mistakes by line, and applying exactly what was shown."""

import asyncio
import re
import threading

import httpx
import pytest

from support.api_fixture import JOB
from support.dashboard import ORIGIN, DashboardFixture, text_of
from support.dashboard_pages import HOSTILE

FILE = """jobs:
  - name: report
    schedule: 0 10 * * *
    function: reports.make
    tags: [numbers]
  - name: weekly
    schedule: every monday at 07:00
    function: reports.week
"""


def shown_plan(page: httpx.Response) -> str:
    """The digest of the plan that a page offers to apply."""
    [found] = re.findall(r'name="plan" value="([0-9a-f.]+)"', page.text)
    return str(found)


async def jobs(dashboard: DashboardFixture) -> dict[str, str]:
    async with dashboard.caller("viewer") as api:
        return {one["job"]: one["schedule"] for one in (await api.get("/v1/jobs")).json()["items"]}


@pytest.mark.req("H-26")
async def test_a_plan_shows_the_fields_and_the_fires_that_a_file_would_change(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as admin:
        page = await admin.send("/ui/plan/show", body=FILE.replace("\n", "\r\n"), days="7")

    shown = text_of(page)
    assert page.status_code == 200
    assert "1 created 1 changed" in shown
    assert 'schedule "0 9 * * *" "0 10 * * *"' in shown
    assert re.findall(r'data-job="(\w+)" data-change="(\w+)"', page.text) == [
        ("report", "changed"),
        ("weekly", "created"),
    ]
    assert 'data-fate="moved"' in page.text or 'data-fate="added"' in page.text
    assert await jobs(dashboard) == {"report": "every day at 09:00"}


async def test_the_mistakes_of_a_file_are_named_by_line_and_the_text_is_kept(dashboard: DashboardFixture) -> None:
    broken = FILE.replace("0 10 * * *", "61 10 * * *").replace("function: reports.week", "functoin: reports.week")

    async with dashboard.visitor("viewer") as viewer:
        token = await viewer.any_form_token("/ui/plan")
        page = await viewer.send("/ui/plan/show", token=token, body=broken + f"# {HOSTILE[:40]}\n")

    assert page.status_code == 422
    shown = text_of(page)
    assert "line 3" in shown
    assert "line 8" in shown
    assert "functoin: reports.week" in shown
    assert "<script>alert" not in page.text


async def test_a_file_is_sent_instead_of_pasted(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as viewer:
        fields = {"form_token": await viewer.any_form_token("/ui/plan"), "body": "", "days": "7"}
        page = await viewer.client.post(
            "/ui/plan/show", data=fields, files={"file": ("jobs.yaml", FILE.encode())}, headers={"Origin": ORIGIN}
        )

    assert "1 created 1 changed" in text_of(page)
    assert "/ui/plan/apply" not in page.text


async def test_jobs_that_are_not_in_the_file_are_deleted_if_asked_for(dashboard: DashboardFixture) -> None:
    only_weekly = "jobs:\n" + FILE[FILE.index("  - name: weekly") :]

    async with dashboard.visitor("admin") as admin:
        kept = text_of(await admin.send("/ui/plan/show", body=only_weekly, prune=""))
        tagged = text_of(await admin.send("/ui/plan/show", body=only_weekly, prune="tag", prune_tag="numbers"))
        everything = text_of(await admin.send("/ui/plan/show", body=only_weekly, prune="all"))
        odd = await admin.send("/ui/plan/show", body=only_weekly, prune="perhaps")

    assert "removed" not in kept.partition("fires")[0]
    assert "1 removed" in tagged
    assert "1 removed" in everything
    assert odd.status_code == 422


async def test_a_file_that_changes_nothing_says_so(dashboard: DashboardFixture) -> None:
    same = FILE[: FILE.index("  - name: weekly")].replace("0 10", "0 9")

    async with dashboard.visitor("admin") as admin:
        page = await admin.send("/ui/plan/show", body=same)

    assert "Nothing would change" in text_of(page)
    assert "/ui/plan/apply" not in page.text


async def test_the_example_on_the_page_is_a_jobs_file(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as admin:
        [example] = re.findall(r'<pre tabindex="0">(jobs:.*?)</pre>', (await admin.get("/ui/plan")).text, re.DOTALL)
        assert (await admin.send("/ui/plan/show", body=example)).status_code == 200


async def test_a_file_that_takes_long_to_read_holds_up_no_body_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, enough = threading.Event(), threading.Event()

    def read(*_: object, **__: object) -> list[dict[str, object]]:
        reading.set()
        enough.wait(60)
        return []

    monkeypatch.setattr("support.dashboard.read_jobs_text", read)
    dashboard = DashboardFixture()
    async with dashboard.visitor("viewer~ada") as ada, dashboard.caller("viewer~bob") as bob:
        token = await ada.any_form_token("/ui/plan")
        slow = asyncio.create_task(ada.send("/ui/plan/show", token=token, body=FILE))
        await asyncio.to_thread(reading.wait, 60)
        # So large that it is parsed in a thread, too.
        job = {"name": "weekly", "function": "reports.week", "description": "x" * 100_000}
        answer = await bob.ask("POST", "/v1/plan", {"jobs": [job]})
        assert not slow.done()
        enough.set()
        shown = await slow

    assert (answer.status_code, shown.status_code) == (422, 200)


@pytest.mark.req("H-26")
async def test_exactly_the_plan_that_was_shown_is_applied(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as admin:
        page = await admin.send("/ui/plan/show", body=FILE, days="7")
        dashboard.clock.advance(3_600_000)
        done = await admin.send("/ui/plan/apply", body=FILE, days="7", plan=shown_plan(page))

    assert (done.status_code, done.headers["location"]) == (303, "/ui/jobs")
    assert await jobs(dashboard) == {"report": "every day at 10:00", "weekly": "every Monday at 07:00"}


@pytest.mark.req("H-26")
@pytest.mark.parametrize("change", ["changed", "created", "removed"])
async def test_a_plan_is_refused_once_something_has_changed_since(dashboard: DashboardFixture, change: str) -> None:
    async with dashboard.visitor("admin") as admin, dashboard.caller("admin") as api:
        page = await admin.send("/ui/plan/show", body=FILE, days="7")
        if change == "removed":
            await api.ask("DELETE", "/v1/jobs/report")
        else:
            name = "report" if change == "changed" else "weekly"
            await api.post("/v1/apply", {"jobs": [{**JOB, "name": name, "schedule": "0 11 * * *"}]})
        before = await jobs(dashboard)
        refused = await admin.send("/ui/plan/apply", body=FILE, days="7", plan=shown_plan(page))

        assert refused.status_code == 412
        assert "Nothing was applied" in text_of(refused)
        assert await jobs(dashboard) == before
        # The page shows the new plan, which can be applied.
        assert (await admin.send("/ui/plan/apply", body=FILE, days="7", plan=shown_plan(refused))).status_code == 303


async def test_an_operator_may_not_apply_a_plan(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as admin:
        digest = shown_plan(await admin.send("/ui/plan/show", body=FILE, days="7"))
    async with dashboard.visitor("operator") as operator:
        assert (await operator.send("/ui/plan/apply", body=FILE, days="7", plan=digest)).status_code == 403

    assert list(await jobs(dashboard)) == ["report"]
