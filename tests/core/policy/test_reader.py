"""Reading a policy: every field, and a clear error for everything else."""

from typing import Any

import pytest
import yaml

from gnomon.adapters.policy_file import parse_policy
from gnomon.core.approvals.terms import ApprovalTerms
from gnomon.core.policy.constraints import Constraints
from gnomon.core.policy.document import PolicyDocument, Remediation, RuleMatch, RuleWindow, StepKind, TaskRule
from gnomon.core.policy.reader import read_policy
from gnomon.core.policy.ruling import PolicyDecision
from gnomon.core.policy.version import LARGEST_POLICY
from gnomon.core.runs.workflow import Isolation
from gnomon.errors import FieldError, FileError

FILE = """\
default_decision: allow
rules:
  - id: night-payments
    match:
      tenants: [acme]
      jobs: ["pay-*"]
      topics: ["payments.*"]
      functions: ["bank.*"]
      kinds: [function, http]
      capabilities: [Payments.Transfer]
      risk_tags: [MONEY]
      requires: [vault]
      labels: {env: prod}
      actors: ["*@acme.com"]
      sources: [api, manual]
      secrets: [BANK_*]
      window: {cron: "0 22 * * *", lasts: 8h, timezone: Europe/Berlin}
    when: input.amount > 1000 and labels.env == "prod"
    decision: deny
    reason: nobody watches at night
    remediations:
      - {title: wait for the morning, summary: the desk opens at six, add_labels: {when: day}, remove_labels: [now]}
  - id: boxed
    decision: allow_with_constraints
    constraints:
      {max_runtime: 2m, max_attempts: 2, max_output_bytes: 1000, isolation: process, network: false, max_concurrent: 5}
"""


@pytest.mark.req("R-02")
def test_every_field_of_a_policy_is_read() -> None:
    payments, boxed = parse_policy(FILE).rules

    assert payments == TaskRule(
        rule_id="night-payments",
        match=RuleMatch(
            tenants=("acme",),
            jobs=("pay-*",),
            topics=("payments.*",),
            functions=("bank.*",),
            kinds=(StepKind.FUNCTION, StepKind.HTTP),
            capabilities=("payments.transfer",),
            risk_tags=("money",),
            requires=("vault",),
            labels={"env": "prod"},
            actors=("*@acme.com",),
            sources=("api", "manual"),
            secrets=("BANK_*",),
            window=RuleWindow(cron="0 22 * * *", lasts_ms=8 * 3_600_000, timezone="Europe/Berlin"),
        ),
        when='input.amount > 1000 and labels.env == "prod"',
        decision=PolicyDecision.DENY,
        reason="nobody watches at night",
        remediations=(
            Remediation(
                title="wait for the morning",
                summary="the desk opens at six",
                add_labels={"when": "day"},
                remove_labels=("now",),
            ),
        ),
    )
    assert payments.full_reason == "nobody watches at night; instead: wait for the morning"
    assert boxed.constraints == Constraints(
        max_runtime_ms=120_000,
        max_attempts=2,
        max_output_bytes=1000,
        isolation=Isolation.PROCESS,
        network=False,
        max_concurrent=5,
    )


@pytest.mark.req("R-02")
def test_without_a_default_decision_it_is_deny() -> None:
    assert parse_policy("") == PolicyDocument(default_decision=PolicyDecision.DENY)


def _rule(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 - the fields of a rule
    return {"rules": [{"id": "a", "decision": "deny", **fields}]}


def _asking(**terms: Any) -> dict[str, Any]:  # noqa: ANN401 - the terms of an approval
    return _rule(decision="require_approval", approval=terms)


@pytest.mark.req("R-03")
def test_the_terms_of_an_approval_are_read() -> None:
    [asked] = read_policy(
        _asking(roles=["admin"], groups=["finance"], voters=["ada", "bob"], quorum=2, expires="2h", self=True)
    ).rules
    [plain] = read_policy(_rule(decision="require_approval")).rules

    assert asked.approval == ApprovalTerms(
        roles=("admin",),
        groups=("finance",),
        voters=("ada", "bob"),
        quorum=2,
        expires_ms=7_200_000,
        self_approval=True,
    )
    assert plain.approval == ApprovalTerms()
    assert asked.digest != plain.digest


@pytest.mark.req("R-02")
@pytest.mark.parametrize(
    ("policy", "field", "reason"),
    [
        ({"default_decision": "throttle"}, "default_decision", "must be allow or deny"),
        ({"ruels": []}, "ruels", "did you mean"),
        (_rule(decision="perhaps"), "rules[0].decision", "must be one of"),
        (_rule(approval={"quorum": 2}), "rules[0].approval", "means nothing for deny: say require_approval"),
        (_asking(qourum=2), "rules[0].approval.qourum", "quorum"),
        (_asking(quorum=0), "rules[0].approval.quorum", "must be a whole number from 1 to 20"),
        (_asking(quorum=3, voters=["ada", "bob"]), "rules[0].approval.quorum", "larger than the number of voters, 2"),
        (_asking(voters=["ada", "ada"]), "rules[0].approval.voters[1]", "named a second time"),
        (_asking(groups=[]), "rules[0].approval.groups", "is empty"),
        (_asking(roles=["boss"]), "rules[0].approval.roles[0]", "must be one of viewer, operator, admin"),
        (_asking(expires="1ms"), "rules[0].approval.expires", "must be from 1s to 90d"),
        (_asking(self="no"), "rules[0].approval.self", "must be true or false"),
        ({"rules": [{"id": "a"}]}, "rules[0].decision", "is missing"),
        (_rule(id="default"), "rules[0].id", "default decision"),
        ({"rules": [{"id": "a", "decision": "allow"}] * 2}, "rules[1].id", "already the id of rules[0]"),
        (_rule(match={"topic": ["x"]}), "rules[0].match.topic", "did you mean"),
        (_rule(match={"topics": []}), "rules[0].match.topics", "is empty"),
        (_rule(match={"topics": [1]}), "rules[0].match.topics[0]", "must be a text"),
        (_rule(match={"topics": ["a", "a"]}), "rules[0].match.topics[1]", "a second time"),
        (_rule(match={"topics": ["a"] * 201}), "rules[0].match.topics", "at most 200"),
        (_rule(match={"kinds": ["shell"]}), "rules[0].match.kinds[0]", "must be one of function, command, http"),
        (_rule(match={"sources": ["web"]}), "rules[0].match.sources[0]", "must be one of cron"),
        (_rule(match={"labels": {"a": 1}}), "rules[0].match.labels.a", "must be a text"),
        (_rule(match={"window": {"cron": "0 9 * * *"}}), "rules[0].match.window.lasts", "is missing"),
        (_rule(match={"window": {"cron": "0 0 30 2 *", "lasts": "1h"}}), "rules[0].match.window.cron", "never fires"),
        (_rule(match={"window": {"cron": "0 9 * * *", "lasts": "0s"}}), "rules[0].match.window.lasts", "from"),
        (
            _rule(match={"window": {"cron": "0 9 * * *", "lasts": "1h", "timezone": "Mars/Base"}}),
            "rules[0].match.window.timezone",
            "Mars/Base",
        ),
        (_rule(when="input.amount >"), "rules[0].when", "is no condition"),
        (_rule(when="steps.a.output"), "rules[0].when", "must begin with input, labels, run"),
        (_rule(when="open('x')"), "rules[0].when", "is not allowed"),
        (_rule(constraints={"max_attempts": 1}), "rules[0].constraints", "say allow_with_constraints"),
        (_rule(decision="allow_with_constraints"), "rules[0].constraints", "is missing"),
        (_rule(decision="allow_with_constraints", constraints={}), "rules[0].constraints", "is empty"),
        (
            _rule(decision="allow_with_constraints", constraints={"network": True}),
            "rules[0].constraints.network",
            "only tighten",
        ),
        (
            _rule(decision="allow_with_constraints", constraints={"isolation": "none"}),
            "rules[0].constraints.isolation",
            "only tighten",
        ),
        (_rule(remediations=[{"summary": "x"}]), "rules[0].remediations[0].title", "is missing"),
        (_rule(reason="x" * 501), "rules[0].reason", "at most 500"),
        ([], "", "must be a mapping"),
    ],
)
def test_a_mistake_is_refused_with_its_field(policy: object, field: str, reason: str) -> None:
    with pytest.raises(FieldError) as refused:
        read_policy(policy)

    assert refused.value.field == field
    assert reason in str(refused.value)


@pytest.mark.req("R-02")
def test_a_mistake_in_a_file_is_refused_with_its_line() -> None:
    with pytest.raises(FileError) as refused:
        parse_policy(FILE.replace("decision: deny", "decision: perhaps"), name="policy.yaml")

    assert (refused.value.line, refused.value.field) == (19, "rules[0].decision")
    assert str(refused.value).startswith("policy.yaml: line 19, column")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("rules: [", "is not YAML"),
        ("rules: []\nrules: []", "a second time"),
        ("rules: !!python/object:os.system []", "tag"),
        ("# " + "x" * LARGEST_POLICY, "at most"),
    ],
)
def test_a_file_that_is_no_policy_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FileError, match=reason):
        parse_policy(text)


def test_too_many_rules_are_refused() -> None:
    with pytest.raises(FieldError, match="at most 5000"):
        read_policy({"rules": [{"id": f"r{number}", "decision": "allow"} for number in range(5001)]})


@pytest.mark.req("R-03")
def test_the_digest_of_a_rule_is_that_of_its_content() -> None:
    [one], [other] = (read_policy(_rule(reason=reason)).rules for reason in ("a", "b"))

    assert one.digest == read_policy(yaml.safe_load(yaml.safe_dump(_rule(reason="a")))).rules[0].digest != other.digest
