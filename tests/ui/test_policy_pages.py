"""The page of the policy: what is in force, what another file would change, and the shadow."""

import re

import pytest

from support.dashboard import DashboardFixture, text_of
from support.dashboard_pages import HOSTILE, executed

IN_FORCE = "default_decision: allow\nrules:\n  - id: known\n    match: {jobs: [report]}\n    decision: allow\n"
STRICT = "default_decision: allow\nrules:\n  - id: no-reports\n    match: {jobs: [report]}\n    decision: deny\n"


async def version(dashboard: DashboardFixture) -> int:
    newest = await dashboard.store.policies.newest()
    return 0 if newest is None else newest.version


async def test_a_file_is_compared_with_the_policy_and_the_history_and_then_applied(dashboard: DashboardFixture) -> None:
    async with dashboard.caller("admin") as api:
        await api.post("/v1/policy", {"body": IN_FORCE})
    await executed(dashboard)

    async with dashboard.visitor("admin") as admin:
        compared = await admin.send("/ui/policy/compare", body=STRICT.replace("\n", "\r\n"), days="7")
        shown = text_of(compared)
        assert compared.status_code == 200
        assert "no-reports added" in shown
        assert "known removed" in shown
        assert re.search(r"\d+ of \d+ tasks of the last 7 days would have been decided otherwise", shown)
        assert await version(dashboard) == 1

        [compared_with] = re.findall(r'name="compared_with" value="(\d+)"', compared.text)
        done = await admin.send("/ui/policy/apply", body=STRICT.replace("\n", "\r\n"), compared_with=compared_with)
        assert done.headers["location"] == "/ui/policy"
        # The line breaks of browsers are not stored.
        newest = await dashboard.store.policies.newest()
        assert newest is not None
        assert newest.body == STRICT
        assert "no-reports" in text_of(await admin.get("/ui/policy"))
        assert "known" in text_of(await admin.get("/ui/policy?version=1"))


async def test_a_file_is_not_applied_once_another_is_in_force_than_it_was_compared_with(
    dashboard: DashboardFixture,
) -> None:
    async with dashboard.caller("admin") as api:
        await api.post("/v1/policy", {"body": IN_FORCE})

    async with dashboard.visitor("admin") as admin:
        refused = await admin.send("/ui/policy/apply", body=STRICT, compared_with="0")

    assert refused.status_code == 412
    assert await version(dashboard) == 1


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ("# </textarea><script>alert(1)</script>\n" + STRICT.replace("deny", "perhaps"), "perhaps"),
        (f"# {HOSTILE}\n{STRICT}", "special characters are not allowed"),
    ],
)
async def test_a_mistake_in_a_file_is_named_and_the_text_is_kept(
    dashboard: DashboardFixture, broken: str, named: str
) -> None:

    async with dashboard.visitor("viewer") as viewer:
        page = await viewer.send(
            "/ui/policy/compare", body=broken, days="7", token=await viewer.any_form_token("/ui/policy")
        )

    assert page.status_code == 422
    assert named in text_of(page)
    assert "no-reports" in page.text
    assert "<script>alert" not in page.text
    assert "Put exactly this file in force" not in page.text


async def test_a_viewer_compares_and_may_not_apply(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("viewer") as viewer:
        token = await viewer.any_form_token("/ui/policy")
        page = await viewer.send("/ui/policy/compare", body=STRICT, days="30", token=token)
        assert "no-reports added" in text_of(page)
        assert "/ui/policy/apply" not in page.text
        assert (await viewer.send("/ui/policy/apply", body=STRICT, compared_with="0", token=token)).status_code == 403

    assert await version(dashboard) == 0


async def test_a_shadow_is_started_stopped_and_put_in_force(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin") as admin:
        await admin.send("/ui/policy/shadow", body=IN_FORCE, compared_with="0")
        assert "running since" in text_of(await admin.get("/ui/policy"))
        await admin.send("/ui/policy/shadow/stop")
        assert "ended since" in text_of(await admin.get("/ui/policy"))
        await admin.send("/ui/policy/shadow", body=STRICT, compared_with="0")
        await admin.send("/ui/policy/shadow/promote", compared_with="0")

    assert await version(dashboard) == 1


async def test_other_tenants_see_neither_the_page_nor_its_place_in_the_menu(dashboard: DashboardFixture) -> None:
    async with dashboard.visitor("admin/other") as visitor:
        assert 'href="/ui/policy"' not in (await visitor.get("/ui/")).text
        assert (await visitor.get("/ui/policy")).status_code == 403


@pytest.mark.parametrize("query", ["version=9", "version=x", "version=0"])
async def test_a_version_that_is_none_is_refused(dashboard: DashboardFixture, query: str) -> None:
    async with dashboard.visitor("viewer") as viewer:
        assert (await viewer.get(f"/ui/policy?{query}")).status_code in (404, 422)
