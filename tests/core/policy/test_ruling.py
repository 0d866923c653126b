"""Rulings: what is kept of them, and how they read."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from gnomon.core.policy.ruling import (
    BY_COMMANDS,
    DEFAULT_RULE,
    PolicyDecision,
    Ruling,
    plain_permission,
    refused_by_commands,
    ruling_text,
    stored_ruling,
    stricter,
)

RULING = Ruling(decision=PolicyDecision.THROTTLE, rule="slow", version=3, digest=b"asked", reason="too many")


@pytest.mark.parametrize(
    ("decision", "text"),
    [
        (PolicyDecision.ALLOW, "allowed by rule slow of policy 3 (too many)"),
        (PolicyDecision.DENY, "denied by rule slow of policy 3 (too many)"),
        (PolicyDecision.REQUIRE_APPROVAL, "rule slow of policy 3 asks for it (too many)"),
        (PolicyDecision.THROTTLE, "rule slow of policy 3 puts it off (too many)"),
        (PolicyDecision.ALLOW_WITH_CONSTRAINTS, "allowed with constraints by rule slow of policy 3 (too many)"),
    ],
)
def test_every_ruling_has_a_text(decision: PolicyDecision, text: str) -> None:
    assert ruling_text(replace(RULING, decision=decision)) == text


def test_the_text_names_the_default_decision_and_the_policy_of_commands() -> None:
    default = Ruling(decision=PolicyDecision.DENY, rule=DEFAULT_RULE, version=2, digest=b"")

    assert ruling_text(default) == "denied by the default decision of policy 2"
    assert ruling_text(refused_by_commands(default, "allowlist", "")) == (
        "denied by the policy of commands, rule allowlist,"
    )


def test_a_repeated_ruling_is_counted_and_another_is_a_row_of_its_own() -> None:
    first = stored_ruling(RULING, "task_1", "run_1", None, now=10)
    again = stored_ruling(RULING, "task_1", "run_1", first, now=20)
    other = stored_ruling(replace(RULING, digest=b"else"), "task_1", "run_1", again, now=30)

    assert (first.number, first.count, first.at, first.last_at) == (1, 1, 10, 10)
    assert (again.number, again.count, again.at, again.last_at) == (1, 2, 10, 20)
    assert (other.number, other.count, other.at) == (2, 1, 30)


def test_a_clock_that_is_set_back_does_not_move_a_ruling_back() -> None:
    first = stored_ruling(RULING, "task_1", "run_1", None, now=20)

    assert stored_ruling(RULING, "task_1", "run_1", first, now=10).last_at == 20


def test_a_permission_with_a_row_is_shown_once() -> None:
    boxed = stored_ruling(
        replace(RULING, decision=PolicyDecision.ALLOW_WITH_CONSTRAINTS), "task_1", "run_1", None, now=1
    )

    assert plain_permission("task_1", "run_1", "3/slow", b"asked", [boxed], at=2) is None
    shown = plain_permission("task_1", "run_1", "4/slow", b"asked", [boxed], at=2)
    assert shown is not None
    assert (shown.number, shown.decision, shown.version, shown.rule) == (2, "allow", 4, "slow")


def test_decisions_are_ordered_by_strictness() -> None:
    order = [
        PolicyDecision.DENY,
        PolicyDecision.REQUIRE_APPROVAL,
        PolicyDecision.THROTTLE,
        PolicyDecision.ALLOW_WITH_CONSTRAINTS,
        PolicyDecision.ALLOW,
    ]

    assert set(order) == set(PolicyDecision)
    assert [stricter(one, other) for one, other in pairwise(order)] == [True] * 4


def test_a_refusal_by_the_policy_of_commands_keeps_what_was_asked() -> None:
    refused = refused_by_commands(replace(RULING, decision=PolicyDecision.ALLOW), "paths", "no such path")

    assert (refused.decision, refused.ruled_by, refused.rule, refused.reason) == (
        PolicyDecision.DENY,
        BY_COMMANDS,
        "paths",
        "no such path",
    )
    assert (refused.digest, refused.version) == (RULING.digest, 3)
    assert not refused.plain
