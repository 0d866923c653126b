"""The gate that allows everything."""

from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict, OutputRelease
from gnomon.core.runs.outcomes import Assignment
from gnomon.ports.execution import Gate

_ALLOWED = GateDecision(GateVerdict.ALLOW)


class OpenGate(Gate):
    """Allows every task and releases every output, at once."""

    def admit_now(self, request: AdmissionRequest) -> GateDecision:
        """See Gate.admit_now."""
        del request
        return _ALLOWED

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        """See Gate.admit."""
        return self.admit_now(request)

    def release_now(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        """See Gate.release_now."""
        del finished
        return OutputRelease(output=output)

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        """See Gate.release."""
        return self.release_now(finished, output)
