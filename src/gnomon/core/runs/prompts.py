"""Prompts of agents: references put data into frames, so that the model can tell data from its task."""

from collections.abc import Sequence
from typing import Any

import msgspec

from gnomon.core.agents.rules import framed_data
from gnomon.core.runs.expressions import DataAllowance, Scope, resolve_text
from gnomon.core.runs.secret_text import TextPart, shown_data


def framed_prompt(prompt: str, scope: Scope, allowance: DataAllowance) -> str:
    """The prompt with its references resolved. The data fills no place of a secret."""
    return resolve_text(prompt, scope, allowance, _framed)


def _framed(data: Any, _: Sequence[TextPart]) -> list[TextPart]:  # noqa: ANN401 - any JSON
    shown = shown_data(data)
    return [framed_data(shown if isinstance(shown, str) else msgspec.json.encode(shown).decode())]
