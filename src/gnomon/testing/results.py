"""The results that a test inspects: runs, ticks and function calls, with times as datetimes."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from gnomon.core.model import Reason, RunSource, RunStatus, TickKind


class RunResult(Struct, frozen=True, kw_only=True):
    """One execution of a job."""

    job: str
    execution_id: str
    status: RunStatus
    source: RunSource
    planned_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    #: The number of attempts of all steps together.
    attempts: int
    #: The return value of each step.
    outputs: Mapping[str, Any]
    #: The reason of a failure or a cancellation.
    error: str | None

    @property
    def output(self) -> Any:  # noqa: ANN401 - any JSON value
        """The return value of a single-step job; with several steps, all their return values."""
        return self.outputs["main"] if set(self.outputs) == {"main"} else dict(self.outputs) or None


class TickResult(Struct, frozen=True, kw_only=True):
    """The decision on one tick, or on consecutive ticks with the same decision and reason."""

    job: str
    kind: TickKind
    reason: Reason
    planned_at: datetime
    #: The planned time of the last of these ticks.
    last_at: datetime
    count: int
    decided_at: datetime
    execution_id: str | None


class FunctionCall(Struct, frozen=True, kw_only=True):
    """One call of a function."""

    function: str
    job: str
    step: str
    execution_id: str
    planned_at: datetime
    at: datetime
    #: The number of the attempt, counted from 1.
    attempt: int
    input: Mapping[str, Any]
