"""The ruling about a past task depends only on facts that are still known."""

import pytest
import yaml

from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.facts import FactName, RequestFacts, StepFacts
from gnomon.core.policy.reader import read_policy
from gnomon.core.policy.ruling import Ruling
from gnomon.core.runs.workflow import Step

STEP = StepFacts(tenant="acme", job="pay", workflow="pay", step="main", topic="t", function="f", kind="function")
FACTS = RequestFacts(step=STEP, actor="", source="api", input={})
HOUR = 3_600_000


def past_ruling(rules: str, *unknown: FactName, since: int = 0, until: int = 0) -> str:
    """The rule that decides, or the fact that is missing."""
    policy = CompiledPolicy(read_policy(yaml.safe_load(f"rules: {rules}")), 1, throttle_ms=0)
    found = policy.for_step(STEP, Step(name="main", function="f")).past_ruling(FACTS, unknown, since=since, until=until)
    return found.rule if isinstance(found, Ruling) else f"no {found}"


BIG = "{id: big, when: input.amount > 3, decision: deny}"
BY_ADA = "{id: ada, match: {actors: [ada]}, decision: deny}"
REST = "{id: rest, decision: allow}"


@pytest.mark.req("R-02")
@pytest.mark.parametrize(
    ("rules", "unknown", "expected"),
    [
        (f"[{BIG}, {REST}]", [FactName.INPUT], "no input"),
        (f"[{BY_ADA}, {REST}]", [FactName.ACTOR], "no actor"),
        (f"[{REST}, {BIG}]", [FactName.INPUT], "rest"),
        (f"[{BY_ADA}, {REST}]", [FactName.INPUT], "rest"),
        # A condition that does not hold excludes the rule, whatever the unknown fact is.
        (
            f"[{{id: both, match: {{sources: [cron]}}, when: input.a == 1, decision: deny}}, {REST}]",
            [FactName.INPUT],
            "rest",
        ),
        (
            f"[{{id: both, match: {{actors: [ada], sources: [cron]}}, decision: deny}}, {REST}]",
            [FactName.ACTOR],
            "rest",
        ),
        # The condition has no answer, but perhaps the rule does not match at all.
        ("[{id: both, match: {actors: [ada]}, when: input.a == 1, decision: deny}]", [FactName.ACTOR], "no actor"),
        (f"[{BIG}]", [], "big"),
    ],
)
def test_a_fact_is_missing_only_if_the_ruling_depends_on_it(rules: str, unknown: list[FactName], expected: str) -> None:
    assert past_ruling(rules, *unknown) == expected


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (8, 8.5, "rest"),
        (8, 9.5, "no time"),
        (9.5, 9.9, "shut"),
        (9.5, 10.5, "no time"),
        (8, 11, "no time"),
        (11, 12, "rest"),
    ],
)
def test_a_window_is_known_if_it_neither_opened_nor_closed_meanwhile(since: float, until: float, expected: str) -> None:
    shut = "{id: shut, match: {window: {cron: '0 9 * * *', lasts: 1h}}, decision: deny}"

    assert past_ruling(f"[{shut}, {REST}]", since=int(since * HOUR), until=int(until * HOUR)) == expected
