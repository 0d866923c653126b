"""Programs that start Gnomon themselves: the process of an isolated function reads them only that far."""

import subprocess
import sys
from pathlib import Path

import pytest

from gnomon.runners.registry import Functions, LoadingStopped
from runners.runner_harness import environment_of_tests

PROGRAM = """
import os, time
from pathlib import Path

import gnomon
from gnomon.runners.registry import FUNCTIONS

NOTES = Path(os.environ["NOTES"])


def note(text):
    with NOTES.open("a") as notes:
        notes.write(text + chr(10))


@gnomon.job(every="100ms", isolation="process")
def above():
    note("above")


def helper():
    note("helper")


if not FUNCTIONS.loading:
    gnomon.job(every="100ms", name="by-its-path", isolation="process")(helper)

try:
    running = gnomon.start(database=os.environ["DATABASE"], settings={"worker.drain_ms": 0})
except Exception:
    note("went on")
note("started")


@gnomon.function
def below():
    note("below")


for _ in range(2000):
    if {"above", "helper"} <= set(NOTES.read_text().split(chr(10))):
        break
    time.sleep(0.01)
running.stop()
"""


def notes_of(tmp_path: Path, program: str, *, as_module: bool) -> list[str]:
    script, notes = tmp_path / "program.py", tmp_path / "notes"
    script.write_text(program)
    given = {"NOTES": str(notes), "DATABASE": str(tmp_path / "gnomon.db")}
    command = ["-m", "program"] if as_module else [str(script)]
    subprocess.run([sys.executable, *command], env=environment_of_tests() | given, cwd=tmp_path, check=True, timeout=40)
    return notes.read_text().split("\n")


@pytest.mark.parametrize("as_module", [True, False])
def test_a_program_that_is_not_guarded_is_read_up_to_where_it_starts(tmp_path: Path, *, as_module: bool) -> None:
    notes = notes_of(tmp_path, PROGRAM, as_module=as_module)

    assert notes.count("started") == 1
    assert {"above", "helper"} <= set(notes)
    assert "went on" not in notes


BELOW = """
import asyncio, os
from pathlib import Path

import gnomon
from gnomon.core.runs.workflow import Isolation
from gnomon.runners.registry import FUNCTIONS
from runners.runner_harness import open_runner

if FUNCTIONS.loading:
    gnomon.run()


@gnomon.function
def below(): ...


async def main():
    async with open_runner(FUNCTIONS) as harness:
        outcome = await harness.run("below", isolation=Isolation.PROCESS)
        Path(os.environ["NOTES"]).write_text(outcome.error)


asyncio.run(main())
"""
REFUSAL = (
    "function: 'below' cannot be found by another process: define it at the top of a module, "
    "above gnomon.run() or gnomon.start(), which is where reading ended"
)


def test_a_function_below_that_place_is_said_to_be_there(tmp_path: Path) -> None:
    assert notes_of(tmp_path, BELOW, as_module=False) == [REFUSAL]


def test_nothing_ends_where_nobody_reads() -> None:
    Functions().stop_loading()


def test_no_handler_of_errors_keeps_the_reading_from_ending() -> None:
    functions = Functions()
    functions.load_only()

    with pytest.raises(LoadingStopped):
        functions.stop_loading()
    assert not issubclass(LoadingStopped, Exception)
