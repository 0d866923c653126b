"""Test cases of a policy."""

from typing import Any

import pytest
import yaml

from gnomon.adapters.policy_file import parse_cases
from gnomon.core.policy.cases import CaseResult, judge_cases, read_cases
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.document import StepKind
from gnomon.core.policy.facts import STEP_KINDS
from gnomon.core.policy.reader import read_policy
from gnomon.errors import FieldError, FileError

POLICY = """
rules:
  - {id: night, match: {window: {cron: "0 22 * * *", lasts: 8h}}, decision: deny}
  - {id: big, match: {jobs: [pay]}, when: input.amount > 9, decision: throttle}
  - {id: shell, match: {kinds: [command]}, decision: allow_with_constraints, constraints: {network: false}}
  - {id: rest, decision: allow}
"""


def judged(task: dict[str, Any], expect: dict[str, str], **fields: str) -> CaseResult:
    policy = CompiledPolicy(read_policy(yaml.safe_load(POLICY)), 0, throttle_ms=0)
    cases = read_cases({"cases": [{"name": "one", "task": task, "expect": expect, **fields}]})
    return judge_cases(policy, cases)[0]


@pytest.mark.req("R-02")
@pytest.mark.parametrize(
    ("task", "expect", "passed"),
    [
        ({}, {"decision": "allow"}, True),
        ({}, {"decision": "allow", "rule": "rest"}, True),
        ({}, {"decision": "allow", "rule": "big"}, False),
        ({}, {"decision": "deny"}, False),
        ({"job": "pay", "input": {"amount": 10}}, {"decision": "throttle"}, True),
        ({"job": "pay", "input": {"amount": 9}}, {"decision": "allow"}, True),
        ({"job": "pay"}, {"decision": "deny", "rule": "big"}, True),
        ({"kind": "command"}, {"decision": "allow_with_constraints", "rule": "shell"}, True),
    ],
)
def test_a_case_passes_if_decision_and_rule_are_the_expected_ones(
    task: dict[str, Any], expect: dict[str, str], *, passed: bool
) -> None:
    assert judged(task, expect).passed is passed


def test_a_case_has_a_time() -> None:
    assert judged({}, {"decision": "deny", "rule": "night"}, at="2026-03-02T23:00:00Z").passed


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({}, "cases"),
        ({"cases": []}, "cases"),
        ({"cases": [{"task": {}, "expect": {"decision": "deny"}}]}, "cases[0].name"),
        ({"cases": [{"name": "a", "expect": {"decision": "deny"}}]}, "cases[0].task"),
        ({"cases": [{"name": "a", "task": {}, "expect": {}}]}, "cases[0].expect.decision"),
        ({"cases": [{"name": "a", "task": {}, "expect": {"decision": "maybe"}}]}, "cases[0].expect.decision"),
        ({"cases": [{"name": "a", "task": {"jobs": 1}, "expect": {"decision": "deny"}}]}, "cases[0].task.jobs"),
        ({"cases": [{"name": "a", "task": {"input": 1}, "expect": {"decision": "deny"}}]}, "cases[0].task.input"),
    ],
)
def test_a_mistake_is_refused_with_its_field(data: object, field: str) -> None:
    with pytest.raises(FieldError) as refused:
        read_cases(data)

    assert refused.value.field == field


def test_a_mistake_in_a_file_is_refused_with_its_line() -> None:
    with pytest.raises(FileError, match=r"cases.yaml: line 3, column \d+: cases\[0\].expect.decision"):
        parse_cases("cases:\n  - {name: a, task: {},\n     expect: {decision: perhaps}}\n", name="cases.yaml")


def test_every_kind_of_step_can_be_matched() -> None:
    assert set(StepKind) == {"function", *STEP_KINDS.values()}
