"""Guarded commands: each program gets exactly the words that were checked, and no shell has a part in it."""

import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from gnomon.config.sections import SecretsSettings, SecuritySettings, ShellSettings
from gnomon.core.commands.policy import Autonomy
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import SHELL
from gnomon.runners.kernel_support import KernelSupport, probe_kernel
from gnomon.runners.registry import Functions
from runners.runner_harness import (
    RunnerHarness,
    alive,
    assignment,
    attempt_ref,
    open_runner,
    wait_until,
)

GUARDED_ORIGIN = "api"
needs_kernel = pytest.mark.skipif(bool(probe_kernel().missing), reason=f"the kernel lacks {probe_kernel().missing}")
#: A confined command cannot read the environment of the tests, which may be anywhere.
SYSTEM_PYTHON = Path("/usr/bin/python3")
INTERPRETER = SYSTEM_PYTHON if SYSTEM_PYTHON.exists() else sys.executable
KERNEL = None if SYSTEM_PYTHON.exists() else KernelSupport(landlock_abi=0, socket_filter=False)
#: Notes its words and its variables as a line of JSON, prints its input, and ends as a file of its name says.
STAND_IN = f"""#!{INTERPRETER} -S
import json, os, sys
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
with open("NOTES", "a") as notes:
    notes.write(json.dumps({{"words": words, "env": dict(os.environ)}}) + "\\n")
if words[0] == "copy":
    sys.stdout.write(sys.stdin.read())
if words[0] == "both":
    print("out", flush=True)
    print("err", file=sys.stderr)
if words[0] == "dies":
    os.kill(os.getpid(), 11)
sys.exit(int(words[1]) if words[0] == "exits" else 0)
"""
PROGRAMS = ("one", "two", "copy", "both", "exits", "dies")
Guarded = Callable[..., AbstractAsyncContextManager[RunnerHarness]]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "inner").mkdir(parents=True)
    return folder


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with stand-ins, which note what they are given."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    (folder / "no-program").write_text("neither a program nor a script\0")
    (folder / "no-program").chmod(0o755)
    (folder / "no-interpreter").write_text("#!/no/such/interpreter\n")
    (folder / "no-interpreter").chmod(0o755)
    return folder


@pytest.fixture
def guarded(workspace: Path, programs: Path) -> Guarded:
    @asynccontextmanager
    async def opened(
        *,
        kernel: KernelSupport | None = None,
        sandbox: Literal["auto", "off"] = "auto",
        **security: Any,  # noqa: ANN401
    ) -> AsyncIterator[RunnerHarness]:
        said = {
            "allowed_commands": (*PROGRAMS, "no-program", "no-interpreter", "cat", "sleep", "find", "git"),
            "path": (str(programs), "/usr/bin", "/bin"),
            "autonomy": Autonomy.FULL,
            **security,
        }
        shell = ShellSettings(workspace=str(workspace), sandbox=sandbox)
        async with open_runner(
            Functions(),
            shell=shell,
            security=SecuritySettings(**said),
            kernel=kernel or KERNEL,
            kill_grace_ms=300,
            secrets=SecretsSettings(allow=("KEY",)),
            environ={"KEY": "hunter22"},
        ) as harness:
            yield harness

    return opened


async def tried(harness: RunnerHarness, text: str, *, timeout_ms: int | None = None, **given: Any) -> AttemptOutcome:  # noqa: ANN401
    assigned = assignment(SHELL, given, command=text, input=given, timeout_ms=timeout_ms, origin=GUARDED_ORIGIN)
    harness.runner.start([assigned])
    return await harness.outcome(assigned)


def output_of(outcome: AttemptOutcome) -> Mapping[str, Any]:
    assert outcome.output is not None, outcome
    found: Mapping[str, Any] = msgspec.json.decode(outcome.output)
    return found


def notes(workspace: Path) -> list[dict[str, Any]]:
    file = workspace / "NOTES"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def words(workspace: Path) -> list[list[str]]:
    return [noted["words"] for noted in notes(workspace)]


# ---- what programs get ---------------------------------------------------------------------------


@pytest.mark.req("Z-04")
async def test_programs_get_exactly_the_words_that_were_checked(guarded: Guarded, workspace: Path) -> None:
    (workspace / "a file").touch()
    (workspace / "B").touch()
    text = r"""one 'two  words' "$JOB_TEXT" a\ b '$JOB_TEXT' "*" '' *"""
    async with guarded() as harness:
        outcome = await tried(harness, text, env={"JOB_TEXT": "$(id) * ; two"})

    assert outcome.result is Result.SUCCEEDED, outcome
    [noted] = words(workspace)
    assert noted == ["one", "two  words", "$(id) * ; two", "a b", "$JOB_TEXT", "*", "", "B", "a file", "inner"]


@pytest.mark.req("Z-04")
async def test_variables_are_those_of_the_step_and_those_before_the_program(guarded: Guarded, workspace: Path) -> None:
    async with guarded() as harness:
        outcome = await tried(harness, "JOB_A=1 in_b='2 3' one; two", env={"JOB_A": "0", "JOB_C": "4"})

    assert outcome.result is Result.SUCCEEDED, outcome
    own = ("JOB_A", "in_b", "JOB_C")
    assert [{name: noted["env"].get(name) for name in own} for noted in notes(workspace)] == [
        {"JOB_A": "1", "in_b": "2 3", "JOB_C": "4"},
        {"JOB_A": "0", "in_b": None, "JOB_C": "4"},
    ]


async def test_programs_see_little_of_the_environment_of_the_worker(
    guarded: Guarded, workspace: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_PASSWORD", "canary")
    monkeypatch.setenv("PATH", f"{workspace}:{os.environ['PATH']}")
    async with guarded() as harness:
        await tried(harness, "one")

    [noted] = notes(workspace)
    assert noted["env"]["PATH"] == f"{programs}:/usr/bin:/bin"
    assert "canary" not in noted["env"].values()


@needs_kernel
async def test_its_home_is_a_folder_of_its_own_which_is_removed(guarded: Guarded, workspace: Path) -> None:
    """Programs read settings there, and an earlier command could have written some."""
    async with guarded() as harness:
        await tried(harness, "one")

    [noted] = notes(workspace)
    home = Path(noted["env"]["HOME"])
    assert home.parent == workspace
    assert noted["env"]["TMPDIR"] == str(home)
    assert names_in(workspace) == ["NOTES", "inner"]


async def test_secrets_are_filled_in_and_removed_from_what_is_kept(guarded: Guarded, workspace: Path) -> None:
    async with guarded() as harness:
        good = await tried(harness, "copy", env={"JOB_KEY": "${secret:KEY}"}, stdin="${secret:KEY}")
        bad = await tried(harness, 'one "/etc/$JOB_KEY"', env={"JOB_KEY": "${secret:KEY}"})

    assert notes(workspace)[0]["env"]["JOB_KEY"] == "hunter22"
    assert output_of(good)["stdout"] == "[secret KEY]"
    assert bad.result is Result.DENIED
    assert "hunter22" not in repr((good, bad))


@pytest.mark.parametrize(
    ("text", "started"),
    [
        ("one && two", ["one", "two"]),
        ("one || two", ["one"]),
        ("one ; two", ["one", "two"]),
        ("one\ntwo", ["one", "two"]),
        ("exits 1 && two", ["exits"]),
        ("exits 1 || two", ["exits", "two"]),
        ("exits 1 && one || two", ["exits", "two"]),
        ("one || exits 1 && two", ["one", "two"]),
        ("exits 1 ; one && two", ["exits", "one", "two"]),
        ("exits 1 | one && two", None),
        ("dies || two", ["dies", "two"]),
    ],
)
async def test_connectors_are_those_of_a_shell(
    guarded: Guarded, workspace: Path, text: str, started: list[str] | None
) -> None:
    async with guarded() as harness:
        await tried(harness, text)

    found = [each[0] for each in words(workspace)]
    if started is None:
        # Programs of a pipe run side by side.
        assert (sorted(found[:2]), found[2:]) == (["exits", "one"], ["two"])
    else:
        assert found == started


@pytest.mark.parametrize(
    ("text", "stdout", "stderr"),
    [
        ("cat < in.txt", "in", ""),
        ("cat < in.txt | copy | copy", "in", ""),
        ("both | copy", "out", "err"),
        ("both 2>&1 | copy", "out\nerr", ""),
        ("both >/dev/null", "", "err"),
        ("both 2>/dev/null", "out", ""),
        ("both >/dev/null 2>&1", "", ""),
        ("cat in.txt | copy < other.txt", "other", ""),
        ("copy", "given", ""),
        ("copy; copy", "given", ""),
        ("one | copy | cat", "", ""),
    ],
)
async def test_programs_are_connected_as_in_a_shell(
    guarded: Guarded, workspace: Path, text: str, stdout: str, stderr: str
) -> None:
    (workspace / "in.txt").write_text("in")
    (workspace / "other.txt").write_text("other")
    async with guarded() as harness:
        output = output_of(await tried(harness, text, stdin="given"))

    assert (output["stdout"], output["stderr"]) == (stdout, stderr)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("exits 3", "exit status 3"),
        ("exits 3; exits 4", "exit status 4"),
        ("exits 3 | exits 4", "exit status 4"),
        ("exits 3 && one", "exit status 3"),
        ("exits 3 || exits 5", "exit status 5"),
        ("dies", r"exit status 139 \(SIGSEGV\)"),
        ("dies | exits 7", "exit status 7"),
        ("no-program", r"exit status 126: gnomon: \S+/no-program: Exec format error"),
        ("no-interpreter", r"exit status 127: gnomon: \S+/no-interpreter: not found.*"),
        ("cat < missing", r"exit status 1: gnomon: \S+/missing: cannot open: No such file or directory"),
        ("cat < missing; exits 2", "exit status 2: .*"),
    ],
)
async def test_the_status_is_that_of_a_shell(guarded: Guarded, text: str, error: str) -> None:
    async with guarded() as harness:
        outcome = await tried(harness, text)

    assert outcome.result is Result.FAILED
    assert re.fullmatch(error, outcome.error or ""), outcome.error


async def test_the_status_of_the_last_program_that_ran_may_be_success(guarded: Guarded) -> None:
    async with guarded() as harness:
        for text in ("exits 3; one", "exits 3 | one", "exits 3 || one"):
            assert (await tried(harness, text)).result is Result.SUCCEEDED


@pytest.mark.req("Z-04")
async def test_no_shell_has_a_part_in_it(guarded: Guarded, workspace: Path) -> None:
    """Neither the processes above the program nor its variables are those of a shell."""
    async with guarded() as harness:
        harness.runner.start([assigned := assignment(SHELL, {}, command="sleep 600", input={}, origin=GUARDED_ORIGIN)])
        await wait_until(lambda: bool(_sleepers(workspace)))
        [pid] = _sleepers(workspace)
        commands = [_command_line(each) for each in (pid, _parent_of(pid))]
        harness.runner.stop([attempt_ref(assigned)], why=Result.CANCELLED)
        assert (await harness.outcome(assigned)).result is Result.CANCELLED

    assert commands[0] == b"sleep\x00600\x00"
    assert b"guardian_main.py" in commands[1]
    assert not alive(pid)


def _sleepers(folder: Path) -> list[int]:
    """The processes `sleep` in that folder."""
    return [int(process.name) for process in Path("/proc").iterdir() if _sleeps_in(process, folder)]


def _sleeps_in(process: Path, folder: Path) -> bool:
    try:
        return process.name.isdigit() and (
            (process / "comm").read_text() == "sleep\n" and (process / "cwd").readlink() == folder
        )
    except OSError:
        return False


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.guarantee("S11")
async def test_its_timeout_ends_all_of_its_programs(guarded: Guarded, workspace: Path) -> None:
    async with guarded() as harness:
        outcome = await tried(harness, "sleep 600 | sleep 601; one", timeout_ms=500)

    assert (outcome.result, outcome.error) == (Result.TIMED_OUT, "took longer than 0.5 s")
    assert not _sleepers(workspace)
    assert not notes(workspace)


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.req("Z-04", "Z-13")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("curl http://example.com", "command not allowed: curl"),
        ("one $(id)", "command not allowed: one $(id)"),
        ("one ../secret", "forbidden path argument: ../secret"),
        ("one way-out/secret", "forbidden path argument: way-out/secret"),
        ("one way-*/secret", "forbidden path argument: way-"),
        ("cat < way-out/secret", "forbidden path argument: way-out/secret"),
        ("one .?/secret", None),
        ("one /etc/passwd", "forbidden path argument: /etc/passwd"),
        ("missing", "command not allowed: missing"),
        ("planted", "command not allowed: planted"),
        ("LD_PRELOAD=x one", "command not allowed: LD_PRELOAD=x one"),
    ],
)
async def test_a_refused_command_is_denied_before_a_process_exists(
    guarded: Guarded, workspace: Path, text: str, reason: str | None
) -> None:
    """Links and patterns are those of the worker: only it has the files."""
    (workspace / "way-out").symlink_to(workspace.parent)
    (workspace.parent / "secret").touch()
    (workspace / "planted").write_text(STAND_IN)
    (workspace / "planted").chmod(0o755)
    async with guarded(allowed_commands=("one", "cat", "missing", "planted")) as harness:
        outcome = await tried(harness, text)

    if reason is None:
        # The pattern matches neither `.` nor `..`, so the word stays as it is: a name in the workspace.
        assert words(workspace) == [["one", ".?/secret"]]
        return
    assert outcome.result is Result.DENIED
    assert (outcome.error or "").startswith(f"blocked by security policy: {reason}")
    assert outcome.output is None
    assert notes(workspace) == []


@pytest.mark.req("Z-04")
async def test_the_variables_of_a_step_are_checked_too(guarded: Guarded, workspace: Path) -> None:
    async with guarded() as harness:
        outcome = await tried(harness, "one", env={"LD_PRELOAD": "./planted.so"})

    assert outcome.result is Result.DENIED
    assert "env.LD_PRELOAD" in (outcome.error or "")
    assert notes(workspace) == []


# ---- the kernel holds it to the words ------------------------------------------------------------


#: The link leads out of the workspace once its folder is moved: a check that is made before cannot know that.
LATE = "mv deep/folder folder && cat folder/link"


@pytest.fixture
def late_link(workspace: Path) -> Path:
    (workspace / "deep" / "folder").mkdir(parents=True)
    (workspace / "deep" / "folder" / "link").symlink_to("../../secret")
    secret = workspace.parent / "secret"
    secret.write_text("canary")
    return secret


@pytest.mark.req("Z-13")
@needs_kernel
@pytest.mark.usefixtures("late_link")
async def test_its_files_are_confined(guarded: Guarded) -> None:
    async with guarded(allowed_commands=("cat", "mv")) as harness:
        outcome = await tried(harness, LATE)

    assert outcome.result is Result.FAILED
    assert outcome.error == "exit status 1: cat: folder/link: Permission denied"


@pytest.mark.req("Z-02")
@pytest.mark.usefixtures("late_link")
@pytest.mark.parametrize(
    "without", [{"sandbox": "off"}, {"kernel": KernelSupport(landlock_abi=0, socket_filter=False)}]
)
async def test_without_the_sandbox_its_check_alone_protects_files(guarded: Guarded, without: dict[str, Any]) -> None:
    async with guarded(allowed_commands=("cat", "mv"), **without) as harness:
        outcome = await tried(harness, LATE)

    assert output_of(outcome)["stdout"] == "canary"


@pytest.mark.req("Z-02")
@needs_kernel
@pytest.mark.usefixtures("late_link")
@pytest.mark.parametrize("abi", range(1, 7))
async def test_an_older_landlock_confines_files_too(guarded: Guarded, abi: int) -> None:
    """A newer kernel takes everything that an older one would understand."""
    kernel = KernelSupport(landlock_abi=abi, socket_filter=True)
    async with guarded(kernel=kernel, allowed_commands=("cat", "mv")) as harness:
        outcome = await tried(harness, LATE)

    assert outcome.error == "exit status 1: cat: folder/link: Permission denied"


@pytest.mark.req("Z-02")
@needs_kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities")
async def test_a_file_is_opened_for_it_without_capabilities(guarded: Guarded, workspace: Path) -> None:
    (workspace / "foreign").touch(0o600)
    os.chown(workspace / "foreign", 65534, 65534)
    async with guarded() as harness:
        outcome = await tried(harness, "cat < foreign")

    assert (outcome.error or "").endswith("foreign: cannot open: Permission denied")


@pytest.mark.req("Z-13")
@needs_kernel
@pytest.mark.skipif(not SYSTEM_PYTHON.exists(), reason="the system has no Python of its own")
async def test_it_executes_nothing_of_its_workspace(guarded: Guarded, workspace: Path, programs: Path) -> None:
    """An allowed program may start others, but none that a command has written."""
    planted = workspace / "planted"
    planted.write_text("#!/bin/sh\necho started\n")
    planted.chmod(0o755)
    (programs / "one").write_text(f"#!{INTERPRETER}\nimport subprocess; subprocess.run(['./planted'])")
    async with guarded() as harness:
        outcome = await tried(harness, "one")

    assert (outcome.error or "").endswith("PermissionError: [Errno 13] Permission denied: './planted'")


async def test_if_it_may_name_any_path_its_files_are_not_confined(guarded: Guarded, workspace: Path) -> None:
    elsewhere = workspace.parent / "elsewhere"
    elsewhere.write_text("read")
    async with guarded(workspace_only=False, forbidden_paths=("/etc",)) as harness:
        outcome = await tried(harness, f"cat {elsewhere}")

    assert output_of(outcome)["stdout"] == "read"
