"""Announcements over the API: what was told, what was not, and another try."""

import pytest

from gnomon.core.announcements.model import AnnouncementState, AnnounceRule
from gnomon.ports.announcements import AnnouncementClaim
from support.api_fixture import ApiCaller, ApiFixture

RULE = AnnounceRule(channel="ops", to="C1")


@pytest.mark.req("Z-07")
async def test_an_execution_shows_that_it_was_not_announced(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered(overlap="allow")
    name = await api_setup.given_up_announcement()

    [listed] = (await admin.get("/v1/executions")).json()["items"]
    shown = (await admin.get(f"/v1/executions/{listed['execution_id']}")).json()

    assert (listed["status"], listed["announced"]) == ("completed", "given_up")
    assert (shown["status"], shown["announced"]) == ("completed", "given_up")
    [reported] = shown["announcements"]
    assert (reported["announcement_id"], reported["channel"], reported["to"], reported["state"]) == (
        name,
        "ops",
        "C1",
        "given_up",
    )
    assert (reported["note"], reported["tries"], reported["next_try_at"]) == ("answered 403", 3, None)


async def test_an_execution_that_announces_nothing_says_so(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    execution = await admin.triggered()
    await api_setup.finish_execution(execution)

    shown = (await admin.get(f"/v1/executions/{execution}")).json()

    assert (shown["announced"], shown["announcements"]) == (None, [])


async def test_announcements_are_listed_newest_first_by_job_state_and_prefix(
    api_setup: ApiFixture, admin: ApiCaller
) -> None:
    await admin.registered(overlap="allow")
    first = await api_setup.given_up_announcement()
    api_setup.clock.advance(1000)
    second = await admin.triggered()
    await api_setup.finish_execution(second, announce=(RULE,))

    async def listed(query: str = "") -> list[str]:
        items = (await admin.get(f"/v1/announcements{query}")).json()["items"]
        return [one["announcement_id"] for one in items]

    newest, oldest = await listed()
    assert oldest == first
    assert await listed("?state=given_up") == [first]
    assert await listed("?state=pending&job=report") == [newest]
    assert await listed("?job=other") == []
    assert await listed(f"?prefix={first[:-1]}") == [first]
    page = (await admin.get("/v1/announcements?limit=1")).json()
    assert [one["announcement_id"] for one in page["items"]] == [newest]
    rest = (await admin.get(page["next"])).json()
    assert [one["announcement_id"] for one in rest["items"]] == [first]


@pytest.mark.req("Z-07")
async def test_an_announcement_that_was_given_up_is_tried_again_once(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered(overlap="allow")
    name = await api_setup.given_up_announcement()
    before = api_setup.changes

    again = await admin.post(f"/v1/announcements/{name}/retry")
    twice = await admin.post(f"/v1/announcements/{name}/retry")

    assert (again.status_code, again.json()["state"], again.json()["tries"]) == (202, "pending", 0)
    assert api_setup.changes == before + 1
    assert twice.status_code == 409
    assert "is pending: only one that was given up is tried again" in twice.json()["detail"]
    claim = AnnouncementClaim(holder="a", limit=9, per_channel=9, claim_ms=1000)
    assert [one.announcement_id for one in await api_setup.store.announcement_queue.claim(claim)] == [name]


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v1/announcements/ann_none", 404, "there is no announcement"),
        ("/v1/announcements?state=lost", 422, "state"),
        ("/v1/announcements?prefix=ann_&state=sent", 422, "cannot be used with prefix"),
    ],
)
async def test_wrong_requests_say_why(admin: ApiCaller, path: str, status: int, text: str) -> None:
    answer = await admin.get(path)

    assert answer.status_code == status
    assert text in answer.text


def test_the_worst_state_counts() -> None:
    from msgspec.structs import replace

    from core.announcements.test_text import ONE
    from gnomon.services.operations.presenters.announcements import announced_state

    def state(*states: AnnouncementState) -> str | None:
        return announced_state([replace(ONE, state=one) for one in states])

    assert state(AnnouncementState.SENT, AnnouncementState.GIVEN_UP, AnnouncementState.PENDING) == "given_up"
    assert state(AnnouncementState.SENT, AnnouncementState.PENDING) == "pending"
    assert state(AnnouncementState.SILENT, AnnouncementState.SENT) == "sent"
    assert state(AnnouncementState.SILENT) == "silent"
    assert state() is None
