"""Permissions: a table of every route and every role."""

import msgspec
import pytest
from msgspec.structs import replace

from gnomon.api.route import ApiRoute, Permission
from gnomon.api.routes import ROUTES
from gnomon.config.sections import SecretsSettings
from gnomon.ports.auth import Caller, Role
from gnomon.runners.secrets import SecretSource
from support.api_fixture import ApiCaller, ApiFixture

#: The routes of each role, and those without authentication.
EVERYBODY = {"show_health", "show_readiness", "show_liveness"}
VIEWER = {
    "list_jobs", "show_job", "explain_job", "list_planned_fires", "list_ticks", "list_executions", "show_execution",
    "show_agent_usage", "list_sessions", "show_session",
    "list_log_entries", "list_dead_letters", "list_dead_letter_groups",
    "show_dead_letter", "show_schedule", "list_workflows", "show_workflow",
    "list_events", "show_event", "list_workers", "follow_changes", "list_items", "plan_jobs", "preview_backfill",
    "list_backfills", "show_backfill", "show_security", "list_announcements", "show_announcement",
    "list_breakers", "show_breaker",
    "show_policy", "list_policy_versions", "list_budgets", "diff_policy", "list_decisions", "answer_model",
    "simulate_jobs", "explain_schedule",
    "explain_policy", "replay_policy", "show_policy_shadow",
    "list_approvals", "show_approval", "show_caller", "show_overview", "list_revisions", "show_calendar",
    "issue_sign_in_code",
}  # fmt: skip
OPERATOR = VIEWER | {
    "trigger_job", "cancel_execution", "roll_back_execution",
    "trigger_jobs", "cancel_executions",
    "replay_dead_letter", "replay_dead_letters", "resolve_dead_letter", "resolve_dead_letters",
    "start_run", "emit_event", "start_backfill", "cancel_backfill", "retry_announcement", "clear_session",
    "reset_breaker",
    "ask_for_approval", "approve", "reject", "override_approval",
}  # fmt: skip
ADMIN = OPERATOR | {
    "register_job", "update_job", "delete_job", "pause_job", "resume_job", "pause_jobs",
    "resume_jobs", "submit_task", "upsert_schedule",
    "pause_schedule", "delete_schedule", "deploy_workflow", "apply_jobs", "skip_tick", "unskip_tick",
    "list_held_outputs", "show_held_output", "release_held_output", "discard_held_output",
    "list_audit_entries", "list_tokens", "revoke_tokens", "revoke_approval", "apply_policy",
    "start_policy_shadow", "stop_policy_shadow", "promote_policy_shadow",
}  # fmt: skip
MAY = {"nothing": set[str](), "viewer": VIEWER, "operator": OPERATOR, "admin": ADMIN}


async def status_of(somebody: ApiCaller, route: ApiRoute) -> int:
    path = route.path.replace("{name}", "report").replace("{id}", "run_1").replace("{step}", "main")
    body = dict(route.body.example) if route.body is not None else None
    return (await somebody.ask(route.method, path, body)).status_code


@pytest.mark.req("H-20")
@pytest.mark.parametrize("role", MAY)
@pytest.mark.parametrize("route", [one for one in ROUTES if one.name != "follow_changes"], ids=lambda one: one.name)
async def test_every_route_lets_in_those_who_may_and_nobody_else(
    shared_setup: ApiFixture, route: ApiRoute, role: str
) -> None:
    async with shared_setup.caller(role) as somebody:
        status = await status_of(somebody, route)

    assert (status != 403) == (route.name in MAY[role] | EVERYBODY)


@pytest.mark.req("H-20")
@pytest.mark.parametrize("route", [one for one in ROUTES if one.name not in EVERYBODY], ids=lambda one: one.name)
@pytest.mark.parametrize("token", [None, "stolen"])
async def test_an_unknown_caller_is_rejected_by_every_route(
    shared_setup: ApiFixture, route: ApiRoute, token: str | None
) -> None:
    async with shared_setup.caller(token) as somebody:
        path = route.path.replace("{name}", "report").replace("{id}", "run_1").replace("{step}", "main")
        refused = await somebody.ask(route.method, path, {})

    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer")


def test_every_route_is_in_the_table_of_roles() -> None:
    assert {route.name for route in ROUTES} == ADMIN | EVERYBODY


def test_a_route_that_does_not_say_who_may_cannot_be_made() -> None:
    said = {field: getattr(ROUTES[0], field) for field in ROUTES[0].__struct_fields__ if field != "permission"}

    with pytest.raises(TypeError, match="permission"):
        ApiRoute(**said)


def test_only_how_the_scheduler_is_may_be_asked_by_everybody() -> None:
    assert {route.name for route in ROUTES if route.permission is Permission.EVERYBODY} == EVERYBODY


@pytest.mark.req("H-20", "H-23")
async def test_refused_requests_of_a_caller_are_audited_at_intervals(api_setup: ApiFixture, admin: ApiCaller) -> None:
    async with api_setup.caller("viewer") as viewer:
        for name in ("report", "other"):
            await viewer.ask("DELETE", f"/v1/jobs/{name}")
        await viewer.post("/v1/jobs/report/trigger")

    reported = (await admin.get("/v1/audit?action=refuse&kind=request")).json()["items"]
    assert [one["name"] for one in reported] == ["POST /v1/jobs/report/trigger", "DELETE /v1/jobs/report"]
    assert {one["actor"] for one in reported} == {"viewer@example.com"}
    assert reported[1]["details"] == {"reason": "this needs the role admin; your token has viewer"}


async def test_a_missing_permission_is_refused_before_anything_is_read(api_setup: ApiFixture) -> None:
    async with api_setup.caller("viewer") as viewer:
        refused = await viewer.ask("POST", "/v1/jobs", raw=b"[" * 100_000)

    assert refused.status_code == 403


async def test_nobody_sees_or_touches_what_is_another_tenants(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    execution = await admin.triggered()
    async with api_setup.caller("admin/other") as other:
        unseen = [
            await other.get("/v1/jobs/report"),
            await other.get(f"/v1/executions/{execution}"),
            await other.post(f"/v1/executions/{execution}/cancel"),
            await other.ask("DELETE", "/v1/jobs/report"),
        ]
        listed = [(await other.get(path)).json()["items"] for path in ("/v1/jobs", "/v1/executions", "/v1/schedule")]
        free = await other.post("/v1/jobs", {"name": "report", "function": "f"})

    assert [one.status_code for one in unseen] == [404, 404, 404, 404]
    assert listed == [[], [], []]
    assert free.status_code == 201


async def test_an_object_of_another_tenant_is_answered_like_a_missing_one(
    api_setup: ApiFixture, admin: ApiCaller
) -> None:
    await admin.registered()
    execution = await admin.triggered()
    async with api_setup.caller("admin/other") as other:
        foreign = (await other.get(f"/v1/executions/{execution}")).text.replace(execution, "X")
        missing = (await other.get("/v1/executions/run_none")).text.replace("run_none", "X")

    assert foreign == missing


async def test_two_tokens_are_one_too_many(api_setup: ApiFixture) -> None:
    async with api_setup.caller(None) as somebody:
        client = somebody._client  # noqa: SLF001 - headers twice are nothing that a caller does by itself
        twice = [("Authorization", "Bearer viewer"), ("Authorization", "Bearer admin")]
        refused = await client.get("/v1/jobs", headers=twice)

    assert refused.status_code == 401


@pytest.mark.parametrize("said", ["admin", "Basic YWRtaW4=", "Bearer", "Bearer ", "Bearer " + "x" * 10_000])
async def test_only_bearer_tokens_authenticate(api_setup: ApiFixture, said: str) -> None:
    async with api_setup.caller(None) as somebody:
        assert (await somebody.get("/v1/jobs", Authorization=said)).status_code == 401


@pytest.mark.parametrize("path", ["/v1/jobs?access_token=admin", "/v1/jobs?token=admin"])
async def test_a_token_in_the_address_lets_nobody_in(api_setup: ApiFixture, path: str) -> None:
    async with api_setup.caller(None) as somebody:
        assert (await somebody.get(path)).status_code == 401


class _Open:
    """Gives every caller the role admin, as on a developer's machine."""

    async def caller(self, token: str) -> Caller:
        del token
        return Caller("anybody", frozenset({Role.ADMIN}))


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://gnomon.evil.example", "http://gnomon:1"])
async def test_a_page_of_another_site_changes_nothing_where_no_token_is_needed(
    api_setup: ApiFixture, origin: str
) -> None:
    api_setup.put(replace(api_setup.services, tokens=_Open()))
    async with api_setup.caller(None) as browser:
        await browser.registered()
        refused = await browser.post("/v1/jobs/report/trigger", Origin=origin)
        executions = (await browser.get("/v1/executions")).json()["items"]

    assert (refused.status_code, refused.json()["type"]) == (403, "urn:gnomon:problem:other_site")
    assert executions == []


async def test_a_page_of_our_own_and_whoever_shows_a_token_may(api_setup: ApiFixture) -> None:
    async with api_setup.caller("admin") as admin:
        await admin.registered(overlap="allow")
        elsewhere = await admin.post("/v1/jobs/report/trigger", Origin="https://ui.example")
    api_setup.put(replace(api_setup.services, tokens=_Open()))
    async with api_setup.caller(None) as browser:
        here = await browser.post("/v1/jobs/report/trigger", Origin="http://gnomon")

    assert (elsewhere.status_code, here.status_code) == (202, 202)


async def test_headers_from_outside_make_nobody_somebody_else(api_setup: ApiFixture) -> None:
    claims = {
        "X-Tenant": "other",
        "X-Forwarded-User": "root",
        "X-Original-URL": "/v1/jobs/report",
        "X-HTTP-Method-Override": "DELETE",
    }
    async with api_setup.caller("admin") as admin:
        await admin.registered()
    async with api_setup.caller("viewer") as viewer:
        seen = await viewer.get("/v1/jobs/report", **claims)

    assert (seen.status_code, seen.json()["job"]) == (200, "report")


@pytest.mark.req("H-20", "H-22")
@pytest.mark.parametrize("given", [{"url": "https://evil.example/${secret:API_TOKEN}"}, {"a": [{"b": "${secret:X}"}]}])
async def test_the_input_of_a_trigger_is_data_and_names_no_secret(
    api_setup: ApiFixture, given: dict[str, object]
) -> None:
    secrets = SecretSource(SecretsSettings(allow=("API_TOKEN", "X")), {"API_TOKEN": "hunter22", "X": "hunter22"})
    async with api_setup.caller("admin") as admin, api_setup.caller("operator") as operator:
        await admin.registered(overlap="allow", input={"authorization": "Bearer ${secret:API_TOKEN}"})
        for caller in (admin, operator):
            started = await caller.post("/v1/jobs/report/trigger", {"input": given})
            execution = started.json()["execution_id"]
            stored = await api_setup.store.executions.payload(execution, "input")
            shown = (await caller.get(f"/v1/executions/{execution}")).json()["input"]

            assert stored is not None
            assert secrets.resolve(msgspec.json.decode(stored), tenant="default", job="report") == (given, {})
            assert shown == given
