"""A look at the whole of a store, for those who watch over it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gnomon.core.model import RunId


class JobCard(Struct, frozen=True, kw_only=True):
    """A job, as far as gauges show it."""

    job: str
    next_fire_at: int | None
    #: One of its runs excludes others.
    locked: bool


class Survey(Struct, frozen=True, kw_only=True):
    """How things stand."""

    #: The store's clock.
    store_at: int
    schema: int
    jobs: int
    #: Schedules whose fire is due and not decided, since when, and how many have been for too long.
    due: int
    oldest_due_at: int | None
    overdue: int
    #: Since when the oldest task has waited for a worker.
    ready_since_at: int | None
    workers: int
    #: Shards whose leases are not over, and how many hold them.
    shards: int
    holders: int
    unresolved: int
    #: The first jobs by name.
    cards: tuple[JobCard, ...] = ()


class Surveyor(Protocol):
    """Reads only, and of each table no more than an index gives away."""

    async def survey(self, now: int, *, overdue_before: int, cards: int) -> Survey:
        """How things stand, with so many jobs in detail."""
        ...

    async def steps(self, runs: Sequence[RunId]) -> Mapping[RunId, Sequence[tuple[str, str]]]:
        """The steps of runs that have several, each with its state. Items are not steps."""
        ...
