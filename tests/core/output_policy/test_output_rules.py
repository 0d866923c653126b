"""Rules about outputs: the first one that matches rules; a mistake in them is refused with its field."""

from typing import Any

import pytest

from gnomon.core.jobs.fields import FieldReader
from gnomon.core.output_policy.compiled import (
    DEFAULT_OUTPUT_RULES,
    CompiledOutputPolicy,
    StepOutputRules,
    content_digest,
)
from gnomon.core.output_policy.reader import MOST_PATTERNS, read_output_rules
from gnomon.core.output_policy.ruling import OutputDecision, OutputRuling
from gnomon.core.policy.facts import StepFacts
from gnomon.errors import FieldError

pytestmark = pytest.mark.req("R-05")
FACTS = StepFacts(
    tenant="shop", job="pay", workflow="pay", step="pay", topic="job.pay", function="pay", kind="function"
)
KEY = b'"AKIA' + b'IOSFODNN7EXAMPLE"'


def rules_of(*rules: dict[str, Any], facts: StepFacts = FACTS) -> StepOutputRules:
    found = read_output_rules(FieldReader({"output_rules": list(rules)}, ["output_rules"]), "output_rules")
    return CompiledOutputPolicy(found, 7).for_step(facts)


def ruling(*rules: dict[str, Any], output: bytes | None = KEY, has_error: bool = False) -> OutputRuling:
    return rules_of(*rules).ruling(output, has_error=has_error, largest=1000)


def test_an_output_that_no_rule_matches_is_allowed() -> None:
    given = ruling({"id": "mail", "decision": "quarantine", "match": {"scanners": ["pii"]}})
    assert (given.decision, given.rule, given.version) == (OutputDecision.ALLOW, "default", 7)


def test_the_first_rule_that_matches_rules() -> None:
    given = ruling(
        {"id": "elsewhere", "decision": "quarantine", "match": {"topics": ["job.mail.*"], "scanners": ["secret"]}},
        {"id": "known", "decision": "allow", "match": {"keywords": ["iosfodnn7example"]}},
        {"id": "keys", "decision": "quarantine", "match": {"scanners": ["secret"]}},
    )
    assert (given.decision, given.rule) == (OutputDecision.ALLOW, "known")


def test_a_ruling_tells_where_something_was_found_and_never_the_text() -> None:
    given = ruling({"id": "keys", "decision": "deny", "match": {"scanners": ["secret_leak"]}})
    assert (given.decision, given.reason) == (OutputDecision.QUARANTINE, "secret: aws_key_id at byte 1")
    assert given.content_digest == content_digest(KEY)
    assert b"IOSFODNN7" not in repr(given).encode()


def test_a_redacted_output_is_part_of_the_ruling() -> None:
    given = ruling({"id": "keys", "decision": "redact", "match": {"scanners": ["secret"]}, "reason": "no keys"})
    assert (given.decision, given.redacted, given.reason) == (OutputDecision.REDACT, b'"[REDACTED]"', "no keys")


def test_an_output_that_cannot_be_redacted_is_held_back() -> None:
    given = ruling({"id": "keys", "decision": "redact", "match": {"scanners": ["secret"]}}, output=KEY + b"}")
    assert (given.decision, given.redacted) == (OutputDecision.QUARANTINE, None)
    assert given.reason == "secret: aws_key_id at byte 1; it cannot be redacted"


def test_a_redacted_output_is_judged_by_the_rules_after_it() -> None:
    mail = {"id": "mail", "decision": "redact", "match": {"scanners": ["pii"]}}
    both = b'["ada@mail.example", ' + KEY + b"]"
    held = ruling(mail, {"id": "keys", "decision": "quarantine", "match": {"scanners": ["secret"]}}, output=both)
    assert (held.decision, held.rule, held.redacted) == (OutputDecision.QUARANTINE, "keys", None)
    clean = ruling(mail, {"id": "keys", "decision": "redact", "match": {"scanners": ["secret"]}}, output=both)
    assert (clean.decision, clean.rule, clean.redacted) == (
        OutputDecision.REDACT,
        "mail",
        b'["[REDACTED]","[REDACTED]"]',
    )
    assert {one.scanner for one in clean.findings} == {"pii", "secret"}


@pytest.mark.parametrize(("size", "held"), [(10, False), (11, True)])
def test_a_rule_about_the_size_reads_no_content(size: int, *, held: bool) -> None:
    given = ruling({"id": "big", "decision": "quarantine", "match": {"larger_than": 10}}, output=b"1" * size)
    assert (given.decision is OutputDecision.QUARANTINE) is held


@pytest.mark.parametrize("has_error", [True, False])
def test_a_rule_can_ask_for_an_error(*, has_error: bool) -> None:
    given = ruling({"id": "bad", "decision": "quarantine", "match": {"has_error": True}}, has_error=has_error)
    assert (given.decision is OutputDecision.QUARANTINE) is has_error


def test_a_large_output_is_released_with_the_mark_that_it_was_not_read() -> None:
    output = b'"' + b"x" * 1000 + KEY[1:]
    given = ruling({"id": "keys", "decision": "quarantine", "match": {"scanners": ["secret"]}}, output=output)
    assert (given.decision, given.incomplete) == (OutputDecision.ALLOW, True)
    small = ruling({"id": "keys", "decision": "quarantine", "match": {"scanners": ["secret"]}}, output=b"1")
    assert small.incomplete is False


def test_log_lines_lose_what_an_output_would_be_held_back_for() -> None:
    rules = rules_of(
        {"id": "mail", "decision": "allow", "match": {"scanners": ["pii"]}},
        {"id": "keys", "decision": "redact", "match": {"scanners": ["secret"]}},
    )
    assert rules.redacted([f"ada@mail.example {KEY.decode()}", "b"]) == ['ada@mail.example "[REDACTED]"', "b"]


def test_a_key_is_removed_that_begins_in_one_line_and_ends_in_another() -> None:
    rules = rules_of({"id": "keys", "decision": "quarantine", "match": {"scanners": ["secret"]}})
    begin, end = "-----BEGIN RSA " + "PRIVATE KEY-----", "-----END RSA " + "PRIVATE KEY-----"
    lines = ["before", f"x {begin}", "MIIE", f"AAAA\nBBBB {end} y", "after"]
    assert rules.redacted(lines) == ["before", "x [REDACTED]", "[REDACTED]", "[REDACTED]\n[REDACTED] y", "after"]


def test_without_rules_of_its_own_a_policy_holds_back_secrets() -> None:
    rules = CompiledOutputPolicy(DEFAULT_OUTPUT_RULES, 0).for_step(FACTS)
    assert rules.ruling(KEY, has_error=False, largest=1000).decision is OutputDecision.QUARANTINE
    assert rules.ruling(b'"ada@mail.example"', has_error=False, largest=1000).decision is OutputDecision.ALLOW


@pytest.mark.parametrize(
    ("rule", "field", "reason"),
    [
        ({"decision": "allow"}, "output_rules[0].id", "is missing"),
        ({"id": "a"}, "output_rules[0].decision", "is missing"),
        ({"id": "default", "decision": "allow"}, "output_rules[0].id", "is the name of"),
        ({"id": "a", "decision": "throttle"}, "output_rules[0].decision", "must be"),
        ({"id": "a", "decision": "redact"}, "output_rules[0].decision", "needs scanners"),
        ({"id": "a", "decision": "allow", "colour": 1}, "output_rules[0].colour", "is no field"),
        (
            {"id": "a", "decision": "allow", "match": {"scanners": ["dogs"]}},
            "output_rules[0].match.scanners[0]",
            "must be one of secret, pii, injection",
        ),
        (
            {"id": "a", "decision": "allow", "match": {"scanners": ["secret", "secret_leak"]}},
            "output_rules[0].match.scanners[1]",
            "second time",
        ),
        (
            {"id": "a", "decision": "allow", "match": {"patterns": ["a*"]}},
            "output_rules[0].match.patterns[0]",
            "empty text",
        ),
        (
            {"id": "a", "decision": "allow", "match": {"patterns": ["("]}},
            "output_rules[0].match.patterns[0]",
            "RE2",
        ),
        ({"id": "a", "decision": "allow", "match": {"keywords": []}}, "output_rules[0].match.keywords", "empty"),
        ({"id": "a", "decision": "allow", "match": {"keywords": [" "]}}, "output_rules[0].match.keywords[0]", "empty"),
        ({"id": "a", "decision": "allow", "match": {"larger_than": -1}}, "output_rules[0].match.larger_than", "whole"),
        ({"id": "a", "decision": "allow", "match": {"actors": ["x"]}}, "output_rules[0].match.actors", "is no field"),
    ],
)
def test_a_mistake_is_refused_with_its_field(rule: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(FieldError) as refused:
        rules_of(rule)
    assert refused.value.field == field
    assert reason in refused.value.reason


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(FieldError, match=r"is already the id of output_rules\[0\]"):
        rules_of({"id": "a", "decision": "allow"}, {"id": "a", "decision": "allow"})


def test_too_many_patterns_are_refused() -> None:
    keywords = [f"word {number}" for number in range(50)]
    rules = [
        {"id": f"r{number}", "decision": "allow", "match": {"keywords": keywords}}
        for number in range(MOST_PATTERNS // 50 + 1)
    ]
    with pytest.raises(FieldError, match="at most 1000"):
        rules_of(*rules)
