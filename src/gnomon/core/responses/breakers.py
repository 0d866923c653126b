"""Responses about circuit breakers."""

from datetime import datetime

from gnomon.core.responses.base import Response


class BreakerDefinition(Response, frozen=True, kw_only=True):
    """The limits of a breaker, as one of its users defines them."""

    #: A job that defines it so, or a job and its step.
    user: str
    failures: int
    open: str
    probes: int
    successes: int


class BreakerDetail(Response, frozen=True, kw_only=True):
    """A circuit breaker."""

    name: str
    #: `closed`, `open` or `half_open`.
    state: str
    #: The failures since the last success.
    failures: int
    #: When it becomes half open; None unless it is open.
    open_until: datetime | None
    #: The task whose failure has opened it, and the tasks that are its probes now.
    opened_by: str | None
    probes: list[str]
    changed_at: datetime | None
    #: The definitions that differ; the strictest of each limit applies.
    definitions: list[BreakerDefinition]
