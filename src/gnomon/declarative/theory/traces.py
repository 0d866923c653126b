"""The observable behaviour of a scheduler: calls, starts, ends and crashes, each with its instant on the wall clock.

A trace is in the order of events. Instants increase with it, except where the clock was set.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TracedTask:
    """The observable part of a registration."""

    name: str
    cron: str
    retry_delay_ms: int


@dataclass(frozen=True, slots=True)
class Seen:
    """Base of all elements of a trace."""

    at: int


@dataclass(frozen=True, slots=True)
class InitCall(Seen):
    """`initialize` is called."""

    call: int
    tasks: tuple[TracedTask, ...]


@dataclass(frozen=True, slots=True)
class InitOk(Seen):
    """The call returns."""

    call: int


@dataclass(frozen=True, slots=True)
class InitError(Seen):
    """The call raises."""

    call: int
    #: Whether a test made the state fail, which permits the call to fail.
    excused: bool = False


@dataclass(frozen=True, slots=True)
class StopCall(Seen):
    """`stop` is called."""

    call: int


@dataclass(frozen=True, slots=True)
class StopReturn(Seen):
    """The call returns."""

    call: int


@dataclass(frozen=True, slots=True)
class RunStart(Seen):
    """The task's callback is invoked."""

    task: str
    run: int


@dataclass(frozen=True, slots=True)
class RunOk(Seen):
    """The invocation returns."""

    run: int


@dataclass(frozen=True, slots=True)
class RunError(Seen):
    """The invocation raises."""

    run: int


@dataclass(frozen=True, slots=True)
class Crash(Seen):
    """The process dies."""

    #: Tasks that count as interrupted although they were not running: the process died after their end and before that
    #: was written, or after they were marked as running and before they began.
    unwritten: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ClockSet(Seen):
    """The wall clock was set, or the machine was suspended; `at` is the time before."""

    to: int


@dataclass(frozen=True, slots=True)
class Excused(Seen):
    """Marks the end of a test-injected failure of the state, during which tasks could not start in time."""


@dataclass(frozen=True, slots=True)
class End(Seen):
    """The end of the observation."""


@dataclass(frozen=True, slots=True)
class TraceViolation:
    """A violation of the theory."""

    #: S1 to S6, L1 to L3, EA for an impossible trace, or `events` for an illegal transition.
    rule: str
    at: int
    text: str
