"""The facts about a task, and the digest of exactly what is asked."""

from typing import Any

import pytest
from msgspec.structs import replace

from gnomon.core.agents.spec import AgentSpec
from gnomon.core.policy.constraints import Constraints
from gnomon.core.policy.facts import facts_of, request_digest, step_facts
from gnomon.core.runs.admission import AdmissionRequest, ReadyTask
from gnomon.core.runs.states import TaskState
from gnomon.core.runs.workflow import AGENT, HTTP, SHELL, RoutingRequirements, Step, Workflow
from support.running_assignments import running_assignment


def request(given: dict[str, Any] | None = None, **changes: Any) -> AdmissionRequest:  # noqa: ANN401 - fields of the step
    one = running_assignment()
    step = replace(one.step, **changes)
    waiting = ReadyTask(task=replace(one.task, state=TaskState.PENDING), run=one.run)
    workflow = replace(one.workflow, steps=(step,))
    return AdmissionRequest(waiting=waiting, workflow=workflow, step=step, input=given or {})


@pytest.mark.req("R-02")
def test_the_facts_are_those_of_run_and_step() -> None:
    route = RoutingRequirements(topic="db.drop", requires=("gpu",), labels={"env": "prod"})
    asked = request({"n": 1}, capability="db.write", risk_tags=("destructive",), route=route)

    facts = facts_of(asked)

    assert (facts.step.tenant, facts.step.job, facts.step.workflow) == ("default", "report", "report")
    assert (facts.step.topic, facts.step.function, facts.step.kind) == ("db.drop", "f", "function")
    assert (facts.step.capability, facts.step.risk_tags) == ("db.write", ("destructive",))
    assert (facts.step.requires, facts.step.labels) == (("gpu",), {"env": "prod"})
    assert (facts.source, facts.actor, facts.input) == ("cron", "", {"n": 1})
    assert facts.run == {"id": "run_1", "job": "report", "planned_at": "2026-03-02T12:00:00+00:00"}


@pytest.mark.parametrize(("function", "kind"), [("f", "function"), (SHELL, "command"), (HTTP, "http")])
def test_a_step_is_of_one_kind(function: str, kind: str) -> None:
    assert facts_of(request(function=function)).step.kind == kind


def test_the_topic_is_the_function_unless_the_step_has_one() -> None:
    assert facts_of(request()).step.topic == "f"


def test_secrets_are_facts_by_name_and_escaped_texts_are_none() -> None:
    facts = facts_of(request({"env": {"KEY": "${secret:STRIPE_KEY}", "TEXT": "$${secret:OTHER}"}, "n": [1]}))

    assert facts.secrets == ("STRIPE_KEY",)
    assert facts.input["env"]["TEXT"] == "${secret:OTHER}"


@pytest.mark.req("R-03")
def test_the_digest_does_not_depend_on_the_order_of_fields() -> None:
    assert request_digest(request({"b": 1, "a": 2})) == request_digest(request({"a": 2, "b": 1}))


@pytest.mark.req("R-03")
def test_the_digest_changes_with_everything_that_was_asked() -> None:
    asked = request({"amount": 1})
    one = asked.waiting
    others = [
        request({"amount": 2}),
        replace(asked, waiting=replace(one, task=replace(one.task, task_id="task_2"))),
        replace(asked, waiting=replace(one, run=replace(one.run, tenant="acme"))),
        replace(asked, workflow=replace(asked.workflow, version=2)),
        # The same version with another content: somebody has changed the database.
        replace(asked, workflow=replace(asked.workflow, steps=(replace(asked.step, command="rm -r /"),))),
        replace(asked, step=replace(asked.step, name="other")),
    ]

    digests = {request_digest(each) for each in (asked, *others)} | {request_digest(asked, Constraints(max_attempts=1))}

    assert len(digests) == len(others) + 2


def test_the_functions_that_an_agent_may_call_are_facts_about_its_step() -> None:
    agent = AgentSpec(tools=("shell", "function:db.drop", "gnomon.list_jobs"))
    step = Step(name="main", function=AGENT, agent=agent)
    about = step_facts("default", "triage", Workflow(workflow_id="triage", version=1, steps=(step,)), step)

    assert (about.kind, about.tools) == ("agent", ("db.drop",))
