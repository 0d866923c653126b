"""The list of jobs: search, state, order, the strip of the last ticks, and the newest in the words of the API."""

import re
from html import unescape

import pytest

from gnomon.core.model import MINUTE_MS, Result
from support.dashboard import DashboardFixture, text_of
from support.dashboard_pages import executed

_NAMES = re.compile(r'<tr data-key="([^"]+)"')


@pytest.fixture
async def lived(dashboard: DashboardFixture) -> DashboardFixture:
    """Jobs of which one skips its ticks, one runs, and one is paused."""
    async with dashboard.caller("admin") as admin:
        await admin.registered(name="skips", schedule="*/10 * * * *", overlap="skip", description="<b>slow</b> import")
        await admin.registered(name="tokyo", timezone="Asia/Tokyo", tags=["a & b"])
        await admin.post("/v1/jobs/tokyo/pause")
        for _ in range(5):
            dashboard.clock.advance(10 * MINUTE_MS)
            await dashboard.decide()
    return dashboard


async def names(dashboard: DashboardFixture, query: str) -> list[str]:
    async with dashboard.visitor("viewer") as viewer:
        return _NAMES.findall((await viewer.get(f"/ui/jobs?{query}")).text)


@pytest.mark.req("H-26")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["report", "skips", "tokyo"]),
        ("q=IMPORT", ["skips"]),
        ("q=tok", ["tokyo"]),
        ("tag=a+%26+b", ["tokyo"]),
        ("state=paused", ["tokyo"]),
        ("order=next", ["skips", "report", "tokyo"]),
        ("q=nothing", []),
    ],
)
async def test_jobs_are_found_by_text_tag_and_state_and_ordered(
    lived: DashboardFixture, query: str, expected: list[str]
) -> None:
    assert await names(lived, query) == expected


async def test_the_part_that_is_shown_while_one_types_has_the_same_rows(lived: DashboardFixture) -> None:
    assert await names(lived, "q=tok&part=jobs") == ["tokyo"]


@pytest.mark.req("H-26")
async def test_the_strip_shows_the_ticks_of_the_api_and_each_leads_to_its_reason(lived: DashboardFixture) -> None:
    async with lived.caller("viewer") as api:
        [row] = (await api.get("/v1/jobs?q=skips&include=ticks")).json()["items"]

    async with lived.visitor("viewer") as viewer:
        page = (await viewer.get("/ui/jobs?q=skips")).text
        bars = re.findall(r'<a href="([^"]+)"><rect class="k-(\w+)" data-at="([^"]+)"', page)
        assert [at for _, _, at in reversed(bars)] == [one["planned_at"] for one in row["ticks"]]
        assert {kind for _, kind, _ in bars} == {"running", "skipped"}
        # A form that needs no colour: the heights differ.
        assert len(set(re.findall(r'class="k-\w+" data-at="[^"]+" x="\d+" y="(\d+)"', page))) == 2
        assert (await viewer.get(unescape(bars[0][0]))).status_code == 200


@pytest.mark.req("H-26")
async def test_the_newest_tick_is_told_in_the_sentence_of_the_api(lived: DashboardFixture) -> None:
    async with lived.caller("viewer") as api:
        told = (await api.get("/v1/jobs/skips/why?last=1")).json()["explanations"][0]

    async with lived.visitor("viewer") as viewer:
        page = await viewer.get("/ui/jobs")

    assert told["sentence"] in text_of(page)
    assert "<b>slow" not in page.text


async def test_a_failing_job_is_listed_as_such(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        await admin.registered(name="fails", schedule="*/10 * * * *")
    dashboard.clock.advance(10 * MINUTE_MS)
    await dashboard.decide()
    async with dashboard.caller("viewer") as api:
        [run] = (await api.get("/v1/executions?job=fails")).json()["items"]
    await dashboard.finish_execution(run["execution_id"], Result.FAILED, error="no")

    assert await names(dashboard, "state=failing") == ["fails"]


async def test_the_definition_shows_its_revisions_as_a_diff(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        await admin.post(
            "/v1/apply", {"jobs": [{"name": "report", "schedule": "0 10 * * *", "function": "reports.make"}]}
        )
    await executed(dashboard)

    async with dashboard.visitor("viewer") as viewer:
        page = await viewer.get("/ui/jobs/report?tab=definition")

    assert re.findall(r'data-revision="(\d+)"', page.text) == ["2", "1"]
    assert 'schedule "0 9 * * *" "0 10 * * *"' in text_of(page)
    assert "The first definition." in text_of(page)


# ---- many at once --------------------------------------------------------------------------------


async def paused_jobs(dashboard: DashboardFixture) -> set[str]:
    async with dashboard.caller("viewer") as api:
        return {one["job"] for one in (await api.get("/v1/jobs")).json()["items"] if one["paused"]}


@pytest.mark.req("H-26")
async def test_those_that_are_ticked_are_paused_and_resumed_with_a_choice(lived: DashboardFixture) -> None:
    async with lived.visitor("admin") as admin:
        token = await admin.form_token()
        origin = {"Origin": "http://gnomon"}
        ticked = {"form_token": token, "which": "ticked", "key": "k", "names": ["report", "skips"]}
        paused = await admin.client.post("/ui/bulk/jobs/pause", data=ticked, headers=origin)
        assert re.findall(r'data-outcome="(\w+)"', paused.text) == ["report", "skips"]
        lived.clock.advance(30 * MINUTE_MS)

        asked = await admin.client.post("/ui/bulk/jobs/ask", data=ticked, headers=origin)
        assert 'data-swallowed="3"' in asked.text
        assert await paused_jobs(lived) == {"report", "skips", "tokyo"}
        fields = {**ticked, "missed": "latest", "names": re.findall(r'name="names" value="(\w+)"', asked.text)}
        resumed = await admin.client.post("/ui/bulk/jobs/resume", data=fields, headers=origin)

    assert "3 planned times swallowed, 1 of them run" in text_of(resumed)
    assert await paused_jobs(lived) == {"tokyo"}


@pytest.mark.req("H-26")
async def test_all_that_match_are_paused_and_all_jobs_too(lived: DashboardFixture) -> None:
    async with lived.visitor("admin") as admin:
        page = (await admin.get("/ui/jobs?q=skip")).text
        [which] = {unescape(one) for one in re.findall(r'name="which" value="(all[^"]*)"', page)}
        await admin.send("/ui/bulk/jobs/pause", which=which)
        assert await paused_jobs(lived) == {"skips", "tokyo"}

        [everything] = {unescape(one) for one in re.findall(r'value="(all[^"]*)"', (await admin.get("/ui/jobs")).text)}
        await admin.send("/ui/bulk/jobs/pause", which=everything)

    assert await paused_jobs(lived) == {"report", "skips", "tokyo"}


@pytest.mark.req("H-26")
async def test_one_job_is_triggered_once_however_often_its_button_is_pressed(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("operator") as operator:
        page = (await operator.get("/ui/jobs")).text
        [key] = re.findall(r'name="key" value="([0-9a-f]{32})"', page)
        assert "/ui/bulk/jobs/pause" not in page
        first = await operator.send("/ui/bulk/jobs/trigger", only="report", key=key)
        second = await operator.send("/ui/bulk/jobs/trigger", only="report", key=key)

    links = [re.findall(r'href="(/ui/executions/run_[^"]+)"', one.text) for one in (first, second)]
    assert links[0] == links[1] != []
    async with dashboard.caller("viewer") as api:
        assert len((await api.get("/v1/executions")).json()["items"]) == 1


async def test_resume_of_jobs_of_which_none_is_paused_says_so(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as admin:
        assert "None of these jobs is paused." in text_of(await admin.send("/ui/bulk/jobs/ask", which="all?"))


async def test_an_outcome_tells_which_jobs_were_refused(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("operator") as operator:
        await operator.send("/ui/bulk/jobs/trigger", only="report", key="a")
        refused = await operator.send("/ui/bulk/jobs/trigger", only="report", key="b")
        assert (await operator.send("/ui/bulk/jobs/pause", only="report")).status_code == 403
        assert (await operator.send("/ui/bulk/jobs/trigger", which="ticked")).status_code == 422
        assert (await operator.send("/ui/bulk/jobs/trigger", which="all?tenant=x")).status_code == 422

    assert "0 jobs triggered, 1 refused." in text_of(refused)


async def test_a_viewer_is_offered_no_change(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as viewer:
        assert "/ui/bulk/" not in (await viewer.get("/ui/jobs")).text
