"""Schedules, workflows, events, workers, health and the stream over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import httpx
import pytest

from gnomon.api.route import ApiCall
from gnomon.api.routes import ROUTES
from gnomon.core import component_names
from gnomon.core.health import HealthCondition
from gnomon.core.instants import instant_of
from gnomon.errors import Unavailable
from gnomon.ports.auth import Caller
from gnomon.ports.change_log import Change
from gnomon.ports.tasks import WorkerInfo
from gnomon.services.observability.change_stream import ChangeStream
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
async def test_a_workflow_that_was_never_deployed_is_not_started(admin: ApiCaller) -> None:
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


@pytest.mark.req("H-20")
async def test_a_caller_learns_who_it_is(api_setup: ApiFixture) -> None:
    async with api_setup.caller("operator~ada~sre+finance/acme") as ada, api_setup.caller("nothing") as nobody:
        known = (await ada.get("/v1/whoami")).json()
        refused = await nobody.get("/v1/whoami")

    assert known == {
        "subject": "ada",
        "tenant": "acme",
        "roles": ["operator"],
        "groups": ["finance", "sre"],
        "expires_at": None,
    }
    assert (refused.status_code, "your token has no role" in refused.text) == (403, True)


# ---- health --------------------------------------------------------------------------------------


@pytest.mark.req("H-12", "Z-11")
@pytest.mark.parametrize("path", ["/v1/health", "/readyz"])
async def test_health_is_reported_by_component_and_fails_with_one_of_them(api_setup: ApiFixture, path: str) -> None:
    async with api_setup.caller(None) as probe:
        well = await probe.get(path)
        api_setup.condition = HealthCondition.ERROR
        ill = await probe.get(path)
        alive = await probe.get("/livez")

    assert (well.status_code, well.json()["components"][0]["status"]) == (200, "ok")
    assert (ill.status_code, ill.json()["status"]) == (503, "error")
    assert alive.status_code == 200


@pytest.mark.req("H-17", "Z-11")
@pytest.mark.parametrize("component", [component_names.TASKS, component_names.ANNOUNCER])
async def test_a_failure_of_all_servers_alike_is_reported_and_takes_none_out_of_service(
    api_setup: ApiFixture, component: str
) -> None:
    api_setup.component, api_setup.condition = component, HealthCondition.ERROR
    async with api_setup.caller(None) as probe:
        told = await probe.get("/v1/health")

    assert (told.status_code, told.json()["status"], told.json()["ready"]) == (200, "error", True)


async def test_a_process_that_is_not_worth_keeping_says_so(api_setup: ApiFixture) -> None:
    api_setup.alive = False
    async with api_setup.caller(None) as probe:
        assert (await probe.get("/livez")).status_code == 503


@pytest.mark.req("Z-11")
@pytest.mark.parametrize(
    ("token", "message"), [(None, ""), ("nobody", ""), ("nothing", ""), ("viewer", "at db.example")]
)
async def test_the_reason_of_bad_health_is_shown_to_permitted_callers(
    api_setup: ApiFixture, token: str | None, message: str
) -> None:
    async with api_setup.caller(token) as probe:
        report = await probe.get("/v1/health")

    assert (report.status_code, report.json()["components"][0]["message"]) == (200, message)


@pytest.mark.parametrize(
    "header", ["Bearer  viewer", "Bearer\tviewer", "Bearer viewer\xa0", "Bearer \x85viewer", "viewer"]
)
@pytest.mark.parametrize("path", ["/v1/health", "/readyz", "/livez"])
async def test_a_token_of_another_form_is_told_what_a_stranger_is_told(
    api_setup: ApiFixture, path: str, header: str
) -> None:
    odd, good = (b"authorization", header.encode("latin-1")), (b"authorization", b"Bearer viewer")
    transport = httpx.ASGITransport(cast("Any", api_setup.app))
    async with httpx.AsyncClient(transport=transport, base_url="http://gnomon") as probe:
        reports = [await probe.get(path, headers=headers) for headers in ([odd], [good, good], [good, odd])]

    assert [one.json()["components"][0]["message"] for one in reports] == ["", "", ""]
    assert len(api_setup.login_failures) == len(reports)


async def test_only_a_probe_with_a_bad_token_is_a_failed_authentication(api_setup: ApiFixture) -> None:
    for token, failures in ((None, 0), ("viewer", 0), ("nobody", 1)):
        async with api_setup.caller(token) as probe:
            await probe.get("/v1/health")
        assert len(api_setup.login_failures) == failures


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
    await asyncio.wait_for(task, 30)


async def test_the_stream_shows_changes_of_the_own_tenant_only(api_setup: ApiFixture) -> None:
    async with following(api_setup, "viewer") as heard:
        for tenant, job in (("other", "theirs"), ("default", "ours")):
            api_setup.change_stream.publish([Change("task", tenant, instant_of(0), {"job": job})])
        said = await heard.get()

    assert said.startswith("id: 1\nevent: task\ndata: {")
    assert '"job":"ours"' in said


async def test_a_stream_ends_when_the_server_stops(api_setup: ApiFixture) -> None:
    async with following(api_setup, "viewer"):
        api_setup.change_stream.close()


async def test_no_more_follow_than_may(api_setup: ApiFixture) -> None:
    async with (
        following(api_setup, "viewer/a"),
        following(api_setup, "viewer/b"),
        following(api_setup, "viewer/c"),
        api_setup.caller("viewer/d") as late,
    ):
        refused = await late.get("/v1/stream")
    async with following(api_setup, "viewer/d"):
        pass

    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")


async def test_a_client_that_disconnects_early_keeps_no_place_in_the_stream(api_setup: ApiFixture) -> None:
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
            authenticate=partial(api_setup.services.tokens.caller, "viewer"),
        )
        stream = (await route.handle(asked)).stream
        assert stream is not None
        await stream.aclose()

    async with following(api_setup, "viewer"):
        pass


async def test_a_slow_listener_is_let_go_of_and_nobody_waits_for_it() -> None:
    change_stream = ChangeStream()
    slow = change_stream.subscribe(Caller("ada", frozenset()))
    for _ in range(5000):
        change_stream.publish([Change("task", "default", instant_of(0), {"job": "a"})])

    heard = [change async for change in slow.changes(lambda: 1)]

    assert (slow.dropped, len(heard)) == (True, 4000)


async def test_a_full_stream_is_reported() -> None:
    change_stream = ChangeStream(most=0)

    with pytest.raises(Unavailable):
        change_stream.subscribe(Caller("ada", frozenset()))


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


async def test_a_head_request_needs_the_permission_of_get(api_setup: ApiFixture) -> None:
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


@pytest.mark.req("H-12")
async def test_options_and_a_refused_method_name_every_method_of_a_path(admin: ApiCaller) -> None:
    served: dict[str, set[str]] = {}
    for route in ROUTES:
        served.setdefault(route.path, {"OPTIONS"}).add(route.method)
        if route.method == "GET" and not route.media_type.startswith("text/event-stream"):
            served[route.path].add("HEAD")

    for path, methods in served.items():
        url = path.format(name="report", id="it", step="main")
        options, refused = await admin.ask("OPTIONS", url), await admin.ask("TRACE", url)
        assert (options.status_code, refused.status_code) == (204, 405)
        assert set(options.headers["allow"].split(", ")) == methods, path
        assert set(refused.headers["allow"].split(", ")) == methods, path


async def test_a_refusal_names_the_missing_token_and_the_missing_role(api_setup: ApiFixture) -> None:
    async with api_setup.caller("viewer") as viewer, api_setup.caller("nothing") as nobody:
        deleted = await viewer.ask("DELETE", "/v1/jobs/report")
        triggered = await nobody.post("/v1/jobs/report/trigger")

    assert deleted.json()["detail"] == "this needs the role admin; your token has viewer"
    assert triggered.json()["detail"] == "this needs the role operator or admin; your token has no role"


@pytest.mark.req("R-16")
async def test_a_deployed_step_waits_as_many_seconds_as_its_delay_sec_says(admin: ApiCaller) -> None:
    steps = [{"id": "rest", "delay_sec": 90}, {"id": "work", "function": "a.b", "delay_sec": 1.5}]
    await admin.post("/v1/workflows", {"id": "etl", "nodes": steps})

    stored = (await admin.get("/v1/workflows/etl")).json()["steps"]

    assert [step["delay"] for step in stored] == ["1m30s", "1s500ms"]


@pytest.mark.parametrize("delay", [0, -1, True, "90", 10**9, None])
async def test_a_delay_sec_that_is_no_number_of_seconds_is_refused(admin: ApiCaller, delay: object) -> None:
    refused = await admin.post("/v1/workflows", {"id": "etl", "nodes": [{"id": "rest", "delay_sec": delay}]})

    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "nodes[0].delay_sec")


async def test_delay_and_delay_sec_are_not_said_together(admin: ApiCaller) -> None:
    step = {"id": "rest", "delay": "1m", "delay_sec": 60}

    assert (await admin.post("/v1/workflows", {"id": "etl", "nodes": [step]})).status_code == 422


PINGED = {"name": "report", "schedule": "0 9 * * *", "function": "reports.make", "ping": "https://hc.example/secret"}
AS_SHOWN = "https://hc.example/…"


async def test_the_address_of_a_ping_is_shown_without_its_secret_path(admin: ApiCaller) -> None:
    await admin.post("/v1/jobs", PINGED)
    steps = [{"step": "one", "function": "a.b"}]
    await admin.post("/v1/workflows", {"workflow_id": "etl", "steps": steps, "ping": PINGED["ping"]})

    assert (await admin.get("/v1/jobs/report")).json()["definition"]["ping"] == AS_SHOWN
    assert (await admin.get("/v1/workflows/etl")).json()["ping"] == AS_SHOWN


async def test_a_definition_that_was_read_is_written_back_without_losing_the_address_of_its_ping(
    api_setup: ApiFixture, admin: ApiCaller
) -> None:
    await admin.post("/v1/jobs", PINGED)
    definition = (await admin.get("/v1/jobs/report")).json()["definition"]

    same = await admin.ask("PUT", "/v1/jobs/report", definition)
    changed = await admin.ask("PUT", "/v1/jobs/report", {**definition, "ping": {"url": AS_SHOWN, "on": ["failure"]}})

    assert (same.json()["change"], changed.json()["change"]) == ("unchanged", "changed")
    stored = await api_setup.store.jobs.workflow("default", "report", 2)
    assert stored is not None
    assert stored.ping is not None
    assert (stored.ping.url, stored.ping.on) == (PINGED["ping"], ("failure",))


@pytest.mark.parametrize("shown", [AS_SHOWN, "https://other.example/…"])
async def test_a_shown_address_that_is_not_the_stored_one_is_refused(admin: ApiCaller, shown: str) -> None:
    if shown != AS_SHOWN:
        await admin.post("/v1/jobs", PINGED)

    refused = await admin.post("/v1/apply", {"jobs": [{**PINGED, "ping": shown}]})

    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "ping.url")
