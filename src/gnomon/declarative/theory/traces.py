"""What can be seen of a scheduler from outside: calls, starts, ends, crashes, each with the wall clock's instant.

The order of a trace is the order in which things happened. Instants follow it, except where the clock was set.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TracedTask:
    """A registration as far as it can be seen."""

    name: str
    cron: str
    retry_delay_ms: int


@dataclass(frozen=True, slots=True)
class Seen:
    """Something was seen at an instant."""

    at: int


@dataclass(frozen=True, slots=True)
class InitCall(Seen):
    """`initialize` is entered."""

    call: int
    tasks: tuple[TracedTask, ...]


@dataclass(frozen=True, slots=True)
class InitOk(Seen):
    """That call returns."""

    call: int


@dataclass(frozen=True, slots=True)
class InitError(Seen):
    """That call raises."""

    call: int
    #: The state was made to fail, which excuses it.
    excused: bool = False


@dataclass(frozen=True, slots=True)
class StopCall(Seen):
    """`stop` is entered."""

    call: int


@dataclass(frozen=True, slots=True)
class StopReturn(Seen):
    """That call returns."""

    call: int


@dataclass(frozen=True, slots=True)
class RunStart(Seen):
    """The task's callback is invoked."""

    task: str
    run: int


@dataclass(frozen=True, slots=True)
class RunOk(Seen):
    """That invocation returns."""

    run: int


@dataclass(frozen=True, slots=True)
class RunError(Seen):
    """That invocation raises."""

    run: int


@dataclass(frozen=True, slots=True)
class Crash(Seen):
    """The process dies, and everything in it."""

    #: Tasks that count as interrupted although they were not running: their end was seen, and died with the process
    #: before it was written; or they were written down as running, and the process died before they began.
    unwritten: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ClockSet(Seen):
    """The wall clock was set, or stood still with its machine; `at` is what it showed before."""

    to: int


@dataclass(frozen=True, slots=True)
class Excused(Seen):
    """Until here the state was made to fail, so that nothing could be started in time."""


@dataclass(frozen=True, slots=True)
class End(Seen):
    """Nobody looked any further."""


@dataclass(frozen=True, slots=True)
class TraceViolation:
    """Something that no correct scheduler does."""

    #: S1 to S6, L1 to L3, or EA for a trace that cannot be.
    rule: str
    at: int
    text: str
