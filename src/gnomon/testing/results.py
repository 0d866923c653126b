"""What a test looks at: runs, ticks and calls, with instants that a person can read."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from gnomon.core.model import Reason, RunStatus, Source, TickKind


class RunResult(Struct, frozen=True, kw_only=True):
    """One execution of a job."""

    job: str
    execution_id: str
    status: RunStatus
    source: Source
    planned_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    #: All tries of all steps together.
    attempts: int
    #: What each step returned.
    outputs: Mapping[str, Any]
    #: Why it failed or was cancelled.
    error: str | None

    @property
    def output(self) -> Any:  # noqa: ANN401 - whatever the function returned
        """What the only step returned; what every step did, if there are several."""
        return self.outputs["main"] if set(self.outputs) == {"main"} else dict(self.outputs) or None


class TickResult(Struct, frozen=True, kw_only=True):
    """What became of one tick, or of a stretch of ticks for one and the same reason."""

    job: str
    kind: TickKind
    reason: Reason
    planned_at: datetime
    #: The planned time of the last tick of the stretch; the same, if it is one.
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
    #: Which try it is, counted from 1.
    attempt: int
    input: Mapping[str, Any]
