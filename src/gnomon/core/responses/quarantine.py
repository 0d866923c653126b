"""Responses about outputs that are held back."""

from datetime import datetime
from typing import Any

from gnomon.core.responses.base import Response


class OutputFinding(Response, frozen=True, kw_only=True):
    """The place where a scanner found something."""

    scanner: str
    pattern: str
    #: `low`, `medium`, `high` or `critical`.
    severity: str
    #: In bytes.
    offset: int
    length: int


class HeldOutputSummary(Response, frozen=True, kw_only=True):
    """An output that is or was held back, without its content."""

    task_id: str
    execution_id: str
    job: str
    step: str
    #: `held`, `released` or `discarded`.
    status: str
    #: `inline`: before it was stored; `late`: afterwards.
    phase: str
    #: The rule that decided, and the version of the policy; 0 without one.
    rule: str
    version: int
    reason: str
    findings: list[OutputFinding]
    #: The SHA-256 of the content, and its size in bytes.
    content_digest: str
    size: int
    held_at: datetime
    decided_by: str | None
    decided_at: datetime | None
    #: The reason of a release or deletion.
    decided_why: str
    #: The steps that had read the output before it was held back; those of other executions with their names.
    readers: list[str]


class HeldOutputDetail(HeldOutputSummary, frozen=True, kw_only=True):
    """An output that is or was held back."""

    #: The content; null once it was released or discarded, and in the answer to both.
    content: Any
    #: Whether its execution goes on, after a release.
    continued: bool
