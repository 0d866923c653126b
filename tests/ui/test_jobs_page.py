"""The list of jobs: search, state, order, the strip of the last ticks, and the newest in the words of the API."""

import re
from html import unescape

import pytest

from gnomon.core.model import MINUTE_MS, Result
from support.dashboard import DashboardFixture, text_of
from ui.test_pages import executed

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
