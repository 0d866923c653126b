"""Functions in processes of their own: whatever they do, they end, and all that they started ends with them."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gnomon.config.sections import SecretsSettings
from gnomon.core.ids import tick_key
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.workflow import Isolation
from runners import registering_module
from runners.process_functions import FUNCTIONS
from runners.runner_harness import (
    PLANNED,
    TESTS,
    RunnerHarness,
    alive,
    assignment,
    attempt_ref,
    environment_of_tests,
    open_runner,
    read_numbers,
    wait_for_numbers,
    wait_until,
)


@pytest.fixture
async def harness() -> AsyncIterator[RunnerHarness]:
    async with open_runner(FUNCTIONS, kill_grace_ms=300, max_output_bytes=2000, max_log_lines=20) as harness:
        yield harness


def isolated(function: str, given: dict[str, Any] | None = None, **step: Any) -> Assignment:  # noqa: ANN401 - what a step may say
    return assignment(function, given, isolation=Isolation.PROCESS, **step)


async def tried(
    harness: RunnerHarness,
    function: str,
    given: dict[str, Any] | None = None,
    **step: Any,  # noqa: ANN401 - the same
) -> AttemptOutcome:
    harness.runner.start([assigned := isolated(function, given, **step)])
    return await harness.outcome(assigned)


def decoded(outcome: AttemptOutcome) -> Any:  # noqa: ANN401 - any JSON
    assert outcome.output is not None, outcome.error
    return msgspec.json.decode(outcome.output)


async def test_the_function_runs_in_another_process(harness: RunnerHarness) -> None:
    output = decoded(await tried(harness, "plain", {"number": 7}))

    assert output["number"] == 7
    assert output["pid"] != os.getpid()


async def test_it_knows_its_attempt_and_can_log(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "coroutine", timeout_ms=20_000)

    output = decoded(outcome)
    assert 0 < output.pop("left") <= 20
    assert output == {"attempt": 1, "key": tick_key("nightly", PLANNED).hex(), "job": "nightly"}
    assert [(line.level, line.text) for line in outcome.logs] == [("info", "from inside"), ("warning", "a record")]


@pytest.mark.parametrize(
    ("how", "result", "error"),
    [
        ("raise", Result.FAILED, "ValueError: no such host\n"),
        ("give up", Result.GAVE_UP, "the account is closed"),
        ("system exit", Result.FAILED, "SystemExit: 3\n"),
        ("exit", Result.FAILED, "its process ended with exit code 3 and without a result"),
        ("kill", Result.FAILED, "its process was killed by signal 9 (SIGKILL)"),
        ("segfault", Result.FAILED, "its process was killed by signal 11 (SIGSEGV)"),
    ],
)
async def test_however_it_ends_is_the_jobs_own_outcome(
    harness: RunnerHarness, how: str, result: Result, error: str
) -> None:
    outcome = await tried(harness, "says", {"how": how})

    assert outcome.result is result
    assert outcome.error is not None
    assert outcome.error.startswith(error)


async def test_it_may_ask_to_be_called_again_later(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "says", {"how": "snooze"})

    assert (outcome.result, outcome.snooze_ms) == (Result.SNOOZED, 2000)


async def test_one_that_forks_and_comes_back_twice_answers_once(harness: RunnerHarness) -> None:
    assert decoded(await tried(harness, "says", {"how": "fork"})) == "first"


async def test_an_input_that_cannot_be_sent_fails_the_attempt(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "plain", {"number": object()})

    assert outcome.result is Result.FAILED
    assert outcome.error is not None
    assert outcome.error.startswith("TypeError: ")


async def test_an_input_that_does_not_fit_is_not_tried_again(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "plain", {"number": "seven"})

    assert outcome.result is Result.GAVE_UP
    assert outcome.error == "number: 'seven' is refused: Expected `int`, got `str`"


@pytest.mark.guarantee("S24")
async def test_the_environment_says_which_attempt_it_is_and_nothing_of_the_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GNOMON_METRICS__PORT", raising=False)
    async with open_runner(
        FUNCTIONS, secrets=SecretsSettings(allow=("TOKEN",)), environ={"TOKEN": "hunter22"}
    ) as harness:
        harness.runner.start([assigned := isolated("environment", {"token": "${secret:TOKEN}"})])
        output = decoded(await harness.outcome(assigned))

    assert output["environment"] | {"GNOMON_TREE": ""} == {
        "GNOMON_TREE": "",
        "GNOMON_RUN_ID": assigned.run.run_id,
        "GNOMON_TASK_ID": assigned.task.task_id,
        "GNOMON_ATTEMPT": "1",
        "GNOMON_FENCE": "1",
        "GNOMON_IDEMPOTENCY_KEY": tick_key("nightly", PLANNED).hex(),
    }
    assert "gnomon.runners.child_main" in output["arguments"]
    assert not output["shows the input"]
    assert output["stdin"] == ""


async def test_the_output_of_print_is_in_the_log(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "prints", {"what": "hello\nworld"})

    texts = {(line.level, line.text) for line in outcome.logs}
    assert texts == {(level, text) for level in ("stdout", "stderr") for text in ("hello", "world")}


@pytest.mark.guarantee("S25")
async def test_its_log_is_bounded(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "prints", {"what": "line\n", "times": 500})

    assert len(outcome.logs) == 21
    assert outcome.logs[-1].text == "[only the first 20 lines are kept]"


@pytest.mark.guarantee("S25")
async def test_a_line_without_end_is_cut_and_odd_bytes_are_shown(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "endless", {"size": 10_000_000})

    first, second = (line.text for line in outcome.logs)
    assert first == "x" * 1999 + "…"
    assert second == "�� ends"


async def test_characters_that_no_database_keeps_are_escaped(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "odd-texts")

    assert outcome.error is not None
    assert outcome.error.startswith("ValueError: raised \\x00 and \\udcff\n")
    assert {(line.level, line.text) for line in outcome.logs} == {
        ("stdout", r"printed \x00"),
        ("warning", r"logged \x00 and \udcff"),
    }


@pytest.mark.parametrize("function", ["tidies", "tidies-too"])
async def test_one_that_is_stopped_can_tidy_up(harness: RunnerHarness, tmp_path: Path, function: str) -> None:
    file = tmp_path / "notes"
    harness.runner.start([assigned := isolated(function, {"file": str(file)})])
    await wait_for_numbers(file, 1)
    harness.runner.stop([attempt_ref(assigned)], why=Result.LOST)

    outcome = await harness.outcome(assigned)

    assert (outcome.result, outcome.error) == (Result.LOST, "was stopped: the attempt is no longer its worker's")
    assert read_numbers(file)[1:] == [0]


async def test_one_that_takes_too_long_is_ended(harness: RunnerHarness, tmp_path: Path) -> None:
    outcome = await tried(harness, "tidies", {"file": str(tmp_path / "notes")}, timeout_ms=200)

    assert (outcome.result, outcome.error) == (Result.TIMED_OUT, "took longer than 0.2 s")


@pytest.mark.guarantee("S11")
async def test_one_that_ignores_the_signal_is_killed_after_its_grace(harness: RunnerHarness, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    harness.runner.start([assigned := isolated("traps", {"file": str(file)})])
    [pid] = await wait_for_numbers(file, 1)
    harness.runner.stop([attempt_ref(assigned)], why=Result.CANCELLED)

    outcome = await harness.outcome(assigned)

    assert (outcome.result, outcome.error) == (Result.CANCELLED, "was cancelled")
    assert not alive(pid)


@pytest.mark.guarantee("S11")
async def test_all_that_it_started_is_killed_with_it(harness: RunnerHarness, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    harness.runner.start([assigned := isolated("family", {"file": str(file)})])
    pids = await wait_for_numbers(file, 5)
    assert all(map(alive, pids))
    harness.runner.stop([attempt_ref(assigned)], why=Result.LOST)

    assert (await harness.outcome(assigned)).result is Result.LOST
    assert not any(map(alive, pids))


@pytest.mark.parametrize("crash", [True, False])
async def test_nothing_that_it_started_outlives_it(harness: RunnerHarness, tmp_path: Path, *, crash: bool) -> None:
    file = tmp_path / "pids"

    outcome = await tried(harness, "family", {"file": str(file), "wait": False, "crash": crash})

    assert outcome.result is (Result.FAILED if crash else Result.SUCCEEDED)
    assert len(read_numbers(file)) == 5
    assert not any(map(alive, read_numbers(file)))


async def test_only_so_many_run_at_once(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with open_runner(FUNCTIONS, max_concurrent=1, kill_grace_ms=100, slot_wait_ms=50) as harness:
        harness.runner.start([first := isolated("traps", {"file": str(file)})])
        await wait_for_numbers(file, 1)
        waiting = await tried(harness, "plain", {"number": 1})
        harness.runner.stop([attempt_ref(first)], why=Result.CANCELLED)
        await harness.idle()
        harness.runner.start([next_ := isolated("plain", {"number": 2})])

        assert (waiting.result, waiting.error) == (Result.NEVER_STARTED, "no process was free within 0.05 s")
        assert (await harness.outcome(next_)).result is Result.SUCCEEDED


async def test_a_function_that_another_process_cannot_find_says_so(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "local")

    assert outcome.result is Result.GAVE_UP
    assert outcome.error == ("function: 'local' cannot be found by another process: define it at the top of a module")


async def test_a_module_that_registers_the_function_is_enough() -> None:
    async with open_runner(FUNCTIONS, imports=("runners.registering_module",)) as harness:
        FUNCTIONS.add(registering_module.known, "known-by-another-name")

        assert decoded(await tried(harness, "known-by-another-name")) == "registered"


def test_a_script_may_keep_its_functions_to_itself() -> None:
    done = subprocess.run(
        [sys.executable, TESTS / "runners" / "main_script.py"],
        env=environment_of_tests(),
        capture_output=True,
        text=True,
        check=True,
    )

    result, output, pid, said = msgspec.json.decode(done.stdout)
    number, child = msgspec.json.decode(output)
    assert (result, number) == ("succeeded", 42)
    assert child != pid
    assert said == [], "the script did not start again in the process of its function"


@pytest.mark.guarantee("S11")
async def test_no_daemon_of_it_outlives_a_crash(harness: RunnerHarness, tmp_path: Path) -> None:
    file = tmp_path / "pids"

    outcome = await tried(harness, "daemonizes", {"file": str(file), "how": "killed"})

    assert outcome.error == "its process was killed by signal 9 (SIGKILL)"
    [daemon] = read_numbers(file)
    assert not alive(daemon)


@pytest.mark.guarantee("S11")
@pytest.mark.parametrize("what", [(), ("--daemon",)], ids=["the function", "its daemon"])
async def test_it_dies_with_its_worker(tmp_path: Path, what: tuple[str, ...]) -> None:
    file = tmp_path / "pids"
    program = TESTS / "runners" / "owner_process.py"
    worker = await asyncio.create_subprocess_exec(sys.executable, program, file, *what, env=environment_of_tests())
    [pid] = await wait_for_numbers(file, 1)
    worker.kill()
    await worker.wait()

    await wait_until(lambda: not alive(pid))
