"""The page about approvals: its rule is accepted, and its tables name every field and status."""

import re
from pathlib import Path

from gnomon.adapters.policy_file import parse_policy
from gnomon.core.approvals.model import ApprovalStatus
from gnomon.core.approvals.terms import ApprovalTerms
from gnomon.core.model import DAY_MS
from gnomon.core.policy.reader import APPROVAL_FIELDS

PAGE = (Path(__file__).parents[2] / "docs" / "approvals.md").read_text()
[FILE] = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_rule_of_the_page_asks_for_one_member_of_finance() -> None:
    [rule] = parse_policy(FILE, name="policy.yaml").rules

    assert rule.approval == ApprovalTerms(groups=("finance",), quorum=1, expires_ms=DAY_MS)


def test_the_tables_name_every_field_and_status() -> None:
    for field in APPROVAL_FIELDS:
        assert f"| `{field}` |" in PAGE
    for status in ApprovalStatus:
        assert f"| `{status}` |" in PAGE
