"""Gates that answer late, wrongly or never, for the tests of everything that asks a gate."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Self

import pytest

from gnomon.adapters.gate import OpenGate
from gnomon.core.model import TaskId
from gnomon.core.runs.admission import AdmissionRequest, GateDecision, GateVerdict, OutputRelease
from gnomon.core.runs.outcomes import Assignment
from gnomon.core.runs.workflow import Workflow
from gnomon.ports.execution import Gate
from gnomon.testing.clock import VirtualClock

#: The behaviour of a gate by name, and the expected message.
FaultTable = Mapping[str, tuple[Callable[[], Any], str]]
#: Marks a test of what only a gate that answers at once makes possible.
at_once = pytest.mark.parametrize("any_gate", [OpenGate], indirect=True, ids=["gate_at_once"])
ALLOWED = GateDecision(GateVerdict.ALLOW)
#: How many workflows a gate hangs for, and whether its calls end when they are cancelled.
many_hung = pytest.mark.parametrize(
    ("workflows", "cancellable"),
    [(4, True), (4, False), (40, True), (40, False)],
    ids=["4", "4-uncancellable", "40", "40-uncancellable"],
)


class LateGate(Gate):
    """Allows everything, but never at once: every request takes the slow path."""

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        del request
        return ALLOWED

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        del finished
        return OutputRelease(output=output)


class CountingGate(LateGate):
    """Counts the calls that are under way, and what it was asked about."""

    def __init__(self) -> None:
        self.asked: list[TaskId] = []
        self.calls = self.most_calls = self.cancelled = 0

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        self.asked.append(request.waiting.task.task_id)
        decision: GateDecision = await self._counted(self._admit, request)
        return decision

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        released: OutputRelease = await self._counted(self._release, finished, output)
        return released

    async def _counted(self, answer: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401 - of any kind
        self.calls += 1
        self.most_calls = max(self.calls, self.most_calls)
        try:
            return await answer(*args)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.calls -= 1

    async def _admit(self, request: AdmissionRequest) -> GateDecision:
        del request
        return ALLOWED

    async def _release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        del finished
        return OutputRelease(output=output)


class SlowGate(CountingGate):
    """Answers when the test says so; everything about workflows that are not `slow` is allowed at once."""

    def __init__(self, slow: str = "report") -> None:
        super().__init__()
        self.slow = slow
        self.opened = asyncio.Event()
        self.decision, self.quarantine = ALLOWED, ""

    def admit_now(self, request: AdmissionRequest) -> GateDecision | None:
        return None if request.workflow.workflow_id.startswith(self.slow) else ALLOWED

    async def _admit(self, request: AdmissionRequest) -> GateDecision:
        del request
        await self.opened.wait()
        return self.decision

    def release_now(self, finished: Assignment, output: bytes | None) -> OutputRelease | None:
        return None if finished.workflow.workflow_id.startswith(self.slow) else OutputRelease(output=output)

    async def _release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        del finished
        await self.opened.wait()
        return OutputRelease(output=output, quarantine=self.quarantine or None)


class TimedGate(CountingGate):
    """Answers every request after the same time on the clock of the test."""

    def __init__(self, clock: VirtualClock, seconds: float) -> None:
        super().__init__()
        self._clock, self._seconds = clock, seconds

    async def _admit(self, request: AdmissionRequest) -> GateDecision:
        del request
        await self._take_time()
        return ALLOWED

    async def _release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        del finished
        await self._take_time()
        return OutputRelease(output=output)

    async def _take_time(self) -> None:
        due = self._clock.elapsed() + self._seconds
        while self._clock.elapsed() < due:  # noqa: ASYNC110 - the test advances the clock
            await asyncio.sleep(0)


class FaultyGate(OpenGate):
    """Does as a fault says about the workflow `bad`, until it is `repaired`; allows everything else."""

    def __init__(self, fault: Callable[[], Any]) -> None:
        self.fault, self.repaired = fault, False
        self.asked = 0

    def _bad(self, workflow_id: str) -> bool:
        return workflow_id == "bad" and not self.repaired

    def admit_now(self, request: AdmissionRequest) -> GateDecision:
        return None if self._bad(request.workflow.workflow_id) else ALLOWED  # type: ignore[return-value]

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        self.asked += 1
        return (await _result(self.fault)) if self._bad(request.workflow.workflow_id) else ALLOWED

    def release_now(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        return None if self._bad(finished.workflow.workflow_id) else OutputRelease(output=output)  # type: ignore[return-value]

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        self.asked += 1
        bad = self._bad(finished.workflow.workflow_id)
        return (await _result(self.fault)) if bad else OutputRelease(output=output)


async def _result(fault: Callable[[], Any]) -> Any:  # noqa: ANN401 - that is the point
    found = fault()
    return await found if asyncio.iscoroutine(found) else found


async def hang() -> None:
    """Never returns."""
    await asyncio.Event().wait()


async def hang_on() -> None:
    """Never returns, and is not to be cancelled at the first attempt."""
    try:
        await hang()
    except asyncio.CancelledError:
        await hang()


class HangingForMany(LateGate):
    """Hangs for every workflow whose name begins with `hung`; answers all others after the same time."""

    def __init__(self, clock: VirtualClock, seconds: float, *, cancellable: bool) -> None:
        self._slow, self._hang = TimedGate(clock, seconds), hang if cancellable else hang_on
        self._input_side = self._output_side = False
        #: The calls under way for workflows for which it hangs, and the most of them that there were.
        self.hung = self.most_hung = 0

    def on(self, side: str) -> Self:
        """Hang on this side alone, and answer at once on the other."""
        self._input_side, self._output_side = side == "admit", side == "release"
        return self

    def admit_now(self, request: AdmissionRequest) -> GateDecision | None:
        del request
        return None if self._input_side else ALLOWED

    def release_now(self, finished: Assignment, output: bytes | None) -> OutputRelease | None:
        del finished
        return None if self._output_side else OutputRelease(output=output)

    async def admit(self, request: AdmissionRequest) -> GateDecision:
        await self._hang_for(request.workflow)
        return await self._slow.admit(request)

    async def release(self, finished: Assignment, output: bytes | None) -> OutputRelease:
        await self._hang_for(finished.workflow)
        return await self._slow.release(finished, output)

    async def _hang_for(self, definition: Workflow) -> None:
        if not definition.workflow_id.startswith("hung"):
            return
        self.hung += 1
        self.most_hung = max(self.hung, self.most_hung)
        try:
            await self._hang()
        finally:
            self.hung -= 1


class Unspeakable(Exception):
    """An object whose repr fails."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def _raise(error: BaseException) -> Callable[[], None]:
    def fault() -> None:
        raise error

    return fault


#: Faults of a gate instead of an answer.
BROKEN: FaultTable = {
    "raises": (_raise(RuntimeError("no\x00pe\nat all")), "the gate has raised RuntimeError: no pe at all"),
    "raises without a word": (_raise(ValueError()), "the gate has raised ValueError:"),
    "raises at length": (_raise(ValueError("x" * 100_000)), "xxx…"),
    "raises a timeout": (_raise(TimeoutError("5 s")), "the gate has raised TimeoutError: 5 s"),
    "raises an error without text": (_raise(Unspeakable()), "the gate has raised Unspeakable: (no text)"),
    "cancels itself": (_raise(asyncio.CancelledError()), "the gate has cancelled the call"),
    "answers None": (lambda: None, "it returned NoneType"),
    "answers with a word": (lambda: "allow", "it returned str"),
    "answers with too few": (list, "it returned list"),
    "hangs": (hang, "the gate has not answered within 5 s"),
    "hangs and cannot be cancelled": (hang_on, "the gate has not answered within 5 s"),
}


def _decided(*reported: Any, **more: Any) -> Callable[[], Any]:  # noqa: ANN401 - anything but what is right
    return lambda: GateDecision(*reported, **more)


#: Invalid decisions.
NONSENSE: FaultTable = {
    "an unknown verdict": (_decided("maybe"), "the unknown verdict 'maybe'"),
    "a verdict as text": (_decided("allow"), "the unknown verdict 'allow'"),
    "no verdict": (_decided(None), "the unknown verdict None"),
    "a reason of bytes": (_decided(GateVerdict.DENY, b"no"), "a reason of type bytes"),
    "no reason": (_decided(GateVerdict.DENY, None), "a reason of type NoneType"),
    "a delay into the past": (_decided(GateVerdict.LATER, "", -1), "a delay of -1 ms"),
    "a delay for ever": (_decided(GateVerdict.LATER, "", 1 << 80), "a delay of 1208925819614629174706176 ms"),
    "half a delay": (_decided(GateVerdict.LATER, "", 0.5), "a delay of 0.5 ms"),
    "a delay that is no number": (_decided(GateVerdict.LATER, "", float("nan")), "a delay of nan ms"),
    "an answer about another task": (
        _decided(GateVerdict.ALLOW, task_id="task_x"),
        "it answered about the task 'task_x'",
    ),
}


def _released(**reported: Any) -> Callable[[], Any]:  # noqa: ANN401
    return lambda: OutputRelease(**reported)


#: Invalid releases.
RELEASE_NONSENSE: FaultTable = {
    "an output of text": (_released(output="1"), "an output of type str"),
    "an output that is not JSON": (_released(output=b"{"), "an output that is not JSON"),
    "an output that is not even text": (_released(output=b'"\xff"'), "an output that is not JSON"),
    "an output that nobody can read": (_released(output=b"[" * 100_000), "no valid answer"),
    "a quarantine of bytes": (_released(output=None, quarantine=b"x"), "a quarantine of type bytes"),
    "a decision about the task": (lambda: ALLOWED, "it returned GateDecision"),
}
