"""No process that a command has started is left, in whatever order its worker and its guardians are killed."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from gnomon.config.sections import ShellSettings
from gnomon.core.model import Result
from gnomon.core.runs.workflow import SHELL
from gnomon.runners import process_guardian
from gnomon.runners.registry import Functions
from runners.runner_harness import (
    TESTS,
    RunnerHarness,
    alive,
    assignment,
    environment_of_tests,
    open_runner,
    wait_for_numbers,
    wait_until,
)

#: Starts a daemon that has left parent, session, process group and environment.
DAEMON = "(env -i setsid sleep 600 & echo $! >> {file})"
#: Notes the inner and the outer guardian, a daemon, itself and a child that ignores signals to stop.
FAMILY = (
    f"echo $PPID >> {{file}}; cut -d' ' -f4 /proc/$PPID/stat >> {{file}}; {DAEMON}; "
    "sh -c 'trap \"\" TERM HUP; echo $$ >> {file}; sleep 600; :'"
)
FAMILY_SIZE = 4


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[RunnerHarness]:
    # In its sandbox, a command cannot kill its guardians.
    shell = ShellSettings(workspace=str(tmp_path), sandbox="off")
    async with open_runner(Functions(), shell=shell, kill_grace_ms=300) as harness:
        yield harness


async def result_of(harness: RunnerHarness, command: str) -> tuple[Result, str | None]:
    harness.runner.start([assigned := assignment(SHELL, {}, command=command, input={})])
    outcome = await harness.outcome(assigned)
    return outcome.result, outcome.error


@pytest.mark.guarantee("S11")
@pytest.mark.parametrize(
    "target", ["$PPID", "$(cut -d' ' -f4 /proc/$PPID/stat)"], ids=["inner guardian", "outer guardian"]
)
async def test_a_command_that_kills_its_guardian_leaves_no_daemon(
    harness: RunnerHarness, tmp_path: Path, target: str
) -> None:
    file = tmp_path / "pids"

    ended = await result_of(harness, f"{DAEMON.format(file=file)}; kill -9 {target}; sleep 600")

    assert ended == (Result.FAILED, "its process was killed by signal 9 (SIGKILL)")
    [daemon] = await wait_for_numbers(file, 1)
    await wait_until(lambda: not alive(daemon))


def test_guardians_load_three_files_of_gnomon_and_nothing_heavy() -> None:
    """Each command waits for two of them."""
    program = Path(process_guardian.__file__).with_name("guardian_main.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", program], capture_output=True, text=True, check=False
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}

    ours = {"process_guardian", "kernel_sandbox", "plan_process"}
    assert {name for name in loaded if name.startswith("gnomon")} == {f"gnomon.runners.{name}" for name in ours}
    assert not loaded & {"enum", "re", "typing", "pathlib", "json", "subprocess", "msgspec", "site"}


@pytest.mark.guarantee("S11")
async def test_in_its_sandbox_a_command_cannot_kill_its_guardians(tmp_path: Path) -> None:
    command = "kill -9 $PPID || kill -9 $(cut -d' ' -f4 /proc/$PPID/stat) || exit 7"
    async with open_runner(Functions(), shell=ShellSettings(workspace=str(tmp_path))) as harness:
        result, error = await result_of(harness, command)

    assert result is Result.FAILED
    assert error is not None
    assert error.startswith("exit status 7: ")
    assert error.endswith("Operation not permitted")


@pytest.mark.guarantee("S11")
async def test_a_daemon_that_forks_without_end_is_killed(harness: RunnerHarness, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    # Each process lives for a moment and starts the next one.
    endless = f"next() {{ echo $$ > {file}; exec env -i setsid sh $0 & exit; }}; next"
    (tmp_path / "endless").write_text(endless)

    await result_of(harness, f"setsid sh {tmp_path}/endless; while ! test -s {file}; do sleep 0.01; done")

    assert str(tmp_path / "endless") not in _command_lines()


def _command_lines() -> str:
    def line(process: Path) -> str:
        try:
            return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            return ""

    return "\n".join(line(process) for process in Path("/proc").iterdir() if process.name.isdigit())


async def started_worker(folder: Path, command: str) -> "asyncio.subprocess.Process":
    program = TESTS / "runners" / "owner_process.py"
    return await asyncio.create_subprocess_exec(
        sys.executable, program, folder / "own", command, env=environment_of_tests(), cwd=folder
    )


@pytest.mark.guarantee("S11")
async def test_nothing_is_left_whoever_is_killed_first(tmp_path: Path) -> None:
    orders = [("inner",), ("outer",), ("worker",), *((one, two) for one, two in _PAIRS), *((b, a) for a, b in _PAIRS)]

    folders = [tmp_path / "-".join(order) for order in orders]
    for folder in folders:
        folder.mkdir()

    await asyncio.gather(*map(_killed, folders, orders))


_PAIRS = (("inner", "worker"), ("outer", "worker"))


async def _killed(folder: Path, order: Sequence[str]) -> None:
    file = folder / "pids"
    worker = await started_worker(folder, FAMILY.format(file=file))
    inner, outer, *family = await wait_for_numbers(file, FAMILY_SIZE)
    assert all(map(alive, (inner, outer, *family)))
    pids = {"inner": inner, "outer": outer, "worker": worker.pid}
    for name in order:
        # It may have ended with the one before.
        with suppress(ProcessLookupError):
            os.kill(pids[name], signal.SIGKILL)
    await wait_until(lambda: not any(map(alive, (inner, outer, *family))))
    if worker.returncode is None:
        worker.kill()
    await worker.wait()


@pytest.mark.guarantee("S11")
@pytest.mark.parametrize("signals", [(), (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGCHLD) * 25])
async def test_a_command_ends_though_its_worker_and_both_guardians_are_killed_at_once(
    tmp_path: Path, signals: Sequence[signal.Signals]
) -> None:
    file = tmp_path / "pids"
    own = f"echo $PPID >> {file}; cut -d' ' -f4 /proc/$PPID/stat >> {file}; trap '' TERM HUP INT; echo $$ >> {file}"
    worker = await started_worker(tmp_path, f"{own}; while :; do sleep 0.05; done")
    inner, outer, shell = await wait_for_numbers(file, 3)
    watchers = (worker.pid, outer, inner)
    # None of them acts between the first kill and the last.
    for pid in watchers:
        for number in signals if pid != worker.pid else ():
            os.kill(pid, number)
        os.kill(pid, signal.SIGSTOP)
    for pid in watchers:
        os.kill(pid, signal.SIGKILL)

    await worker.wait()
    try:
        await wait_until(lambda: not any(map(alive, (inner, outer, shell))))
    finally:
        with suppress(ProcessLookupError):
            os.kill(shell, signal.SIGKILL)


@pytest.mark.thorough
@pytest.mark.guarantee("S11")
async def test_nothing_is_left_at_whatever_moment_a_worker_is_killed(tmp_path: Path) -> None:
    random_moment = random.Random(7)
    token = uuid.uuid4().hex
    program = tmp_path / token
    program.symlink_to("/bin/sleep")
    command = f"(env -i setsid {program} 600 &); {program} 600 & {program} 600"
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        worker = await started_worker(folder, command)
        await asyncio.sleep(random_moment.uniform(0.3, 1.5))
        worker.kill()
        await worker.wait()
    await wait_until(lambda: token not in _command_lines())
