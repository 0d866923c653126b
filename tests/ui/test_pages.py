"""The pages show what the API says to the same caller, and nothing else."""

import gzip
import re
from typing import Any

import pytest
from msgspec.structs import replace

from gnomon.core.model import Result
from gnomon.ui.pages import PAGES
from support.dashboard import DashboardFixture, text_of
from support.dashboard_pages import HOSTILE, executed, places

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
async def test_every_page_is_shown_to_those_who_may_read_it(dashboard: DashboardFixture, role: str) -> None:
    addresses = await places(dashboard)

    async with dashboard.visitor(role) as visitor:
        for page in PAGES:
            shown = await visitor.get(addresses[page.path])

            allowed = page.path not in ("/ui/audit", "/ui/quarantine") or role == "admin"
            assert shown.status_code == (200 if allowed else 403), page.path
            assert shown.headers["content-type"] == "text/html; charset=utf-8"
            assert shown.headers.get_list("content-security-policy") == [_POLICY]
            assert shown.headers.get_list("cache-control") == ["no-store"]
            assert shown.text.count("<h1>") == 1
            # The policy of the page forbids these, so that they would be lost.
            assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=\"/ui/static/)", shown.text)


async def test_every_page_is_closed_to_strangers(dashboard: DashboardFixture) -> None:
    addresses = await places(dashboard)

    async with dashboard.visitor() as stranger:
        for address in addresses.values():
            answer = await stranger.get(f"{address}?job=report")

            assert (answer.status_code, answer.content) == (303, b"")
            assert answer.headers["location"].startswith("/ui/login?next=%2Fui%2F")


async def test_the_address_of_the_server_leads_to_the_overview(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor() as stranger:
        assert (await stranger.get("/")).headers["location"] == "/ui/"


async def test_a_page_of_another_tenant_is_not_there(dashboard: DashboardFixture) -> None:
    execution = await executed(dashboard)

    async with dashboard.visitor("admin/other") as visitor:
        assert (await visitor.get("/ui/jobs/report")).status_code == 404
        assert (await visitor.get(f"/ui/executions/{execution}")).status_code == 404
        assert "report" not in text_of(await visitor.get("/ui/jobs"))


async def test_the_page_of_a_job_says_why_it_ran_last_in_the_words_of_the_api(dashboard: DashboardFixture) -> None:
    await executed(dashboard)
    async with dashboard.caller("viewer") as api:
        [told] = (await api.get("/v1/jobs/report/why?last=1")).json()["explanations"]

    async with dashboard.visitor("viewer") as visitor:
        assert told["sentence"] in text_of(await visitor.get("/ui/jobs/report"))
        assert told["sentence"] in text_of(await visitor.get("/ui/why?job=report"))


async def test_texts_of_others_stay_texts(dashboard: DashboardFixture) -> None:
    execution = await executed(dashboard, Result.FAILED, error=HOSTILE)

    async with dashboard.visitor("admin") as visitor:
        for address in ("/ui/", f"/ui/executions/{execution}", "/ui/dead-letters", f"/ui/why?job={'%3Cb%3E'}"):
            page = (await visitor.get(address)).text
            assert "<script>alert" not in page
            assert "<img" not in page
            assert "<b>" not in page
            assert "49" not in re.findall(r"&amp;(\d+)", page)
            assert "\x1b" not in page
            assert "\u202e" not in page
        assert "alert(1)" in text_of(await visitor.get("/ui/dead-letters"))


async def test_an_input_that_is_long_is_cut(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        started = await admin.post("/v1/jobs/report/trigger", {"input": {"text": "x" * 60_000}})

    async with dashboard.visitor("viewer") as visitor:
        page = await visitor.get(f"/ui/executions/{started.json()['execution_id']}")

    assert len(page.text) < 20_000


@pytest.mark.parametrize(
    ("address", "status", "reason"),
    [
        ("/ui/jobs/nothing", 404, "there is no job 'nothing'"),
        ("/ui/executions/run_none", 404, "run_none"),
        ("/ui/executions?cursor=forged", 422, "cursor"),
        ("/ui/executions?status=odd", 422, "status"),
        ("/ui/schedule?hours=-1", 422, "hours"),
        ("/ui/why?job=report&at=someday", 422, "at"),
        ("/ui/jobs/report?tab=nothing", 422, "tab"),
    ],
)
async def test_a_request_that_cannot_be_answered_gets_a_page_with_the_reason(
    dashboard: DashboardFixture, address: str, status: int, reason: str
) -> None:
    async with dashboard.visitor("viewer") as visitor:
        page = await visitor.get(address)

    assert page.status_code == status
    assert reason in text_of(page)
    assert 'href="/ui/"' in page.text


async def test_a_surprise_shows_no_trace(dashboard: DashboardFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gnomon.ui.rendering.moment_text", lambda *_: 1 / 0)
    dashboard.put(replace(dashboard.services, health=_surprise))

    async with dashboard.visitor("viewer") as visitor:
        page = await visitor.get("/ui/health")

    assert page.status_code == 500
    assert "see the log of the server" in text_of(page)
    assert "secret detail" not in page.text
    assert [str(error) for error in dashboard.unhandled_errors] == ["secret detail"]
    dashboard.unhandled_errors.clear()


async def test_lists_are_read_page_by_page(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as admin:
        for number in range(60):
            await admin.registered(name=f"job-{number:02}", tags=["many & odd"])

    pages, following = "", "/ui/jobs?tag=many+%26+odd"
    async with dashboard.visitor("viewer") as visitor:
        while following:
            page = (await visitor.get(following)).text
            pages += page
            following = "".join(re.findall(r'rel="next" href="([^"]+)"', page)).replace("&amp;", "&")

    names = re.findall(r">(job-\d\d)<", pages)
    assert names == [f"job-{number:02}" for number in range(60)]


async def test_a_page_is_compressed_for_those_who_can_read_that(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as visitor:
        async with visitor.client.stream("GET", "/ui/", headers={"Accept-Encoding": "br, gzip;q=0.5"}) as answer:
            packed = b"".join([piece async for piece in answer.aiter_raw()])
        plain = await visitor.client.get("/ui/", headers={"Accept-Encoding": "identity"})

    assert answer.headers["content-encoding"] == "gzip"
    assert gzip.decompress(packed) == plain.content


async def test_static_files_are_kept_for_ever_under_an_address_of_their_content(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor() as stranger:
        page = (await stranger.get("/ui/login")).text
        for address in re.findall(r'"(/ui/static/[^"]+)"', page):
            found = await stranger.get(address)

            assert found.status_code == 200
            assert "immutable" in found.headers["cache-control"]
            assert found.headers.get_list("x-content-type-options") == ["nosniff"]
        assert (await stranger.get("/ui/static/../handlers.py")).status_code in (400, 404)
        assert (await stranger.get("/ui/static/handlers.py")).status_code == 404


async def _surprise() -> Any:  # noqa: ANN401 - never returns
    raise RuntimeError("secret detail")
