"""The calendar: each cell with its kinds, now as a line, days of clock changes, and a click that answers why."""

import re
from html import unescape

import pytest

from gnomon.core.model import MINUTE_MS, Result
from support.dashboard import DashboardFixture, text_of
from support.dashboard_pages import HOSTILE

_CELL = re.compile(r'<td class="(k-[^"]+)" data-job="([^"]+)" data-at="([^"]+)"([^>]*)><a href="([^"]+)"')
#: A day before and after the clocks of Berlin are put forward.
_SPRING = "from=2026-03-28T00:00:00Z&to=2026-03-30T12:00:00Z"


@pytest.fixture
async def lived(dashboard: DashboardFixture) -> DashboardFixture:
    """A dashboard of an hour in which ticks ran, failed and did not run."""
    async with dashboard.caller("admin") as admin:
        await admin.registered(name="skips", schedule="*/10 * * * *", overlap="skip")
        await admin.registered(name="fails", schedule="*/10 * * * *", overlap="allow")
        for _ in range(4):
            dashboard.clock.advance(10 * MINUTE_MS)
            await dashboard.decide()
        [run, *_] = [one["execution_id"] for one in (await admin.get("/v1/executions?job=fails")).json()["items"]]
        await dashboard.finish_execution(run, Result.FAILED, error=HOSTILE)
    return dashboard


@pytest.mark.req("C-14")
@pytest.mark.parametrize("by", ["hour", "day"])
async def test_the_cells_are_those_of_the_api(lived: DashboardFixture, by: str) -> None:
    async with lived.caller("viewer") as api:
        told = (await api.get(f"/v1/calendar?by={by}")).json()
    expected = {
        (row["job"], told["columns"][cell["column"]]["from_at"]): cell["counts"]
        for row in told["items"]
        for cell in row["cells"]
    }

    async with lived.visitor("viewer") as viewer:
        page = await viewer.get(f"/ui/calendar?by={by}")
    shown = {
        (job, at): {kind: int(count) for kind, count in re.findall(r'data-(\w+)="(\d+)"', counts)}
        for _, job, at, counts, _ in _CELL.findall(page.text)
    }

    assert shown == expected
    assert page.text.count("<b>now</b>") == 1
    assert {"skipped", "coming"} <= {kind for counts in shown.values() for kind in counts}


@pytest.mark.req("C-14")
async def test_every_cell_of_a_job_answers_why_in_the_words_of_the_api(lived: DashboardFixture) -> None:
    async with lived.visitor("viewer") as viewer, lived.caller("viewer") as api:
        page = (await viewer.get("/ui/calendar?job=skips")).text
        links = [unescape(one) for one in re.findall(r'href="(/ui/calendar/cell\?job=skips[^"]+)"', page)]
        assert len(links) > 2
        for link in [links[0], *links[22:27], links[-1]]:
            cell = await viewer.get(link)
            assert cell.status_code == 200, link
            for at in re.findall(r'<article class="card" data-at="([^"]+)"', cell.text):
                told = (await api.get(f"/v1/jobs/skips/why?at={at}")).json()["explanations"][0]
                assert told["sentence"] in text_of(cell)


@pytest.mark.req("C-14")
async def test_a_coming_fire_is_skipped_and_moved_from_its_cell(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as admin:
        [cell] = [
            (unescape(link), at)
            for kinds, job, at, _, link in _CELL.findall((await admin.get("/ui/calendar?job=report")).text)
            if job == "report" and "k-coming" in kinds
        ]
        page = (await admin.get(cell[0])).text
        assert "/ui/jobs/report/skip" in page
        [at] = re.findall(r'<article class="card" data-at="([^"]+)" data-kind="coming"', page)
        await admin.send("/ui/jobs/report/skip", at=at)

        after = (await admin.get("/ui/calendar?job=report")).text
        assert [(at, "data-held" in counts) for _, _, at, counts, _ in _CELL.findall(after)] == [(cell[1], True)]
        held = (await admin.get(cell[0])).text
        assert "/ui/jobs/report/unskip" in held
        await admin.send("/ui/jobs/report/unskip", at=at)
        await admin.send("/ui/jobs/report/skip", at=at, move_to="2026-03-03T11:00")
        moved = (await admin.get("/ui/calendar?job=report")).text

    assert "2026-03-03T11:00:00Z" in [at for _, _, at, counts, _ in _CELL.findall(moved) if "data-coming" in counts]


async def test_a_viewer_is_offered_no_change(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as viewer:
        page = (await viewer.get("/ui/calendar?job=report")).text
        [link] = [unescape(link) for *_, link in _CELL.findall(page)][-1:]
        assert "/skip" not in (await viewer.get(link)).text


@pytest.mark.parametrize(
    ("range_", "hours"), [(_SPRING, "23"), ("from=2026-10-24T00:00:00Z&to=2026-10-26T12:00:00Z", "25")]
)
async def test_days_of_clock_changes_say_how_many_hours_they_have(
    dashboard: DashboardFixture, range_: str, hours: str
) -> None:
    async with dashboard.visitor("viewer") as viewer:
        by_day = text_of(await viewer.get(f"/ui/calendar?{range_}&by=day&tz=Europe/Berlin"))
        by_hour = text_of(await viewer.get(f"/ui/calendar?{range_}&by=hour&tz=Europe/Berlin"))

    assert f"{hours} h" in by_day
    assert f"{hours} hours, clocks are put" in by_hour


async def test_empty_stretches_are_one_cell_and_a_page_has_few_elements(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        for number in range(60):
            await admin.registered(name=f"often-{number:02}", schedule="*/30 * * * *")

    async with dashboard.visitor("viewer") as viewer:
        quiet = (await viewer.get("/ui/calendar?job=report")).text
        full = (await viewer.get("/ui/calendar")).text
        wide = (await viewer.get("/ui/calendar?from=2026-03-01T00:00:00Z&to=2026-03-08T00:00:00Z")).text

    assert re.search(r'<td class="empty" colspan="\d\d">', quiet)
    for page in (full, wide):
        assert len(re.findall(r"<[a-z]", page)) <= 5_000
        assert 'rel="next"' in page


async def test_the_calendar_is_read_page_by_page_and_window_by_window(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        for number in range(60):
            await admin.registered(name=f"job-{number:02}", schedule="0 9 * * *", tags=["a & b"])

    async with dashboard.visitor("viewer") as viewer:
        first = (await viewer.get("/ui/calendar?tag=a+%26+b")).text
        [following] = re.findall(r'class="more"><a rel="next" href="([^"]+)"', first)
        second = (await viewer.get(unescape(following))).text
        later = unescape(re.findall(r'rel="next" href="([^"]+)">Later', first)[0])
        assert text_of(await viewer.get(later)).count("2026-03-04") > 0
        earlier = unescape(re.findall(r'rel="prev" href="([^"]+)">Earlier', first)[0])
        assert (await viewer.get(earlier)).status_code == 200

    names = re.findall(r'data-key="(job-\d\d)"', first) + re.findall(r'data-key="(job-\d\d)"', second)
    assert names == [f"job-{number:02}" for number in range(60)]


@pytest.mark.parametrize(
    ("query", "status", "reason"),
    [
        ("from=someday", 422, "from"),
        ("from=2026-03-02T00:00&to=2026-03-01T00:00", 422, "to"),
        ("by=minute", 422, "by"),
        ("tz=Atlantis", 422, "tz"),
        ("job=nothing", 404, "nothing"),
        ("from=0001-01-01T00:00&to=9999-12-31T00:00", 422, "to"),
        ("cursor=stale", 422, "cursor"),
    ],
)
async def test_a_range_that_cannot_be_shown_is_named(
    dashboard: DashboardFixture, query: str, status: int, reason: str
) -> None:
    async with dashboard.visitor("viewer") as viewer:
        page = await viewer.get(f"/ui/calendar?{query}")

    assert page.status_code == status, text_of(page)
    assert reason in text_of(page)


@pytest.mark.parametrize(
    "query", ["", "job=report", "job=report&at=x&until=y", "job=report&at=2026-03-02T00:00Z&until=y"]
)
async def test_a_cell_that_is_none_is_named(dashboard: DashboardFixture, query: str) -> None:
    async with dashboard.visitor("viewer") as viewer:
        assert (await viewer.get(f"/ui/calendar/cell?{query}")).status_code == 422
