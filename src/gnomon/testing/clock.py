"""Time that passes only because someone says so."""


class VirtualClock:
    """Both clocks of a machine. `advance` lets time pass; `set_back_or_forth` moves the wall clock alone."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._elapsed_ms = 0

    def now(self) -> int:
        """See Clock.now."""
        return self._now

    def until(self, at: int) -> float:
        """See Clock.until."""
        return (at - self._now) / 1000

    def elapsed(self) -> float:
        """See Clock.elapsed."""
        return self._elapsed_ms / 1000

    async def sleep(self, seconds: float) -> None:
        """See Clock.sleep: whoever waits makes the time pass."""
        self.advance(round(seconds * 1000))

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._now += ms
        self._elapsed_ms += ms

    def set_back_or_forth(self, ms: int) -> None:
        """Set the wall clock, as an administrator or a time server does, or a lid that was closed."""
        self._now += ms


class CountedIds:
    """Names in the order they were asked for: the same in every run."""

    def __init__(self) -> None:
        self._last = 0

    def new(self, prefix: str, at: int) -> str:
        """See Ids.new."""
        self._last += 1
        return f"{prefix}_{at & (1 << 48) - 1:012x}{self._last:020x}"


class Recorder:
    """Events, kept in the order they were emitted."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, object]]] = []

    def emit(self, name: str, **facts: object) -> None:
        """See Events.emit."""
        self.seen.append((name, facts))

    def names(self) -> list[str]:
        """What happened, without the facts."""
        return [name for name, _ in self.seen]
