"""The policy over HTTP, and its decisions about an execution."""

import pytest

from gnomon.core.policy.budgets import BudgetUse
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
            (await other.post("/v1/policy/replay", {"body": FILE, "since": 0})).status_code,
            (await other.post("/v1/jobs/report/policy", {"body": FILE})).status_code,
            (await other.get("/v1/policy")).status_code,
            (await other.get("/v1/policy/versions")).status_code,
            (await other.get("/v1/policy/budgets")).status_code,
        ]

    assert statuses == [403] * 7
    assert await api_setup.store.policies.newest() is None


@pytest.mark.req("R-02")
async def test_the_rest_of_each_budget_is_listed_page_by_page(api_setup: ApiFixture, admin: ApiCaller) -> None:
    assert (await admin.get("/v1/policy/budgets")).json() == {"items": [], "next": None}
    await admin.post(
        "/v1/policy", {"body": "budgets: [{id: b, limit: 2, per: 1h, by: [job]}, {id: a, limit: 3, per: 1d}]"}
    )
    await admin.registered()
    await admin.triggered()
    [ready] = await api_setup.store.tasks.waiting(api_setup.clock.now(), limit=10)
    use = BudgetUse(budget="b", scope="job report", meter="tasks", limit=2, per_ms=3_600_000, amount=1)
    allowed = Ruling(decision=PolicyDecision.ALLOW, rule="r", version=1, digest=b"\x01" * 32, budgets=(use,))
    await api_setup.store.tasks.admit(
        [admission(ready.task, schedule_uid=ready.run.schedule_uid, ruling=allowed)], now=api_setup.clock.now()
    )

    first = (await admin.get("/v1/policy/budgets?limit=1")).json()
    second = (await admin.get(first["next"])).json()
    last = (await admin.get(second["next"])).json() if second["next"] else second

    shown = [(one["budget"], one["scope"], one["limit"], one["reserved"], one["left"]) for one in first["items"]]
    assert shown == [("b", "job report", 2, 1, 1)]
    assert [one["budget"] for one in (*second["items"], *last["items"])][-1] == "a"
    assert last["next"] is None


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


GRAPH = [
    {"step": "first", "function": "reports.make"},
    {"step": "second", "function": "pay", "depends_on": ["first"], "input": {"amount": "${steps.first.output}"}},
    {"step": "third", "function": "pay", "depends_on": ["first"], "input": {"amount": 5}},
    {"step": "wait", "delay": "1m", "depends_on": ["first"]},
]
RULES = """
rules:
  - {id: big, match: {topics: [pay]}, when: input.amount > 3, decision: throttle, reason: large}
  - {id: rest, decision: allow}
"""


@pytest.mark.req("R-02")
async def test_a_job_is_explained_step_by_step_and_nothing_is_guessed(admin: ApiCaller) -> None:
    await admin.post("/v1/jobs", {"name": "graph", "dag": GRAPH})
    before = (await admin.post("/v1/jobs/graph/policy")).json()
    by_file = (await admin.post("/v1/jobs/graph/policy", {"body": RULES})).json()
    await admin.post("/v1/policy", {"body": RULES})
    in_force = (await admin.post("/v1/jobs/graph/policy", {})).json()

    assert (before["version"], before["steps"]) == (None, [])
    assert (by_file["version"], in_force["version"], by_file["steps"]) == (0, 1, in_force["steps"])
    assert [(one["step"], one["decision"], one["rule"], one["rules"]) for one in in_force["steps"]] == [
        ("first", "allow", "rest", ["rest"]),
        ("second", None, None, ["big", "rest"]),
        ("third", "throttle", "big", ["big", "rest"]),
    ]
    assert (await admin.post("/v1/jobs/nobody/policy")).status_code == 404


async def test_a_job_is_explained_with_another_input(admin: ApiCaller) -> None:
    await admin.post("/v1/jobs", {"name": "pay", "function": "pay", "input": {"amount": 1}})
    await admin.post("/v1/policy", {"body": RULES})

    own = (await admin.post("/v1/jobs/pay/policy")).json()
    other = (await admin.post("/v1/jobs/pay/policy", {"input": {"amount": 9}})).json()

    assert [found["steps"][0]["rule"] for found in (own, other)] == ["rest", "big"]
    assert (await admin.post("/v1/jobs/pay/policy", {"input": 1})).status_code == 422


@pytest.mark.req("R-02")
async def test_a_file_is_replayed_over_the_history_part_by_part(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    for number in range(3):
        await api_setup.finish_execution(await admin.triggered())
        api_setup.clock.advance(number)
    body = {"body": "default_decision: deny", "since": "2020-01-01T00:00:00Z", "limit": 2}
    first = (await admin.post("/v1/policy/replay", body)).json()
    second = (await admin.post("/v1/policy/replay", {**body, "after": first["after"]})).json()
    nothing = (await admin.post("/v1/policy/replay", {**body, "since": "2100-01-01T00:00:00Z"})).json()

    assert (first["tasks"], first["changed"], second["tasks"], second["after"]) == (2, 2, 1, None)
    [change] = first["changes"]
    assert (change["job"], change["tasks"], change["before"]["decision"], change["after"]) == (
        "report",
        2,
        "allow",
        {"decision": "deny", "rule": "default", "constraints": None},
    )
    assert nothing["tasks"] == 0
    assert await api_setup.store.policies.newest() is None


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"limit": 10_001}, {"since": "soon"}, {"body": "rules: 3"}, {"x": 1}])
async def test_a_replay_that_is_none_is_refused(admin: ApiCaller, wrong: dict[str, object]) -> None:
    body = {"body": FILE, "since": "2020-01-01T00:00:00Z", **wrong}

    assert (await admin.post("/v1/policy/replay", body)).status_code == 422


@pytest.mark.req("R-02")
async def test_a_shadow_is_started_shown_stopped_and_promoted(admin: ApiCaller) -> None:
    none = [
        (await admin.get("/v1/policy/shadow")).status_code,
        (await admin.post("/v1/policy/shadow/stop")).status_code,
    ]
    started = (await admin.post("/v1/policy/shadow", {"body": FILE})).json()
    refused = (await admin.post("/v1/policy/shadow", {"body": "rules: 3"})).status_code
    shown = (await admin.get("/v1/policy/shadow")).json()
    stopped = (await admin.post("/v1/policy/shadow/stop")).json()
    again = (await admin.post("/v1/policy/shadow", {"body": FILE})).json()
    stale = (await admin.post("/v1/policy/shadow/promote", {"expected": 4})).status_code
    promoted = (await admin.post("/v1/policy/shadow/promote")).json()

    assert (none, refused, stale) == ([404, 404], 422, 412)
    assert (started["number"], shown["body"], shown["differences"]) == (1, FILE, [])
    assert (started["ended_at"], stopped["ended_at"] is not None, again["number"]) == (None, True, 2)
    assert (promoted["version"], (await admin.get("/v1/policy")).json()["body"]) == (1, FILE)
    assert (await admin.post("/v1/policy/shadow/promote")).status_code == 404


TIDY = {"name": "tidy", "function": "tidy", "schedule": "0 23 * * *"}
NIGHT = """
default_decision: allow
rules:
  - id: night
    match: { topics: [tidy], window: { cron: "0 22 * * *", lasts: 8h } }
    decision: deny
    reason: nobody watches
"""


@pytest.mark.req("R-02")
async def test_plan_simulation_and_explanation_name_the_rule(admin: ApiCaller) -> None:
    await admin.post("/v1/policy", {"body": NIGHT})
    plan = (await admin.post("/v1/plan", {"jobs": [TIDY]})).json()["plan"][0]
    simulated = (
        await admin.post("/v1/simulate", {"jobs": [TIDY, {**TIDY, "name": "other", "function": "other"}]})
    ).json()
    await admin.post("/v1/jobs", TIDY)
    why = (await admin.get("/v1/jobs/tidy/why")).json()["coming"]

    assert [(one["step"], one["decision"], one["rule"]) for one in plan["policy"]] == [("main", "deny", "night")]
    assert [(one["job"], one["version"]) for one in simulated["policy"]] == [("tidy", 1)]
    assert why["sentence"].endswith("Rule night of policy 1 would deny it: nobody watches.")
