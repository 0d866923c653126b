"""Servers with tools that the settings name: programs that end with the attempt, and servers at a URL.

They speak the Model Context Protocol. Each attempt has connections of its own. A program is in the sandbox of guarded
commands, and has guardians that end it with the worker. Messages of servers are bounded in number, size and time, and
so are the programs that run at once.
"""

import asyncio
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Protocol

from gnomon.config.agents import ToolServerSettings
from gnomon.core.agents import server_messages
from gnomon.core.agents.server_messages import ServerAnswer, ServerDemand, ServerTool, ToolOutput
from gnomon.core.agents.spec import SERVER_PREFIX, AgentSpec, server_tool
from gnomon.errors import GnomonError, RequestFailed, UsageError
from gnomon.ports.http import HttpAnswer, HttpRequest, HttpSender
from gnomon.runners.agents.messages import ToolDescription
from gnomon.runners.attempt_table import RunningAttempt
from gnomon.runners.child_process import CHUNK, LineSplitter
from gnomon.runners.pipe_writer import PipeWriter
from gnomon.runners.shell import ShellExecutor, ShellInvocation, ShellProcess
from gnomon.version import __version__

#: How long a server at a URL may take to forget its session.
_GOODBYE_MS = 1_000
#: How many bytes and lines a program may write without answering anything, and how many bytes it may leave unread.
_MOST_UNANSWERED, _MOST_LINES, _MOST_UNREAD = 16 << 20, 10_000, 16 << 20
#: How much of the end of its other stream is kept.
_TAIL = 4_096
_MOST_OUTPUT = 65_536
_LONGEST_SESSION = 512
_TOO_MUCH = "it sent a message that is too long, or too many"
_JSON, _EVENTS = "application/json", "text/event-stream"


class ServerConnection(Protocol):
    """A connection to one server."""

    async def request(self, method: str, parameters: Mapping[str, object], *, seconds: float) -> Mapping[str, Any]:
        """The result of a request; UsageError if the server refuses it, ends, or does not answer in time."""
        ...

    async def notify(self, method: str, *, version: str, seconds: float) -> None:
        """Send a message without an answer. From then on the connection speaks this version of the protocol."""
        ...

    async def close(self) -> None:
        """End the connection, and the server if it is a program."""
        ...


class ProgramSlots:
    """The programs of servers that may run at once on a worker.

    An agent takes the slots of all its programs together, in the order in which agents ask: none waits for ever, and no
    two for each other. One that needs more than there are takes all of them.
    """

    def __init__(self, limit: int) -> None:
        self.limit = self._free = limit
        self._turn, self._freed = asyncio.Lock(), asyncio.Event()

    def has(self, count: int) -> bool:
        """Whether so many are free, and nobody waits for them."""
        return self._free >= min(count, self.limit) and not self._turn.locked()

    async def acquire(self, count: int) -> int:
        """Wait for so many slots; return the number to release."""
        count = min(count, self.limit)
        async with self._turn:
            while self._free < count:
                self._freed.clear()
                await self._freed.wait()
            self._free -= count
        return count

    def release(self, count: int) -> None:
        """Give slots back."""
        self._free += count
        self._freed.set()


class ToolServers:
    """The servers of one attempt, and the tools there that its agent may call."""

    def __init__(
        self,
        spec: AgentSpec,
        attempt: RunningAttempt,
        servers: Mapping[str, ToolServerSettings],
        commands: ShellExecutor,
        http: HttpSender | None,
        slots: ProgramSlots,
        *,
        start_seconds: float,
    ) -> None:
        """`servers` are those of the settings, with their secrets. `http` sends requests to any address.

        A server may take `start_seconds` to start and to list its tools.
        """
        self._start_seconds = start_seconds
        self._slots, self._taken = slots, 0
        self._spec, self._attempt = spec, attempt
        self._servers, self._commands, self._http = servers, commands, http
        self._wanted: dict[str, set[str]] = {}
        for tool in spec.tools:
            if tool.startswith(SERVER_PREFIX):
                server, name = server_tool(tool)
                self._wanted.setdefault(server, set()).add(name)
        self._connections: dict[str, ServerConnection] = {}

    @property
    def is_empty(self) -> bool:
        """Whether the agent has no tools of servers."""
        return not self._wanted

    async def open(self) -> Sequence[ToolDescription]:
        """Connect to all servers at once, and describe their tools; UsageError names the first that fails."""
        await self._take_slots()
        tasks = [asyncio.ensure_future(self._open(server)) for server in self._wanted]
        try:
            found = dict(zip(self._wanted, await asyncio.gather(*tasks), strict=True))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [self._description(tool, found) for tool in self._spec.tools if tool.startswith(SERVER_PREFIX)]

    async def call(self, tool: str, arguments: Mapping[str, object]) -> ToolOutput:
        """The result of a call; UsageError if the server does not give any."""
        server, name = server_tool(tool)
        parameters = {"name": name, "arguments": dict(arguments)}
        seconds = self._commands.timeout_ms / 1000
        try:
            result = await self._connections[server].request("tools/call", parameters, seconds=seconds)
        except UsageError as error:
            raise UsageError(f"the server {server} failed: {error}") from None
        return server_messages.output_of(result, _MOST_OUTPUT)

    async def close(self) -> None:
        """End all connections and programs."""
        await asyncio.gather(*(one.close() for one in self._connections.values()), return_exceptions=True)
        taken, self._taken = self._taken, 0
        self._slots.release(taken)

    async def _take_slots(self) -> None:
        programs = sum(bool(self._servers[name].command) for name in self._wanted)
        if not self._slots.has(programs):
            limit = f"agents.max_server_programs is {self._slots.limit}"
            self._attempt.log.add("info", f"it waits for the programs of other agents: {limit}")
        self._taken = await self._slots.acquire(programs)

    async def _open(self, server: str) -> Mapping[str, ServerTool]:
        try:
            async with asyncio.timeout(self._start_seconds):
                return await self._opened(server)
        except TimeoutError:
            raise UsageError(f"agents.servers.{server}: it did not start within {self._start_seconds:g} s") from None
        except (GnomonError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(f"agents.servers.{server}: {reason}") from None

    async def _opened(self, server: str) -> Mapping[str, ServerTool]:
        connection = await self._connected(self._servers[server])
        self._connections[server] = connection
        seconds = self._start_seconds
        hello = server_messages.greeting(__version__)
        answered = await connection.request("initialize", hello, seconds=seconds)
        await connection.notify(
            "notifications/initialized", version=server_messages.checked_greeting(answered), seconds=seconds
        )
        wanted, found, cursor = frozenset(self._wanted[server]), dict[str, ServerTool](), ""
        for _ in range(server_messages.MOST_PAGES):
            page = await connection.request("tools/list", {"cursor": cursor} if cursor else {}, seconds=seconds)
            tools, cursor = server_messages.tools_of(page, wanted)
            found |= {name: tool for name, tool in tools.items() if name not in found}
            if not cursor or wanted.issubset(found):
                break
        if missing := sorted(wanted - found.keys()):
            raise UsageError(f"it has no tool {missing[0]}")
        return found

    async def _connected(self, server: ToolServerSettings) -> ServerConnection:
        if server.url:
            if self._http is None:
                raise UsageError("this worker makes no requests")
            return HttpConnection(self._http, server.url, server.token)
        invocation = await asyncio.to_thread(
            self._commands.server_invocation,
            self._attempt,
            server.command,
            env=server.env,
            folders=server.folders,
            network=server.network and self._spec.network is True,
        )
        return ProgramConnection(invocation, self._commands, self._attempt)

    def _description(self, tool: str, found: Mapping[str, Mapping[str, ServerTool]]) -> ToolDescription:
        server, name = server_tool(tool)
        about = found[server][name]
        description = f"The tool {name} of the server {server}, which says about it: {about.description}"
        return ToolDescription(name=tool, description=description, schema=about.schema)


class ServerProcess(ShellProcess):
    """The running program of a server: its guardian processes with the program below them."""

    def __init__(
        self,
        invocation: ShellInvocation,
        commands: ShellExecutor,
        attempt: RunningAttempt,
        on_line: Callable[[bytes, bool], None],
        may_read: Callable[[int, int], bool],
    ) -> None:
        """`on_line` receives each line of its output, and whether it was cut.

        `may_read` receives the bytes and the lines of each piece of it, and says whether it is to be split.
        """
        self._said = _Tail(may_read)
        streams = _MeteredSplitter(server_messages.LONGEST_MESSAGE, on_line, may_read), self._said
        super().__init__(invocation, commands.restrictions, attempt, streams)

    @property
    def last_words(self) -> str:
        """The last line that it has written for people."""
        return server_messages.one_line(self._text(self._said.last_line, cut=False))

    def write(self, message: bytes) -> bool:
        """Send a message; False if too many wait that the program has not read."""
        if self._stdin.waiting > _MOST_UNREAD:
            return False
        self._stdin.write(message + b"\n")
        return True

    async def kill_tree(self) -> bool:
        """See SupervisedProcess.kill_tree."""
        self._stdin.close()
        return await super().kill_tree()

    def _spawn(self, pipes: Sequence[int]) -> "subprocess.Popen[bytes]":
        theirs, ours = os.pipe()
        self._stdin = PipeWriter(self._loop, ours)
        try:
            return self._spawn_with(theirs, pipes)
        except BaseException:
            self._stdin.close()
            raise
        finally:
            os.close(theirs)


class _MeteredSplitter(LineSplitter):
    """Splits the pieces that it may. Each line takes time, an empty one, too."""

    def __init__(
        self, limit: int, on_line: Callable[[bytes, bool], None], may_read: Callable[[int, int], bool]
    ) -> None:
        super().__init__(limit, on_line)
        self._may_read = may_read

    def feed(self, piece: bytes) -> None:
        """See LineSplitter.feed."""
        if self._may_read(len(piece), piece.count(b"\n")):
            super().feed(piece)


class _Tail(LineSplitter):
    """Keeps the end of a stream, and does not look at its lines."""

    def __init__(self, may_read: Callable[[int, int], bool]) -> None:
        super().__init__(CHUNK, lambda _line, _cut: None)
        self._may_read = may_read
        self._tail = b""

    @property
    def last_line(self) -> bytes:
        """The last line that is not blank; nothing of one whose beginning is not kept, which may be half a secret."""
        before, _, line = self._tail.rstrip().rpartition(b"\n")
        return line if before or len(self._tail) < _TAIL else b""

    def feed(self, piece: bytes) -> None:
        """See LineSplitter.feed."""
        if self._may_read(len(piece), 0):
            self._tail = (self._tail + piece)[-_TAIL:]


class ProgramConnection:
    """The connection to the program of a server, over its standard input and output."""

    def __init__(self, invocation: ShellInvocation, commands: ShellExecutor, attempt: RunningAttempt) -> None:
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[ServerAnswer]] = {}
        #: How many bytes and lines it has written since its last answer.
        self._unanswered = self._lines = 0
        self._failure = ""
        self._redact = attempt.log.redact
        self._process = ServerProcess(invocation, commands, attempt, self._receive, self._may_read)
        self._watching = asyncio.ensure_future(self._watch())
        self._ending: asyncio.Future[bool] | None = None

    async def request(self, method: str, parameters: Mapping[str, object], *, seconds: float) -> Mapping[str, Any]:
        """See ServerConnection.request."""
        if self._failure:
            raise UsageError(self._failure)
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        answered = self._waiting[number]
        try:
            self._write(server_messages.request_message(number, method, parameters))
            async with asyncio.timeout(seconds):
                return (await answered).checked_result()
        except TimeoutError:
            raise UsageError(f"it did not answer within {seconds:g} s") from None
        finally:
            del self._waiting[number]

    async def notify(self, method: str, *, version: str, seconds: float) -> None:
        """See ServerConnection.notify."""
        del version, seconds
        self._write(server_messages.notification_message(method))

    async def close(self) -> None:
        """See ServerConnection.close."""
        self._watching.cancel()
        await asyncio.shield(self._end())

    def _write(self, message: bytes) -> None:
        if not self._process.write(message):
            self._fail("it does not read what it is sent")

    def _may_read(self, size: int, lines: int) -> bool:
        self._unanswered += size
        self._lines += lines
        if self._unanswered > _MOST_UNANSWERED or self._lines > _MOST_LINES:
            self._fail(_TOO_MUCH)
        return not self._failure

    def _receive(self, line: bytes, cut: bool) -> None:  # noqa: FBT001 - as LineSplitter calls it
        if cut:
            self._fail(_TOO_MUCH)
        if self._failure or not line.strip():
            return
        try:
            message = server_messages.read_message(line)
        except UsageError as error:
            self._fail(str(error))
            return
        if isinstance(message, ServerDemand):
            self._write(message.answer)
        elif message is not None and (waiting := self._waiting.get(message.number)) and not waiting.done():
            self._unanswered = self._lines = 0
            waiting.set_result(message)

    async def _watch(self) -> None:
        await asyncio.wait([self._process.exited])
        # An answer that it has written before counts.
        await asyncio.shield(self._end())
        said = self._redact(self._process.last_words)
        self._fail(f"it has ended{f': {said}' if said else ''}")

    def _fail(self, reason: str) -> None:
        """Answer all requests with this reason, those to come too. A server that breaks the protocol is killed."""
        self._failure = self._failure or reason
        self._end()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(UsageError(self._failure))

    def _end(self) -> "asyncio.Future[bool]":
        """Kill the program with all that it has started: it may not listen to anything else."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._process.kill_tree_and_drain())
        return self._ending


class HttpConnection:
    """The connection to a server at a URL: a request for each message, over streamable HTTP."""

    def __init__(self, http: HttpSender, url: str, token: str) -> None:
        self._http, self._url = http, url
        self._numbers = count(1)
        self._headers = {"Content-Type": _JSON, "Accept": f"{_JSON}, {_EVENTS}", "Accept-Encoding": "identity"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"

    async def request(self, method: str, parameters: Mapping[str, object], *, seconds: float) -> Mapping[str, Any]:
        """See ServerConnection.request."""
        number = next(self._numbers)
        answer = await self._sent(server_messages.request_message(number, method, parameters), seconds)
        session = answer.headers.get("mcp-session-id", "")
        if session and session.isascii() and session.isprintable() and len(session) <= _LONGEST_SESSION:
            self._headers["Mcp-Session-Id"] = session
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        messages = server_messages.event_messages(answer.body) if kind == _EVENTS else [answer.body]
        for body in messages:
            message = server_messages.read_message(body)
            if isinstance(message, ServerAnswer) and message.number == number:
                return message.checked_result()
        raise UsageError("it gave no answer to the request")

    async def notify(self, method: str, *, version: str, seconds: float) -> None:
        """See ServerConnection.notify."""
        self._headers["Mcp-Protocol-Version"] = version
        await self._sent(server_messages.notification_message(method), seconds)

    async def close(self) -> None:
        """See ServerConnection.close."""
        if "Mcp-Session-Id" in self._headers:
            request = HttpRequest(method="DELETE", url=self._url, headers=self._headers)
            with suppress(RequestFailed):
                await self._http.send(request, timeout_ms=_GOODBYE_MS, max_bytes=CHUNK, cut_body=True)

    async def _sent(self, body: bytes, seconds: float) -> HttpAnswer:
        request = HttpRequest(method="POST", url=self._url, headers=self._headers, body=body)
        try:
            answer = await self._http.send(
                request, timeout_ms=round(seconds * 1000), max_bytes=server_messages.LONGEST_MESSAGE
            )
        except RequestFailed as error:
            raise UsageError(f"it {error}" if str(error).startswith("cannot") else str(error)) from None
        if not 200 <= answer.status < 300:
            raise UsageError(f"it answered {answer.status}")
        return answer
