"""Registered functions as tools of agents. Each call has a process of its own, which ends with the call."""

import asyncio
import inspect
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gnomon.core.agents.rules import framed_data
from gnomon.core.agents.spec import FUNCTION_PREFIX
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.errors import FieldError, truncate
from gnomon.runners.agents.agent_process import ToolVerdict
from gnomon.runners.agents.messages import ToolDescription
from gnomon.runners.attempt_table import RunnerEnvironment, RunningAttempt
from gnomon.runners.child_process import ChildProcess, output_limit
from gnomon.runners.child_requests import plain_request
from gnomon.runners.logs import storable
from gnomon.runners.registry import Function, Functions

_MOST_OUTPUT = 65_536
_LONGEST_REASON = 500


class FunctionTools:
    """The functions of one worker, as tools."""

    def __init__(self, functions: Functions, environment: RunnerEnvironment, imports: Sequence[str]) -> None:
        self._functions, self._environment, self._imports = functions, environment, imports

    def description(self, tool: str) -> ToolDescription:
        """The tool as the model sees it; FieldError if this worker lacks the function."""
        function = self._function(tool)
        about = (inspect.getdoc(function.body) or "").partition("\n\n")[0] or f"Call the function {function.name}."
        return ToolDescription(name=tool, description=about, schema=function.binder.schema)

    async def call(
        self, attempt: RunningAttempt, tool: str, arguments: Mapping[str, object], *, number: int
    ) -> ToolVerdict:
        """The result of the call of this number. Text of the function is data, also if it is that of an error."""
        facts = attempt.facts()
        # Two calls are two effects, also with the same arguments.
        facts = replace(facts, idempotency_key=f"{facts.idempotency_key}-{facts.attempt}-{number}")
        # A model may write ${secret:NAME} into arguments: only people name secrets.
        request = plain_request(self._function(tool), arguments, attempt, self._environment, self._imports, facts=facts)
        process = ChildProcess(request, attempt.log, limit=output_limit(self._environment.max_output_bytes))
        try:
            # The timeout of the attempt cancels the call.
            await asyncio.wait([process.exited])
        finally:
            gone = await asyncio.shield(process.kill_tree_and_drain())
        if not gone:
            return ToolVerdict("failed: its process cannot be killed", "failed: its process cannot be killed")
        ended = process.ended
        return _verdict(attempt, None if ended is None else ended.outcome, process.exit_description)

    def _function(self, tool: str) -> Function:
        function = self._functions.get(tool.removeprefix(FUNCTION_PREFIX))
        if function is None:
            raise FieldError("agent.tools", tool, "names a function that this worker does not have")
        return function


def _verdict(attempt: RunningAttempt, outcome: AttemptOutcome | None, exited: str) -> ToolVerdict:
    if outcome is not None and outcome.result is Result.SUCCEEDED:
        text = attempt.log.redact((outcome.output or b"null").decode())
        return ToolVerdict(framed_data(storable(truncate(text, _MOST_OUTPUT))), "allowed")
    reason = exited if outcome is None else outcome.error or outcome.result.value
    reason = truncate(storable(attempt.log.redact(reason)), _LONGEST_REASON)
    return ToolVerdict(f"failed: {framed_data(reason)}", f"failed: {' '.join(reason.split())}")
