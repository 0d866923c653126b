"""Dead letters by job, step and error; one, those ticked, or all that match are replayed once, or resolved."""

import re
from html import unescape

import pytest

from gnomon.core.model import Result
from support.dashboard import DashboardFixture, text_of
from support.dashboard_pages import HOSTILE

_ACTION = re.compile(r'name="which" value="([^"]+)" data-confirm="Replay (\d+) dead letters of (\w+)')


async def broken(dashboard: DashboardFixture, error: str, number: int = 3, job: str = "report") -> None:
    """Make so many dead letters of a job."""
    async with dashboard.caller("admin") as admin:
        if job != "report":
            await admin.registered(name=job)
        for _ in range(number):
            await dashboard.finish_execution(await admin.triggered(job), Result.FAILED, error=error)


async def count(dashboard: DashboardFixture, path: str) -> int:
    async with dashboard.caller("viewer") as api:
        return len((await api.get(f"{path}{'&' if '?' in path else '?'}limit=1000")).json()["items"])


@pytest.mark.req("H-25")
async def test_letters_are_grouped_by_job_step_and_error(dashboard: DashboardFixture) -> None:
    await broken(dashboard, "disk full\nat line 7")
    await broken(dashboard, "timeout & co", 2)
    await broken(dashboard, HOSTILE, 1, job="other")

    async with dashboard.visitor("operator") as visitor:
        page = await visitor.get("/ui/dead-letters")
        groups = re.findall(r'data-group="(\w+)" data-count="(\d+)"><td><a href="([^"]+)"', page.text)
        assert {(job, int(number)) for job, number, _ in groups} == {("report", 3), ("report", 2), ("other", 1)}
        for _, number, link in groups:
            rows = (await visitor.get(unescape(link))).text
            assert len(re.findall(r'<tr data-key="', rows)) == int(number)
    assert "disk full" in text_of(page)
    assert "<script>alert" not in page.text


@pytest.mark.req("H-25")
async def test_a_group_is_replayed_once_however_often_its_button_is_pressed(dashboard: DashboardFixture) -> None:
    await broken(dashboard, "disk full", 6)
    await broken(dashboard, "timeout", 2)
    before = await count(dashboard, "/v1/executions")

    async with dashboard.visitor("operator") as visitor:
        page = (await visitor.get("/ui/dead-letters")).text
        [which] = [unescape(which) for which, number, _ in _ACTION.findall(page) if number == "6"]
        [key] = re.findall(r'name="key" value="([0-9a-f]{32})"', page)
        first = await visitor.send("/ui/dead-letters/replay", which=which, key=key)
        assert "6 replayed." in text_of(first)
        await visitor.send("/ui/dead-letters/replay", which=which, key=key)

    assert await count(dashboard, "/v1/executions") == before + 6


async def test_those_that_are_ticked_are_replayed_or_resolved(dashboard: DashboardFixture) -> None:
    await broken(dashboard, "disk full", 5)

    async with dashboard.visitor("operator") as visitor:
        page = (await visitor.get("/ui/dead-letters")).text
        ids = re.findall(r'type="checkbox" form="many" name="id" value="([^"]+)"', page)
        token = await visitor.form_token()
        fields = {"form_token": token, "which": "ticked", "key": "k", "id": ids[:2]}
        replayed = await visitor.client.post(
            "/ui/dead-letters/replay", data=fields, headers={"Origin": "http://gnomon"}
        )
        assert re.findall(r'data-outcome="([^"]+)"', replayed.text) == ids[:2]
        await visitor.client.post(
            "/ui/dead-letters/resolve", data={**fields, "id": ids[2:4]}, headers={"Origin": "http://gnomon"}
        )
        assert (await visitor.send("/ui/dead-letters/replay", which="ticked", key="k")).status_code == 422

    # A letter that is replayed stays until its replay has succeeded.
    assert await count(dashboard, "/v1/dead-letters") == 3


async def test_all_that_match_are_resolved_and_none_that_came_later(dashboard: DashboardFixture) -> None:
    await broken(dashboard, "disk full", 3)
    await broken(dashboard, "other", 1, job="other")

    async with dashboard.visitor("operator") as visitor:
        page = (await visitor.get("/ui/dead-letters?job=report")).text
        which = unescape(re.findall(r'value="([^"]+)" data-confirm="Replay all that match', page)[0])
        dashboard.clock.advance(1000)
        await broken(dashboard, "disk full", 1)
        done = await visitor.send("/ui/dead-letters/resolve", which=which, key="k")

    assert "3 resolved." in text_of(done)
    assert await count(dashboard, "/v1/dead-letters") == 2


async def test_letters_of_several_pages_are_replayed_with_one_button(dashboard: DashboardFixture) -> None:
    await broken(dashboard, "disk full", 50)
    dashboard.clock.advance(1000)

    async with dashboard.visitor("operator") as visitor:
        page = (await visitor.get("/ui/dead-letters")).text
        which = unescape(re.findall(r'value="([^"]+)" data-confirm="Replay all that match', page)[0])
        done = await visitor.send("/ui/dead-letters/replay", which=f"{which}&limit=20", key="k")

    assert "50 replayed." in text_of(done)


async def test_a_viewer_sees_the_letters_and_no_button(dashboard: DashboardFixture) -> None:
    await broken(dashboard, "disk full", 1)

    async with dashboard.visitor("viewer") as viewer:
        page = await viewer.get("/ui/dead-letters")

    assert "disk full" in text_of(page)
    assert "/ui/dead-letters/re" not in page.text
    assert 'name="which"' not in page.text


@pytest.mark.parametrize("which", ["tenant=other", "cursor=forged", "since=someday"])
async def test_a_match_that_the_list_does_not_have_changes_nothing(dashboard: DashboardFixture, which: str) -> None:
    await broken(dashboard, "disk full", 1)

    async with dashboard.visitor("operator") as visitor:
        assert (await visitor.send("/ui/dead-letters/resolve", which=which)).status_code == 422

    assert await count(dashboard, "/v1/dead-letters") == 1
