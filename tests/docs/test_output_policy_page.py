"""The page about the policy of outputs: its rules do what it says, and its tables name every field and scanner."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from gnomon.adapters.policy_file import parse_policy
from gnomon.config.kernel_rules import kernel_address
from gnomon.config.settings import load
from gnomon.core.output_policy.compiled import CompiledOutputPolicy
from gnomon.core.output_policy.kernel import judged_ruling
from gnomon.core.output_policy.kernel_messages import OutputCheckResponse
from gnomon.core.output_policy.reader import OUTPUT_MATCH_FIELDS, OUTPUT_RULE_FIELDS
from gnomon.core.output_policy.ruling import OutputDecision
from gnomon.core.output_policy.scanners import SCANNERS
from gnomon.core.policy.facts import StepFacts
from support.output_policies import CARD, KEY

PAGE = (Path(__file__).parents[2] / "docs" / "output-policy.md").read_text()
SETTINGS, FILE, SERVICE = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_setting_of_the_page_turns_it_on() -> None:
    assert load(file=yaml.safe_load(SETTINGS)).output_policy.enabled
    assert not load().output_policy.enabled


@pytest.mark.req("R-20")
def test_the_service_of_the_page_is_asked_with_tls_and_its_answer_is_one() -> None:
    settings = load(file=yaml.safe_load(SERVICE))
    [answer] = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    output = msgspec.json.encode({"text": "the plan of the harbour"})

    ruling = judged_ruling(msgspec.json.decode(answer, type=OutputCheckResponse), output)

    assert kernel_address(settings.output_policy.kernel, field="output_policy.kernel").tls
    assert (ruling.decision, ruling.rule, ruling.reason) == (OutputDecision.QUARANTINE, "plans", "names a plan")
    assert output[ruling.findings[0].offset : ruling.findings[0].end] == b"the plan of the har"


@pytest.mark.parametrize(
    ("job", "topic", "output", "decision", "rule"),
    [
        ("docs-aws", "docs.make", KEY, OutputDecision.ALLOW, "known"),
        ("other", "docs.make", KEY, OutputDecision.QUARANTINE, "no-keys-out"),
        ("other", "support.mail", CARD, OutputDecision.REDACT, "mask"),
        ("other", "support.mail", "about CUST-123456", OutputDecision.REDACT, "mask"),
        ("other", "docs.make", CARD, OutputDecision.ALLOW, "default"),
        ("other", "export.all", "x" * 1_048_576, OutputDecision.QUARANTINE, "too-big"),
    ],
)
def test_the_rules_of_the_page_do_what_it_says(
    job: str, topic: str, output: str, decision: OutputDecision, rule: str
) -> None:
    rules = parse_policy(FILE, name="policy.yaml").output_rules
    assert rules is not None
    facts = StepFacts(tenant="t", job=job, workflow="w", step="s", topic=topic, function="f", kind="function")

    found = (
        CompiledOutputPolicy(rules, 1).for_step(facts).ruling(f'"{output}"'.encode(), has_error=False, largest=65536)
    )

    assert (found.decision, found.rule) == (decision, rule)


def test_the_tables_name_every_field_scanner_and_decision() -> None:
    for name in (*OUTPUT_RULE_FIELDS, *SCANNERS, *OutputDecision):
        assert f"| `{name}` |" in PAGE, name
    for name in OUTPUT_MATCH_FIELDS:
        assert f"`{name}`" in PAGE, name
