"""The process of an agent, seen from the worker: it asks for permissions and calls of tools, and gives the answer.

The budget is kept here, outside of the process: it is asked for before each request to a model and each call of a tool.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from gnomon.core.agents import rules
from gnomon.core.agents.rules import AgentLimits, AgentSpending, ModelPrice
from gnomon.core.agents.sessions import LONGEST_TURN
from gnomon.core.durations import duration_text
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.errors import CommandRefused, UsageError, truncate
from gnomon.runners.agents.agent_starter import ForkedAgent
from gnomon.runners.agents.messages import (
    AboutToAsk,
    AgentAnswer,
    AgentFailure,
    AgentRequest,
    Answered,
    FromAgent,
    ModelFailure,
    Proceed,
    RejectedCall,
    ToAgent,
    ToolDescription,
    ToolRequest,
    ToolResult,
)
from gnomon.runners.attempt_table import RunningAttempt
from gnomon.runners.child_process import CHUNK, LineSplitter, SupervisedProcess, attempt_variables
from gnomon.runners.ipc import ChildResult
from gnomon.runners.outcomes import failed_outcome, give_up_outcome, returned_outcome
from gnomon.runners.pipe_writer import PipeWriter
from gnomon.runners.process_tree import MARK
from gnomon.runners.progress import ProgressReporter
from gnomon.runners.secrets import redacted_json

#: The longest message of the process, also how many bytes of calls may wait for their turn; and the longest call.
LONGEST_MESSAGE, LONGEST_CALL = 16 << 20, 1 << 20
_LONGEST_SHOWN = 500
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(FromAgent)
#: The variables of the worker that the process may need: neither keys nor settings of the clients are among them.
_VARIABLES = (
    "PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
)  # fmt: skip


def process_variables() -> dict[str, str]:
    """The variables that the processes of all agents have."""
    return {name: value for name in _VARIABLES if (value := os.environ.get(name)) is not None}


class ToolVerdict(msgspec.Struct, frozen=True):
    """The result of a call, and the word for it in the log."""

    text: str
    verdict: str


_TOO_LONG_CALL = ToolVerdict(
    f"failed: its arguments have more than {LONGEST_CALL} bytes", "failed: its arguments are too long"
)


class Tools(Protocol):
    """The tools of one attempt."""

    @property
    def needs_servers(self) -> bool:
        """Whether some of them are on servers."""
        ...

    async def open(self) -> Sequence[ToolDescription]:
        """Connect to the servers, and describe the tools there; UsageError if one cannot be used."""
        ...

    async def close(self) -> None:
        """End all servers."""
        ...

    async def call(self, tool: str, arguments: Mapping[str, object]) -> ToolVerdict:
        """Carry out a call; a refusal is a result, too."""
        ...


class AgentProcess(SupervisedProcess):
    """The process of one attempt of an agent."""

    def __init__(  # noqa: PLR0913 - the limits of one attempt
        self,
        request: AgentRequest,
        attempt: RunningAttempt,
        tools: Tools,
        *,
        limits: AgentLimits,
        prices: Mapping[str, ModelPrice],
        has_session: bool,
        may_be_repeated: bool,
        max_output_bytes: int,
        progress: ProgressReporter | None = None,
        forked: ForkedAgent | None = None,
    ) -> None:
        """`has_session` says whether the messages of the run are wanted. `progress` is told what the attempt spends.

        Without a `forked` process, a new one loads the library of models.

        `may_be_repeated` says whether another attempt may do again what the tools of this one have done.
        """
        self._attempt, self._tools = attempt, tools
        self._facts = attempt.facts()
        self._limits, self._prices = limits, prices
        self._has_session = has_session
        self._may_be_repeated = may_be_repeated
        self._max_output_bytes = max_output_bytes
        self._progress = progress
        self._called: dict[str, int] = {}
        self._calls: set[asyncio.Task[None]] = set()
        #: The bytes of the calls that have not ended.
        self._called_bytes = 0
        #: Calls take turns: each may depend on what the one before has written.
        self._turn = asyncio.Lock()
        self._outcome: AttemptOutcome | None = None
        self._spent = AgentSpending()
        super().__init__(
            attempt.log,
            (
                LineSplitter(LONGEST_MESSAGE, self._receive),
                *(LineSplitter(CHUNK, self._log_writer(level)) for level in ("stdout", "stderr")),
            ),
            forked,
        )
        if forked is not None:
            self._input = PipeWriter(self._loop, forked.given)
        #: The process loads the library of models in the meantime.
        self._opening = self._loop.create_task(self._open(request)) if tools.needs_servers else None
        if self._opening is None:
            self._send_request(request)
        time_ms = limits.budget.time_ms
        self._timer = self._loop.call_later(time_ms / 1000, self._time_over) if time_ms else None

    @property
    def ended(self) -> ChildResult | None:
        """The outcome that the answer, the failure or the budget stands for."""
        return None if self._outcome is None else ChildResult(self._outcome)

    @property
    def usage(self) -> AgentSpending:
        """See SupervisedProcess.usage."""
        return self._spent

    async def kill_tree(self) -> bool:
        """See SupervisedProcess.kill_tree. The calls that are under way end first, with all their processes."""
        if self._timer is not None:
            self._timer.cancel()
        self._input.close()
        if self._outcome is None:
            self._log.add("warning", f"ended without an answer: {self._summary()}")
        under_way = [*self._calls, *([] if self._opening is None else [self._opening])]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if self._opening is not None:
            await self._tools.close()
        return await super().kill_tree()

    def _spawn(self, pipes: Sequence[int]) -> subprocess.Popen[bytes]:
        answers, out, err = pipes
        theirs, ours = os.pipe()
        self._input = PipeWriter(self._loop, ours)
        try:
            return subprocess.Popen(  # noqa: S603 - our own program
                # -P: do not import modules from the working directory.
                [sys.executable, "-P", "-m", "gnomon.runners.agents.child_main", str(answers), str(os.getpid())],
                stdin=theirs,
                stdout=out,
                stderr=err,
                pass_fds=(answers,),
                start_new_session=True,
                env=process_variables() | attempt_variables(self._facts) | {MARK: self._mark},
            )
        except BaseException:
            self._input.close()
            raise
        finally:
            os.close(theirs)

    async def _open(self, request: AgentRequest) -> None:
        """Give the process its task, once the tools on servers are known."""
        try:
            described = await self._tools.open()
            self._send_request(msgspec.structs.replace(request, tools=(*request.tools, *described)))
        except Exception as error:  # noqa: BLE001 - the process must not wait for its task, whatever a server sends
            reason = str(error) if isinstance(error, UsageError) else f"the servers failed: {type(error).__name__}"
            self._end(give_up_outcome(self._shown(reason)))

    def _send_request(self, request: AgentRequest) -> None:
        self._input.write(_ENCODER.encode(request) + b"\n")

    def _receive(self, line: bytes, cut: bool) -> None:  # noqa: FBT001 - as LineSplitter calls it
        if cut:
            self._end(failed_outcome("the answer of the model is too long"))
            return
        with suppress(msgspec.DecodeError):
            message = _DECODER.decode(line)
            if self._outcome is None:
                self._act(message, len(line))

    def _act(self, message: FromAgent, size: int) -> None:
        match message:
            case AboutToAsk():
                self._ask()
            case Answered():
                self._count(message)
            case ModelFailure():
                onwards = f"; asking {message.instead} from now on" if message.instead else ""
                self._log.add("warning", f"{self._shown(message.reason)}{onwards}")
            case ToolRequest():
                self._begin_call(message, size)
            case RejectedCall():
                self._log_rejected(message)
            case AgentAnswer():
                self._finish(message)
            case AgentFailure():
                self._end(self._failure(message))

    def _send(self, message: ToAgent) -> None:
        self._input.write(_ENCODER.encode(message) + b"\n")

    def _ask(self) -> None:
        refusal = rules.request_refusal(self._limits, self._spent)
        if refusal is not None:
            self._exhausted(refusal)
            return
        self._spent = msgspec.structs.replace(self._spent, requests=self._spent.requests + 1)
        self._report()
        self._send(Proceed(rules.tokens_left(self._limits, self._spent)))

    def _count(self, answered: Answered) -> None:
        price = self._prices.get(answered.model)
        self._spent = rules.after_answer(
            self._spent, answered.model, answered.input_tokens, answered.output_tokens, price
        )
        self._report()
        excess = rules.excess(self._limits, self._spent)
        if excess is not None:
            self._exhausted(excess)

    def _begin_call(self, request: ToolRequest, size: int) -> None:
        if self._called_bytes + size > LONGEST_MESSAGE:
            self._end(failed_outcome(f"the model calls too much at once ({self._summary()})"))
            return
        self._called_bytes += size
        task = self._loop.create_task(self._call(request, size))
        self._calls.add(task)
        task.add_done_callback(lambda ended: self._end_call(ended, size))

    def _end_call(self, task: asyncio.Task[None], size: int) -> None:
        self._calls.discard(task)
        self._called_bytes -= size

    async def _call(self, request: ToolRequest, size: int) -> None:
        async with self._turn:
            refusal = rules.tool_refusal(self._limits.budget, self._spent, request.tool)
            if refusal is not None:
                self._exhausted(refusal)
            if self._outcome is not None:
                return
            self._spent = rules.after_tool_call(self._spent, request.tool)
            self._called[request.tool] = self._called.get(request.tool, 0) + 1
            begun, verdict = time.monotonic(), "interrupted"
            is_long = size > LONGEST_CALL
            shown = f"({size} bytes)" if is_long else self._shown(json.dumps(request.arguments, ensure_ascii=False))
            self._report(f"{request.tool} {shown}: began, and its end is not known")
            try:
                done = _TOO_LONG_CALL if is_long else await self._tools.call(request.tool, request.arguments)
                verdict = done.verdict
            finally:
                spent_ms = round(1000 * (time.monotonic() - begun))
                self._log.add("tool", f"{request.tool} {shown}: {verdict}, {spent_ms} ms")
            self._report()
            self._send(ToolResult(request.call, done.text))

    def _log_rejected(self, call: RejectedCall) -> None:
        """Log a call that never becomes one, so that the log shows what the model has tried."""
        name = truncate(self._log.redact(call.tool))
        refusal = CommandRefused(f"the job does not list the tool {name}")
        verdict = "failed: its arguments are no mapping" if call.is_listed else f"refused: {refusal}"
        self._log.add("tool", f"{name} {self._shown(call.arguments)}: {verdict}")

    def _report(self, call: str = "") -> None:
        if self._progress is not None:
            self._progress.report(self._attempt, self._spent, call)

    def _shown(self, text: str) -> str:
        """The beginning of the text, without secrets: half of one would not be found any more."""
        return truncate(self._log.redact(text), _LONGEST_SHOWN)

    def _finish(self, answer: AgentAnswer) -> None:
        value = msgspec.json.decode(answer.output)
        self._log.add("info", self._summary())
        outcome = returned_outcome(value, max_bytes=self._max_output_bytes, redact=self._log.redact)
        self._outcome = msgspec.structs.replace(outcome, turn=self._turn_of(answer))

    def _turn_of(self, answer: AgentAnswer) -> bytes | None:
        if not self._has_session:
            return None
        messages = redacted_json(bytes(answer.messages), self._log.redact)
        if len(messages) > LONGEST_TURN:
            self._log.add("warning", f"its messages have {len(messages)} bytes: the session does not keep them")
            return None
        return messages

    def _failure(self, failure: AgentFailure) -> AttemptOutcome:
        """The outcome of a failure: a provider that names the end of its refusal is asked again then."""
        reason = f"{self._shown(failure.reason)} ({self._summary()})"
        changed = not rules.may_repeat_calls(self._called)
        if not failure.temporary or (changed and not self._may_be_repeated):
            return give_up_outcome(reason)
        number = self._attempt.assignment.task.fence
        if after_ms := rules.wait_of(failure.after_ms, number=number):
            left = f"attempt {number} of {rules.MOST_WAITS} that may be put off"
            self._log.add("warning", f"{reason}; trying again after {duration_text(after_ms)} ({left})")
            return AttemptOutcome(result=Result.SNOOZED, snooze_ms=after_ms)
        return failed_outcome(reason)

    def _exhausted(self, limit: str) -> None:
        self._end(give_up_outcome(f"budget exhausted: {limit} ({self._summary()})"))

    def _time_over(self) -> None:
        self._exhausted(f"time: {(self._limits.budget.time_ms or 0) / 1000:g} s")

    def _summary(self) -> str:
        spent = self._spent
        calls = ", ".join(f"{tool} {count}" for tool, count in self._called.items())
        return (
            f"spent {spent.tokens} tokens and {rules.money(spent.cost_micros)} in {spent.requests} requests; "
            f"calls of tools: {calls or 'none'}"
        )

    def _end(self, outcome: AttemptOutcome) -> None:
        """End the process with this outcome; the first one counts."""
        if self._outcome is None:
            self._outcome = msgspec.structs.replace(outcome, error=outcome.error and self._log.redact(outcome.error))
            if not self.exited.done():
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGTERM)
