"""Commands in a real shell: what they see, what becomes of them, and that nothing of them is left."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gnomon.config.sections import SecretsSettings, ShellSettings
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import Assignment, AttemptOutcome
from gnomon.core.runs.workflow import SHELL
from gnomon.runners.registry import Functions
from runners.runner_harness import (
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

#: Notes the number of a shell that does not mind being told to stop, and of its own child, which left its session.
STUBBORN = (
    "trap '' TERM; echo $$ >> {file}; setsid sh -c 'trap \"\" TERM; echo $$ >> {file}; sleep 600' & "
    "sh -c 'echo $$ >> {file}; sleep 600; :'; wait"
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "inner").mkdir(parents=True)
    return folder


@pytest.fixture
async def harness(workspace: Path) -> AsyncIterator[RunnerHarness]:
    shell = ShellSettings(workspace=str(workspace))
    async with open_runner(
        Functions(), shell=shell, kill_grace_ms=300, max_output_bytes=2400, max_log_lines=20
    ) as harness:
        yield harness


def command(text: str, *, timeout_ms: int | None = None, **given: Any) -> Assignment:  # noqa: ANN401 - what a step may say
    return assignment(SHELL, given, command=text, input=given, timeout_ms=timeout_ms)


async def tried(harness: RunnerHarness, text: str, **said: Any) -> AttemptOutcome:  # noqa: ANN401 - the same
    harness.runner.start([assigned := command(text, **said)])
    return await harness.outcome(assigned)


def output_of(outcome: AttemptOutcome) -> Any:  # noqa: ANN401 - any JSON
    assert outcome.output is not None, outcome.error
    return msgspec.json.decode(outcome.output)


@pytest.mark.req("Z-02")
async def test_its_status_and_what_it_printed_are_its_output(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "echo one; echo; echo two; echo three >&2")

    assert outcome.result is Result.SUCCEEDED
    assert output_of(outcome) == {"status": 0, "stdout": "one\n\ntwo", "stderr": "three"}
    assert {(line.level, line.text) for line in outcome.logs} == {
        ("stdout", "one"),
        ("stdout", "two"),
        ("stderr", "three"),
    }


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("exit 3", "exit status 3"),
        ("echo first >&2; echo last >&2; echo >&2; exit 1", "exit status 1: last"),
        ("echo nothing wrong; false", "exit status 1"),
        ("kill -9 $$", "exit status 137 (SIGKILL)"),
        ("sh -c 'kill -SEGV $$'; exit $?", "exit status 139 (SIGSEGV): Segmentation fault"),
    ],
)
async def test_a_status_that_is_not_0_is_a_failure_that_says_why(harness: RunnerHarness, text: str, error: str) -> None:
    outcome = await tried(harness, text)

    assert (outcome.result, outcome.error) == (Result.FAILED, error)


@pytest.mark.req("Z-02")
@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("echo one; echo two >&2; exit 3", {"status": 3, "stdout": "one", "stderr": "two"}),
        ("echo one; kill -9 $$", {"status": 137, "stdout": "one", "stderr": ""}),
        ("echo one; echo two >&2; sleep 600", {"status": None, "stdout": "one", "stderr": "two"}),
    ],
)
async def test_a_failure_keeps_what_was_printed(harness: RunnerHarness, text: str, output: object) -> None:
    outcome = await tried(harness, text, timeout_ms=1500)

    assert outcome.result in (Result.FAILED, Result.TIMED_OUT)
    assert output_of(outcome) == output


async def test_a_program_that_is_not_there_is_named(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "no-such-program --at-all")

    assert outcome.error is not None
    assert outcome.error.startswith("exit status 127: ")
    assert "no-such-program: not found (in the folder workspace, see shell.workspace)" in outcome.error


async def test_an_error_of_missing_privileges_says_how_to_get_them(harness: RunnerHarness) -> None:
    said = 'sudo: The "no new privileges" flag is set, which prevents sudo from running as root.'
    outcome = await tried(harness, f"echo '{said}' >&2; echo 'sudo: see the container' >&2; exit 1")

    assert outcome.error == (
        "exit status 1: sudo: see the container (commands gain privileges only with shell.privileges: keep)"
    )


@pytest.mark.guarantee("S24")
async def test_a_refused_folder_is_named_without_its_secret(workspace: Path) -> None:
    """An error shows the beginning of a long value, in which the secret would not be recognised."""
    secrets, environ = SecretsSettings(allow=("KEY",)), {"KEY": "hunter22" * 25}
    shell = ShellSettings(workspace=str(workspace))
    async with open_runner(Functions(), secrets=secrets, environ=environ, shell=shell) as harness:
        missing = await tried(harness, "true", workdir="${secret:KEY}")
        too_long = await tried(harness, "true", workdir="${secret:KEY}${secret:KEY}")

    assert missing.error == "workdir: '${secret:KEY}' is not a folder"
    assert too_long.error == "workdir: '${secret:KEY}${secret:KEY}' is no path"


@pytest.mark.guarantee("S24")
@pytest.mark.parametrize("status", [0, 1])
@pytest.mark.parametrize(
    "written",
    [
        pytest.param(
            "for byte in (key + b' ') * 20: os.write(1, bytes([byte])), os.write(2, bytes([byte]))", id="bytes"
        ),
        pytest.param("text = (key + b'\\n') * 9999; os.write(1, text), os.write(2, text)", id="many lines"),
        pytest.param("text = key * 9999; os.write(1, text), os.write(2, text)", id="one line, which is cut"),
    ],
)
async def test_a_secret_that_arrives_in_pieces_is_removed(workspace: Path, written: str, status: int) -> None:
    secrets, environ = SecretsSettings(allow=("KEY",)), {"KEY": "hunter22-5a2c"}
    shell = ShellSettings(workspace=str(workspace))
    program = f"import os; key = os.environb[b'KEY']\n{written}\nexit({status})"
    # With this size the kept end of the output begins in the middle of a secret.
    most = 2424
    async with open_runner(
        Functions(), secrets=secrets, environ=environ, shell=shell, max_output_bytes=most
    ) as harness:
        env = {"KEY": "${secret:KEY}", "PROGRAM": program}
        outcome = await tried(harness, f'{sys.executable} -c "$PROGRAM"', env=env)

    assert outcome.result is (Result.FAILED if status else Result.SUCCEEDED)
    shown = f"{outcome.output!r} {outcome.error} {outcome.logs}"
    assert "[secret KEY]" in shown
    assert not [start for start in range(9) if "hunter22-5a2c"[start : start + 5] in shown]


@pytest.mark.req("Z-13")
async def test_it_runs_in_the_workspace(harness: RunnerHarness, workspace: Path) -> None:
    assert output_of(await tried(harness, "pwd"))["stdout"] == str(workspace)
    assert output_of(await tried(harness, "pwd", workdir="inner"))["stdout"] == str(workspace / "inner")
    assert output_of(await tried(harness, "pwd", workdir=str(workspace / "inner")))["stdout"] == str(
        workspace / "inner"
    )


@pytest.mark.req("Z-13")
@pytest.mark.parametrize(
    ("workdir", "reason"),
    [
        ("/", "is outside of the workspace"),
        ("..", "is outside of the workspace"),
        ("way-out", "is outside of the workspace"),
        ("missing", "is not a folder"),
    ],
)
async def test_and_nowhere_else(harness: RunnerHarness, workspace: Path, workdir: str, reason: str) -> None:
    (workspace / "way-out").symlink_to("/tmp")  # noqa: S108 - a way out

    outcome = await tried(harness, "pwd", workdir=workdir)

    assert (outcome.result, outcome.error) == (Result.GAVE_UP, f"workdir: {workdir!r} {reason}")


async def test_a_workspace_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with open_runner(Functions(), shell=ShellSettings(workspace=str(tmp_path / "gone"))) as harness:
        outcome = await tried(harness, "pwd")

    assert (outcome.result, outcome.error) == (
        Result.GAVE_UP,
        f"shell.workspace: '{tmp_path}/gone' is not a folder",
    )


@pytest.mark.req("Z-02")
async def test_there_is_nothing_to_read_unless_it_is_given(harness: RunnerHarness) -> None:
    assert output_of(await tried(harness, "cat; echo end"))["stdout"] == "end"
    assert output_of(await tried(harness, "cat", stdin="one\n\ntwo"))["stdout"] == "one\n\ntwo"


async def test_it_sees_a_few_variables_of_its_worker_and_those_of_its_step(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "hunter22")
    monkeypatch.setenv("LANG", "C.UTF-8")
    odd = 'it\'s "quoted"; $(exit 1)\nin two lines'

    assert output_of(await tried(harness, 'echo "${DATABASE_PASSWORD-none} $LANG"'))["stdout"] == "none C.UTF-8"
    assert output_of(await tried(harness, 'printf %s "$ODD"', env={"ODD": odd}))["stdout"] == odd
    assert output_of(await tried(harness, 'echo "$A"', env={"A": {"rows": [1]}}))["stdout"] == '{"rows":[1]}'


async def test_options_of_a_step_override_the_profile_of_the_shell(harness: RunnerHarness, tmp_path: Path) -> None:
    (tmp_path / ".profile").write_text("PATH=/profile:$PATH; export PATH WHO=profile OTHER=kept")
    env = {"HOME": str(tmp_path), "PATH": "/mine:/usr/bin:/bin", "WHO": "step"}

    outcome = await tried(harness, 'echo "$PATH $WHO $OTHER"; env | grep -c GNOMON_ENV || :', env=env)

    assert output_of(outcome)["stdout"] == "/mine:/usr/bin:/bin step kept\n0"


async def test_it_knows_its_attempt(harness: RunnerHarness) -> None:
    harness.runner.start([assigned := command('echo "$GNOMON_RUN_ID $GNOMON_TASK_ID $GNOMON_ATTEMPT"')])

    printed = output_of(await harness.outcome(assigned))["stdout"]

    assert printed == f"{assigned.run.run_id} {assigned.task.task_id} 1"


async def test_the_input_of_a_run_does_not_set_environment_variables(harness: RunnerHarness) -> None:
    assigned = assignment(SHELL, {"env": {"LD_PRELOAD": "/evil"}, "stdin": "evil"}, command='cat; echo "$LD_PRELOAD"')
    harness.runner.start([assigned])

    assert output_of(await harness.outcome(assigned))["stdout"] == ""


@pytest.mark.guarantee("S24")
async def test_secrets_are_in_its_variables_and_nowhere_else(workspace: Path) -> None:
    secrets, environ = SecretsSettings(allow=("TOKEN",)), {"TOKEN": "hunter22"}
    shell = ShellSettings(workspace=str(workspace))
    async with open_runner(Functions(), secrets=secrets, environ=environ, shell=shell) as harness:
        given = {"env": {"TOKEN": "${secret:TOKEN}"}}
        good = await tried(
            harness, 'echo "have $TOKEN"; test ${#TOKEN} = 8 && tr "\\0" " " < /proc/$$/cmdline', **given
        )
        bad = await tried(harness, 'echo "no $TOKEN" >&2; exit 1', **given)
        refused = await tried(harness, "true", env={"OTHER": "${secret:OTHER}"})

    assert output_of(good)["stdout"].startswith("have [secret TOKEN]\n/bin/sh -lc export")
    assert bad.error == "exit status 1: no [secret TOKEN]"
    assert "hunter22" not in msgspec.json.encode((good, bad)).decode()
    assert (refused.result, refused.error) == (Result.GAVE_UP, "secret: 'OTHER' is not allowed")


@pytest.mark.guarantee("S25")
async def test_the_output_of_a_command_is_bounded_to_its_beginning_and_end(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i + 1)); done")

    output = output_of(outcome)
    assert output["truncated"] is True
    assert output["stdout"].startswith("line 0\nline 1\n")
    assert output["stdout"].endswith("line 2998\nline 2999")
    assert outcome.output is not None
    assert len(outcome.output) <= 2400
    assert len(outcome.logs) == 21
    assert outcome.logs[-1].text == "[only the first 20 lines are kept]"


@pytest.mark.req("Z-02")
@pytest.mark.parametrize("status", [0, 1])
async def test_of_each_stream_16_kib_are_kept_and_the_middle_is_cut_out(workspace: Path, status: int) -> None:
    printed = "seq 100000; seq 100000 >&2"
    async with open_runner(Functions(), shell=ShellSettings(workspace=str(workspace))) as harness:
        output = output_of(await tried(harness, f"{printed}; exit {status}"))

    whole = "".join(f"{number}\n" for number in range(1, 100_001)).rstrip()
    for stream in ("stdout", "stderr"):
        head, marker, tail = re.split(r"\n(\.\.\.\[\d+ bytes left out\]\.\.\.)\n", output[stream])
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert abs(len(head) - len(tail)) <= 1
        assert 16_000 < len(output[stream]) <= 16_384
        # The line end at the end is not kept, either.
        assert int(re.sub(r"\D", "", marker)) == len(whole) - len(head) - len(tail)
    assert (output["status"], output["truncated"]) == (status, True)


async def test_odd_bytes_fit_into_its_output(harness: RunnerHarness) -> None:
    outcome = await tried(harness, "head -c 5000 /dev/zero; printf '\\377\\001'")

    assert output_of(outcome)["status"] == 0


@pytest.mark.req("Z-02")
@pytest.mark.guarantee("S11")
async def test_at_its_timeout_it_is_killed_with_all_its_children(harness: RunnerHarness, tmp_path: Path) -> None:
    file = tmp_path / "pids"

    outcome = await tried(harness, STUBBORN.format(file=file), timeout_ms=1500)

    assert (outcome.result, outcome.error) == (Result.TIMED_OUT, "took longer than 1.5 s")
    assert len(read_numbers(file)) == 3
    assert not any(map(alive, read_numbers(file)))


@pytest.mark.parametrize("why", [Result.CANCELLED, Result.LOST, Result.INTERRUPTED])
async def test_a_stop_ends_the_whole_process_tree(harness: RunnerHarness, tmp_path: Path, why: Result) -> None:
    file = tmp_path / "pids"
    harness.runner.start([assigned := command(STUBBORN.format(file=file))])
    pids = await wait_for_numbers(file, 3)
    assert all(map(alive, pids))
    harness.runner.stop([attempt_ref(assigned)], why=why)

    assert (await harness.outcome(assigned)).result is why
    assert not any(map(alive, pids))


async def test_a_worker_that_stops_leaves_nothing_behind(workspace: Path, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    async with open_runner(Functions(), shell=ShellSettings(workspace=str(workspace)), kill_grace_ms=100) as harness:
        harness.runner.start([command(STUBBORN.format(file=file))])
        pids = await wait_for_numbers(file, 3)

    assert not any(map(alive, pids))


async def test_a_stopped_command_can_clean_up_even_if_it_is_not_the_shell_itself(
    harness: RunnerHarness, tmp_path: Path
) -> None:
    file = tmp_path / "notes"
    tidy = f"sh -c 'trap \"sleep 0.1; echo 0 >> {file}; exit\" TERM; echo 1 >> {file}; while :; do sleep 0.01; done'"
    harness.runner.start([assigned := command(f"{tidy}; :")])
    await wait_for_numbers(file, 1)
    harness.runner.stop([attempt_ref(assigned)], why=Result.CANCELLED)

    assert (await harness.outcome(assigned)).result is Result.CANCELLED
    assert read_numbers(file) == [1, 0]


@pytest.mark.parametrize("daemon", ["sleep 600", "setsid sh -c 'sleep 600; :'", "env -i setsid sleep 600"])
async def test_nothing_that_it_started_outlives_it(harness: RunnerHarness, tmp_path: Path, daemon: str) -> None:
    file = tmp_path / "pids"

    outcome = await tried(harness, f"({daemon} & echo $! >> {file}); echo started")

    assert output_of(outcome)["stdout"] == "started"
    assert len(read_numbers(file)) == 1
    assert not any(map(alive, read_numbers(file)))


@pytest.mark.guarantee("S11")
async def test_it_dies_with_its_worker_and_so_does_all_that_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    program = TESTS / "runners" / "owner_process.py"
    worker = await asyncio.create_subprocess_exec(
        sys.executable, program, file, STUBBORN.format(file=file), env=environment_of_tests(), cwd=tmp_path
    )
    pids = await wait_for_numbers(file, 3)
    assert all(map(alive, pids))
    worker.kill()
    await worker.wait()

    await wait_until(lambda: not any(map(alive, pids)))


async def test_if_its_guardian_is_killed_all_of_it_is(harness: RunnerHarness, tmp_path: Path) -> None:
    file = tmp_path / "pids"
    harness.runner.start([assigned := command("echo $PPID >> " + str(file) + "; " + STUBBORN.format(file=file))])
    pids = await wait_for_numbers(file, 4)
    os.kill(pids[0], 9)

    outcome = await harness.outcome(assigned)

    assert (outcome.result, outcome.error) == (Result.FAILED, "its process was killed by signal 9 (SIGKILL)")
    assert not any(map(alive, pids))


@pytest.mark.req("Z-01")
async def test_only_so_many_run_at_once(workspace: Path) -> None:
    shell = ShellSettings(workspace=str(workspace))
    async with open_runner(Functions(), shell=shell, max_concurrent=1, slot_wait_ms=50) as harness:
        harness.runner.start([first := command("sleep 600")])
        await wait_until(lambda: harness.runner.occupied == 1)
        waiting = await tried(harness, "echo never")
        harness.runner.stop([attempt_ref(first)], why=Result.CANCELLED)

        assert (waiting.result, waiting.error) == (Result.NEVER_STARTED, "no process was free within 0.05 s")
        assert waiting.waited_for_slot
        await harness.idle()
        assert output_of(await tried(harness, "echo next"))["stdout"] == "next"


@pytest.mark.req("Z-01")
async def test_the_wait_for_a_process_does_not_depend_on_the_timeout_of_the_command(workspace: Path) -> None:
    shell = ShellSettings(workspace=str(workspace))
    async with open_runner(Functions(), shell=shell, max_concurrent=1) as harness:
        harness.runner.start([first := command(f"until test -e {workspace}/go; do sleep 0.01; done")])
        await wait_until(lambda: harness.runner.occupied == 1)
        # A quick one, whose timeout counts from its start: it waits for much longer than that.
        harness.runner.start([quick := command("true", timeout_ms=300)])
        await asyncio.sleep(0.4)
        (workspace / "go").touch()

        assert (await harness.outcome(first)).result is Result.SUCCEEDED
        assert (await harness.outcome(quick)).result is not Result.NEVER_STARTED


@pytest.mark.req("Z-02")
async def test_a_command_that_says_nothing_has_the_usual_time_of_commands(workspace: Path) -> None:
    assert ShellSettings().timeout_ms == 120_000
    async with open_runner(Functions(), shell=ShellSettings(workspace=str(workspace), timeout_ms=100)) as harness:
        outcome = await tried(harness, "sleep 600")

    assert (outcome.result, outcome.error) == (Result.TIMED_OUT, "took longer than 0.1 s")


def test_a_runner_offers_commands_beside_its_functions() -> None:
    functions = Functions()
    functions.add(print, "print")

    async def offered() -> list[str]:
        async with open_runner(functions) as harness:
            assert len(harness.runner.functions) == 2
            return list(harness.runner.functions)

    assert asyncio.run(offered()) == ["print", SHELL]
