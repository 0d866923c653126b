"""A tenant sees nothing of the activity of others: not in lists of workers, nor in numbers, cursors and health."""

import base64
from collections.abc import AsyncIterator

import msgspec
import pytest

from contracts.store import NOON
from gnomon.core.audit import refused_entry
from gnomon.errors import FieldError
from gnomon.ports.tasks import HostLoad, WorkerInfo
from gnomon.services.remote.worker_checks import check_worker_info
from support.api_fixture import ApiCaller, ApiFixture
from support.fleet_harness import FleetHarness

CARD = WorkerInfo(
    worker="w1",
    functions=("reports.make",),
    slots=8,
    started_at=NOON,
    capabilities=("gpu",),
    labels={"node.host": "db-7"},
    in_hand=5,
    load=HostLoad(cpu=70),
)


@pytest.fixture
def api_setup() -> ApiFixture:
    return ApiFixture()


@pytest.fixture
async def operator(api_setup: ApiFixture) -> AsyncIterator[ApiCaller]:
    async with api_setup.caller("admin") as somebody:
        yield somebody


@pytest.fixture
async def tenant(api_setup: ApiFixture) -> AsyncIterator[ApiCaller]:
    async with api_setup.caller("admin/acme") as somebody:
        yield somebody


# ---- workers -------------------------------------------------------------------------------------


async def test_a_tenant_sees_its_own_tasks_at_workers_and_neither_their_load_nor_their_labels(
    api_setup: ApiFixture, operator: ApiCaller, tenant: ApiCaller
) -> None:
    await api_setup.store.workers.register(CARD, ttl_ms=60_000)
    await tenant.registered()
    await tenant.triggered()
    [waiting] = await api_setup.store.tasks.waiting(NOON, limit=9)
    await api_setup.finish_execution(waiting.run.run_id)

    [seen] = (await tenant.get("/v1/workers")).json()["items"]
    [whole] = (await operator.get("/v1/workers")).json()["items"]

    hidden: dict[str, object] = {"in_hand": 0, "cpu": None, "labels": {}}
    assert {field: seen[field] for field in hidden} == hidden
    assert {field: whole[field] for field in hidden} == {"in_hand": 5, "cpu": 70, "labels": {"node.host": "db-7"}}
    same = {field for field in whole if field not in hidden}
    assert {field: seen[field] for field in same} == {field: whole[field] for field in same}


async def test_messages_about_the_installation_are_the_operators(operator: ApiCaller, tenant: ApiCaller) -> None:
    ours, theirs = [(await one.get("/v1/health")).text for one in (operator, tenant)]

    assert "db.example" in ours
    assert "db.example" not in theirs


# ---- the audit trail -----------------------------------------------------------------------------


async def test_entries_of_a_tenant_do_not_count_those_of_others(api_setup: ApiFixture, tenant: ApiCaller) -> None:
    for number in range(40):
        name = "acme" if number % 10 == 0 else "other"
        await api_setup.store.audit.add(refused_entry(f"GET /{number}", "no", actor="eve", tenant=name, now=NOON))
    await api_setup.store.audit.seal(limit=100)

    first = (await tenant.get("/v1/audit?limit=2")).json()
    rest = (await tenant.get(first["next"])).json()

    entries = [*first["items"], *rest["items"]]
    assert [one["name"] for one in entries] == ["GET /30", "GET /20", "GET /10", "GET /0"]
    assert {(one["number"], one["seq"], one["prev_hash"]) for one in entries} == {(None, None, None)}
    assert all(len(one["hash"]) == 64 for one in entries)


async def test_the_cursor_of_the_audit_trail_does_not_show_how_many_entries_there_are(
    api_setup: ApiFixture, tenant: ApiCaller
) -> None:
    positions = set()
    for number in range(6):
        await api_setup.store.audit.add(refused_entry(f"GET /{number}", "no", actor="e", tenant="acme", now=NOON))
        cursor = (await tenant.get("/v1/audit?limit=1")).json()["next"].partition("cursor=")[2].replace("%3D", "=")
        position, _ = msgspec.json.decode(base64.urlsafe_b64decode(cursor))
        positions.add(position)

    assert len(positions) == 6
    assert len({len(position) for position in positions}) == 1
    assert not any(position.endswith(f"{number:016x}") for position in positions for number in range(10))


async def test_the_operator_sees_the_places_of_its_entries(api_setup: ApiFixture, operator: ApiCaller) -> None:
    await operator.registered()
    await api_setup.store.audit.seal(limit=100)

    entries = (await operator.get("/v1/audit")).json()["items"]

    assert (entries[-1]["number"], entries[-1]["seq"], entries[-1]["prev_hash"]) == (1, 1, "0" * 64)


# ---- what a worker says about itself -------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("labels", {f"label-{number}": "x" for number in range(51)}),
        ("labels", {"a": "x" * 256}),
        ("labels", {"x" * 129: "a"}),
        ("capabilities", tuple(f"c{number}" for number in range(51))),
        ("functions", tuple(f"f{number}" for number in range(5001))),
        ("functions", ("f" * 256,)),
        ("functions", tuple("f" * 250 for _ in range(1100))),
        ("pool", "x" * 1000),
        ("worker", "w" * 256),
        ("started_at", 2**62),
        ("in_hand", 2**40),
        ("load", HostLoad(cpu=-1)),
        ("load", HostLoad(gpu=2**40)),
    ],
)
def test_a_worker_does_not_say_more_about_itself_than_servers_keep(field: str, value: object) -> None:
    check_worker_info(CARD)

    with pytest.raises(FieldError):
        check_worker_info(msgspec.structs.replace(CARD, **{field: value}))


async def test_a_heartbeat_with_too_many_labels_is_refused_and_leaves_nothing() -> None:
    fleet = FleetHarness()
    await fleet.consumer.answer()
    assert fleet.bus.heartbeats is not None
    labels = {f"label-{number}": "x" * 200 for number in range(500)}
    card = msgspec.structs.replace(CARD, worker="field_1", labels=labels)

    with pytest.raises(FieldError) as refused:
        await fleet.bus.heartbeats("field_1", msgspec.json.encode({"card": card}))

    assert len(str(refused.value)) < 1000
    assert await fleet.store.workers.alive() == []
