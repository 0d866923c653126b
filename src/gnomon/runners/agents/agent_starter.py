"""The starter of agents, seen from the worker: a process that has loaded the library of models, and forks agents.

An agent alone would need a second of processor time for the library. If the starter cannot help, each agent loads it.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import count

import msgspec

from gnomon.runners.agents.messages import (
    AgentStarted,
    ReapAgent,
    StartAgent,
    StarterReport,
    StarterRequest,
)
from gnomon.runners.process_memory import memory_reads_forbidden

#: How long the starter may take to load the library and to fork, in seconds.
_START_SECONDS = 60.0
#: How long it waits for the next agent: it takes as much memory as an agent.
_IDLE_MS = 60_000
_MOST_BYTES = 65_536
#: How many agents are asked for at a time: the starter forks them one after the other, and the socket fills up.
_MOST_STARTS = 8
_KILLED = -signal.SIGKILL
_PROGRAM = "gnomon.runners.agents.starter_main"
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(StarterReport)


class ForkedAgent:
    """The process of an agent that the starter has forked: its guardian, and our ends of its pipes."""

    def __init__(self, pid: int, ours: Sequence[int], reap: Callable[[int], None]) -> None:
        """`ours` are our ends of its pipes: the one that it reads from, and those that it writes to."""
        self.pid = pid
        self.given, *self.pipes = ours
        self.returncode: int | None = None
        self._reap = reap
        self._on_exit: Callable[[], None] | None = None

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Call the function once the process has exited, also if it has by now."""
        self._on_exit = on_exit
        if self.returncode is not None:
            on_exit()

    def exited(self, code: int) -> None:
        """It has exited with this code; a negative one is that of a signal."""
        if self.returncode is None:
            self.returncode = code
            if self._on_exit is not None:
                self._on_exit()

    def wait(self) -> int | None:
        """Have the starter collect it: from then on its pid may be another's."""
        self._reap(self.pid)
        return self.returncode

    def kill(self) -> None:
        """Kill the process."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class AgentStarter:
    """The starter of one worker. It is started with the first agent, and again if it has ended since."""

    def __init__(self, variables: Mapping[str, str], *, idle_ms: int = _IDLE_MS) -> None:
        """`variables` are those of all agents. The starter ends when it has had no agent for so long."""
        self._idle_ms = idle_ms
        self._variables = dict(variables)
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        #: The agents that are asked for, with our ends of their pipes.
        self._starting: dict[int, tuple[asyncio.Future[ForkedAgent | None], Sequence[int]]] = {}
        self._running: dict[int, ForkedAgent] = {}
        self._turns = asyncio.Semaphore(_MOST_STARTS)

    async def start(self, kinds: Iterable[str], variables: Mapping[str, str]) -> ForkedAgent | None:
        """A new agent that uses providers of these kinds; None if the starter cannot help."""
        request = StartAgent(next(self._numbers), tuple(kinds), dict(variables))
        if len(_ENCODER.encode(request)) > _MOST_BYTES:
            return None
        async with self._turns:
            return await self._started(request)

    async def _started(self, request: StartAgent) -> ForkedAgent | None:
        theirs, ours = _pipes()
        agent = None
        try:
            agent = await self._forked(theirs, ours, request)
        finally:
            _close_all(theirs)
            if agent is None:
                _close_all(ours)
        return agent

    def close(self) -> None:
        """End the starter, and with it all agents."""
        self._disconnect()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def _forked(self, theirs: Sequence[int], ours: Sequence[int], request: StartAgent) -> ForkedAgent | None:
        for _ in range(2):
            # The first one may have ended because it had nothing to do.
            started: asyncio.Future[ForkedAgent | None] = asyncio.get_running_loop().create_future()
            self._starting[request.number] = started, ours
            try:
                if self._send(request, theirs):
                    async with asyncio.timeout(_START_SECONDS):
                        return await started
            except (TimeoutError, ConnectionError):
                self._disconnect()
            finally:
                self._starting.pop(request.number, None)
        return None

    def _send(self, request: StarterRequest, descriptors: Sequence[int] = ()) -> bool:
        connection = self._connection()
        try:
            socket.send_fds(connection, [_ENCODER.encode(request)], descriptors)
        except (BlockingIOError, ConnectionError):
            self._disconnect()
            return False
        return True

    def _connection(self) -> socket.socket:
        if self._socket is not None:
            return self._socket
        if self._process is not None:
            # It has closed its end, or is about to.
            self._process.kill()
            self._process.wait()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            numbers = theirs.fileno(), os.getpid(), self._idle_ms, int(memory_reads_forbidden())
            try:
                self._process = subprocess.Popen(  # noqa: S603 - our own program
                    # -P: do not import modules from the working directory.
                    [sys.executable, "-P", "-m", _PROGRAM, *map(str, numbers)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    env=self._variables,
                )
            except BaseException:
                ours.close()
                raise
        ours.setblocking(False)
        self._socket = ours
        asyncio.get_running_loop().add_reader(ours, self._receive, ours)
        return ours

    def _receive(self, connection: socket.socket) -> None:
        try:
            body = connection.recv(_MOST_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            body = b""
        if not body:
            if connection is self._socket:
                self._disconnect()
            return
        report = _DECODER.decode(body)
        if isinstance(report, AgentStarted):
            self._add(report)
        elif (agent := self._running.get(report.pid)) is not None:
            agent.exited(report.code)

    def _add(self, report: AgentStarted) -> None:
        started, ours = self._starting.get(report.number, (None, (-1,)))
        agent = ForkedAgent(report.pid, ours, self._reap) if report.pid else None
        if agent is not None:
            # At once: it may have ended before its caller goes on.
            self._running[agent.pid] = agent
        if started is not None and not started.done():
            started.set_result(agent)
        elif agent is not None:
            # Its caller was stopped.
            agent.kill()
            agent.watch(lambda: self._reap(report.pid))

    def _reap(self, pid: int) -> None:
        if self._running.pop(pid, None) is not None and self._socket is not None:
            self._send(ReapAgent(pid))

    def _disconnect(self) -> None:
        """Give up on the starter. Its agents end with it."""
        if self._socket is None:
            return
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._socket = None
        running, self._running = self._running, {}
        for agent in running.values():
            agent.exited(_KILLED)
        for started, _ in self._starting.values():
            if not started.done():
                started.set_exception(ConnectionError("the starter of agents has ended"))


def _pipes() -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ends of an agent, and ours: its input, its answers, and its two streams of output."""
    theirs_in, ours_in = os.pipe()
    made = [theirs_in, ours_in]
    try:
        for _ in range(3):
            made += os.pipe()
    except OSError:
        _close_all(made)
        raise
    return (theirs_in, *made[3::2]), (ours_in, *made[2::2])


def _close_all(descriptors: Iterable[int]) -> None:
    for each in descriptors:
        os.close(each)
