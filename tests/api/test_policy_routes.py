"""The policy over HTTP, and its decisions about an execution."""

import pytest

from gnomon.core.policy.ruling import PolicyDecision, Ruling
from gnomon.core.runs.states import TaskState
from support.api_fixture import ApiCaller, ApiFixture
from support.task_steps import admission

FILE = "default_decision: deny\nrules: [{id: reports, match: {topics: ['reports.*']}, decision: allow}]"


@pytest.mark.req("R-02")
async def test_a_policy_is_applied_shown_listed_and_compared(admin: ApiCaller) -> None:
    applied = (await admin.post("/v1/policy", {"body": FILE})).json()
    compared = (await admin.post("/v1/policy/diff", {"body": "default_decision: allow"})).json()
    shown, listed = (await admin.get("/v1/policy")).json(), (await admin.get("/v1/policy/versions")).json()["items"]

    assert (applied["version"], applied["rules"], applied["author"]) == (1, 1, "admin@example.com")
    assert shown == {key: value for key, value in applied.items() if key in listed[0]} | {"body": FILE}
    assert compared["version"] == 1
    assert [(one["rule"], one["change"]) for one in compared["changes"]] == [
        ("reports", "removed"),
        ("default", "changed"),
    ]


@pytest.mark.req("R-02")
async def test_a_broken_policy_is_refused_with_its_line(admin: ApiCaller) -> None:
    refused = await admin.post("/v1/policy", {"body": FILE.replace("allow", "perhaps")})

    assert refused.status_code == 422
    assert "line 2, column" in refused.json()["detail"]
    assert (await admin.get("/v1/policy")).status_code == 404


async def test_a_policy_that_was_compared_with_another_version_is_refused(admin: ApiCaller) -> None:
    await admin.post("/v1/policy", {"body": FILE})

    assert (await admin.post("/v1/policy", {"body": "# more\n" + FILE, "expected": 0})).status_code == 412


@pytest.mark.parametrize("body", [{}, {"body": 1}, {"body": FILE, "expected": -1}, {"body": FILE, "more": 1}])
async def test_a_request_that_is_none_is_refused(admin: ApiCaller, body: dict[str, object]) -> None:
    assert (await admin.post("/v1/policy", body)).status_code == 422


@pytest.mark.req("R-02", "H-20")
async def test_only_the_tenant_of_the_operator_sees_and_changes_the_policy(api_setup: ApiFixture) -> None:
    async with api_setup.caller("admin/acme") as other:
        statuses = [
            (await other.post("/v1/policy", {"body": FILE})).status_code,
            (await other.post("/v1/policy/diff", {"body": FILE})).status_code,
            (await other.get("/v1/policy")).status_code,
            (await other.get("/v1/policy/versions")).status_code,
        ]

    assert statuses == [403] * 4
    assert await api_setup.store.policies.newest() is None


@pytest.mark.req("R-02")
async def test_the_decisions_about_an_execution_are_listed_for_its_tenant_alone(
    api_setup: ApiFixture, admin: ApiCaller
) -> None:
    await admin.registered()
    execution = await admin.triggered()
    store = api_setup.store
    [ready] = await store.tasks.waiting(api_setup.clock.now(), limit=10)
    denied = Ruling(decision=PolicyDecision.DENY, rule="never", version=3, digest=b"\x01" * 32, reason="no")
    one = admission(
        ready.task,
        schedule_uid=ready.run.schedule_uid,
        state=TaskState.DENIED,
        dead_letter="x",
        note="n",
        ruling=denied,
    )
    await store.tasks.admit([one], now=api_setup.clock.now())

    [task] = (await admin.get(f"/v1/executions/{execution}/decisions")).json()["items"]
    async with api_setup.caller("admin/acme") as other:
        unseen = await other.get(f"/v1/executions/{execution}/decisions")

    [decision] = task["decisions"]
    assert (task["step"], decision["decision"], decision["rule"], decision["version"]) == ("main", "deny", "never", 3)
    assert (decision["code"], decision["digest"]) == ("safety_denied", "01" * 32)
    assert unseen.status_code == 404
