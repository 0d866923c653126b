"""The inbox of approvals: what is asked, who may vote and has, and the votes."""

import pytest

from support.dashboard import DashboardFixture, text_of


async def waiting(dashboard: DashboardFixture, **terms: object) -> tuple[str, str]:
    """The page of a waiting approval, and the digest of what is asked."""
    async with dashboard.caller("admin") as admin:
        execution = await admin.triggered()
    approval = (await dashboard.ask_for_approval(execution, **terms)).approval_id
    async with dashboard.caller("viewer") as api:
        return f"/ui/approvals/{approval}", (await api.get(f"/v1/approvals/{approval}")).json()["digest"]


@pytest.mark.req("R-03")
async def test_the_inbox_shows_what_is_asked_and_who_may_vote_and_has(dashboard: DashboardFixture) -> None:
    page, digest = await waiting(dashboard, quorum=2)

    async with dashboard.visitor("operator~eve~finance") as eve:
        before = text_of(await eve.get("/ui/approvals"))
        assert "task of report / main" in before
        assert "2 persons in finance" in before
        assert "0 of 2" in before
        assert "items" not in before
        assert digest[:12] in before

        await eve.send(f"{page}/approve", digest=digest, reason="seen")
        assert "1 of 2: eve (approve)" in text_of(await eve.get("/ui/approvals"))
        after = await eve.get(page)
        assert "eve : approve, “seen”" in text_of(after)
        assert "You have voted." in text_of(after)
        assert f"{page}/approve" not in after.text


async def test_a_caller_who_may_not_vote_sees_the_reason_instead_of_buttons(dashboard: DashboardFixture) -> None:
    page, _ = await waiting(dashboard, groups=("finance",))

    async with dashboard.visitor("operator~mallory~sales") as mallory:
        shown = await mallory.get(page)

    assert "You may not vote: only members of finance may vote on it." in text_of(shown)
    assert f"{page}/approve" not in shown.text


async def test_a_member_of_a_group_that_may_break_the_glass_overrides_with_a_reason(
    dashboard: DashboardFixture,
) -> None:
    page, digest = await waiting(dashboard)

    async with dashboard.visitor("operator~eve~finance") as eve:
        assert (await eve.send(f"{page}/override", digest=digest, reason="late")).status_code == 403
    async with dashboard.visitor("operator~olga~on-call") as olga:
        assert f"{page}/override" in (await olga.get(page)).text
        assert (await olga.send(f"{page}/override", digest=digest, reason="")).status_code == 422
        assert (await olga.send(f"{page}/override", digest=digest, reason="the bank closes")).status_code == 303
        assert "approved by override" in text_of(await olga.get(page))


async def test_an_empty_inbox_says_what_would_fill_it(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as viewer:
        assert "Nothing waits for a person." in text_of(await viewer.get("/ui/approvals"))
        assert "No approval matches." in text_of(await viewer.get("/ui/approvals?status=rejected"))
        assert (await viewer.get("/ui/approvals?status=odd")).status_code == 422
