"""The policy of commands over HTTP: checks of new definitions, approvals, the budget, and read-only autonomy."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gnomon.api.routes import ROUTES
from gnomon.config.sections import SecuritySettings
from gnomon.core.commands.policy import Autonomy
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.origins import origin_of_file, with_origin
from gnomon.core.jobs.schedule_fields import Defaults
from support.api_fixture import ApiCaller, ApiFixture

NIGHTLY: dict[str, Any] = {"name": "nightly", "schedule": "0 4 * * *"}
TAG = {**NIGHTLY, "command": "git tag v1"}


def error_of(answer: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """The only error of a refused request."""
    assert answer.status_code == 422, answer.text
    [error] = answer.json()["errors"]
    return dict(error)


# ---- adding --------------------------------------------------------------------------------------


@pytest.mark.req("Z-04")
@pytest.mark.parametrize(
    ("work", "field", "reason"),
    [
        ({"command": "rm -rf x"}, "command", "command not allowed: rm -rf x"),
        ({"command": "cat /etc/passwd"}, "command", "forbidden path argument: /etc/passwd"),
        ({"command": "echo $(date)"}, "command", "command not allowed: echo $(date)"),
        (
            {"dag": [{"step": "a", "command": "ls"}, {"step": "b", "command": "rm x", "depends_on": ["a"]}]},
            "dag[1].command",
            "command not allowed: rm x",
        ),
    ],
)
async def test_a_command_that_the_policy_would_refuse_is_not_added(
    api_setup: ApiFixture, admin: ApiCaller, work: dict[str, Any], field: str, reason: str
) -> None:
    error = error_of(await admin.post("/v1/jobs", {**NIGHTLY, **work}))

    assert error["field"] == field
    assert error["reason"].startswith(f"is blocked by security policy: {reason}")
    assert "(rule: " in error["reason"]
    assert (await admin.get("/v1/jobs")).json()["items"] == []
    assert await api_setup.store.jobs.workflow("default", "nightly") is None


@pytest.mark.req("Z-04")
async def test_a_plan_has_the_warnings_with_which_the_job_is_added(admin: ApiCaller) -> None:
    planned = (await admin.post("/v1/plan", {"jobs": [TAG]})).json()
    added = (await admin.post("/v1/jobs", TAG)).json()
    again = (await admin.post("/v1/plan", {"jobs": [TAG]})).json()

    [warning] = added["warnings"]
    assert "gnomon approvals ask nightly" in warning
    assert planned["plan"][0]["warnings"] == [warning]
    assert again["plan"][0]["warnings"] == []


@pytest.mark.req("Z-04")
async def test_of_several_jobs_none_is_added_if_one_is_refused(admin: ApiCaller) -> None:
    jobs = [{**NIGHTLY, "command": "ls"}, {"name": "bad", "command": "rm x"}]

    assert error_of(await admin.post("/v1/apply", {"jobs": jobs}))["value"] == "rm x"
    assert (await admin.get("/v1/jobs")).json()["items"] == []


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("steps", ["steps", "nodes"])
async def test_a_workflow_with_such_a_command_is_not_deployed(admin: ApiCaller, steps: str) -> None:
    name = "workflow_id" if steps == "steps" else "id"
    definition = {name: "etl", steps: [{"step": "a", "function": "f"}, {"step": "b", "command": "rm x"}]}

    error = error_of(await admin.post("/v1/workflows", definition))

    assert error["field"] == f"{steps}[1].command"
    assert (await admin.get("/v1/workflows/etl")).status_code == 404


@pytest.mark.req("Z-04")
async def test_a_change_that_the_policy_would_refuse_leaves_the_job_as_it_was(admin: ApiCaller) -> None:
    await admin.post("/v1/jobs", {**NIGHTLY, "command": "ls"})
    before = (await admin.get("/v1/jobs/nightly")).json()

    error_of(await admin.ask("PUT", "/v1/jobs/nightly", {**NIGHTLY, "command": "rm x"}))

    assert (await admin.get("/v1/jobs/nightly")).json() == before


async def test_the_plan_of_a_refused_job_says_so(admin: ApiCaller) -> None:
    error = error_of(await admin.post("/v1/plan", {"jobs": [{**NIGHTLY, "command": "rm x"}]}))

    assert "command not allowed: rm x" in error["reason"]


# ---- approvals -----------------------------------------------------------------------------------


async def test_a_command_of_medium_risk_is_added_with_a_warning(admin: ApiCaller) -> None:
    done = await admin.post("/v1/jobs", TAG)

    [warning] = done.json()["warnings"]
    assert done.status_code == 201
    assert warning.startswith("command: command not allowed: git tag v1")
    assert "gnomon approvals ask nightly" in warning


async def asked(caller: ApiCaller, job: str = "nightly", **body: str) -> dict[str, Any]:
    """The approval of the commands of a job for which the caller asks."""
    answer = await caller.post("/v1/approvals", {"job": job, **body})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def approved(caller: ApiCaller, job: str = "nightly", **body: str) -> dict[str, Any]:
    """The approval of the commands of a job, with the vote of the caller."""
    one = await asked(caller, job, **body)
    answer = await caller.post(f"/v1/approvals/{one['approval_id']}/approve", {"digest": one["digest"]})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_an_approval_is_asked_for_listed_and_shows_the_commands(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.post("/v1/jobs", TAG)

    async with api_setup.caller("operator") as operator:
        one = await asked(operator, reason="it only tags")
        again = await asked(operator)

    [listed] = (await admin.get("/v1/approvals?status=waiting&kind=command")).json()["items"]
    assert (one["status"], one["commands"], one["reason"]) == ("waiting", {"main": "git tag v1"}, "it only tags")
    assert one["needs"]["text"] == "1 person with the role admin"
    assert again == one
    assert listed["approval_id"] == one["approval_id"]


async def test_an_approval_is_shown_audited_and_answers_the_warning(admin: ApiCaller) -> None:
    await admin.post("/v1/jobs", TAG)

    one = await approved(admin, reason="it only tags")

    shown = (await admin.get("/v1/jobs/nightly")).json()
    [line] = (await admin.get("/v1/jobs")).json()["items"]
    entries = (await admin.get("/v1/audit?kind=approval")).json()["items"]
    assert shown["approval"] == {
        "approval_id": one["approval_id"],
        "approved_by": "admin@example.com",
        "approved_at": "2026-03-02T12:00:00Z",
        "reason": "it only tags",
        "digest": one["digest"],
    }
    assert (shown["approved"], line["approved"]) == (True, True)
    assert [(entry["actor"], entry["action"], entry["name"]) for entry in entries] == [
        ("admin@example.com", "approve", one["approval_id"]),
        ("admin@example.com", "ask", one["approval_id"]),
    ]
    changed = await admin.ask("PUT", "/v1/jobs/nightly", {**TAG, "schedule": "0 5 * * *"})
    assert changed.json()["warnings"] == []


@pytest.mark.req("Z-04")
async def test_a_changed_command_has_no_approval(admin: ApiCaller) -> None:
    await admin.post("/v1/jobs", TAG)
    await approved(admin)

    changed = await admin.ask("PUT", "/v1/jobs/nightly", {**TAG, "command": "git tag v2"})

    shown = (await admin.get("/v1/jobs/nightly")).json()
    assert len(changed.json()["warnings"]) == 1
    assert (shown["approved"], shown["approval"]) == (False, None)


async def test_a_revoked_approval_counts_no_more(admin: ApiCaller) -> None:
    await admin.post("/v1/jobs", TAG)
    one = await approved(admin)

    done = await admin.post(f"/v1/approvals/{one['approval_id']}/revoke")
    again = await admin.post(f"/v1/approvals/{one['approval_id']}/revoke")

    assert (done.json()["status"], again.status_code) == ("revoked", 409)
    assert (await admin.get("/v1/jobs/nightly")).json()["approved"] is False


@pytest.mark.req("Z-04")
async def test_commands_that_changed_after_the_question_are_not_approved(admin: ApiCaller) -> None:
    await admin.post("/v1/jobs", TAG)
    one = await asked(admin)
    await admin.ask("PUT", "/v1/jobs/nightly", {**TAG, "command": "git tag v2"})

    answer = await admin.post(f"/v1/approvals/{one['approval_id']}/approve", {"digest": one["digest"]})

    shown = (await admin.get(f"/v1/approvals/{one['approval_id']}")).json()
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:gnomon:problem:approval_changed")
    assert (shown["status"], shown["commands"]) == ("waiting", None)
    assert (await admin.get("/v1/jobs/nightly")).json()["approved"] is False


@pytest.mark.req("Z-04")
async def test_rejected_commands_do_not_run(admin: ApiCaller) -> None:
    await admin.post("/v1/jobs", TAG)
    one = await asked(admin)

    done = await admin.post(f"/v1/approvals/{one['approval_id']}/reject", {"digest": one["digest"], "reason": "no"})

    assert (done.json()["status"], done.json()["votes"][0]["reason"]) == ("rejected", "no")
    assert (await admin.get("/v1/jobs/nightly")).json()["approved"] is False
    assert (await asked(admin))["approval_id"] != one["approval_id"]


async def test_an_approval_of_nothing_is_refused(admin: ApiCaller) -> None:
    await admin.registered(name="plain")

    refused = error_of(await admin.post("/v1/approvals", {"job": "plain"}))
    assert refused["reason"] == "has no command: there is nothing to approve"
    assert (await admin.post("/v1/approvals", {"job": "unknown"})).status_code == 404
    assert error_of(await admin.post("/v1/approvals", {"job": "plain", "reason": "x" * 501}))["field"] == "reason"


@pytest.mark.parametrize("token", ["operator", "viewer"])
async def test_only_an_admin_approves_commands(api_setup: ApiFixture, admin: ApiCaller, token: str) -> None:
    await admin.post("/v1/jobs", TAG)
    one = await asked(admin)
    async with api_setup.caller(token) as somebody:
        path, body = f"/v1/approvals/{one['approval_id']}", {"digest": one["digest"], "reason": "x"}
        answers = [await somebody.post(f"{path}/{verb}", body) for verb in ("approve", "reject")]
        answers.append(await somebody.post(f"{path}/revoke"))

    assert [answer.status_code for answer in answers] == [403] * 3
    assert (await admin.get("/v1/jobs/nightly")).json()["approved"] is False


async def test_commands_are_not_overridden(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.post("/v1/jobs", TAG)
    one = await asked(admin)
    async with api_setup.caller("operator~olga~on-call") as olga:
        body = {"digest": one["digest"], "reason": "now"}
        answer = await olga.post(f"/v1/approvals/{one['approval_id']}/override", body)

    assert "is about commands" in error_of(answer)["reason"]


async def test_the_workflow_of_a_deployment_is_approved_by_its_name_or_that_of_its_schedule(admin: ApiCaller) -> None:
    trigger = {"type": "schedule_based", "id": "night", "cron_expr": "0 4 * * *"}
    definition = {"workflow_id": "etl", "steps": [{"step": "a", "command": "git tag v1"}], "triggers": [trigger]}
    deployed = (await admin.post("/v1/workflows", definition)).json()

    done = await approved(admin, "etl.night")

    assert len(deployed["warnings"]) == 1
    assert (done["job"], done["status"]) == ("etl", "approved")
    assert await asked(admin, "etl") == done


@pytest.mark.req("Z-04")
async def test_no_request_gives_a_schedule_to_commands_of_a_file(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await register_in_file(api_setup, {**NIGHTLY, "command": "echo $(id -u)"})
    request = {"workflow_id": "nightly", "workflow_version": 1, "schedule": "0 5 * * *"}

    for name in ("nightly", "another"):
        error = error_of(await admin.post("/v1/schedules/upsert", {**request, "schedule_id": name}))

        assert (error["field"], error["value"]) == ("workflow_id", "nightly")
        assert error["reason"] == "runs commands of file /etc/gnomon/jobs.yaml: change their schedule there"
    assert (await admin.get("/v1/jobs/nightly")).json()["cron"] == "0 4 * * *"


async def register_in_file(api_setup: ApiFixture, definition: dict[str, Any]) -> None:
    """Register a job as a jobs file does."""
    job = read_job(definition, Defaults(), now=api_setup.clock.now())
    await api_setup.services.jobs.apply(with_origin([job], origin_of_file("/etc/gnomon/jobs.yaml")), actor="ada")


# ---- the budget ----------------------------------------------------------------------------------


@pytest.mark.req("Z-12")
@pytest.mark.parametrize("token", ["viewer", "admin"])
async def test_the_rest_of_the_budget_is_shown(api_setup: ApiFixture, token: str) -> None:
    async with api_setup.caller(token) as somebody:
        shown = await somebody.get("/v1/security")

    assert shown.json() == {"read_only": False, "actions_per_hour": 20, "actions_spent": 0, "actions_left": 20}


# ---- read-only -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def read_only_setup() -> ApiFixture:
    return ApiFixture(security=SecuritySettings(autonomy=Autonomy.READ_ONLY))


@pytest.fixture
async def reader(read_only_setup: ApiFixture) -> AsyncIterator[ApiCaller]:
    async with read_only_setup.caller("admin") as somebody:
        yield somebody


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("route", [route for route in ROUTES if route.changes], ids=lambda route: route.name)
async def test_read_only_refuses_every_change(reader: ApiCaller, route: Any) -> None:  # noqa: ANN401 - a route
    path = "/".join("report" if part.startswith("{") else part for part in route.path.split("/"))
    body = None if route.body is None else route.body.example

    answer = await reader.ask(route.method, path, body)

    assert (answer.status_code, answer.json()["type"]) == (409, "urn:gnomon:problem:read_only")
    assert answer.json()["detail"].startswith("blocked by security policy: autonomy is read-only")


@pytest.mark.req("Z-04")
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/executions", "/v1/security", "/v1/workers", "/v1/dead-letters"])
async def test_listings_answer_while_changes_are_refused(reader: ApiCaller, path: str) -> None:
    assert (await reader.get(path)).status_code == 200


def test_every_route_that_changes_something_is_known_as_such() -> None:
    computing = {
        "plan_jobs",
        "diff_policy",
        "explain_policy",
        "simulate_jobs",
        "replay_policy",
        "preview_backfill",
        "answer_model",
    }
    # A reader may look at the dashboard while the autonomy is read-only.
    signing_in = {"issue_sign_in_code"}

    assert {route.name for route in ROUTES if route.method != "GET" and not route.changes} <= computing | signing_in | {
        route.name for route in ROUTES if route.name.startswith("preview")
    }
