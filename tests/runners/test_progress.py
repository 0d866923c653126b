"""The lines of attempts that go on: reported in lots, each once, and never half of a secret."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from gnomon.core.agents.rules import AgentSpending
from gnomon.core.model import Result
from gnomon.core.runs.progress import AttemptProgress
from gnomon.core.runs.workflow import SHELL
from gnomon.errors import StoreUnavailable
from gnomon.runners import progress
from gnomon.runners.attempt_table import RunningAttempt
from gnomon.runners.logs import TaskLog
from gnomon.runners.progress import ProgressReporter
from gnomon.runners.registry import Function, Functions
from runners.runner_harness import RunnerHarness, assignment, open_runner, wait_until


class RecordingWriter:
    """Implements ProgressWriter: remembers what it was given. While `refuses`, it fails; it waits for `allowed`."""

    def __init__(self) -> None:
        self.written: list[AttemptProgress] = []
        self.calls = 0
        self.refuses = False
        self.allowed = asyncio.Event()
        self.allowed.set()
        self._more = threading.Condition()

    async def keep(self, progress: Sequence[AttemptProgress]) -> None:
        self.calls += 1
        await self.allowed.wait()
        if self.refuses:
            raise StoreUnavailable("away")
        with self._more:
            self.written += progress
            self._more.notify_all()

    def texts(self) -> dict[int, str]:
        """The lines by place."""
        return {place: line.text for one in self.written for place, line in enumerate(one.lines, one.first)}

    async def until(self, count: int) -> None:
        """Wait until so many lines were written."""

        def wait() -> None:
            with self._more:
                assert self._more.wait_for(lambda: len(self.texts()) >= count, 60)

        await asyncio.to_thread(wait)


@pytest.fixture
def writer() -> RecordingWriter:
    return RecordingWriter()


@pytest.fixture
def functions() -> Functions:
    return Functions()


@asynccontextmanager
async def runner_with(functions: Functions, writer: RecordingWriter) -> AsyncIterator[RunnerHarness]:
    async with open_runner(functions, progress=writer) as harness:
        yield harness


class RunningLog:
    """The log of an attempt, and a reporter whose looks at it are made by hand."""

    def __init__(self, writer: RecordingWriter, limit: int = 5_000) -> None:
        self.log = TaskLog(limit)
        only = Function("talks", lambda: None)
        self.attempt = RunningAttempt(assignment("talks"), only, timeout_ms=60_000, log=self.log)
        self.attempt.arrived_at -= 60
        self.reporter = ProgressReporter(writer, lambda: [self.attempt])

    async def look(self) -> None:
        """Report what is new, and wait until it is written."""
        self.reporter._next_at = 0.0  # noqa: SLF001 - the time between two reports has passed
        self.reporter._look([self.attempt])  # noqa: SLF001 - a turn of its loop
        while self.reporter._writing is not None:  # noqa: SLF001 - as above
            await asyncio.wait([self.reporter._writing])  # noqa: SLF001 - as above


async def test_a_line_is_reported_while_its_function_goes_on(functions: Functions, writer: RecordingWriter) -> None:
    go_on = threading.Event()

    def talks() -> None:
        logging.getLogger("mine").warning("begun")
        assert go_on.wait(60)
        logging.getLogger("mine").warning("ended")

    functions.add(talks, "talks")
    async with runner_with(functions, writer) as harness:
        assigned = assignment("talks")
        harness.runner.start([assigned])
        await writer.until(1)
        assert writer.texts() == {0: "begun"}
        go_on.set()
        done = await harness.outcome(assigned)

    assert [line.text for line in done.logs] == ["begun", "ended"]
    assert done.log_kept


async def test_lines_of_a_command_are_reported_while_it_goes_on(functions: Functions, writer: RecordingWriter) -> None:
    async with runner_with(functions, writer) as harness:
        assigned = assignment(SHELL, command="echo begun; sleep 600")
        harness.runner.start([assigned])
        await writer.until(1)
        harness.runner.stop([(assigned.task.task_id, 1)], why=Result.CANCELLED)
        done = await harness.outcome(assigned)

    assert writer.texts() == {0: "begun"}
    assert done.log_kept


async def test_an_attempt_that_soon_ends_reports_nothing(functions: Functions, writer: RecordingWriter) -> None:
    functions.add(lambda: logging.getLogger("mine").warning("done"), "talks")
    async with runner_with(functions, writer) as harness:
        done = [await harness.run("talks") for _ in range(20)]

    assert writer.calls == 0
    assert not any(one.log_kept for one in done)


async def test_each_line_is_reported_once_with_those_before_it_for_redaction(writer: RecordingWriter) -> None:
    running = RunningLog(writer)
    for number in range(3):
        running.log.add("info", f"line {number}")
        await running.look()
    await running.look()

    assert [(one.first, one.known, len(one.lines)) for one in writer.written] == [(0, 0, 1), (0, 1, 2), (0, 2, 3)]


async def test_lines_that_could_not_be_written_are_reported_again(writer: RecordingWriter) -> None:
    running = RunningLog(writer)
    running.log.add("info", "one")
    writer.refuses = True
    await running.look()
    writer.refuses = False
    running.log.add("info", "two")
    await running.look()

    assert writer.texts() == {0: "one", 1: "two"}
    assert [one.known for one in writer.written] == [0]


async def test_a_key_is_reported_once_its_end_is_known(writer: RecordingWriter) -> None:
    running = RunningLog(writer)
    for text in ("before", "-----BEGIN PRIVATE KEY-----", "MIIE"):
        running.log.add("info", text)
    await running.look()
    assert writer.texts() == {0: "before"}

    for text in ("-----END PRIVATE KEY-----", "after"):
        running.log.add("info", text)
    await running.look()
    assert writer.texts()[4] == "after"
    assert len(writer.written[-1].lines) == 5


async def test_a_report_is_bounded_and_the_next_one_has_the_rest(writer: RecordingWriter) -> None:
    running = RunningLog(writer)
    for number in range(1_500):
        running.log.add("info", f"{number} {'x' * 100}")
    await running.look()
    assert len(writer.texts()) == 1_000
    await running.look()
    assert len(writer.texts()) == 1_500

    for _ in range(1_000):
        running.log.add("info", "y" * 1_999)
    await running.look()
    assert 0 < sum(len(line.text) for line in writer.written[-1].lines[writer.written[-1].known :]) <= 256 * 1024


async def test_no_more_lines_are_reported_than_servers_keep(
    writer: RecordingWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LAST_PLACE", 3)
    running = RunningLog(writer)
    for number in range(9):
        running.log.add("info", f"{number}")
    await running.look()
    await running.look()

    assert sorted(writer.texts()) == [0, 1, 2]


async def test_nothing_more_is_asked_for_while_the_store_takes_its_time(writer: RecordingWriter) -> None:
    running = RunningLog(writer)
    writer.allowed.clear()
    running.log.add("info", "one")
    running.reporter._look([running.attempt])  # noqa: SLF001 - a turn of its loop
    await asyncio.sleep(0)
    running.log.add("info", "two")
    for number in range(3):
        running.reporter.report(running.attempt, AgentSpending(requests=number), "")
    await asyncio.sleep(0)
    assert writer.calls == 1

    writer.allowed.set()
    await writer.until(2)
    assert writer.calls == 2
    assert writer.written[-1].spent == AgentSpending(requests=2)


async def test_the_call_of_an_agent_is_reported_until_its_end_has_its_place(writer: RecordingWriter) -> None:
    running = RunningLog(writer)
    running.reporter.report(running.attempt, AgentSpending(requests=1), "shell: began")
    await writer.until(1)
    running.log.add("tool", "shell: allowed")
    running.reporter.report(running.attempt, AgentSpending(requests=1), "")
    await wait_until(lambda: writer.texts() == {0: "shell: allowed"})


async def test_a_closed_log_reports_nothing(writer: RecordingWriter) -> None:
    running = RunningLog(writer)
    running.log.add("info", "one")
    running.log.take()
    await running.look()

    assert writer.calls == 0
    assert not running.log.was_kept
