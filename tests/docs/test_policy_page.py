"""The page about the policy: its file is accepted, its commands print what it says, and its tables are complete."""

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from gnomon.adapters.policy_file import parse_policy
from gnomon.config.kernel_rules import kernel_address
from gnomon.config.settings import load
from gnomon.core.policy.budgets import BudgetKey
from gnomon.core.policy.cases import TASK_FIELDS as CASE_TASK_FIELDS
from gnomon.core.policy.kernel_messages import PolicyCheckResponse, kernel_ruling
from gnomon.core.policy.match_reader import MATCH_FIELDS
from gnomon.core.policy.reader import BUDGET_FIELDS, CONSTRAINT_FIELDS, REMEDIATION_FIELDS, RULE_FIELDS
from gnomon.core.policy.ruling import PolicyDecision
from gnomon.core.runs.workflow import Step
from gnomon.errors import FileError
from support.cli_prompt import CliPrompt

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text()
FILE, BUDGETS, MAILS, CASES, SETTINGS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
CONSOLE = re.findall(r"^```text\n(\$ gnomon policy.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_commands_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = CliPrompt(tmp_path, monkeypatch, capsys)
    (tmp_path / "policy.yaml").write_text(FILE)
    (tmp_path / "cases.yaml").write_text(CASES)

    for block in "".join(CONSOLE).split("$ gnomon ")[1:]:
        line, *expected = block.splitlines()
        assert prompt.run(*line.split()).out == expected


def test_the_settings_of_the_page_name_a_kernel_with_tls() -> None:
    settings = load(file=yaml.safe_load(SETTINGS)).policy

    assert kernel_address(settings.kernel).tls
    assert settings.kernel_cache_ms == 10_000


def test_the_answer_of_a_kernel_on_the_page_is_a_denial() -> None:
    [written] = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    answer = msgspec.json.decode(written, type=PolicyCheckResponse)

    found = kernel_ruling(answer, Step(name="main", function="f"), throttle_ms=1)

    assert (found.decision, found.rule, found.reason) == (PolicyDecision.DENY, "no-drops", "not in production")


def test_the_mistake_of_the_page_is_refused_as_it_says() -> None:
    with pytest.raises(FileError) as refused:
        parse_policy(FILE.replace("decision: deny\n    reason", "decision: perhaps\n    reason"), name="policy.yaml")

    assert str(refused.value) in PAGE


def test_the_tables_name_every_field_condition_and_constraint() -> None:
    for field in (*RULE_FIELDS, *MATCH_FIELDS, *CONSTRAINT_FIELDS, *BUDGET_FIELDS):
        assert re.search(rf"^\|.*`{field}[`:]", PAGE, re.MULTILINE), field
    for field in (*REMEDIATION_FIELDS, *CASE_TASK_FIELDS):
        assert f"`{field}`" in PAGE
    for decision in PolicyDecision:
        assert f"| `{decision}` |" in PAGE


def test_the_budgets_of_the_page_are_valid_and_its_table_names_every_key() -> None:
    budgets = parse_policy(BUDGETS).budgets

    assert [one.limit for one in budgets] == [20, 500]
    assert [one.reserve for one in parse_policy(MAILS).budgets] == [500]
    [row] = re.findall(r"^\| `by` \|.*$", PAGE, re.MULTILINE)
    assert all(f"`{key}`" in row for key in BudgetKey)
