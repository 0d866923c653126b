"""The gate that is always open."""

from collections.abc import Sequence

from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict, OutputRelease
from gnomon.core.runs.outcomes import Assignment

_ALLOWED = GateDecision(GateVerdict.ALLOW)


class OpenGate:
    """Lets everything in, and everything out."""

    async def admit(self, requests: Sequence[AdmissionRequest]) -> Sequence[GateDecision]:
        """See Gate.admit."""
        return [_ALLOWED] * len(requests)

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        """See Gate.release."""
        del finished
        return OutputRelease(output=output)
