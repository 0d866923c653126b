"""The first rule that matches a task rules on it."""

from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from gnomon.core.policy.compiled import CompiledPolicy, StepRules
from gnomon.core.policy.document import PolicyDocument, TaskRule
from gnomon.core.policy.facts import RequestFacts, StepFacts
from gnomon.core.policy.reader import read_policy
from gnomon.core.policy.ruling import PolicyDecision
from gnomon.core.runs.workflow import Step

HOUR_MS = 3_600_000
STEP = StepFacts(
    tenant="acme", job="pay-rent", workflow="pay-rent", step="main", topic="t.a", function="f", kind="function"
)
FACTS = RequestFacts(
    step=STEP,
    actor="ada@acme.com",
    groups=("finance", "on-call"),
    source="api",
    input={"amount": 5, "who": {"name": "bob"}},
)


def step_rules(text: str, facts: StepFacts = STEP, step: Step | None = None) -> StepRules:
    policy = CompiledPolicy(read_policy(yaml.safe_load(text)), 7, throttle_ms=5000)
    return policy.for_step(facts, step or Step(name="main", function="f"))


def matches(match: str, step: StepFacts = STEP, facts: RequestFacts = FACTS, *, now: int = 0) -> bool:
    rules = step_rules(f"rules: [{{id: hit, decision: deny, match: {match}}}]\ndefault_decision: allow", step)
    return rules.ruling(replace(facts, step=step), now).rule == "hit"


@pytest.mark.req("R-02")
@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("{}", True),
        ("{tenants: [ACME, acme]}", True),
        ("{tenants: [other]}", False),
        ("{jobs: ['pay-*']}", True),
        ("{topics: ['x', 't.?']}", True),
        ("{topics: ['t']}", False),
        ("{functions: [f]}", True),
        ("{kinds: [command]}", False),
        ("{kinds: [function, command]}", True),
        ("{capabilities: ['*']}", False),
        ("{risk_tags: [money]}", False),
        ("{requires: [gpu]}", False),
        ("{labels: {env: prod}}", False),
        ("{actors: ['*@acme.com']}", True),
        ("{actors: ['bob*']}", False),
        ("{groups: [sales, 'on-*']}", True),
        ("{groups: [sales]}", False),
        ("{sources: [cron]}", False),
        ("{sources: [cron, api]}", True),
        ("{secrets: ['*']}", False),
        ("{jobs: ['pay-*'], topics: [other]}", False),
    ],
)
def test_a_rule_matches_if_all_of_its_conditions_hold(match: str, *, expected: bool) -> None:
    assert matches(match) == expected


def test_words_are_compared_in_lower_case_and_all_of_requires_and_labels_are_needed() -> None:
    step = replace(
        STEP, capability="DB.Write", risk_tags=("money", "prod"), requires=("GPU", "vault"), labels={"a": "1", "b": "2"}
    )
    facts = replace(FACTS, step=step, secrets=("BANK_KEY",))

    hits = [
        "{capabilities: [db.*]}",
        "{risk_tags: [other, PROD]}",
        "{requires: [gpu]}",
        "{requires: [gpu, vault]}",
        "{labels: {a: '1'}}",
        "{secrets: [BANK_*]}",
    ]
    misses = ["{requires: [gpu, tpu]}", "{labels: {a: '1', b: '3'}}", "{secrets: [bank_*]}"]

    assert [matches(one, step, facts) for one in hits] == [True] * len(hits)
    assert [matches(one, step, facts) for one in misses] == [False] * len(misses)


@pytest.mark.req("R-02")
def test_the_first_match_wins_and_the_default_rules_where_none_does() -> None:
    rules = (
        "[{id: big, when: input.amount > 9, decision: throttle}, {id: any, match: {topics: ['t.*']}, decision: allow}]"
    )
    found = step_rules(f"rules: {rules}")
    elsewhere = step_rules(f"rules: {rules}", replace(STEP, topic="u"))

    assert found.ruling(replace(FACTS, input={"amount": 10}), 0).rule == "big"
    assert found.ruling(FACTS, 0).rule == "any"
    ruling = elsewhere.ruling(FACTS, 0)
    assert (ruling.rule, ruling.decision, ruling.version) == ("default", "deny", 7)


@pytest.mark.req("R-02")
def test_rules_that_cannot_match_a_step_are_left_out() -> None:
    fixed = "{id: here, match: {topics: ['t.*']}, decision: allow}, {id: never, decision: deny}"

    assert step_rules(f"rules: [{{id: other, match: {{topics: [u]}}, decision: deny}}, {fixed}]").rule_ids == ["here"]
    opened = step_rules(f"rules: [{{id: when, when: input.a == 1, decision: deny}}, {fixed}]")
    assert (opened.rule_ids, opened.fixed) == (["when", "here"], None)


def test_the_ruling_about_every_task_of_a_step_is_known_before_any_of_them() -> None:
    fixed = step_rules("rules: [{id: a, decision: allow}]").fixed

    assert fixed is not None
    assert fixed.plain
    assert step_rules("default_decision: allow").fixed is not None


@pytest.mark.req("R-02")
@pytest.mark.parametrize("condition", ["input.missing > 1", "input.who > 1"])
def test_a_condition_that_cannot_be_decided_denies_the_task(condition: str) -> None:
    ruling = step_rules(f"rules: [{{id: a, when: {condition}, decision: allow}}]\ndefault_decision: allow").ruling(
        FACTS, 0
    )

    assert (ruling.decision, ruling.code, ruling.rule) == ("deny", "safety_unknown", "a")
    assert ruling.reason.startswith("its condition cannot be decided: ")


def test_a_condition_reads_input_labels_and_run() -> None:
    when = 'input.who.name == "bob" and labels.env == "prod" and run.job == "pay"'
    text = f"rules: [{{id: a, when: '{when}', decision: deny}}]"
    step = replace(STEP, labels={"env": "prod"})

    facts = replace(FACTS, step=step, run={"job": "pay"})
    assert step_rules(f"{text}\ndefault_decision: allow", step).ruling(facts, 0).decision is PolicyDecision.DENY


@pytest.mark.req("R-02")
def test_a_rule_counts_only_in_its_window() -> None:
    window = "{window: {cron: '0 9 * * *', lasts: 2h}}"
    wanted = {8: False, 9: True, 10: True, 11: False, 33: True, 35: False}
    policy = step_rules(f"rules: [{{id: hit, decision: deny, match: {window}}}]\ndefault_decision: allow")

    # Forwards, backwards, and each alone: what was asked before does not matter.
    for hours in (sorted(wanted), sorted(wanted, reverse=True)):
        assert {hour: policy.ruling(FACTS, hour * HOUR_MS).rule == "hit" for hour in hours} == wanted
    assert {hour: matches(window, now=hour * HOUR_MS) for hour in wanted} == wanted
    assert matches(window, now=11 * HOUR_MS - 1)


def test_a_window_that_outlasts_its_period_is_always_open() -> None:
    assert matches("{window: {cron: '* * * * *', lasts: 1h}}", now=123_456_789)


def test_a_constraint_that_cannot_be_enforced_on_a_step_denies_its_tasks() -> None:
    text = "rules: [{id: boxed, decision: allow_with_constraints, constraints: {network: false}}]"

    ruling = step_rules(text).ruling(FACTS, 0)

    assert (ruling.decision, ruling.code) == ("deny", "safety_unknown")
    assert "can only be enforced on commands" in ruling.reason


def test_a_throttled_task_is_asked_about_again_after_the_delay() -> None:
    assert step_rules("rules: [{id: slow, decision: throttle}]").ruling(FACTS, 0).retry_after_ms == 5000


@pytest.mark.parametrize("known", [{"rule_id": "a"}, {"reason": "b"}])
def test_a_ruling_names_rule_reason_and_digest(known: dict[str, Any]) -> None:
    rule = replace(TaskRule(rule_id="x", decision=PolicyDecision.DENY, reason="y"), **known)
    ruling = (
        CompiledPolicy(PolicyDocument(rules=(rule,)), 1, throttle_ms=1)
        .for_step(STEP, Step(name="main"))
        .ruling(FACTS, 0)
    )

    assert (ruling.rule, ruling.reason, ruling.rule_digest) == (rule.rule_id, rule.reason, rule.digest)


@pytest.mark.req("R-02")
@pytest.mark.parametrize("match", ["{functions: [db.drop]}", "{topics: ['db.*']}"])
def test_a_function_that_is_refused_is_no_tool_of_an_agent_either(match: str) -> None:
    agent = replace(STEP, topic="agent", function="agent", kind="agent", tools=("reports.read", "db.drop"))
    refusing = f"rules: [{{id: hit, match: {match}, decision: DECISION}}, {{id: rest, decision: DEFAULT}}]"

    for decision, expected in (("deny", "hit"), ("throttle", "hit"), ("allow", "rest")):
        other = "deny" if decision == "allow" else "allow"
        text = refusing.replace("DECISION", decision).replace("DEFAULT", other)
        assert step_rules(text, agent).ruling(replace(FACTS, step=agent), 0).rule == expected
