"""The sentence about each ruling."""

from typing import Any

import pytest
from msgspec.structs import replace

from contracts.store import MINUTE, NOON, minutely
from gnomon.core.explain.evidence import RunEvidence
from gnomon.core.explain.phrases import TimeFormatter
from gnomon.core.explain.rulings import RULING_SENTENCES, explain_rulings
from gnomon.core.model import Run, RunId, RunSource, Task, TaskId
from gnomon.core.policy.constraints import Constraints
from gnomon.core.policy.ruling import PolicyDecision, Ruling, stored_ruling
from gnomon.core.runs.launch import first_tasks, new_requested_run
from gnomon.core.runs.states import TaskState

LIMITS = Constraints(max_runtime_ms=MINUTE, network=False)
CLOCKS = TimeFormatter("UTC", NOON)
RULING = Ruling(decision=PolicyDecision.ALLOW, rule="rest", version=3, digest=b"")


@pytest.fixture
def run() -> Run:
    return new_requested_run(RunId("run_1"), minutely(), source=RunSource.API, now=NOON)


def sentences(run: Run, *rulings: Ruling, steps: tuple[str, ...] = ("main",), **task: Any) -> list[str]:  # noqa: ANN401 - fields of a task
    tasks = [replace(one, **task) for one in tasks_of(run, *steps)]
    rows = [
        stored_ruling(ruling, one.task_id, run.run_id, None, now=NOON + MINUTE)
        for one, ruling in zip(tasks, rulings, strict=False)
    ]
    return list(explain_rulings(run, RunEvidence(tasks=tuple(tasks), rulings=tuple(rows)), CLOCKS))


def tasks_of(run: Run, *steps: str) -> list[Task]:
    return list(first_tasks(run, steps, now=NOON))


def test_every_decision_has_a_sentence() -> None:
    assert set(RULING_SENTENCES) == set(PolicyDecision)


@pytest.mark.req("R-02")
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "Rule rest of policy 3 allowed it at 12:01."),
        ({"rule": "default"}, "The default decision of policy 3 allowed it at 12:01."),
        (
            {"decision": PolicyDecision.ALLOW_WITH_CONSTRAINTS, "constraints": LIMITS, "reason": "boxed"},
            "Rule rest of policy 3 allowed it at 12:01, with max_runtime 1 min and network false: boxed.",
        ),
        ({"decision": PolicyDecision.DENY, "reason": "never"}, "Rule rest of policy 3 denied it at 12:01: never."),
        (
            {"decision": PolicyDecision.THROTTLE, "reason": "slow"},
            "Rule rest of policy 3 has put it off 1 time since 12:01: slow.",
        ),
        (
            {"decision": PolicyDecision.REQUIRE_APPROVAL, "reason": "money"},
            "Rule rest of policy 3 has asked for an approval of it since 12:01: money.",
        ),
        (
            {"decision": PolicyDecision.DENY, "ruled_by": "commands", "rule": "path", "reason": "path not allowed"},
            "The policy of commands, rule path, denied it at 12:01: path not allowed.",
        ),
    ],
)
def test_a_ruling_is_explained_in_a_sentence(run: Run, changes: dict[str, Any], sentence: str) -> None:
    assert sentences(run, replace(RULING, **changes)) == [sentence]


def test_equal_rulings_about_several_steps_are_one_sentence(run: Run) -> None:
    denied = replace(RULING, decision=PolicyDecision.DENY, reason="no")

    assert sentences(run, RULING, denied, RULING, steps=("a", "b", "c")) == [
        "Rule rest of policy 3 allowed step a and step c at 12:01.",
        "Rule rest of policy 3 denied step b at 12:01: no.",
    ]


def test_the_time_is_that_of_the_step_that_is_named(run: Run) -> None:
    [step] = tasks_of(run, "a")
    rows = [
        stored_ruling(RULING, TaskId(name), run.run_id, None, now=at)
        for name, at in (("b", NOON + MINUTE), ("a", NOON))
    ]
    named = [replace(row, task_id=step.task_id) if row.task_id == "a" else row for row in rows]
    other = replace(step, task_id=TaskId("c"), step="c")
    details = RunEvidence(tasks=(step, other), rulings=tuple(named), workflow=None)

    assert list(explain_rulings(run, details, CLOCKS)) == ["Rule rest of policy 3 allowed step a at 12:00."]


def test_the_denial_that_the_run_failed_with_is_not_said_twice(run: Run) -> None:
    denied = replace(RULING, decision=PolicyDecision.DENY)

    assert sentences(replace(run, error="denied"), denied, state=TaskState.DENIED, note="denied") == []
    assert len(sentences(replace(run, error="other"), denied, state=TaskState.DENIED, note="denied")) == 1


def test_without_a_policy_there_is_no_sentence(run: Run) -> None:
    assert sentences(run) == []
