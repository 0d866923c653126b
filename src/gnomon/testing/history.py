"""What happened in a simulation, as the checker wants it: what was said, what was decided, by whom and when."""

from dataclasses import dataclass, field

from gnomon.core.model import Decision, Run, RunId, Schedule, ScheduleUid
from gnomon.ports.schedules import Pause, Revision


@dataclass(frozen=True, slots=True)
class Commit:
    """One schedule's verdict that was carried out."""

    #: Commits are numbered in the order in which the store made them.
    number: int
    uid: ScheduleUid
    schedule: Schedule
    decisions: tuple[Decision, ...]
    #: The wall clock of whoever decided.
    at: int
    #: The same moment on the clock that is never set.
    elapsed_ms: int
    #: None for a decision that an operator's change made.
    term: int | None
    holder: str | None
    #: What the schedule became by an operator's change; None if it was deleted, or nobody changed it.
    changed: Schedule | None = None


@dataclass(slots=True)
class Life:
    """Everything about one schedule."""

    uid: ScheduleUid
    revisions: tuple[Revision, ...] = ()
    pauses: tuple[Pause, ...] = ()
    runs: tuple[Run, ...] = ()
    #: How it stood at the end; None if it was deleted.
    final: Schedule | None = None
    #: When it was deleted, if it was.
    deleted_at: int | None = None
    #: The ledger's rows at the end, by planned time.
    ledger: dict[int, Decision] = field(default_factory=dict)


@dataclass(slots=True)
class History:
    """A whole simulation."""

    started_at: int
    ended_at: int = 0
    commits: list[Commit] = field(default_factory=list)
    lives: dict[ScheduleUid, Life] = field(default_factory=dict)
    #: Run to how many commits there were when it ended, in the order of the ends.
    ended: dict[RunId, int] = field(default_factory=dict)
    #: When schedules were deleted, by the wall clock of whoever did it.
    deleted: dict[ScheduleUid, int] = field(default_factory=dict)
    #: Stretches of wall time in which something was broken on purpose: from, to.
    faults: list[tuple[int, int]] = field(default_factory=list)

    def quiet(self, start: int, end: int) -> bool:
        """Whether nothing was broken between the two."""
        return all(until < start or since > end for since, until in self.faults)
