"""Schedules, workflows, events, workers, health and the stream over HTTP."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gnomon.api.route import ApiCall
from gnomon.api.routes import ROUTES
from gnomon.core.health import HealthCondition
from gnomon.errors import Unavailable
from gnomon.ports.tasks import WorkerInfo
from gnomon.services.observability.change_stream import ChangeStream
from gnomon.testing.clock import Recorder, VirtualClock
from support.api_fixture import ApiCaller, ApiFixture

WORKFLOW = {
    "workflow_id": "etl",
    "steps": [{"step": "a", "function": "f"}, {"step": "b", "function": "g", "depends_on": ["a"]}],
}
SCHEDULE = {
    "schedule_id": "nightly",
    "workflow_id": "etl",
    "version": 1,
    "user_id": "ada",
    "cron_expr": "0 2 * * *",
    "timezone": "UTC",
    "jitter_ms": 500,
    "overlap_policy": "queue",
    "catchup_policy": "fire_immediately",
}


@pytest.mark.req("C-03")
async def test_a_schedule_is_registered_in_the_words_of_other_schedulers(admin: ApiCaller) -> None:
    done = await admin.post("/v1/schedules/upsert", SCHEDULE)

    assert (done.status_code, done.json()) == (
        200,
        {"schedule_id": "nightly", "next_run_at": "2026-03-03T02:00:00Z"},
    )


@pytest.mark.req("C-03", "C-14")
async def test_a_schedule_shows_its_next_five_fires(admin: ApiCaller) -> None:
    await admin.post("/v1/schedules/upsert", SCHEDULE)

    shown = (await admin.get("/v1/schedules/nightly")).json()

    assert len(shown["next_runs"]) == 5
    assert (shown["overlap"], shown["catchup"], shown["jitter_ms"]) == ("queue", "all", 500)


@pytest.mark.req("C-03")
async def test_a_schedule_is_paused_resumed_and_deleted(admin: ApiCaller) -> None:
    await admin.post("/v1/schedules/upsert", SCHEDULE)

    paused = await admin.post("/v1/schedules/pause", {"schedule_id": "nightly", "paused": True})
    resumed = await admin.post("/v1/schedules/pause", {"schedule_id": "nightly", "paused": False})
    deleted = await admin.ask("DELETE", "/v1/schedules/nightly")

    assert [paused.json()["paused"], resumed.json()["paused"], deleted.status_code] == [True, False, 204]
    assert (await admin.get("/v1/schedules/nightly")).status_code == 404


async def test_a_schedule_that_is_wrong_is_refused_with_what_may_have_been_meant(admin: ApiCaller) -> None:
    refused = await admin.post("/v1/schedules/upsert", {**SCHEDULE, "cron_expr": "61 * * * *"})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "schedule"


@pytest.mark.req("C-08", "C-16")
async def test_a_deployed_workflow_is_started_once_for_each_key(admin: ApiCaller) -> None:
    deployed = await admin.post("/v1/workflows", WORKFLOW)
    start = {"workflow_id": "etl", "version": 1, "user_id": "ada", "scheduled_for": "2026-03-02T02:00:00Z"}

    done = [await admin.post("/v1/run-launcher/start", {**start, "idempotency_key": "k"}) for _ in range(2)]

    assert (deployed.status_code, [one.json() for one in done]) == (201, [{"started": True}] * 2)
    [execution] = (await admin.get("/v1/executions")).json()["items"]
    assert (execution["planned_at"], execution["user_id"]) == ("2026-03-02T02:00:00Z", "ada")


@pytest.mark.req("C-08", "C-16")
async def test_what_was_never_deployed_is_not_started(admin: ApiCaller) -> None:
    start = {"workflow_id": "none", "version": 1, "scheduled_for": 1772416800000, "idempotency_key": "k"}

    assert (await admin.post("/v1/run-launcher/start", start)).json() == {"started": False}


@pytest.mark.req("C-16")
async def test_the_schedules_of_a_workflow_come_and_go_with_it(admin: ApiCaller) -> None:
    trigger = {"type": "schedule_based", "id": "nightly", "cron_expr": "0 2 * * *"}

    first = (await admin.post("/v1/workflows", {**WORKFLOW, "triggers": [trigger]})).json()
    second = (await admin.post("/v1/workflows", {**WORKFLOW, "description": "without"})).json()

    assert (first["schedules"], second["removed"]) == (["etl.nightly"], ["etl.nightly"])
    assert (await admin.get("/v1/workflows/etl?version=1")).json()["steps"][1]["depends_on"] == ["a"]
    [listed] = (await admin.get("/v1/workflows")).json()["items"]
    assert listed == {"workflow_id": "etl", "version": 2, "steps": ["a", "b"], "tags": []}


async def test_a_workflow_without_steps_is_refused(admin: ApiCaller) -> None:
    refused = await admin.post("/v1/workflows", {"workflow_id": "etl"})

    assert refused.json()["errors"] == [{"field": "steps", "value": None, "reason": "is missing"}]


@pytest.mark.req("H-24")
async def test_an_event_starts_what_listens_to_it_once_for_each_key(admin: ApiCaller) -> None:
    await admin.post("/v1/jobs", {"name": "retrain", "function": "f", "on": {"event": "model.drift"}})

    said = {"name": "model.drift", "body": {"score": 1}}
    first, second = [await admin.post("/v1/events", said, **{"Idempotency-Key": "k"}) for _ in range(2)]

    assert (first.status_code, first.json()["entries"][0]["became"]) == (201, "fired")
    assert second.json()["event_id"] == first.json()["event_id"]
    [listed] = (await admin.get("/v1/events?name=model.drift")).json()["items"]
    assert listed == (await admin.get(f"/v1/events/{listed['event_id']}")).json()
    assert (await admin.get("/v1/executions?trigger=event")).json()["items"][0]["job"] == "retrain"


@pytest.mark.req("R-18")
async def test_workers_that_are_alive_are_listed(api_setup: ApiFixture, admin: ApiCaller) -> None:
    card = WorkerInfo(
        worker="w1", functions=("f",), slots=5, started_at=api_setup.clock.now(), labels={"a": "b"}, in_hand=2
    )
    await api_setup.store.workers.register(card, ttl_ms=1000)

    [worker] = (await admin.get("/v1/workers")).json()["items"]

    assert (worker["worker"], worker["functions"]) == ("w1", ["f"])
    assert (worker["labels"], worker["in_hand"], worker["draining"]) == ({"a": "b"}, 2, False)
    assert worker["seen_at"] == worker["started_at"]


# ---- health --------------------------------------------------------------------------------------


@pytest.mark.req("H-12", "Z-11")
@pytest.mark.parametrize("path", ["/v1/health", "/readyz"])
async def test_health_is_told_part_by_part_and_red_when_a_part_is(api_setup: ApiFixture, path: str) -> None:
    async with api_setup.caller(None) as probe:
        well = await probe.get(path)
        api_setup.condition = HealthCondition.ERROR
        ill = await probe.get(path)
        alive = await probe.get("/livez")

    assert (well.status_code, well.json()["components"][0]["status"]) == (200, "ok")
    assert (ill.status_code, ill.json()["status"]) == (503, "error")
    assert alive.status_code == 200


async def test_a_process_that_is_not_worth_keeping_says_so(api_setup: ApiFixture) -> None:
    api_setup.alive = False
    async with api_setup.caller(None) as probe:
        assert (await probe.get("/livez")).status_code == 503


@pytest.mark.req("Z-11")
@pytest.mark.parametrize(
    ("token", "message"), [(None, ""), ("nobody", ""), ("nothing", ""), ("viewer", "at db.example")]
)
async def test_what_is_wrong_is_told_in_words_to_those_who_may_look(
    api_setup: ApiFixture, token: str | None, message: str
) -> None:
    async with api_setup.caller(token) as probe:
        report = await probe.get("/v1/health")

    assert (report.status_code, report.json()["components"][0]["message"]) == (200, message)


# ---- the stream ----------------------------------------------------------------------------------


@asynccontextmanager
async def following(api_setup: ApiFixture, token: str) -> AsyncIterator["asyncio.Queue[str]"]:
    """The changes that a subscriber of the stream receives."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        heard.put_nowait(str(message.get("status") or message.get("body", b"").decode()))

    scope = {
        "type": "http", "method": "GET", "path": "/v1/stream", "raw_path": b"/v1/stream", "query_string": b"",
        "headers": [(b"authorization", f"Bearer {token}".encode())], "http_version": "1.1", "scheme": "http",
        "server": ("gnomon", 80), "client": ("somebody", 1), "root_path": "",
    }  # fmt: skip
    task = asyncio.ensure_future(api_setup.app(scope, receive, send))
    assert [await heard.get(), await heard.get()] == ["200", ": listening\n\n"]
    yield heard
    left.set()
    await asyncio.wait_for(task, 5)


async def test_whoever_follows_the_stream_hears_of_its_own_tenant_only(api_setup: ApiFixture) -> None:
    async with following(api_setup, "viewer") as heard:
        api_setup.change_stream.emit(
            "task_succeeded", tenant="other", job="theirs", run="run_1", step="main", attempt=1
        )
        api_setup.change_stream.emit("task_succeeded", job="nobodys", run="run_2", step="main", attempt=1)
        api_setup.change_stream.emit(
            "task_failed", tenant="default", job="ours", run="run_3", step="main", attempt=1, error="x"
        )
        said = await heard.get()

    assert said.startswith("id: 2\nevent: task\ndata: {")
    assert '"job":"ours"' in said


async def test_a_stream_ends_when_the_server_stops(api_setup: ApiFixture) -> None:
    async with following(api_setup, "viewer"):
        api_setup.change_stream.close()


async def test_no_more_follow_than_may(api_setup: ApiFixture) -> None:
    async with (
        following(api_setup, "viewer"),
        following(api_setup, "viewer"),
        following(api_setup, "viewer"),
        api_setup.caller("viewer") as late,
    ):
        refused = await late.get("/v1/stream")
    async with following(api_setup, "viewer"):
        pass

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


async def test_who_is_gone_before_anything_was_sent_keeps_no_place(api_setup: ApiFixture) -> None:
    route = next(one for one in ROUTES if one.name == "follow_changes")
    caller = await api_setup.services.tokens.caller("viewer")
    for _ in range(5):
        asked = ApiCall(
            services=api_setup.services,
            caller=caller,
            url=route.path,
            path={},
            query=None,
            raw_query={},
            body={},
            headers={},
        )
        stream = (await route.handle(asked)).stream
        assert isinstance(stream, AsyncGenerator)
        await stream.aclose()

    async with following(api_setup, "viewer"):
        pass


async def test_a_slow_listener_is_let_go_of_and_nobody_waits_for_it() -> None:
    change_stream = ChangeStream(VirtualClock(0), Recorder())
    slow = change_stream.subscribe("default")
    for _ in range(5000):
        change_stream.emit("task_succeeded", tenant="default", job="a")

    heard = [change async for change in slow.changes(1)]

    assert (slow.dropped, len(heard)) == (True, 4000)


async def test_what_the_hub_hears_others_hear_too() -> None:
    others = Recorder()
    ChangeStream(VirtualClock(0), others).emit("task_succeeded", job="a")

    assert others.names() == ["task_succeeded"]


async def test_a_full_house_is_said() -> None:
    change_stream = ChangeStream(VirtualClock(0), Recorder(), most=0)

    with pytest.raises(Unavailable):
        change_stream.subscribe("default")


@pytest.mark.req("H-24")
async def test_a_key_stands_for_one_event_with_one_body(admin: ApiCaller) -> None:
    bodies = [{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2}, None]
    key = {"Idempotency-Key": "k"}

    asked = [await admin.post("/v1/events", {"name": "model.drift", "body": body}, **key) for body in bodies]

    assert [one.status_code for one in asked] == [201, 201, 409, 409]
    [kept] = (await admin.get("/v1/events")).json()["items"]
    assert kept["body"] == {"a": 1, "b": 2}


@pytest.mark.parametrize("path", ["/livez", "/v1/health", "/v1/jobs"])
async def test_the_head_of_an_answer_is_to_be_had_without_the_rest(admin: ApiCaller, path: str) -> None:
    whole, head = await admin.get(path), await admin.ask("HEAD", path)

    assert (head.status_code, head.content) == (whole.status_code, b"")
    assert head.headers == whole.headers


async def test_a_stream_has_no_head_of_its_own(admin: ApiCaller) -> None:
    assert (await admin.ask("HEAD", "/v1/stream")).status_code == 405


async def test_who_may_not_look_may_not_look_at_the_head_either(api_setup: ApiFixture) -> None:
    async with api_setup.caller(None) as nobody:
        assert (await nobody.ask("HEAD", "/v1/jobs")).status_code == 401


@pytest.mark.req("C-03")
@pytest.mark.parametrize("other", [{"version": 2}, {"scheduled_for": "2026-03-03T02:00:00Z"}])
async def test_a_key_stands_for_one_run_of_a_workflow(admin: ApiCaller, other: dict[str, object]) -> None:
    for step in ("a", "b"):
        await admin.post("/v1/workflows", {"workflow_id": "etl", "steps": [{"step": step, "function": "f"}]})
    said = {"workflow_id": "etl", "version": 1, "scheduled_for": "2026-03-02T02:00:00Z", "idempotency_key": "k"}

    asked = [await admin.post("/v1/run-launcher/start", one) for one in (said, said, {**said, **other})]

    assert [one.status_code for one in asked] == [200, 200, 409]
    assert len((await admin.get("/v1/executions")).json()["items"]) == 1
