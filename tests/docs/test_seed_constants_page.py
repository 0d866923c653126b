"""The table of the constants of the seed: complete, with the right defaults, and with tests that there are."""

import ast
import re
from pathlib import Path

import pytest

from gnomon.config.settings import Settings
from gnomon.core.durations import duration_ms

pytestmark = pytest.mark.req("R-20")
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "decisions" / "0037-no-task-and-no-run-is-locked.md"
#: The constants of the scheduler of the seed: its variables, compile-time constants, circuit breaker and reconciler.
CONSTANTS = {
    *("SAFETY_KERNEL_TLS_CA", "SAFETY_KERNEL_TLS_REQUIRED", "SAFETY_KERNEL_INSECURE", "POLICY_CHECK_FAIL_MODE"),
    *("storeOpTimeout", "jobLockTTL", "maxSchedulingRetries", "retryDelayBusy", "retryDelayStore", "retryDelayPublish"),
    *("retryDelayNoWorkers", "safetyThrottleDelay", "backoffBase", "backoffMax", "maxRenewalFailures"),
    *("safetyTimeout", "safetyCircuitFailBudget", "safetyCircuitOpenFor"),
    *("safetyCircuitHalfOpenMax", "safetyCircuitCloseAfter", "requeue"),
    *("dispatchTimeout", "runningTimeout", "pollInterval", "batch size", "max iterations", "max retries", "pendingAge"),
    "NakWithDelay",
}
ROWS = [
    [cell.strip() for cell in line.strip("| ").split("|")]
    for line in PAGE.read_text().split("## The constants of its scheduler")[1].splitlines()
    if line.startswith("| `")
]
NAMES = [f"{row[0]}-{row[2]}".replace("`", "") for row in ROWS]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_constant_is_in_the_table() -> None:
    assert {quoted(row[0])[0] for row in ROWS} == CONSTANTS


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_the_setting_has_that_default(row: list[str]) -> None:
    section, key = quoted(row[2])[0].split(".")
    values = getattr(Settings(), section)
    if key in values.__struct_fields__:
        default = getattr(values, key)
        assert str(default or "none" if not isinstance(default, bool) else default).lower() == row[3]
    else:
        assert getattr(values, f"{key}_ms") == duration_ms("default", row[3].replace(" ", "").replace("min", "m"))


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_the_test_that_changes_it_is_there_and_says_so(row: list[str]) -> None:
    file, name = quoted(row[4])
    tree = ast.parse((ROOT / file).read_text())
    [test] = [one for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name == name]
    of_module = [ast.unparse(one.value) for one in tree.body if isinstance(one, ast.Assign) if _is_mark(one)]

    assert "'R-20'" in " ".join([*map(ast.unparse, test.decorator_list), *of_module])


def _is_mark(one: ast.Assign) -> bool:
    return isinstance(one.targets[0], ast.Name) and one.targets[0].id == "pytestmark"
