"""Responses about the revisions of jobs."""

from datetime import datetime
from typing import Any

from gnomon.core.responses.base import Response


class RevisedField(Response, frozen=True, kw_only=True):
    """A field with another value than in the revision before; null where it has none."""

    field: str
    before: Any
    after: Any


class JobRevision(Response, frozen=True, kw_only=True):
    """A definition that a job has, or had."""

    revision: int
    #: The version of its workflow.
    version: int
    #: When it was written, and by whom.
    from_at: datetime
    actor: str
    #: Where it comes from: `api`, `cli`, `cron`, `file:PATH` or `import:MODULE`; empty if it is unknown.
    origin: str
    #: The version of the time zone data by which it was planned.
    tzdata: str
    #: The fields that define the job, as in a jobs file; null if its workflow is no longer kept.
    definition: dict[str, Any] | None
    #: How it differs from the revision before; null for the first, and if a definition is no longer kept.
    changes: list[RevisedField] | None
