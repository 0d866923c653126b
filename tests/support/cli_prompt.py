"""Runs commands in an empty folder, for tests of the command line."""

import asyncio
import json
import pwd
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest
from msgspec.structs import replace

from gnomon.adapters.sql.connect import open_sqlite
from gnomon.adapters.sql.store import SqlStore
from gnomon.cli import main
from gnomon.core.model import Result, RunId
from support.sqlite_files import new_sqlite_file
from support.task_steps import completion_of, take_task, workflow

T = TypeVar("T")
#: The beginning of a line of the log.
_LOGGED = re.compile(r"[-0-9]{10} [:0-9]{8} \[")
JOBS = """
jobs:
  - name: report
    description: Yesterday in numbers
    schedule: "every weekday at 9am"
    timezone: America/New_York
    function: reports.make
    input: { day: yesterday }
    input_schema: { properties: { day: { type: string } } }
    timeout: 10m
    lock: true
    dead_letter: true
    tags: [numbers]
  - name: cleanup
    function: disk.clean
    overlap: queue
"""


class CommandResult(NamedTuple):
    """The exit code and output of a command."""

    code: int
    out: list[str]
    err: list[str]

    def data(self) -> Any:  # noqa: ANN401 - whatever was printed
        return json.loads("\n".join(self.out))


class CliPrompt:
    """Runs commands in an empty folder with a jobs file."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._monkeypatch, self._capsys = monkeypatch, capsys
        monkeypatch.chdir(folder)
        monkeypatch.delenv("DATABASE_URL", raising=False)
        monkeypatch.setenv("LOGNAME", "somebody-else")
        ada = pwd.struct_passwd(("ada", "x", 1000, 1000, "", str(folder), "/bin/sh"))
        monkeypatch.setattr(pwd, "getpwuid", lambda _: ada)
        self.write(JOBS)

    def write(self, text: str) -> None:
        (self.folder / "jobs.yaml").write_text(text)

    def make_database(self) -> None:
        """Make the database that the first command would make."""
        new_sqlite_file(self.folder / "gnomon.db")

    def run(self, *arguments: str) -> CommandResult:
        """Run the command; the output is without the log lines of a scheduler in this process."""
        self._monkeypatch.setattr(sys, "argv", ["gnomon", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        printed = self._capsys.readouterr()
        out = [line for line in printed.out.splitlines() if not _LOGGED.match(line)]
        return CommandResult(int(str(left.value.code)), out, printed.err.splitlines())

    def lines(self, *arguments: str) -> list[str]:
        done = self.run(*arguments)
        assert (done.code, done.err) == (0, [])
        return done.out

    def data(self, *arguments: str) -> Any:  # noqa: ANN401 - whatever was printed
        return json.loads("\n".join(self.lines(*arguments, "-o", "json")))

    def triggered(self, job: str = "report", *more: str) -> str:
        found: str = self.data("jobs", "trigger", job, *more)["execution_id"]
        return found

    def with_store(self, work: Callable[[SqlStore], Awaitable[T]]) -> T:
        """Run a function on the store, as a worker would."""

        async def done() -> T:
            store = await open_sqlite(str(self.folder / "gnomon.db"))
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(done())

    def finish_execution(self, execution: str, result: Result = Result.SUCCEEDED, **reported: Any) -> None:  # noqa: ANN401
        async def work(store: SqlStore) -> None:
            run = await store.executions.find_run(RunId(execution))
            assert run is not None
            taken = await take_task(store, "worker-1", run, now=run.planned_at)
            now = run.planned_at + 1200
            kept = replace(workflow(), dead_letter=True)
            await store.attempts.report([completion_of(taken, result, now=now, definition=kept, **reported)])

        self.with_store(work)

    def failed(self) -> str:
        """Let a run fail; return its dead letter."""
        execution = self.triggered()
        self.finish_execution(execution, Result.FAILED, error="disk full\nTraceback")
        [letter] = [one for one in self.data("dead-letters", "list") if one["execution_id"] == execution]
        found: str = letter["dead_letter_id"]
        return found
