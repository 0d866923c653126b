"""The gate that is always open."""

from collections.abc import Sequence

from gnomon.core.runs.admission import Released, Request, Ruled, Ruling
from gnomon.core.runs.outcomes import Assignment

_ALLOWED = Ruled(Ruling.ALLOW)


class OpenGate:
    """Lets everything in, and everything out."""

    async def admit(self, requests: Sequence[Request]) -> Sequence[Ruled]:
        """See Gate.admit."""
        return [_ALLOWED] * len(requests)

    async def release(self, finished: Assignment, output: bytes | None) -> Released:
        """See Gate.release."""
        del finished
        return Released(output=output)
