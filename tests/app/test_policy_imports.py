"""A process without a policy loads nothing that only a policy needs."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import gnomon.app.node, gnomon.app.operations, gnomon.app.server, gnomon.api.routes
print(sorted(name for name in sys.modules if name.startswith(("gnomon.core.policy.", "grpc"))))
"""
#: Values of rulings, versions and tasks, which the stores read and write.
LOADED = {"budgets", "constraints", "gate_decision", "past_tasks", "ruling", "shadow", "version"}


@pytest.mark.req("R-02")
def test_a_server_without_a_policy_imports_no_rules_and_no_kernel() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout

    names = {name.removeprefix("gnomon.core.policy.") for name in found.strip("[]\n").replace("'", "").split(", ")}
    assert names <= LOADED
