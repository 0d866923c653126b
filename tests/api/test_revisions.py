"""The revisions of a job over HTTP."""

import pytest

from support.api_fixture import JOB, ApiCaller, ApiFixture


@pytest.mark.req("H-25")
async def test_revisions_say_who_changed_which_field_and_when(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    api_setup.clock.advance(60_000)
    async with api_setup.caller("admin~grace") as grace:
        await grace.ask("PUT", "/v1/jobs/report", {**JOB, "schedule": "0 10 * * *", "overlap": "allow"})
        await grace.ask("PUT", "/v1/jobs/report", {**JOB, "schedule": "0 10 * * *", "function": "reports.all"})

    third, second, first = (await admin.get("/v1/jobs/report/revisions")).json()["items"]

    assert [one["revision"] for one in (first, second, third)] == [1, 2, 3]
    assert first["changes"] is None
    assert {one["field"]: (one["before"], one["after"]) for one in second["changes"]} == {
        "schedule": ("0 9 * * *", "0 10 * * *"),
        "overlap": ("skip", "allow"),
    }
    assert {one["field"]: (one["before"], one["after"]) for one in third["changes"]} == {
        "overlap": ("allow", "skip"),
        "function": ("reports.make", "reports.all"),
    }
    assert [one["actor"] for one in (first, second)] == ["admin@example.com", "grace"]
    assert [one["from_at"] for one in (first, second)] == ["2026-03-02T12:00:00Z", "2026-03-02T12:01:00Z"]
    assert (first["definition"]["schedule"], third["definition"]["function"]) == ("0 9 * * *", "reports.all")
    assert third["definition"] == (await admin.get("/v1/jobs/report")).json()["definition"]
    assert (third["version"], third["origin"]) == (2, "api")


async def test_revisions_come_page_by_page_and_each_is_compared_with_the_one_before(admin: ApiCaller) -> None:
    await admin.registered()
    for hour in range(10, 15):
        await admin.ask("PUT", "/v1/jobs/report", {**JOB, "schedule": f"0 {hour} * * *"})
    found, following = [], "/v1/jobs/report/revisions?limit=2"
    while following:
        page = (await admin.get(following)).json()
        found += page["items"]
        following = page["next"]

    assert [one["revision"] for one in found] == [6, 5, 4, 3, 2, 1]
    assert [[change["before"] for change in one["changes"] or []] for one in found[:-1]] == [
        [f"0 {hour} * * *"] for hour in (13, 12, 11, 10, 9)
    ]


async def test_the_address_of_a_ping_is_not_shown(admin: ApiCaller) -> None:
    await admin.registered(ping="https://hc-ping.example/secret-one")
    await admin.ask("PUT", "/v1/jobs/report", {**JOB, "ping": "https://hc-ping.example/secret-two"})

    shown = await admin.get("/v1/jobs/report/revisions")

    assert (len(shown.json()["items"]), "secret" in shown.text) == (2, False)


async def test_a_job_that_does_not_exist_has_no_revisions(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    async with api_setup.caller("viewer/other") as other:
        assert (await other.get("/v1/jobs/report/revisions")).status_code == 404
    assert (await admin.get("/v1/jobs/none/revisions")).status_code == 404
