"""Every route that changes something leaves entries in the audit trail."""

from typing import Any

import pytest

from gnomon.api.routes import ROUTES
from gnomon.core.model import DAY_MS, Result
from support.api_fixture import JOB, ApiCaller, ApiFixture

_STRETCH = {"from": "2026-03-03T00:00:00Z", "to": "2026-03-05T12:00:00Z"}
_GRAPH = {"workflow_id": "etl", "steps": [{"step": "a", "function": "f"}]}
_TIMER = {"schedule_id": "nightly", "workflow_id": "etl", "schedule": "@daily"}
_START = {"workflow_id": "etl", "version": 1, "scheduled_for": "2026-03-02T02:00:00Z", "idempotency_key": "monday"}
_ALL = {"jobs": [{"name": "new", "schedule": "@daily", "function": "f"}], "prune": True}
_JOB = "job report"
#: The body for each route that changes something, and the expected audit entries.
CHANGES: dict[str, tuple[str, object, list[str]]] = {
    "register_job": ("/v1/jobs", {**JOB, "name": "other"}, ["deploy workflow other", "register job other"]),
    "update_job": ("/v1/jobs/report", {**JOB, "schedule": "@weekly"}, [f"update {_JOB}"]),
    "delete_job": ("/v1/jobs/report", None, [f"delete {_JOB}"]),
    "trigger_job": ("/v1/jobs/report/trigger", {}, [f"trigger {_JOB}"]),
    "pause_job": ("/v1/jobs/report/pause", None, [f"pause {_JOB}"]),
    "resume_job": ("/v1/jobs/stopped/resume", {}, ["resume job stopped"]),
    "pause_jobs": ("/v1/bulk/jobs/pause?q=report", None, [f"pause {_JOB}"]),
    "resume_jobs": ("/v1/bulk/jobs/resume", {"names": ["stopped", "report"]}, ["resume job stopped"]),
    "trigger_jobs": ("/v1/bulk/jobs/trigger", {"names": ["report"]}, [f"trigger {_JOB}"]),
    "cancel_executions": (
        "/v1/bulk/executions/cancel",
        {"ids": ["{execution}"]},
        ["cancel execution {execution}"],
    ),
    "skip_tick": ("/v1/jobs/report/skip", {"at": "2026-03-06T09:00:00Z"}, [f"skip {_JOB}"]),
    "unskip_tick": ("/v1/jobs/report/unskip", {"at": "2026-03-07T09:00:00Z"}, [f"skip {_JOB}"]),
    "apply_jobs": (
        "/v1/apply",
        _ALL,
        [
            "deploy workflow new",
            "register job new",
            f"delete {_JOB}",
            "delete job stopped",
            "delete job pusher",
            "delete job tagger",
            "delete job trip",
        ],
    ),
    "start_policy_shadow": ("/v1/policy/shadow", {"body": "default_decision: allow"}, ["register policy shadow-2"]),
    "stop_policy_shadow": ("/v1/policy/shadow/stop", {}, ["delete policy shadow-1"]),
    "promote_policy_shadow": (
        "/v1/policy/shadow/promote",
        {},
        ["delete policy shadow-1", "register policy version-1"],
    ),
    "apply_policy": ("/v1/policy", {"body": "default_decision: allow"}, ["register policy version-1"]),
    "release_held_output": ("/v1/quarantine/{held}/release", {"reason": "an example"}, ["release output {held}"]),
    "discard_held_output": ("/v1/quarantine/{held}/discard", {}, ["discard output {held}"]),
    "ask_for_approval": ("/v1/approvals", {"job": "pusher"}, ["ask approval {made}"]),
    "revoke_approval": ("/v1/approvals/{commands}/revoke", None, ["revoke approval {commands}"]),
    "approve": (
        "/v1/approvals/{approval}/approve",
        {"digest": "{digest}"},
        ["approve approval {approval}"],
    ),
    "reject": (
        "/v1/approvals/{approval}/reject",
        {"digest": "{digest}", "reason": "no"},
        ["reject approval {approval}"],
    ),
    "override_approval": (
        "/v1/approvals/{approval}/override",
        {"digest": "{digest}", "reason": "now"},
        ["override approval {approval}"],
    ),
    "start_backfill": ("/v1/jobs/report/backfill", _STRETCH, [f"backfill {_JOB}"]),
    "cancel_backfill": ("/v1/backfills/{backfill}/cancel", None, ["cancel backfill {backfill}"]),
    "roll_back_execution": (
        "/v1/executions/{booking}/rollback",
        {"reason": "wrong"},
        ["rollback execution {booking}"],
    ),
    "cancel_execution": ("/v1/executions/{execution}/cancel", None, ["cancel execution {execution}"]),
    "submit_task": ("/v1/tasks", {"function": "f"}, ["deploy workflow {task}", "trigger workflow {task}"]),
    "replay_dead_letters": ("/v1/dead-letters/replay-all", None, [f"replay {_JOB}", f"replay {_JOB}"]),
    "resolve_dead_letters": (
        "/v1/dead-letters/resolve-all?job=report",
        None,
        ["resolve dead_letter {letter}", "resolve dead_letter {other_letter}"],
    ),
    "replay_dead_letter": ("/v1/dead-letters/{letter}/replay", None, [f"replay {_JOB}"]),
    "resolve_dead_letter": ("/v1/dead-letters/{letter}", {"resolved": True}, ["resolve dead_letter {letter}"]),
    "retry_announcement": (
        "/v1/announcements/{announcement}/retry",
        None,
        ["retry announcement {announcement}"],
    ),
    "reset_breaker": ("/v1/breakers/stripe/reset", None, ["reset breaker stripe"]),
    "issue_sign_in_code": ("/v1/sign-in-codes", None, ["issue sign_in_code admin@example.com"]),
    "clear_session": ("/v1/sessions/triage/clear", None, ["delete session triage"]),
    "upsert_schedule": ("/v1/schedules/upsert", {**_TIMER, "schedule": "@weekly"}, ["update job nightly"]),
    "pause_schedule": ("/v1/schedules/pause", {"schedule_id": "nightly", "paused": True}, ["pause job nightly"]),
    "delete_schedule": ("/v1/schedules/nightly", None, ["delete job nightly"]),
    "start_run": ("/v1/run-launcher/start", _START, ["trigger workflow etl"]),
    "deploy_workflow": ("/v1/workflows", {**_GRAPH, "workflow_id": "elt"}, ["deploy workflow elt"]),
    "revoke_tokens": ("/v1/tokens/revoke", {"token_id": "tok_1"}, ["revoke token tok_1"]),
    "emit_event": ("/v1/events", {"name": "model.drift", "key": "once"}, ["emit event model.drift"]),
}
#: Routes that take a body and change nothing.
_LOOKING = {"plan_jobs", "simulate_jobs", "preview_backfill", "diff_policy", "explain_policy", "replay_policy",
    "answer_model",
}  # fmt: skip
#: Routes that are not idempotent without a key.
_EACH_ANEW = {"issue_sign_in_code", "trigger_job", "trigger_jobs", "submit_task", "start_backfill"}


@pytest.fixture
async def known(api_setup: ApiFixture, admin: ApiCaller) -> dict[str, str]:
    """One object of each kind that can be changed, and their names."""
    await admin.registered(overlap="allow")
    await admin.registered(name="stopped")
    await admin.post("/v1/jobs/stopped/pause")
    await admin.post("/v1/jobs", {"name": "tagger", "command": "git tag v1"})
    await admin.post("/v1/jobs", {"name": "pusher", "command": "git tag v2"})
    commands = (await admin.post("/v1/approvals", {"job": "tagger"})).json()
    await admin.post(f"/v1/approvals/{commands['approval_id']}/approve", {"digest": commands["digest"]})
    await admin.post("/v1/workflows", _GRAPH)
    await admin.post("/v1/schedules/upsert", _TIMER)
    await admin.post("/v1/policy/shadow", {"body": "default_decision: deny"})
    await admin.post("/v1/jobs/report/pause")
    api_setup.clock.advance(3 * DAY_MS)
    await admin.post("/v1/jobs/report/resume")
    await admin.post("/v1/jobs/report/skip", {"at": "2026-03-07T09:00:00Z"})
    api_setup.keep_turn()
    await api_setup.open_breaker()
    execution, failed = await admin.triggered(), await admin.triggered()
    asked = await api_setup.ask_for_approval(await admin.triggered(), self_approval=True)
    await api_setup.finish_execution(failed, Result.FAILED, error="disk full")
    held = await api_setup.hold_back_output(await admin.triggered())
    announcement = await api_setup.given_up_announcement()
    letters = (await admin.get("/v1/dead-letters")).json()["items"]
    return {
        "execution": execution,
        "booking": await _booked(api_setup, admin),
        "approval": asked.approval_id,
        "held": held,
        "digest": asked.digest,
        "commands": commands["approval_id"],
        "announcement": announcement,
        "letter": letters[0]["dead_letter_id"],
        "other_letter": letters[1]["dead_letter_id"],
        "backfill": (await admin.post("/v1/jobs/report/backfill", _STRETCH)).json()["backfill_id"],
    }


async def _booked(api_setup: ApiFixture, admin: ApiCaller) -> str:
    """An execution that has ended and can be rolled back."""
    flight = {"step": "flight", "function": "book", "compensate": {"function": "cancel"}}
    await admin.post("/v1/jobs", {"name": "trip", "dag": [flight]})
    execution = await admin.triggered("trip")
    definition = await api_setup.store.jobs.workflow("default", "trip", None)
    await api_setup.finish_execution(execution, definition=definition)
    return execution


async def entries(admin: ApiCaller) -> list[dict[str, Any]]:
    return list((await admin.get("/v1/audit?limit=1000")).json()["items"])


async def changed(admin: ApiCaller, name: str, known: dict[str, str]) -> list[dict[str, Any]]:
    """The audit entries that one request leaves."""
    before = len(await entries(admin))
    path, body, _ = CHANGES[name]
    [route] = [one for one in ROUTES if one.name == name]
    if isinstance(body, dict) and "ids" in body:
        body = {"ids": [one.format(**known) for one in body["ids"]]}
    if isinstance(body, dict) and "digest" in body:
        body = {**body, "digest": known["digest"]}
    answer = await admin.ask(route.method, path.format(**known), body)
    assert answer.status_code in (*route.success, 404, 409, 422), answer.text
    now = await entries(admin)
    return now[: len(now) - before]


@pytest.mark.req("H-23")
@pytest.mark.parametrize("name", CHANGES)
async def test_every_change_leaves_one_entry_for_each_thing_that_it_changes(
    admin: ApiCaller, known: dict[str, str], name: str
) -> None:
    found = await changed(admin, name, known)

    task = next((one["name"] for one in found if one["name"].startswith("task.")), "")
    made = next((one["name"] for one in found if one["name"].startswith("apr_")), "")
    wanted = [one.format(**known, task=task, made=made) for one in CHANGES[name][2]]
    assert sorted(f"{one['action']} {one['kind']} {one['name']}" for one in found) == sorted(wanted)
    assert {one["actor"] for one in found} == {"admin@example.com"}


@pytest.mark.req("H-23")
async def test_a_caller_cannot_choose_the_actor(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.post("/v1/workflows", _GRAPH)
    forged = {**_START, "user_id": "alice-the-ceo"}
    async with api_setup.caller("operator") as operator:
        await operator.post("/v1/run-launcher/start", forged)

    entry = (await entries(admin))[0]
    assert (entry["actor"], entry["details"]["user_id"]) == ("operator@example.com", "alice-the-ceo")
    execution = (await admin.get(f"/v1/executions/{entry['details']['execution']}")).json()
    assert (execution["actor"], execution["user_id"]) == ("operator@example.com", "alice-the-ceo")


@pytest.mark.parametrize("name", ["trigger_job", "submit_task", "emit_event", "start_backfill", "start_run"])
@pytest.mark.parametrize("field", ["actor", "by", "requested_by", "subject"])
async def test_a_body_that_names_an_actor_is_refused(admin: ApiCaller, name: str, field: str) -> None:
    await admin.registered()
    path, body, _ = CHANGES[name]

    refused = await admin.post(path, {**dict(body), field: "alice-the-ceo"})  # type: ignore[call-overload]

    assert refused.status_code == 422
    assert "alice-the-ceo" not in {one["actor"] for one in await entries(admin)}


@pytest.mark.req("H-23")
@pytest.mark.parametrize("name", [name for name in CHANGES if name not in _EACH_ANEW])
async def test_a_repeated_request_without_effect_leaves_no_entry(
    admin: ApiCaller, known: dict[str, str], name: str
) -> None:
    await changed(admin, name, known)

    assert await changed(admin, name, known) == []


@pytest.mark.req("H-23")
def test_every_route_that_changes_something_is_in_the_table() -> None:
    assert set(CHANGES) | _LOOKING == {route.name for route in ROUTES if route.method != "GET"}
