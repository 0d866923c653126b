"""The tools of agents: commands, files, requests and verbs under the guarded policy, whatever the security profile.

Every call has a result that the model gets: the output framed as data, or the reason of a refusal.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from gnomon.core.agents.rules import framed_data, may_reach
from gnomon.core.agents.spec import FUNCTION_PREFIX, SERVER_PREFIX, VERB_PREFIX, AgentSpec, ToolName
from gnomon.core.pings import is_http_url
from gnomon.errors import AddressRefused, CommandRefused, GnomonError, UsageError, truncate
from gnomon.ports.http import HttpRequest, HttpSender
from gnomon.runners.agents.agent_process import ToolVerdict
from gnomon.runners.agents.file_tools import FileTools, text_argument
from gnomon.runners.agents.function_tools import FunctionTools
from gnomon.runners.agents.messages import ToolDescription
from gnomon.runners.agents.tool_servers import ToolServers
from gnomon.runners.attempt_table import RunningAttempt
from gnomon.runners.logs import storable
from gnomon.runners.shell import ShellExecutor

_HTTP_TIMEOUT_MS = 30_000
_MOST_BODY = 65_536
_MOST_COMMAND_OUTPUT = 65_536
_ALLOWED = "allowed"
NO_SCHEDULER = "needs the scheduler, which this worker cannot reach: it has no database"

_PATH = {"path": {"type": "string", "description": "A path in the workspace."}}
DESCRIPTIONS: Mapping[str, ToolDescription] = {
    one.name: one
    for one in (
        ToolDescription(
            name=ToolName.SHELL,
            description="Run programs in the workspace: words, pipes, && and ||; no redirection, no variables.",
            schema={
                "type": "object",
                "properties": {"command": {"type": "string", "description": "The command line."}},
                "required": ["command"],
                "additionalProperties": False,
            },
        ),
        ToolDescription(
            name=ToolName.READ_FILE,
            description="Read a text file of the workspace.",
            schema={"type": "object", "properties": _PATH, "required": ["path"], "additionalProperties": False},
        ),
        ToolDescription(
            name=ToolName.WRITE_FILE,
            description="Write a text file of the workspace, replacing it if it exists.",
            schema={
                "type": "object",
                "properties": {**_PATH, "content": {"type": "string"}},
                "required": ["path", "content"],
                "additionalProperties": False,
            },
        ),
        ToolDescription(
            name=ToolName.LIST_FILES,
            description="List the names in a folder of the workspace.",
            schema={"type": "object", "properties": _PATH, "additionalProperties": False},
        ),
        ToolDescription(
            name=ToolName.HTTP_GET,
            description="Fetch a URL. Redirects are not followed.",
            schema={
                "type": "object",
                "properties": {"url": {"type": "string"}},
                "required": ["url"],
                "additionalProperties": False,
            },
        ),
    )
}


def tool_description(name: str) -> ToolDescription:
    """The tool as the model sees it."""
    if not name.startswith(VERB_PREFIX):
        return DESCRIPTIONS[name]
    # Only agents with such tools need the table of the verbs.
    from gnomon.core.verbs import find_verb

    verb = find_verb(name.removeprefix(VERB_PREFIX))
    return ToolDescription(name=name, description=verb.about, schema=verb.schema)


class SchedulerVerbs(Protocol):
    """The verbs of the scheduler, for the models of agents."""

    async def call(self, verb: str, arguments: Mapping[str, object], *, job: str, tenant: str) -> str:
        """The answer for the model that works for the job. UsageError if the verb is refused, or fails.

        It may be called on any event loop.
        """
        ...


class AgentTools:
    """The tools of one attempt."""

    def __init__(
        self,
        spec: AgentSpec,
        attempt: RunningAttempt,
        commands: ShellExecutor,
        http: HttpSender | None,
        verbs: SchedulerVerbs | None,
        functions: FunctionTools,
        servers: ToolServers,
    ) -> None:
        self._servers = servers
        self._spec, self._attempt = spec, attempt
        self._commands, self._http, self._verbs, self._functions = commands, http, verbs, functions
        self._function_calls = 0
        self._tools: Mapping[str, Callable[[Mapping[str, object]], Awaitable[str]]] = {
            ToolName.SHELL: self._shell,
            ToolName.READ_FILE: self._read_file,
            ToolName.WRITE_FILE: self._write_file,
            ToolName.LIST_FILES: self._list_files,
            ToolName.HTTP_GET: self._http_get,
        }

    @property
    def needs_servers(self) -> bool:
        """See Tools.needs_servers."""
        return not self._servers.is_empty

    async def open(self) -> Sequence[ToolDescription]:
        """See Tools.open."""
        return await self._servers.open()

    async def close(self) -> None:
        """See Tools.close."""
        await self._servers.close()

    async def call(self, tool: str, arguments: Mapping[str, object]) -> ToolVerdict:
        """Carry out a call. A refusal is a result, too."""
        try:
            if tool.startswith(SERVER_PREFIX):
                return await self._call_server(tool, arguments)
            if tool.startswith(FUNCTION_PREFIX):
                return await self._call_function(tool, arguments)
            text = await self._tool(tool)(arguments)
        except CommandRefused as error:
            reason = self._attempt.log.redact(str(error))
            return ToolVerdict(f"refused: {reason}", f"refused: {reason}")
        except Exception as error:  # noqa: BLE001 - the model gets an answer to each call, whatever goes wrong
            reason = self._attempt.log.redact(_reason(error))
            return ToolVerdict(f"failed: {reason}", f"failed: {reason}")
        return ToolVerdict(framed_data(storable(self._attempt.log.redact(text))), _ALLOWED)

    def _tool(self, name: str) -> Callable[[Mapping[str, object]], Awaitable[str]]:
        self._check_listed(name)
        if name.startswith(VERB_PREFIX):
            return partial(self._call_verb, name.removeprefix(VERB_PREFIX))
        return self._tools[name]

    def _check_listed(self, name: str) -> None:
        if name not in self._spec.tools:
            raise CommandRefused(f"the job does not list the tool {truncate(name)}")

    async def _call_function(self, tool: str, arguments: Mapping[str, object]) -> ToolVerdict:
        self._check_listed(tool)
        # Nobody knows what a function changes.
        self._commands.refuse_changes()
        self._function_calls += 1
        return await self._functions.call(self._attempt, tool, arguments, number=self._function_calls)

    async def _call_server(self, tool: str, arguments: Mapping[str, object]) -> ToolVerdict:
        self._check_listed(tool)
        # Nobody knows what a server changes.
        self._commands.refuse_changes()
        try:
            output = await self._servers.call(tool, arguments)
        except UsageError as error:
            # The reason may be in the words of the server.
            reason = storable(self._attempt.log.redact(str(error)))
            return ToolVerdict(f"failed: {framed_data(reason)}", f"failed: {reason}")
        text = framed_data(storable(self._attempt.log.redact(output.text)))
        return ToolVerdict(f"failed: {text}", "failed") if output.failed else ToolVerdict(text, _ALLOWED)

    async def _call_verb(self, verb: str, arguments: Mapping[str, object]) -> str:
        if self._verbs is None:
            raise CommandRefused(NO_SCHEDULER)
        return await self._verbs.call(verb, arguments, job=self._attempt.job, tenant=self._attempt.tenant)

    async def _shell(self, arguments: Mapping[str, object]) -> str:
        command = text_argument(arguments, "command")
        network = self._spec.network is True
        invocation = await asyncio.to_thread(self._commands.tool_invocation, self._attempt, command, network=network)
        process = self._commands.started(self._attempt, invocation)
        try:
            await asyncio.wait([process.exited], timeout=self._commands.timeout_ms / 1000)
            timed_out = not process.exited.done()
        finally:
            # A cancelled call leaves no process behind.
            gone = await asyncio.shield(process.kill_tree_and_drain())
        if timed_out or not gone:
            raise TimeoutError(0, f"it took longer than {self._commands.timeout_ms / 1000:g} s")
        ended = process.ended
        output = process.partial_output if ended is None else ended.outcome.output
        return truncate((output or b"{}").decode(), _MOST_COMMAND_OUTPUT)

    async def _read_file(self, arguments: Mapping[str, object]) -> str:
        return await self._file(FileTools.read_file, text_argument(arguments, "path"))

    async def _write_file(self, arguments: Mapping[str, object]) -> str:
        self._commands.refuse_changes()
        path, content = text_argument(arguments, "path"), text_argument(arguments, "content")
        return await self._file(FileTools.write_file, path, content)

    async def _list_files(self, arguments: Mapping[str, object]) -> str:
        return await self._file(FileTools.list_files, text_argument(arguments, "path", "."))

    async def _file(self, tool: Callable[..., str], *arguments: str) -> str:
        """The result of a tool for files, which looks at the disk, and may have to make the workspace first."""
        return await asyncio.to_thread(lambda: tool(self._commands.file_tools(self._attempt), *arguments))

    async def _http_get(self, arguments: Mapping[str, object]) -> str:
        url = text_argument(arguments, "url")
        if not is_http_url(url):
            raise ValueError("url must be an http or https URL without credentials")
        host = urlsplit(url).hostname or ""
        if self._http is None or not may_reach(self._spec.network, host):
            raise CommandRefused(f"the job does not list the host {truncate(host)} in network")
        try:
            answer = await self._http.send(
                HttpRequest(method="GET", url=url, headers={"Accept-Encoding": "identity"}),
                timeout_ms=_HTTP_TIMEOUT_MS,
                max_bytes=_MOST_BODY,
                cut_body=True,
            )
        except AddressRefused as error:
            raise CommandRefused(f"the URL is refused: {error}") from None
        about = {"status": answer.status, "type": answer.headers.get("content-type", ""), "cut": answer.cut}
        return f"{msgspec.json.encode(about).decode()}\n{answer.body.decode(errors='replace')}"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or os.strerror(error.errno or 0)
    return str(error) if isinstance(error, GnomonError | ValueError) else type(error).__name__
