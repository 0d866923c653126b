"""Responses about the system: its health, its workers, its stream of changes, its limits of commands."""

from datetime import datetime
from typing import Any

from gnomon.core.responses.base import Response


class WorkerDetail(Response, frozen=True, kw_only=True):
    """A live worker."""

    worker: str
    pool: str
    slots: int
    #: The number of its tasks at its last heartbeat.
    in_hand: int
    started_at: datetime
    #: The time of its last heartbeat.
    seen_at: datetime
    #: It finishes its tasks and takes no new ones.
    draining: bool
    #: The load of its machine in percent; null if unknown.
    cpu: int | None
    gpu: int | None
    labels: dict[str, str]
    capabilities: list[str]
    functions: list[str]


class Component(Response, frozen=True, kw_only=True):
    """The health of one component."""

    component: str
    #: `ok`, `idle` or `error`.
    status: str
    #: Empty for callers without permission to read.
    message: str
    #: The time since which it has had this status.
    since_at: datetime


class HealthReport(Response, frozen=True, kw_only=True):
    """The health of the node."""

    #: `error` if any component has an error.
    status: str
    version: str
    #: Whether it accepts work, and whether the process works at all.
    ready: bool
    alive: bool
    checked_at: datetime
    components: list[Component]


class StreamChange(Response, frozen=True, kw_only=True):
    """A change in the stream of changes."""

    #: `tick`, `execution`, `task`, `log`, `dead_letter`, `approval`, `ruling` or `breaker`.
    kind: str
    number: int
    at: datetime
    job: str | None
    execution_id: str | None
    #: The fields of the change.
    facts: dict[str, Any]


class CallerIdentity(Response, frozen=True, kw_only=True):
    """The caller, as the server has identified it."""

    #: The subject of its token, or of its client certificate: the actor of everything that it changes.
    subject: str
    tenant: str
    #: `admin`, `operator` or `viewer`.
    roles: list[str]
    groups: list[str]
    #: When its token stops being accepted; None without a token.
    expires_at: datetime | None


class SecurityStatus(Response, frozen=True, kw_only=True):
    """The state of the policy of commands for the tenant of the caller."""

    #: Every change is refused.
    read_only: bool
    #: How many guarded commands may start within an hour, how many have, and how many more may; None for any number.
    actions_per_hour: int | None
    actions_spent: int
    actions_left: int | None


class DashboardCode(Response, frozen=True, kw_only=True):
    """A code that signs a browser in to the dashboard."""

    code: str
    #: The address of the page that takes it, on the same server.
    path: str
    expires_at: datetime
