"""Fixtures for the tests of services."""

import pytest

from gnomon.adapters.gate import OpenGate
from support.execution import ExecutionHarness
from support.gates import LateGate


@pytest.fixture(params=[OpenGate, LateGate], ids=["gate_at_once", "gate_late"])
def any_gate(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Harnesses without a gate of their own have one that answers at once, and one that never does."""
    monkeypatch.setattr(ExecutionHarness, "default_gate", request.param)
