"""The process of an attempt, seen from the worker: start it, read its pipes, terminate it, kill its whole tree.

SupervisedProcess is the base for isolated functions (ChildProcess, below) and for commands (`shell.ShellProcess`).
"""

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from gnomon.core.agents.rules import AgentSpending
from gnomon.runners.context import AttemptInfo
from gnomon.runners.ipc import ChildLog, ChildRequest, ChildResult
from gnomon.runners.logs import TaskLog
from gnomon.runners.process_guardian import KILL_ALL
from gnomon.runners.process_tree import MARK, kill_tree
from gnomon.runners.secrets import Redactor

#: Bytes per read, and the longest line of output that is kept whole.
CHUNK = 65_536
#: Seconds that a guardian may take to kill the descendants.
_KILL_SECONDS = 2.5
_messages = msgspec.json.Decoder(ChildLog | ChildResult)


class LineSplitter:
    """Splits a stream of chunks into lines. `on_line` receives each line, and whether it was cut at `limit`."""

    def __init__(self, limit: int, on_line: Callable[[bytes, bool], None]) -> None:
        self._limit = limit
        self._on_line = on_line
        self._pending = bytearray()
        self._skipping = False

    def feed(self, piece: bytes) -> None:
        """Add a chunk, and emit the lines that it completes."""
        *ended, rest = piece.split(b"\n")
        for line in ended:
            self._grow(line)
            self.end()
        self._grow(rest)

    def end(self) -> None:
        """Emit the last line, which has no line end."""
        if self._pending and not self._skipping:
            self._on_line(bytes(self._pending), False)
        self._pending.clear()
        self._skipping = False

    def _grow(self, piece: bytes) -> None:
        if self._skipping:
            return
        self._pending += piece[: self._limit + 1]
        if len(self._pending) > self._limit:
            self._on_line(bytes(self._pending[: self._limit]), True)
            self._pending.clear()
            self._skipping = True


class ProcessHandle(Protocol):
    """A process that was started, as SupervisedProcess needs it: a Popen, or one that another process has forked."""

    @property
    def pid(self) -> int:
        """Its id."""
        ...

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it is not known. A negative one is that of a signal."""
        ...

    def wait(self) -> int | None:
        """Collect its exit status, once it has exited: from then on its pid may be another's."""
        ...

    def kill(self) -> None:
        """Kill it."""
        ...


class StartedProcess(ProcessHandle, Protocol):
    """A process that runs already, and our ends of its pipes."""

    @property
    def pipes(self) -> Sequence[int]:
        """The descriptors that it writes to at their other ends."""
        ...

    def watch(self, on_exit: Callable[[], None]) -> None:
        """Call the function once it has exited."""
        ...


class SupervisedProcess(ABC):
    """A running process in a session of its own: reads its pipes and watches for its exit."""

    def __init__(self, log: TaskLog, splitters: Sequence[LineSplitter], started: StartedProcess | None = None) -> None:
        """Start the process, unless it is `started`."""
        self._loop = asyncio.get_running_loop()
        self._log = log
        self._mark = uuid.uuid4().hex
        #: Done when the process has exited but is not reaped: until then its pid cannot be reused.
        self.exited: asyncio.Future[None] = self._loop.create_future()
        self._process: ProcessHandle
        if started is None:
            self._launch(splitters)
        else:
            self._process = started
            self._read_pipes(started.pipes, splitters)
            started.watch(lambda: self.exited.set_result(None))

    def _launch(self, splitters: Sequence[LineSplitter]) -> None:
        ours, theirs = zip(*(os.pipe() for _ in splitters), strict=True)
        try:
            self._process = self._spawn(theirs)
            self._pidfd = self._open_pidfd()
        except BaseException:
            _close_all(ours)
            raise
        finally:
            _close_all(theirs)
        self._read_pipes(ours, splitters)
        self._loop.add_reader(self._pidfd, self._exit)

    def _read_pipes(self, ours: Sequence[int], splitters: Sequence[LineSplitter]) -> None:
        self._readers = dict(zip(ours, splitters, strict=True))
        for each in ours:
            os.set_blocking(each, False)
            self._loop.add_reader(each, self._read, each)

    def terminate(self) -> None:
        """Send SIGTERM to the process group."""
        if not self.exited.done():
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)

    async def kill_tree_and_drain(self) -> bool:
        """Kill the process tree, read the rest of its output and reap it; False if the process does not exit."""
        if not await self.kill_tree():
            self._log.add("warning", "[not all processes that it started could be killed]")
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.shield(self.exited)
        for each in list(self._readers):
            while each in self._readers and self._read(each):
                pass
            self._close(each)
        if not self.exited.done():
            return False
        self.reap()
        return True

    async def kill_tree(self) -> bool:
        """Kill the process and all that it has started; False if some of them do not exit.

        Its guardian finds all of them. Afterwards, or if the guardian was killed, they are looked for in /proc.
        """
        if not self.exited.done():
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, KILL_ALL)
            await asyncio.wait([self.exited], timeout=_KILL_SECONDS)
        return await asyncio.to_thread(kill_tree, self._process.pid, self._mark)

    def reap(self) -> None:
        """Collect the exit status of a process that has exited."""
        self._process.wait()

    @property
    @abstractmethod
    def ended(self) -> ChildResult | None:
        """The result that the process has sent or its exit status stands for; None without one."""

    @property
    def partial_output(self) -> bytes | None:
        """The output of a process that was stopped, or that was killed before it had a result; None without one."""
        return None

    @property
    def usage(self) -> AgentSpending | None:
        """The usage of an agent; None for other processes."""
        return None

    @property
    def exit_description(self) -> str:
        """The error message for a process that exited without a result."""
        code = self._process.returncode
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"its process was killed by signal {-code} ({signal.Signals(-code).name})"
        return f"its process ended with exit code {code} and without a result"

    @abstractmethod
    def _spawn(self, pipes: Sequence[int]) -> subprocess.Popen[bytes]:
        """Start the process with these pipes to write to."""

    def _open_pidfd(self) -> int:
        try:
            return os.pidfd_open(self._process.pid)
        except OSError:
            self._process.kill()
            self._process.wait()
            raise

    def _log_writer(self, level: str) -> Callable[[bytes, bool], None]:
        """A callback that adds the lines of a pipe to the log."""
        return lambda line, cut: self._log.add(level, self._text(line, cut=cut))

    def _text(self, line: bytes, *, cut: bool) -> str:
        text = line.decode(errors="replace").removesuffix("\r")
        redact = self._log.redact
        if cut and isinstance(redact, Redactor):
            return redact.without_beginnings(redact(text))
        return text

    def _read(self, each: int) -> bool:
        """Read one chunk from the pipe; False if there is none."""
        try:
            piece = os.read(each, CHUNK)
        except BlockingIOError:
            return False
        if not piece:
            self._close(each)
            return False
        self._readers[each].feed(piece)
        return True

    def _close(self, each: int) -> None:
        lines = self._readers.pop(each, None)
        if lines is not None:
            lines.end()
            self._loop.remove_reader(each)
            os.close(each)

    def _exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.exited.set_result(None)


def attempt_variables(facts: AttemptInfo) -> dict[str, str]:
    """The environment variables that identify the attempt to its processes, and its limits by the policy as JSON."""
    limits = {"GNOMON_CONSTRAINTS": msgspec.json.encode(facts.constraints).decode()} if facts.constraints else {}
    return {
        "GNOMON_RUN_ID": facts.run_id,
        "GNOMON_TASK_ID": facts.task_id,
        "GNOMON_ATTEMPT": str(facts.attempt),
        "GNOMON_FENCE": str(facts.fence),
        "GNOMON_IDEMPOTENCY_KEY": facts.idempotency_key,
        **limits,
    }


def output_limit(max_output_bytes: int) -> int:
    """The longest message of a process whose output is limited so."""
    return 2 * max_output_bytes + CHUNK


class ChildProcess(SupervisedProcess):
    """The process of an isolated function."""

    def __init__(self, request: ChildRequest, log: TaskLog, *, limit: int) -> None:
        self._request = request
        self._ended: ChildResult | None = None
        super().__init__(
            log,
            (
                LineSplitter(limit, self._receive),
                *(LineSplitter(CHUNK, self._log_writer(level)) for level in ("stdout", "stderr")),
            ),
        )

    @property
    def ended(self) -> ChildResult | None:
        """The result that the process has sent."""
        return self._ended

    def _spawn(self, pipes: Sequence[int]) -> subprocess.Popen[bytes]:
        result, out, err = pipes
        with os.fdopen(os.memfd_create("gnomon-request"), "wb") as file:
            file.write(msgspec.json.encode(self._request))
            file.seek(0)
            return subprocess.Popen(  # noqa: S603 - our own program
                # -P: do not import modules from the working directory.
                [sys.executable, "-u", "-P", "-m", "gnomon.runners.child_main", str(result), str(os.getpid())],
                stdin=file,
                stdout=out,
                stderr=err,
                pass_fds=(result,),
                start_new_session=True,
                env=os.environ | attempt_variables(self._request.facts) | {MARK: self._mark},
            )

    def _receive(self, line: bytes, cut: bool) -> None:  # noqa: FBT001 - as LineSplitter calls it
        with suppress(msgspec.DecodeError):
            message = _messages.decode(line)
            if isinstance(message, ChildLog):
                self._log.add(message.line.level, message.line.text, message.line.at)
            elif not cut:
                self._ended = message


def _close_all(descriptors: Iterable[int]) -> None:
    for each in descriptors:
        os.close(each)
