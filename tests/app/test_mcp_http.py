"""MCP over HTTP: the route `/mcp` in this process, and the client library of the protocol at a real server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from msgspec.structs import replace

from gnomon.api.fair_queue import RequestSlots
from gnomon.api.route import ApiRoute
from gnomon.app.mcp_http import McpRoute
from gnomon.client import AsyncClient
from gnomon.core.model_names import MODEL_HEADER
from gnomon.core.verbs import VERBS
from gnomon.errors import Unauthenticated, UsageError
from gnomon.ports.auth import Caller
from support.api_fixture import JOB, ApiCaller, ApiFixture, RoleTokens
from support.api_server import background_scheduler

READING = [verb.name for verb in VERBS.values() if not verb.changes]


class Tools:
    """The tools of the server of this process, with one token."""

    def __init__(self, caller: ApiCaller) -> None:
        self._caller = caller

    async def ask(self, method: str, params: object, **headers: str) -> dict[str, Any]:
        done = await self._caller.post("/mcp", message(method, params), **headers)
        assert (done.status_code, done.headers["content-type"]) == (200, "application/json")
        found: dict[str, Any] = done.json()
        return found

    async def call(self, name: str, given: object, **headers: str) -> dict[str, Any]:
        """The answer of a tool."""
        [block] = (await self.ask("tools/call", {"name": name, "arguments": given}, **headers))["result"]["content"]
        found: dict[str, Any] = json.loads(block["text"])
        return found

    async def listed(self) -> list[str]:
        return [one["name"] for one in (await self.ask("tools/list", {}))["result"]["tools"]]


def message(method: str, params: object, number: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


@asynccontextmanager
async def serving(*, allow_changes: bool = True) -> AsyncIterator[ApiFixture]:
    """The API with tools for models."""
    found = ApiFixture()
    route = McpRoute(allow_changes=allow_changes, on_unexpected_error=found.unhandled_errors.append)
    async with route.running() as model_server:
        found.put(replace(found.services, model_server=model_server))
        yield found
    assert found.unhandled_errors == []


async def test_a_server_has_no_tools_unless_it_is_told_to() -> None:
    async with ApiFixture().caller("admin") as admin:
        assert (await admin.post("/mcp", message("tools/list", {}))).status_code == 404


async def test_a_server_that_only_reads_offers_no_other_tool() -> None:
    async with serving(allow_changes=False) as api_setup, api_setup.caller("admin") as admin:
        await admin.post("/v1/jobs", JOB)

        assert await Tools(admin).listed() == READING
        assert (await Tools(admin).call("pause_job", {"job": "report"}))["error"]["code"] == "forbidden"
        assert (await admin.get("/v1/jobs/report")).json()["paused"] is False


@pytest.mark.req("Z-12")
async def test_a_model_has_the_role_and_the_tenant_of_its_token() -> None:
    async with (
        serving() as api_setup,
        api_setup.caller("admin") as admin,
        api_setup.caller("viewer") as viewer,
        api_setup.caller("admin/acme") as other,
        api_setup.caller("nothing") as nobody,
        api_setup.caller(None) as stranger,
    ):
        await admin.post("/v1/jobs", JOB)
        refused = await Tools(viewer).call("pause_job", {"job": "report"}, **{MODEL_HEADER: "triage"})
        paused = await Tools(admin).call("pause_job", {"job": "report"}, **{MODEL_HEADER: "triage"})

        assert "this needs the role admin; your token has viewer" in refused["error"]["message"]
        assert paused["result"]["paused"]
        assert (await Tools(other).call("list_jobs", {}))["result"]["items"] == []
        assert (await Tools(other).call("show_job", {"job": "report"}))["error"]["code"] == "not_found"
        assert (await nobody.post("/mcp", message("tools/list", {}))).status_code == 403
        assert (await stranger.post("/mcp", message("tools/list", {}))).status_code == 401
        audit = (await admin.get("/v1/audit?actor=model:triage")).json()["items"]
    assert [(one["action"], one["details"]["owner"]) for one in reversed(audit)] == [
        ("refuse", "viewer@example.com"),
        ("pause", "admin@example.com"),
    ]


async def test_every_message_needs_a_token_that_counts_now() -> None:
    class EndingToken:
        over = False

        async def caller(self, token: str) -> Caller:
            if self.over:
                raise Unauthenticated("the token has expired")
            return await RoleTokens().caller(token)

    tokens = EndingToken()
    async with serving() as api_setup:
        api_setup.put(replace(api_setup.services, tokens=tokens))
        async with api_setup.caller("viewer") as viewer:
            assert await Tools(viewer).listed() == list(VERBS)
            tokens.over = True
            assert (await viewer.post("/mcp", message("tools/list", {}))).status_code == 401


async def test_a_page_of_another_site_is_refused_also_with_a_token() -> None:
    async with serving() as api_setup, api_setup.caller("admin") as admin:
        for origin in ("http://evil.example", "null", "http://gnomon.evil.example", "http://gnomon:8062"):
            assert (await admin.post("/mcp", message("tools/list", {}), Origin=origin)).status_code == 403
        assert (await admin.post("/mcp", message("tools/list", {}), Origin="http://gnomon")).status_code == 200


#: Messages, and the status of their answers.
NONSENSE: list[tuple[object, int]] = [
    ({}, 422),
    ([message("tools/list", {})], 422),
    ({"jsonrpc": "2.0"}, 400),
    ({"jsonrpc": "2.0", "method": "notifications/initialized"}, 202),
    ({"jsonrpc": "2.0", "id": {}, "method": "tools/list"}, 202),
    (message("tools/call", {}), 200),
    (message("tools/call", {"name": "list_jobs", "arguments": []}), 200),
    (message("tools/call", {"name": "x" * 100_000, "arguments": {}}), 413),
    (message("tools/call", {"name": "list_jobs", "arguments": {"limit": 10**300}}), 200),
    (message("tools/call", {"name": "list_jobs", "arguments": {"x" * 50_000: "y"}}), 200),
    (message("tools/call", {"name": "register_job", "arguments": {"job": {"name": "a", "dag": [[]] * 5000}}}), 200),
    (message("resources/list", {}), 200),
    (message("no/such/method", {}), 200),
    (message("initialize", {"protocolVersion": "x"}), 200),
    (message("subscriptions/listen", {}), 422),
]


async def test_nonsense_is_answered_briefly_and_changes_nothing() -> None:
    async with serving() as api_setup, api_setup.caller("admin") as admin:
        for body, status in NONSENSE:
            done = await admin.post("/mcp", body)

            assert done.status_code == status, body
            assert len(done.content) < 20_000
        assert (await admin.get("/v1/jobs")).json()["items"] == []


async def test_many_models_are_answered_at_once() -> None:
    async with serving() as api_setup, api_setup.caller("admin") as admin, api_setup.caller("viewer/acme") as viewer:
        await admin.post("/v1/jobs", JOB)
        ours, theirs = Tools(admin), Tools(viewer)
        answers = await asyncio.gather(
            *(tools.call("list_jobs", {}) for _ in range(25) for tools in (ours, theirs)),
        )

    assert [len(one["result"]["items"]) for one in answers] == [1, 0] * 25


async def test_an_unexpected_error_is_reported_here_and_not_to_the_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the password is xyzzy")

    async with serving() as api_setup, api_setup.caller("viewer") as viewer:
        monkeypatch.setattr(api_setup.services.job_search, "page", fail)
        found = await Tools(viewer).ask("tools/call", {"name": "list_jobs", "arguments": {}})
        assert found["result"]["isError"]
        assert "xyzzy" not in json.dumps(found)
        assert [str(error) for error in api_setup.unhandled_errors] == ["the password is xyzzy"]
        api_setup.unhandled_errors.clear()


@pytest.mark.req("Z-12")
async def test_the_client_library_changes_a_job_at_a_server(tmp_path: Path) -> None:
    with background_scheduler(tmp_path / "gnomon.db", server__mcp="changes") as server:
        token = (tmp_path / "gnomon.db.token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        for mode in ("auto", "legacy"):
            async with (
                httpx2.AsyncClient(headers={**headers, MODEL_HEADER: mode}) as http,
                Client(streamable_http_client(f"{server.address}/mcp", http_client=http), mode=mode) as client,
            ):
                assert [tool.name for tool in (await client.list_tools()).tools] == list(VERBS)
                job = {"name": f"tidy-{mode}", "schedule": "@yearly", "command": "ls"}
                added = await client.call_tool("register_job", {"job": job})
                assert not added.is_error
        async with AsyncClient(str(server.address), token=token) as reader:
            jobs = [(one.job, one.origin) async for one in reader.jobs()]
            audit = [(one.actor, one.action) async for one in reader.audit(kind="job")]

    assert jobs == [("tidy-auto", "mcp"), ("tidy-legacy", "mcp")]
    assert audit == [("model:legacy", "register"), ("model:auto", "register")]


@pytest.mark.req("H-22")
@pytest.mark.parametrize("origin", ["http://[", "http://evil.example", "null", "http://testserver@evil.example"])
async def test_a_page_of_another_site_sends_no_message(origin: str) -> None:
    async with serving() as api_setup, api_setup.caller("admin") as admin:
        answered = await admin.post("/mcp", message("tools/list", {}), Origin=origin)

    assert answered.status_code == 403


class CountedDryRuns:
    """Dry runs that end when they are told to."""

    def __init__(self) -> None:
        self.days: list[int] = []
        self._running = 0
        self.began, self.turn = asyncio.Event(), asyncio.Semaphore(0)

    async def run(self, request: bytes) -> bytes:
        """See DryRunner.run."""
        self.began.set()
        self.days.append(json.loads(request)["days"])
        self._running += 1
        assert self._running == 1
        await self.turn.acquire()
        self._running -= 1
        raise UsageError("no report")


@pytest.mark.req("H-22")
async def test_simulations_of_one_caller_hold_up_another_by_one_of_them_also_through_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dry_runs, jobs, asked = CountedDryRuns(), [JOB], list[str]()
    slot_for = RequestSlots.slot

    def noted(slots: RequestSlots, route: ApiRoute, caller: Caller, *, size: int) -> AbstractAsyncContextManager[None]:
        asked.append(route.name)
        return slot_for(slots, route, caller, size=size)

    monkeypatch.setattr(RequestSlots, "slot", noted)
    # The name of a tool may be written with escapes.
    called = json.dumps(message("tools/call", {"name": "simulate_jobs", "arguments": {"jobs": jobs, "days": 2}}))
    escaped = called.replace("simulate_jobs", "simulate\\u005fjobs").encode()
    async with serving() as api_setup:
        api_setup.put(replace(api_setup.services, dry_runner=dry_runs))
        async with api_setup.caller("viewer") as viewer, api_setup.caller("viewer/b") as other:
            first = asyncio.ensure_future(viewer.post("/v1/simulate", {"jobs": jobs, "days": 1}))
            await dry_runs.began.wait()
            waiting = asyncio.gather(
                viewer.ask("POST", "/mcp", raw=escaped),
                viewer.post("/v1/simulate", {"jobs": jobs, "days": 3}),
                other.post("/v1/simulate", {"jobs": jobs, "days": 4}),
            )
            while asked.count("simulate_jobs") < 4:  # noqa: ASYNC110 - who waits for a slot tells nobody
                await asyncio.sleep(0.001)
            for _ in range(4):
                dry_runs.turn.release()
            await asyncio.gather(first, waiting)

    assert dry_runs.days[:2] == [1, 4]
    assert sorted(dry_runs.days) == [1, 2, 3, 4]
