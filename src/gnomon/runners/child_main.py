"""The process of an isolated function: `python -m gnomon.runners.child_main FD PARENT`, the request on standard input.

It answers on the file descriptor FD, since standard output belongs to the function. The function runs in a child
process; this one, the child of the worker PARENT, is its guardian.
"""

import asyncio
import importlib
import logging
import os
import resource
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, NoReturn

import msgspec

from gnomon.core.model import LogLine
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.errors import FieldError, UsageError
from gnomon.runners.child_guard import die_with_parent
from gnomon.runners.context import Cancelled, Context, StopFlag
from gnomon.runners.ipc import ChildLog, ChildRequest, ChildResult
from gnomon.runners.logs import CAPTURE, CURRENT, TaskLog
from gnomon.runners.open_files import restore_open_files_limit
from gnomon.runners.outcomes import give_up_outcome, raised_outcome, returned_outcome
from gnomon.runners.process_guardian import supervise
from gnomon.runners.process_memory import forbid_memory_reads
from gnomon.runners.registry import FUNCTIONS, Function, LoadingStopped
from gnomon.runners.secrets import redactor
from gnomon.runners.spending import AttemptSpending

#: The module name of a script while it is loaded for its functions.
_SCRIPT_NAME = "__gnomon_main__"
_NOT_FOUND = "cannot be found by another process: define it at the top of a module"
_NOT_ABOVE = f"{_NOT_FOUND}, above gnomon.run() or gnomon.start(), which is where reading ended"


def main() -> NoReturn:
    """Run the requested function, answer, and exit even if the function has left threads running."""
    answer, worker = map(int, sys.argv[1:])
    os.set_inheritable(answer, False)
    die_with_parent(supervise(worker))
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ChildRequest)
    if request.forbid_memory_reads:
        forbid_memory_reads()
    _forget_standard_input()
    restore_open_files_limit(request.open_files)
    log = TaskLog(request.max_log_lines, on_line=lambda line: _send_log(answer, line))
    log.redact_with(redactor(request.secrets))
    if request.secrets:
        # A core dump would contain them.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    itself = os.getpid()
    ended = _run_request(request, log)
    if os.getpid() != itself:
        # The function has forked and returned in both processes: only the parent answers.
        os._exit(0)
    log.take()
    _send_message(answer, ended)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _forget_standard_input() -> None:
    """Point standard input to /dev/null, so that processes of the function cannot read the request."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


def _send_log(answer: int, line: LogLine) -> None:
    _send_message(answer, ChildLog(line))


def _send_message(answer: int, message: ChildLog | ChildResult) -> None:
    left = memoryview(msgspec.json.encode(message) + b"\n")
    while left:
        left = left[os.write(answer, left) :]


def _run_request(request: ChildRequest, log: TaskLog) -> ChildResult:
    sys.path[:] = request.search_path
    CAPTURE.install()
    # The task's log has these records: do not write them to standard error as well.
    logging.lastResort = logging.NullHandler()
    CURRENT.set(log)
    stop, spending = StopFlag(), AttemptSpending(request.facts.constraints.get("spend", {}))
    try:
        return ChildResult(_with_spending(_outcome(request, log, stop, spending), spending))
    except BaseException as error:  # noqa: BLE001 - any error of a function is its outcome
        cancelled = stop.requested and isinstance(error, asyncio.CancelledError | Cancelled)
        return ChildResult(_with_spending(raised_outcome(error, redact=log.redact), spending), cancelled)


def _with_spending(outcome: AttemptOutcome, spending: AttemptSpending) -> AttemptOutcome:
    return msgspec.structs.replace(outcome, spent=spending.amounts)


def _outcome(request: ChildRequest, log: TaskLog, stop: StopFlag, spending: AttemptSpending) -> AttemptOutcome:
    try:
        function = _find_function(request)
        call = _call(function, request, log, stop, spending)
    except UsageError as error:
        return give_up_outcome(log.redact(str(error)))
    try:
        value = _call_async(call, stop) if function.is_coroutine else _call_sync(call, stop)
    finally:
        # The function has ended by itself: a later request to stop must not suppress its result.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return returned_outcome(value, max_bytes=request.max_output_bytes, redact=log.redact)


def _find_function(request: ChildRequest) -> Function:
    FUNCTIONS.load_only()
    wholly = True
    for module in request.imports:
        wholly &= _imported(module)[1]
    if request.function in FUNCTIONS:
        return FUNCTIONS[request.function]
    names: Mapping[str, Any] = {}
    if request.script is not None:
        names, ended = _read(_SCRIPT_NAME, partial(runpy.run_path, request.script, run_name=_SCRIPT_NAME))
        wholly &= ended
    elif request.module:
        names, ended = _imported(request.module)
        wholly &= ended
    if request.function in FUNCTIONS:
        return FUNCTIONS[request.function]
    first, _, path = request.qualname.partition(".")
    try:
        body = attrgetter(path)(names[first]) if path else names[first]
        return Function(request.function, body)
    except (KeyError, AttributeError):
        raise FieldError("function", request.function, _NOT_FOUND if wholly else _NOT_ABOVE) from None


def _imported(module: str) -> tuple[Mapping[str, Any], bool]:
    return _read(module, lambda: vars(importlib.import_module(module)))


def _read(module: str, load: Callable[[], Mapping[str, Any]]) -> tuple[Mapping[str, Any], bool]:
    """The global names of the module, and whether it loaded completely.

    Loading stops at the call that starts Gnomon.
    """
    try:
        return load(), True
    except LoadingStopped as marker:
        for frame, _ in traceback.walk_tb(marker.__traceback__):
            if frame.f_globals.get("__name__") == module:
                return frame.f_globals, False
        return {}, False


def _call(
    function: Function, request: ChildRequest, log: TaskLog, stop: StopFlag, spending: AttemptSpending
) -> Callable[[], Any]:
    ends = time.monotonic() + request.timeout_ms / 1000
    context = Context(request.facts, log, stop, ends, spending)
    positional, named = function.binder.bind(request.input, context, request.shown)
    return partial(function.body, *positional, **named)


def _call_sync(call: Callable[[], Any], stop: StopFlag) -> Any:  # noqa: ANN401 - any return value
    def stopping(_number: int, _frame: object) -> None:
        stop.request()
        raise Cancelled

    signal.signal(signal.SIGTERM, stopping)
    return call()


def _call_async(call: Callable[[], Any], stop: StopFlag) -> Any:  # noqa: ANN401 - any return value
    async def run() -> Any:  # noqa: ANN401 - any return value
        task = asyncio.current_task()

        def stopping() -> None:
            stop.request()
            if task is not None:
                task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping)
        return await call()

    return asyncio.run(run())


if __name__ == "__main__":
    main()
