"""How the scheduler is, part by part."""

import asyncio
from collections.abc import Awaitable, Callable
from enum import StrEnum

from msgspec import Struct

from gnomon.core.answers import Component, HealthReport
from gnomon.core.instants import instant_of
from gnomon.ports.clock import Clock
from gnomon.version import __version__

#: A part that does not say how it is within so many seconds is not well.
_PATIENCE_SECONDS = 2.0


class Status(StrEnum):
    """How a part is."""

    OK = "ok"
    #: It has nothing to do here: another process does it.
    IDLE = "idle"
    ERROR = "error"


class Finding(Struct, frozen=True):
    """What a look at a part has shown. The message is for everybody: no names, no addresses."""

    status: Status
    message: str


Check = Callable[[], Awaitable[Finding]]


class HealthDesk:
    """A table of parts and how to look at each; whoever adds a part adds a line."""

    def __init__(self, clock: Clock, checks: dict[str, Check] | None = None) -> None:
        self._clock = clock
        self.checks: dict[str, Check] = checks or {}

    async def report(self) -> HealthReport:
        """How all of them are. None can hold up the answer for long."""
        found = await asyncio.gather(*(self._looked(check) for check in self.checks.values()))
        now = instant_of(self._clock.now())
        worst = Status.ERROR if any(one.status is Status.ERROR for one in found) else Status.OK
        return HealthReport(
            status=worst.value,
            version=__version__,
            components=[
                Component(component=name, status=one.status.value, message=one.message, checked_at=now)
                for name, one in zip(self.checks, found, strict=True)
            ],
        )

    async def _looked(self, check: Check) -> Finding:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await check()
        except TimeoutError:
            return Finding(Status.ERROR, "does not answer")
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a part, the others are still asked
            return Finding(Status.ERROR, f"cannot be asked: {type(error).__name__}")
