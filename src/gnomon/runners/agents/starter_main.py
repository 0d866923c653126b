"""The starter of agents: `python -m gnomon.runners.agents.starter_main FD PARENT IDLE_MS FORBID`.

It loads the library of models once, and forks a process for each agent that its worker PARENT asks for over the socket
FD. It has no keys and no data: each agent gets its task over a pipe of its own, which the starter only passes on. It
ends with its worker, with the socket, and when it has had no agent for IDLE_MS. If FORBID is 1, no other process may
read its memory: a change of it would change all agents.
"""

import gc
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import msgspec

from gnomon.runners.agents.child_main import load_library, run_agent
from gnomon.runners.agents.messages import AgentEnded, AgentStarted, StartAgent, StarterRequest
from gnomon.runners.child_guard import die_with_parent
from gnomon.runners.process_guardian import fork_within_limit
from gnomon.runners.process_memory import forbid_memory_reads

_MOST_BYTES = 65_536
#: The input of an agent, its answers, and its two streams of output.
_DESCRIPTORS = 4
_REQUEST_DECODER = msgspec.json.Decoder(StarterRequest)
_ENCODER = msgspec.json.Encoder()


def main() -> NoReturn:
    """Start agents until none is asked for any more."""
    descriptor, worker, idle_ms, forbid = map(int, sys.argv[1:])
    die_with_parent(worker)
    if forbid:
        forbid_memory_reads()
    # The collector would look through what is loaded again and again.
    gc.disable()
    load_library(())
    # The pages of what is loaded stay shared with the agents.
    gc.freeze()
    gc.enable()
    _Starter(socket.socket(fileno=descriptor), idle_ms).run()
    os._exit(0)


class _Starter:
    """Forks agents, and tells the worker how they end."""

    def __init__(self, worker: socket.socket, idle_ms: int) -> None:
        self._idle_ms = idle_ms
        self._worker = worker
        self._worker.set_inheritable(False)
        #: The agents that have not ended, by the descriptor that says so.
        self._running: dict[int, int] = {}
        self._poll = select.poll()
        self._poll.register(worker, select.POLLIN)

    def run(self) -> None:
        """Work until the worker has gone, or needs no agent for a while."""
        while True:
            ready = self._poll.poll(None if self._running else self._idle_ms)
            if not ready:
                return
            for descriptor, _ in ready:
                if descriptor != self._worker.fileno():
                    self._report_end(descriptor)
                elif not self._serve():
                    return

    def _serve(self) -> bool:
        """Carry out a request of the worker; False if it has gone."""
        body, descriptors, _, _ = socket.recv_fds(self._worker, _MOST_BYTES, _DESCRIPTORS)
        if not body:
            return False
        request = _REQUEST_DECODER.decode(body)
        if isinstance(request, StartAgent):
            self._start(request, descriptors)
        else:
            with suppress(ChildProcessError):
                os.waitpid(request.pid, os.WNOHANG)
        return True

    def _start(self, request: StartAgent, descriptors: Sequence[int]) -> None:
        starter, may_fork = os.getpid(), _is_ready(request.kinds)
        pid = fork_within_limit() if may_fork else 0
        if may_fork and not pid:
            self._become(request, descriptors, starter)
        for each in descriptors:
            os.close(each)
        if pid:
            end = os.pidfd_open(pid)
            self._running[end] = pid
            self._poll.register(end, select.POLLIN)
        self._worker.send(_ENCODER.encode(AgentStarted(request.number, pid)))

    def _become(self, request: StartAgent, descriptors: Sequence[int], starter: int) -> NoReturn:
        """Become the process of the agent."""
        self._worker.close()
        for each in self._running:
            os.close(each)
        os.setsid()
        # The input, and the two streams of output.
        given, answers, *streams = descriptors
        for number, each in enumerate((given, *streams)):
            os.dup2(each, number)
            os.close(each)
        os.environ.update(request.variables)
        run_agent(answers, starter)

    def _report_end(self, descriptor: int) -> None:
        """Tell the worker how an agent has ended. Its pid stays taken until the worker is done with it."""
        pid = self._running.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        status = 0 if ended is None else ended.si_status
        killed = ended is not None and ended.si_code != os.CLD_EXITED
        self._worker.send(_ENCODER.encode(AgentEnded(pid, -status if killed else status)))


def _is_ready(kinds: Sequence[str]) -> bool:
    """Whether an agent with these kinds of providers can be forked. The others must not suffer if it cannot."""
    try:
        load_library(kinds)
    except Exception:  # noqa: BLE001 - the agent loads it itself, and says what is wrong
        return False
    # A fork of a process with threads may hang.
    return threading.active_count() == 1


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main()
