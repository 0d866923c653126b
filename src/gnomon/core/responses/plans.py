"""Responses about changes of jobs before they are made: plans and simulations."""

from datetime import datetime
from typing import Any

from gnomon.core.responses.base import Response
from gnomon.core.responses.policy import JobPolicy, StepRuling


class SimulatedDecision(Response, frozen=True, kw_only=True):
    """How often ticks of a job would be decided like this."""

    kind: str
    reason: str
    count: int


class SimulatedJob(Response, frozen=True, kw_only=True):
    """A job in a simulation."""

    job: str
    ticks: int
    runs: int
    decisions: list[SimulatedDecision]
    runs_beside_another: int
    runs_replaced: int
    most_waiting: int


class SimulatedCollision(Response, frozen=True, kw_only=True):
    """Jobs that start in the same second."""

    at: datetime
    jobs: list[str]


class SimulationResult(Response, frozen=True, kw_only=True, rename={"from_at": "from", "until_at": "until"}):
    """The result of a simulation of jobs."""

    from_at: datetime
    until_at: datetime
    timezone: str
    runs: int
    not_enabled: list[str]
    jobs: list[SimulatedJob]
    #: The number of minutes in which several jobs start, and the largest collisions.
    colliding_minutes: int
    collisions: list[SimulatedCollision]
    #: Jobs of which the policy in force would deny, put off or ask about a step, or may.
    policy: list[JobPolicy] = []


class PlannedField(Response, frozen=True, kw_only=True):
    """A field whose value would change; null where it has none."""

    field: str
    before: Any
    after: Any


class PlannedChange(Response, frozen=True, kw_only=True):
    """The change of one fire."""

    #: `added`, `removed` or `moved`.
    fate: str
    before: datetime | None
    after: datetime | None
    #: Whether clocks change on its day.
    clock_change: bool


class PlannedFires(Response, frozen=True, kw_only=True):
    """The changes of the fires of a job."""

    before: int
    after: int
    same: int
    added: int
    removed: int
    moved: int
    #: The time up to which fires were compared one by one.
    compared_until: datetime
    changes: list[PlannedChange]


class PlannedOddDay(Response, frozen=True, kw_only=True):
    """A day with a clock change, and its effect on the fires."""

    at: datetime
    timezone: str
    what: str


class JobPlan(Response, frozen=True, kw_only=True):
    """The planned changes of one job."""

    job: str
    change: str
    #: The job is paused and stays paused.
    stays_paused: bool
    timezone: str
    #: For a job that would be deleted: executions that would finish, and queued ones that would be cancelled.
    under_way: int
    queued: int
    fields: list[PlannedField]
    fires: PlannedFires
    clock_changes: list[PlannedOddDay]
    #: The steps of its next execution that the policy in force would deny, put off or ask about, or may.
    policy: list[StepRuling]
    #: Commands that need an approval and have none, and agents that start too often.
    warnings: list[str] = []


class JobsPlanned(Response, frozen=True, kw_only=True, rename={"from_at": "from", "until_at": "until"}):
    """The planned changes of several jobs and of their fires."""

    from_at: datetime
    until_at: datetime
    #: How many jobs would be created, changed, left unchanged and removed.
    jobs: dict[str, int]
    fires: dict[str, int]
    plan: list[JobPlan]
    #: Stands for this plan: `apply` takes it, and refuses if anything has changed since.
    digest: str = ""
