"""Each form changes what the API would change for the same caller: with its session, its origin and its token."""

import asyncio
import hmac
from collections.abc import AsyncIterator
from hashlib import sha256

import pytest

from gnomon.config.sections import ServerSettings
from gnomon.core.model import Result
from gnomon.ui.pages import FORMS
from support.dashboard import ORIGIN, DashboardFixture, Visitor, text_of
from support.dashboard_pages import executed, paused

NEXT = "2026-03-03T09:00:00Z"


async def test_an_admin_pauses_and_resumes_a_job(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as visitor:
        answer = await visitor.send("/ui/jobs/report/pause")
        assert (answer.status_code, answer.headers["location"]) == (303, "/ui/jobs/report")
        assert await paused(dashboard)

        assert "Resume" in text_of(await visitor.get("/ui/jobs/report"))
        await visitor.send("/ui/jobs/report/resume", missed="latest")
        assert not await paused(dashboard)


async def test_an_operator_triggers_a_job_with_an_input_and_cancels_it(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("operator") as visitor:
        started = (await visitor.send("/ui/jobs/report/trigger", input='{"day": "monday"}')).headers["location"]
        assert '"day": "monday"' in text_of(await visitor.get(started))

        await visitor.send(f"{started}/cancel")
        assert "cancelled" in text_of(await visitor.get(started))


async def test_an_input_that_is_no_json_is_refused_by_name(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("operator") as visitor:
        refused = await visitor.send("/ui/jobs/report/trigger", input="{nonsense")

    assert refused.status_code == 422
    assert "input: '{nonsense' is no JSON" in text_of(refused)


async def test_an_input_that_is_nested_too_deep_is_refused_by_name(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("operator") as visitor:
        refused = await visitor.send("/ui/jobs/report/trigger", input="[" * 100_000)

    assert refused.status_code == 422
    assert "is nested too deep" in text_of(refused)


async def test_forms_that_one_caller_holds_back_stop_no_other_caller() -> None:
    dashboard = DashboardFixture(server=ServerSettings(max_body=65_536, max_jobs_body=65_536))
    received, released = asyncio.Event(), asyncio.Event()
    large = b"input=" + b"+" * 60_000

    async def held_back() -> AsyncIterator[bytes]:
        yield large
        received.set()
        await released.wait()
        yield b"&end="

    async def answered(token: str, content: AsyncIterator[bytes] | bytes) -> int:
        headers = {"Origin": ORIGIN, "Content-Type": "application/x-www-form-urlencoded"}
        async with dashboard.visitor(token) as visitor:
            return (await visitor.client.post("/ui/jobs/report/pause", content=content, headers=headers)).status_code

    first = asyncio.create_task(answered("admin~ada", held_back()))
    await received.wait()
    same, other = await answered("admin~ada", large), await answered("admin~bob", large)
    released.set()

    # The form token is missing in those that are read.
    assert (same, other, await first) == (429, 403, 403)


async def test_an_admin_skips_and_moves_a_coming_tick_and_undoes_it(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as visitor:
        await visitor.send("/ui/jobs/report/skip", at=NEXT)
        assert "is skipped" in text_of(await visitor.get("/ui/jobs/report?tab=plan"))
        await visitor.send("/ui/jobs/report/unskip", at=NEXT)
        await visitor.send("/ui/jobs/report/skip", at=NEXT, move_to="2026-03-03T10:00")
        shown = text_of(await visitor.get("/ui/jobs/report?tab=plan"))
        assert "Tue 2026-03-03 09:00:00 UTC is moved to Tue 2026-03-03 10:00:00 UTC" in shown


async def test_a_dead_letter_is_replayed_once_and_another_resolved(dashboard: DashboardFixture) -> None:
    await executed(dashboard, Result.FAILED, error="broken")
    async with dashboard.caller("viewer") as api:
        [letter] = (await api.get("/v1/dead-letters")).json()["items"]
    place = f"/ui/dead-letters/{letter['dead_letter_id']}"

    async with dashboard.visitor("operator") as visitor:
        first = await visitor.send(f"{place}/replay")
        assert first.headers["location"].startswith("/ui/executions/run_")
        assert (await visitor.send(f"{place}/replay")).headers.get("location") in (first.headers["location"], None)
        await visitor.send(f"{place}/resolve")
        assert "None." in text_of(await visitor.get("/ui/dead-letters"))
        assert "resolved" in text_of(await visitor.get("/ui/dead-letters?resolved=true"))


async def asked(dashboard: DashboardFixture) -> tuple[str, str]:
    """The page of a waiting approval, and the digest of what is asked."""
    async with dashboard.caller("admin") as admin:
        waiting = (await admin.post("/v1/jobs/report/trigger")).json()["execution_id"]
    approval = (await dashboard.ask_for_approval(waiting)).approval_id
    async with dashboard.caller("viewer") as api:
        return f"/ui/approvals/{approval}", (await api.get(f"/v1/approvals/{approval}")).json()["digest"]


@pytest.mark.parametrize(("verb", "word"), [("approve", "approved"), ("reject", "rejected")])
async def test_a_person_votes_on_exactly_what_the_page_shows(dashboard: DashboardFixture, verb: str, word: str) -> None:
    page, digest = await asked(dashboard)

    async with dashboard.visitor("operator~eve~finance") as eve:
        stale = await eve.send(f"{page}/{verb}", digest="0" * 64, reason="no")
        assert stale.status_code == 409
        assert (await eve.send(f"{page}/{verb}", digest=digest, reason="seen")).status_code == 303
        assert word in text_of(await eve.get(page))


# ---- what is refused -----------------------------------------------------------------------------


async def refuse(dashboard: DashboardFixture, visitor: Visitor, **sent: str) -> str:
    """Send a form that must change nothing; return the text of the answer."""
    answer = await visitor.send("/ui/jobs/report/pause", **sent)
    assert answer.status_code == 403
    assert not await paused(dashboard)
    return answer.text


async def test_a_form_without_the_token_of_the_session_changes_nothing(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as visitor, dashboard.visitor("operator") as other:
        for token in ("", "0" * 64, "é", await other.form_token()):
            assert "another session" in await refuse(dashboard, visitor, token=token)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://gnomon.evil.example", ""])
async def test_a_form_of_another_site_changes_nothing(dashboard: DashboardFixture, origin: str) -> None:
    async with dashboard.visitor("admin") as visitor:
        await refuse(dashboard, visitor, origin=origin)
        signed_in = await visitor.sign_in("admin", origin=origin)
        assert signed_in.status_code == 403
        assert "set-cookie" not in signed_in.headers


async def test_a_viewer_sees_no_forms_and_may_send_none(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as viewer:
        page = await viewer.get("/ui/jobs/report")
        assert "/ui/jobs/report/pause" not in page.text

        token = hmac.new(b"viewer", b"gnomon form", sha256).hexdigest()
        assert "this needs the role admin" in await refuse(dashboard, viewer, token=token)

    async with dashboard.caller("admin") as admin:
        [entry] = (await admin.get("/v1/audit?action=refuse")).json()["items"]
    assert (entry["actor"], entry["name"]) == ("viewer@example.com", "POST /v1/jobs/report/pause")


async def test_nothing_is_changed_by_reading(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as visitor:
        for form in FORMS:
            answer = await visitor.get(form.path.replace("{name}", "report").replace("{id}", "x"))
            assert answer.status_code == 405, form.path


async def test_a_stranger_who_sends_a_form_is_led_to_the_sign_in(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor() as stranger:
        answer = await stranger.send("/ui/jobs/report/pause", token="0" * 64)

    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/login")
    assert not await paused(dashboard)


@pytest.mark.parametrize("body", [b"\xff\xfe", b"&".join(b"a%d=1" % n for n in range(300)), b"x" * 2_000_000])
async def test_a_body_that_is_no_form_is_refused(dashboard: DashboardFixture, body: bytes) -> None:
    async with dashboard.visitor("admin") as visitor:
        headers = {"Origin": "http://gnomon", "Content-Type": "application/x-www-form-urlencoded"}
        answer = await visitor.client.post("/ui/jobs/report/pause", content=body, headers=headers)

    assert answer.status_code in (413, 422)
    assert not await paused(dashboard)
