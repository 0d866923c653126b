"""A caller of another tenant reads and changes nothing, on every route."""

from typing import Any

import pytest

from gnomon.api.route import ApiRoute
from gnomon.api.routes import ROUTES
from gnomon.core.model import DAY_MS, Result
from support.api_fixture import ApiCaller, ApiFixture

#: Routes shared by all tenants: health and workers.
SHARED = {"show_health", "show_readiness", "show_liveness", "list_workers", "follow_changes"}
#: Routes that show the caller's own tenant, whatever there is; those of models are tested with their tools.
OF_THE_CALLER = {
    "show_agent_usage",
    "show_caller",
    "show_overview",
    "show_security",
    "answer_model",
    "explain_schedule",
}
#: Routes about what is one for all tenants: only the tenant of the operator may call them.
OF_THE_OPERATOR = {"show_policy", "list_policy_versions", "list_budgets", "diff_policy", "apply_policy",
    "replay_policy", "show_policy_shadow", "start_policy_shadow", "stop_policy_shadow", "promote_policy_shadow",
}  # fmt: skip
#: Routes that create an object of the caller's own tenant.
OWN = {
    "register_job", "apply_jobs", "plan_jobs", "upsert_schedule", "deploy_workflow", "emit_event", "submit_task",
    "start_run", "replay_dead_letters", "resolve_dead_letters", "revoke_tokens", "simulate_jobs",
    "issue_sign_in_code",
}  # fmt: skip
#: Routes that name an object in the body of the request, and the field that does.
NAMED_IN_BODY = {
    "pause_schedule": "schedule_id", "ask_for_approval": "job",
    "pause_jobs": "names", "resume_jobs": "names", "trigger_jobs": "names", "cancel_executions": "ids",
}  # fmt: skip
LISTS = {
    "list_jobs", "list_planned_fires", "list_ticks", "list_executions", "list_dead_letters",
    "list_dead_letter_groups", "list_events",
    "list_workflows", "list_backfills", "list_audit_entries", "list_tokens", "list_announcements",
    "show_calendar", "list_sessions", "list_breakers", "list_approvals", "list_held_outputs",
}  # fmt: skip


@pytest.fixture
async def known(api_setup: ApiFixture, admin: ApiCaller) -> dict[str, str]:
    """One object of each kind, of one tenant, and their names."""
    await admin.registered(overlap="allow")
    await admin.post("/v1/jobs/report/pause")
    api_setup.clock.advance(3 * DAY_MS)
    await admin.post("/v1/jobs/report/resume")
    await admin.post("/v1/tokens/revoke", {"token_id": "tok_of_report"})
    execution, failed = await admin.triggered(), await admin.triggered()
    await api_setup.finish_execution(failed, Result.FAILED, error="disk full")
    stretch = {"from": "2026-03-03T00:00:00Z", "to": "2026-03-05T12:00:00Z"}
    api_setup.keep_turn("triage")
    await api_setup.open_breaker("report")
    return {
        "session": "triage",
        "held": await api_setup.hold_back_output(await admin.triggered()),
        "approval": (await api_setup.ask_for_approval(await admin.triggered())).approval_id,
        "execution": execution,
        "announcement": await api_setup.given_up_announcement(),
        "letter": (await admin.get("/v1/dead-letters")).json()["items"][0]["dead_letter_id"],
        "backfill": (await admin.post("/v1/jobs/report/backfill", stretch)).json()["backfill_id"],
        "event": (await admin.post("/v1/events", {"name": "model.drift"})).json()["event_id"],
    }


def path_of(route: ApiRoute, known: dict[str, str]) -> str:
    thing = {
        "executions": "execution", "dead-letters": "letter", "backfills": "backfill", "events": "event",
        "announcements": "announcement", "sessions": "session", "approvals": "approval", "quarantine": "held",
    }  # fmt: skip
    name = known.get(thing.get(route.path.split("/")[2], ""), "report")
    return route.path.replace("{name}", "report").replace("{id}", name).replace("{step}", "main")


def body_of(route: ApiRoute) -> dict[str, Any]:
    assert route.body is not None
    body, field = dict(route.body.example), NAMED_IN_BODY.get(route.name)
    if field in ("names", "ids"):
        return {field: ["report"]}
    return body if field is None else body | {field: "report"}


async def everything(api_setup: ApiFixture) -> list[Any]:
    """Everything that the owner sees, in order of time."""
    async with api_setup.caller("admin") as owner:
        names = (
            "jobs",
            "executions",
            "dead-letters",
            "backfills",
            "announcements",
            "breakers",
            "approvals",
            "quarantine",
        )
        return [(await owner.get(f"/v1/{name}")).json() for name in names]


@pytest.mark.parametrize(
    "route", [one for one in ROUTES if one.name not in SHARED | OF_THE_CALLER], ids=lambda one: one.name
)
async def test_objects_of_another_tenant_are_neither_seen_nor_changed(
    api_setup: ApiFixture, known: dict[str, str], route: ApiRoute
) -> None:
    before = await everything(api_setup)
    async with api_setup.caller("admin/other") as other:
        body = None if route.body is None else body_of(route)
        answer = await other.ask(route.method, path_of(route, known), body)

    assert await everything(api_setup) == before
    if route.name in LISTS:
        assert (answer.status_code, answer.json()["items"]) == (200, [])
    elif route.name in OF_THE_OPERATOR:
        assert answer.status_code == 403, answer.text
    elif route.name not in OWN:
        assert answer.status_code == 404, answer.text
    # An answer of 404 repeats the name that was asked for.
    asked = "report" if route.name in NAMED_IN_BODY else [*path_of(route, known).split("/"), ""][3]
    for name in known.values():
        assert name not in answer.text.replace(asked if answer.status_code == 404 else "", "")


@pytest.mark.parametrize("route", [one for one in ROUTES if one.name in LISTS], ids=lambda one: one.name)
async def test_its_owner_sees_what_others_do_not(api_setup: ApiFixture, known: dict[str, str], route: ApiRoute) -> None:
    async with api_setup.caller("admin") as owner:
        listed = (await owner.get(path_of(route, known))).json()["items"]

    assert listed


def test_every_route_is_in_one_of_the_tables_or_names_something() -> None:
    nameless = {route.name for route in ROUTES if "{" not in route.path}

    assert nameless == NAMED_IN_BODY.keys() | SHARED | OF_THE_CALLER | OF_THE_OPERATOR | OWN | LISTS
