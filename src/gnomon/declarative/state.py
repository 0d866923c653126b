"""Where records are kept: what the scheduler needs, the one in memory, and how a place is named."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from gnomon.declarative.errors import StateInUseError
from gnomon.errors import FieldError

_URL = "sqlite:///"


class State(Protocol):
    """Rows under numbers. Whoever has opened it is the only one until it is closed, or dies."""

    async def open(self) -> list[tuple[int, object]]:
        """Take possession, or StateInUseError; all rows, by their numbers."""
        ...

    async def write(self, kept: Sequence[tuple[int, str]], removed: Sequence[int] = ()) -> None:
        """All of it is durable when this returns, and none of it if it raises. Writing it again changes nothing."""
        ...

    async def close(self) -> None:
        """Let go. Closing what is not open does nothing."""
        ...


class MemoryState:
    """Rows that live as long as this object: for tests and simulations."""

    def __init__(self, rows: Iterable[tuple[int, object]] = ()) -> None:
        self.rows: dict[int, object] = dict(rows)
        self.is_open = False

    async def open(self) -> list[tuple[int, object]]:
        """See State.open."""
        if self.is_open:
            raise StateInUseError
        self.is_open = True
        return sorted(self.rows.items())

    async def write(self, kept: Sequence[tuple[int, str]], removed: Sequence[int] = ()) -> None:
        """See State.write."""
        self.rows.update(kept)
        for number in removed:
            self.rows.pop(number, None)

    async def close(self) -> None:
        """See State.close."""
        self.is_open = False


def state_at(place: object) -> State:
    """The state that `place` names: a path, a SQLite URL, or the state itself."""
    if not isinstance(place, str | os.PathLike):
        if not all(callable(getattr(place, method, None)) for method in ("open", "write", "close")):
            raise FieldError("state", place, "must be a path, a sqlite:/// URL or a State")
        state: State = place  # type: ignore[assignment]  # it has been looked at
        return state
    from gnomon.declarative.statefile import StateFile

    text = os.fspath(place)
    if isinstance(text, bytes):
        raise FieldError("state", place, "must be a text")
    if "://" in text and not text.startswith(_URL):
        raise FieldError("state", _without_secrets(text), "must be a path or a sqlite:/// URL")
    path = text.removeprefix(_URL)
    if path in ("", ":memory:") or "\0" in path:
        raise FieldError("state", text, "must name a file; what must not last can be a MemoryState()")
    return StateFile(Path(path).absolute())


def _without_secrets(url: str) -> str:
    return url.partition("://")[0] + "://…"
