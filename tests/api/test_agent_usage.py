"""The usage of agents over the API and at the command line."""

from gnomon.core.agents.rules import AgentSpending
from support.api_fixture import ApiCaller, ApiFixture

SPENT = AgentSpending(requests=2, input_tokens=900, output_tokens=100, cost_micros=2500, model="openai:small")

TRIAGE = {"name": "triage", "agent": {"prompt": "Sort the errors.", "model": "openai:small"}}


async def test_the_usage_is_shown_by_day_and_model(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    await api_setup.finish_execution(await admin.triggered(), usage=SPENT)

    found = (await admin.get("/v1/agents/usage?days=1")).json()
    [listed] = (await admin.get("/v1/executions")).json()["items"]
    shown = (await admin.get(f"/v1/executions/{listed['execution_id']}")).json()

    [day] = found["days"]
    assert (day["model"], day["attempts"], day["requests"], day["cost"]) == ("openai:small", 1, 2, 0.0025)
    assert [(one["tokens"], one["cost"]) for one in (listed, shown)] == [(1000, 0.0025)] * 2
    assert [(one["job"], one["attempts"], one["cost"]) for one in found["jobs"]] == [("report", 1, 0.0025)]
    assert (found["cost_today"], found["max_cost_per_day"]) == (0.0025, None)


async def test_the_number_of_days_has_bounds(admin: ApiCaller) -> None:
    assert (await admin.get("/v1/agents/usage?days=0")).status_code == 422


async def test_a_job_shows_the_usage_of_its_agents(api_setup: ApiFixture, admin: ApiCaller) -> None:
    await admin.registered()
    await admin.post("/v1/jobs", TRIAGE)
    unused = (await admin.get("/v1/jobs/triage")).json()
    for _ in range(2):
        started = (await admin.post("/v1/jobs/triage/trigger", {})).json()["execution_id"]
        await api_setup.finish_execution(started, usage=SPENT)

    shown = (await admin.get("/v1/jobs/triage")).json()
    other = (await admin.get("/v1/jobs/report")).json()

    assert unused["agents"]["attempts"] == 0
    expected = {"days": 30, "attempts": 2, "requests": 4, "input_tokens": 1800, "output_tokens": 200, "cost": 0.005}
    assert shown["agents"] == expected
    assert other["agents"] is None
