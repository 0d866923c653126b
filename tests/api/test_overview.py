"""The overview: every number is the number of the rows to which it leads."""

from typing import Any

import pytest
from msgspec.structs import replace

from gnomon.core.health import HealthCondition
from gnomon.core.ids import SHARDS
from gnomon.core.ledger.plan import plan
from gnomon.core.model import DAY_MS, MINUTE_MS, Result
from gnomon.core.model import Schedule as StoredSchedule
from gnomon.errors import StoreUnavailable
from gnomon.ports.tasks import WorkerInfo
from gnomon.services.operations.overview import OverviewService
from support.api_fixture import ApiCaller, ApiFixture


async def rows(caller: ApiCaller, href: str) -> list[dict[str, Any]]:
    """All rows of a list, page after page."""
    found: list[dict[str, Any]] = []
    following: str | None = href
    while following:
        page = (await caller.get(following)).json()
        found += page["items"]
        following = page["next"]
    return found


def numbers(shown: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Every number of an overview that leads to rows, with its name."""
    single = [(name, part) for name, part in shown.items() if isinstance(part, dict) and "href" in part]
    several = [
        (f"{name} {one['reason']}", one) for name in ("late", "not_run", "queued", "waiting") for one in shown[name]
    ]
    return [(name, part) for name, part in single + several if "count" in part]


async def decide(api_setup: ApiFixture) -> None:
    """Decide everything that is due."""
    store, now = api_setup.store, api_setup.clock.now()
    terms = await store.shards.claim("node", ttl_ms=10_000, limit=SHARDS, by_force=True)
    schedules: list[StoredSchedule] = list(await store.ledger.due(now, shards=frozenset(range(SHARDS)), limit=100))
    await store.ledger.decide([plan(one, now=now) for one in schedules], now=now, terms=terms)


@pytest.fixture
async def lived(api_setup: ApiFixture, admin: ApiCaller) -> ApiCaller:
    """A day in which everything happened that an overview counts."""
    for name, overlap in (("skips", "skip"), ("queues", "queue"), ("report", "allow")):
        await admin.registered(name=name, schedule="*/10 * * * *", overlap=overlap)
    await admin.registered(name="other", schedule="0 9 * * *")
    for _ in range(3):
        api_setup.clock.advance(10 * MINUTE_MS)
        await decide(api_setup)
    api_setup.clock.advance(31 * MINUTE_MS)
    await decide(api_setup)
    for _ in range(2):
        await api_setup.finish_execution(await admin.triggered(), Result.FAILED, error="disk full")
    await api_setup.finish_execution(await admin.triggered())
    await api_setup.ask_for_approval(await admin.triggered())
    card = WorkerInfo(worker="w1", functions=("f",), slots=5, started_at=api_setup.clock.now(), draining=True)
    await api_setup.store.workers.register(card, ttl_ms=DAY_MS)
    return admin


@pytest.mark.req("H-25")
async def test_every_number_is_that_of_the_rows_to_which_it_leads(lived: ApiCaller) -> None:
    shown = (await lived.get("/v1/overview")).json()

    found = {name: part["count"] for name, part in numbers(shown)}
    assert found == {name: len(await rows(lived, part["href"])) for name, part in numbers(shown)}
    assert {name for name, count in found.items() if count} >= {
        "jobs", "failed", "pending", "dead_letters", "approvals", "workers", "not_run overlap", "queued behind_a_run",
        "not_run catchup_none", "waiting queue", "waiting ready",
    }  # fmt: skip
    assert shown["unknown"] == {}
    assert (shown["failed"]["count"], shown["dead_letters"]["count"], shown["workers"]["draining"]) == (2, 2, 1)


async def test_numbers_are_those_of_the_window(api_setup: ApiFixture, lived: ApiCaller) -> None:
    api_setup.clock.advance(2 * 60 * MINUTE_MS)

    past, long = [(await lived.get(f"/v1/overview?hours={hours}")).json() for hours in (1, 24)]

    assert (past["failed"]["count"], past["late"], past["not_run"], past["queued"]) == (0, [], [], [])
    assert long["failed"]["count"] == 2
    assert past["dead_letters"] == long["dead_letters"]


async def test_fires_that_are_due_and_undecided_are_overdue_by_so_much(api_setup: ApiFixture, lived: ApiCaller) -> None:
    before = (await lived.get("/v1/overview")).json()
    api_setup.clock.advance(10 * MINUTE_MS)
    shown = (await lived.get("/v1/overview")).json()

    assert (before["overdue"]["count"], before["overdue"]["items"]) == (0, [])
    assert [one["job"] for one in before["due_next"]][-1] == "other"
    assert {one["job"] for one in before["due_next"][:3]} == {"skips", "queues", "report"}
    assert {one["job"]: one["late_ms"] for one in shown["overdue"]["items"]} == dict.fromkeys(
        ("skips", "queues", "report"), MINUTE_MS
    )
    assert {one["job"] for one in await rows(lived, shown["overdue"]["href"])} == {"skips", "queues", "report"}
    [coming] = shown["due_next"]
    assert (coming["job"], coming["late_ms"]) == ("other", 0)
    assert (await lived.get(coming["href"])).json()["explanations"][0]["at"] == coming["planned_at"]


async def test_an_overview_belongs_to_the_tenant(api_setup: ApiFixture, lived: ApiCaller) -> None:
    del lived
    async with api_setup.caller("viewer/acme") as other:
        shown = (await other.get("/v1/overview")).json()

    assert {name: part["count"] for name, part in numbers(shown) if part["count"]} == {"workers": 1}
    assert (shown["due_next"], shown["overdue"]["items"]) == ([], [])


async def test_a_part_that_cannot_be_read_says_so_and_the_others_are_shown(
    api_setup: ApiFixture, lived: ApiCaller
) -> None:
    class Broken:
        async def alive(self) -> Any:  # noqa: ANN401 - it never returns
            raise StoreUnavailable("the database does not answer")

    store = api_setup.store
    api_setup.condition = HealthCondition.ERROR

    async def health() -> Any:  # noqa: ANN401 - as the fixture has it
        return await api_setup.services.health()

    service = OverviewService(store.overview, Broken(), health, api_setup.clock)  # type: ignore[arg-type]
    api_setup.put(replace(api_setup.services, overview=service))
    async with api_setup.caller("admin") as admin:
        shown = (await admin.get("/v1/overview")).json()

    assert shown["workers"] is None
    assert list(shown["unknown"]) == ["workers"]
    assert "does not answer" in shown["unknown"]["workers"]
    assert shown["failed"]["count"] == 2
    assert shown["health"] == {"status": "error", "failing": ["store"], "href": "/v1/health"}
    assert (await lived.get("/v1/overview?hours=0")).status_code == 422
