"""A command: the state that it inherits from its worker, and the state that it cannot reach."""

import os
import pwd
import resource
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gnomon.app.runner import command_workspace
from gnomon.app.sandbox import sandbox_findings
from gnomon.config.sections import SecretsSettings, ShellSettings
from gnomon.config.settings import Settings, load
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import SHELL
from gnomon.errors import FieldError
from gnomon.runners.process_guardian import fork_within_limit
from gnomon.runners.registry import Functions
from gnomon.runners.workspace import Workspace
from gnomon.services.observability.health import Severity
from runners.runner_harness import RunnerHarness, alive, assignment, open_runner, wait_for_numbers, wait_until

NOBODY = "nobody"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run commands as another user")
Shell = Callable[..., AbstractAsyncContextManager[RunnerHarness]]


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    folder = tmp_path / "workspace"
    folder.mkdir()

    @asynccontextmanager
    async def opened(**settings: Any) -> AsyncIterator[RunnerHarness]:  # noqa: ANN401 - those of ShellSettings
        said = ShellSettings(**{"workspace": str(folder), **settings})
        async with open_runner(Functions(), shell=said, kill_grace_ms=300) as harness:
            yield harness

    return opened


async def tried(harness: RunnerHarness, command: str, *, tenant: str = "default", **given: Any) -> AttemptOutcome:  # noqa: ANN401 - what a step may say
    assigned = assignment(SHELL, given, command=command, input=given)
    assigned = msgspec.structs.replace(assigned, run=msgspec.structs.replace(assigned.run, tenant=tenant))
    harness.runner.start([assigned])
    return await harness.outcome(assigned)


async def printed(harness: RunnerHarness, command: str, **given: Any) -> str:  # noqa: ANN401 - what a step may say
    outcome = await tried(harness, command, **given)
    assert outcome.output is not None, outcome.error
    return str(msgspec.json.decode(outcome.output)["stdout"])


# ---- what it inherits ----------------------------------------------------------------------------


async def test_it_has_no_descriptor_of_its_worker(shell: Shell, tmp_path: Path) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        async with shell() as harness:
            links = await printed(harness, "readlink /proc/$$/fd/*; :")

    assert {link.partition(":")[0] for link in links.splitlines()} == {"/dev/null", "pipe"}


async def test_it_has_no_terminal_and_nothing_to_read(shell: Shell) -> None:
    async with shell() as harness:
        assert await printed(harness, "(: < /dev/tty) 2> /dev/null || echo none; readlink /proc/$$/fd/0") == (
            "none\n/dev/null"
        )


async def test_signals_have_their_usual_effect_although_its_worker_ignores_them(shell: Shell) -> None:
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGUSR1, signal.SIGCHLD)}
    try:
        async with shell() as harness:
            status = await printed(harness, "grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f2")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

    # The C library keeps two signals for itself.
    blocked, ignored = (int(mask, 16) & ~(3 << 31) for mask in status.split())
    assert (blocked, ignored) == (0, 0)


async def test_it_finds_no_programs_in_its_workspace(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f".::bin:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    program = tmp_path / "workspace" / "planted"
    program.write_text("#!/bin/sh\necho planted\n")
    program.chmod(0o755)
    async with shell() as harness:
        outcome = await tried(harness, "planted")

    assert outcome.result is Result.FAILED
    assert "not found" in (outcome.error or "")


async def test_no_variable_of_a_job_reaches_the_guardians(shell: Shell) -> None:
    planted = dict.fromkeys(("LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONHOME"), "planted")
    async with shell(privileges="keep") as harness:
        seen = await printed(harness, 'echo "$LD_AUDIT"; grep -c planted /proc/$PPID/environ || :', env=planted)

    assert seen == "planted\n0"


async def test_data_adds_no_variables(shell: Shell) -> None:
    async with shell() as harness:
        outcome = await tried(harness, "env", env={"A": "x\0LD_PRELOAD=/planted.so"})

    assert (outcome.result, outcome.error) == (
        Result.GAVE_UP,
        "env.A: '[hidden]' has a NUL character, which no variable can have",
    )


# ---- limits and privileges -----------------------------------------------------------------------


async def test_each_of_its_processes_has_limits(shell: Shell) -> None:
    limits = {"max_memory_bytes": 2**28, "max_cpu_ms": 90_500, "max_file_bytes": 2**20, "max_processes": 50}
    async with shell(**limits) as harness:
        shown = await printed(harness, "grep -E 'data size|cpu time|file size|Max processes' /proc/self/limits")
        too_long = await tried(harness, "head -c 2000000 /dev/zero > large")
        too_much = await tried(harness, "python3 -c 'bytearray(2**29)'", env={"PATH": os.environ["PATH"]})

    found = {line[:26].strip(): line[26:].split()[:2] for line in shown.splitlines()}
    assert found["Max cpu time"] == ["91", "91"]
    assert found["Max file size"] == [str(2**20)] * 2
    assert found["Max data size"] == [str(2**28)] * 2
    assert 50 <= int(found["Max processes"][0]) < 100_000
    assert too_long.error is not None
    assert "SIGXFSZ" in too_long.error
    assert too_much.error == "exit status 1: MemoryError"


async def test_a_limit_of_0_is_none(shell: Shell) -> None:
    none = dict.fromkeys(("max_memory_bytes", "max_cpu_ms", "max_file_bytes", "max_processes"), 0)
    own = Path("/proc/self/limits").read_text()  # noqa: ASYNC240 - a file of the kernel
    async with shell(**none) as harness:
        shown = await printed(harness, "cat /proc/self/limits")

    assert shown.split() == own.split()


async def test_it_can_gain_no_privileges(shell: Shell) -> None:
    shown = "grep -E '^(NoNewPrivs|CapEff|CapBnd|CapAmb)' /proc/self/status | cut -f2"
    async with shell() as harness:
        effective, bounding, ambient, no_new = (await printed(harness, shown)).split()
    async with shell(privileges="keep") as harness:
        kept = (await printed(harness, shown)).split()

    assert (no_new, int(ambient, 16)) == ("1", 0)
    ptrace, admin, module = 1 << 19, 1 << 21, 1 << 16
    assert not int(effective, 16) & (ptrace | admin | module)
    if os.geteuid() == 0:
        assert not int(bounding, 16) & (ptrace | admin | module)
        own = Path("/proc/self/status").read_text()  # noqa: ASYNC240 - a file of the kernel
        assert f"CapBnd:\t{kept[1]}" in own


@as_root
async def test_it_runs_as_another_user(shell: Shell, tmp_path: Path) -> None:
    _let_in(tmp_path)
    secret = tmp_path / "gnomon.db.key"
    secret.write_text("key")
    secret.chmod(0o600)
    async with shell(user=NOBODY) as harness:
        whose = await printed(
            harness, 'id -un; id -Gn; echo "$USER $LOGNAME"; grep ^CapEff /proc/self/status | cut -f2'
        )
        denied = await tried(harness, f"cat {secret}")

    assert whose.split() == [NOBODY, "nogroup", NOBODY, NOBODY, "0000000000000000"]
    assert "Permission denied" in (denied.error or "")


@as_root
async def test_another_user_cannot_escape_by_killing_guardians(shell: Shell, tmp_path: Path) -> None:
    _let_in(tmp_path)
    file = tmp_path / "workspace" / "pids"
    file.touch()
    file.chmod(0o666)
    command = (
        f"(env -i setsid sleep 600 & echo $! >> {file}); kill -9 $(cut -d' ' -f4 /proc/$PPID/stat) $PPID; sleep 600"
    )
    async with shell(user=NOBODY, sandbox="off") as harness:
        outcome = await tried(harness, command)

    assert outcome.error == "its process was killed by signal 9 (SIGKILL)"
    [daemon] = await wait_for_numbers(file, 1)
    await wait_until(lambda: not alive(daemon))


def _let_in(folder: Path) -> None:
    """Let other users into a folder of a test. It lies deeper if several processes run tests."""
    for each in (folder, *folder.parents):
        if each.name.startswith("pytest-of-"):
            each.chmod(each.stat().st_mode | 0o711)
            return
        each.chmod(each.stat().st_mode | 0o711)


@as_root
async def test_a_fork_bomb_is_limited(shell: Shell, tmp_path: Path) -> None:
    _let_in(tmp_path)
    bomb = "i=0; while [ $i -lt 400 ]; do sleep 600 & i=$((i + 1)); done"
    async with shell(user=NOBODY, max_processes=20) as harness:
        outcome = await tried(harness, bomb)

    assert "fork" in (outcome.error or "")


@pytest.mark.req("Z-02")
@pytest.mark.parametrize("user", ["", pytest.param(NOBODY, marks=as_root)])
async def test_the_limits_hold_of_which_doctor_says_so(shell: Shell, tmp_path: Path, user: str) -> None:
    """A bounded fork bomb and a program that wants too much memory, as the user of the worker and as another one."""
    _let_in(tmp_path)
    limits = {"max_memory_bytes": 2**28, "max_processes": 20}
    [_, finding] = sandbox_findings(
        load(flags={f"shell.{name}": str(value) for name, value in limits.items()} | {"shell.user": user})
    )
    async with shell(user=user, **limits) as harness:
        bomb = await tried(harness, "i=0; while [ $i -lt 300 ]; do sleep 600 & i=$((i + 1)); done")
        hog = await tried(harness, "head -c 1G /dev/zero | tail")

    assert "256 MiB of memory" in finding.message
    assert "memory exhausted" in (hog.error or "")
    assert ("fork" in (bomb.error or "")) is (finding.grade is Severity.OK)
    assert (finding.grade is Severity.OK) is ("20 processes" in finding.message)


@as_root
def test_a_user_with_many_processes_that_cannot_be_seen_can_still_run_commands() -> None:
    child = os.fork()
    if not child:
        try:
            os._exit(_limit_suffices(pwd.getpwnam(NOBODY).pw_uid))
        finally:
            os._exit(2)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 1


def _limit_suffices(uid: int) -> bool:
    os.setuid(uid)
    # As many as processes of the same user in other containers, which /proc does not show.
    others = [_paused(os.fork()) for _ in range(20)]
    try:
        resource.setrlimit(resource.RLIMIT_NPROC, (5, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
        others.append(_paused(fork_within_limit()))
        return resource.getrlimit(resource.RLIMIT_NPROC)[0] >= len(others)
    finally:
        for pid in others:
            os.kill(pid, signal.SIGKILL)


def _paused(pid: int) -> int:
    """The pid of a child process that waits; never returns in the child."""
    if not pid:
        signal.pause()
    return pid


@pytest.mark.parametrize(("user", "reason"), [("no-such-user", "is no user"), ("root", "is root")])
async def test_a_user_that_commands_cannot_have_is_named(shell: Shell, user: str, reason: str) -> None:
    if os.geteuid():
        pytest.skip("only root can run commands as another user")
    with pytest.raises(FieldError, match=reason):
        async with shell(user=user) as harness:
            await tried(harness, "true")


async def test_a_command_that_holds_secrets_leaves_no_core_dump(tmp_path: Path) -> None:
    secrets, environ = SecretsSettings(allow=("KEY",)), {"KEY": "hunter22"}
    async with open_runner(
        Functions(), secrets=secrets, environ=environ, shell=ShellSettings(workspace=str(tmp_path))
    ) as harness:
        assert await printed(harness, "ulimit -c", env={"KEY": "${secret:KEY}"}) == "0"


# ---- tenants -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tenants", "tenant", "runs"),
    [(("default",), "default", True), (("default",), "acme", False), (("acme",), "acme", True), (("*",), "acme", True)],
)
async def test_only_listed_tenants_run_commands(
    shell: Shell,
    tenants: tuple[str, ...],
    tenant: str,
    runs: bool,  # noqa: FBT001
) -> None:
    async with shell(tenants=tenants) as harness:
        outcome = await tried(harness, "true", tenant=tenant)

    refused = (Result.GAVE_UP, f"command: '{tenant}' is a tenant that may not run commands on this worker")
    assert (outcome.result, outcome.error) == ((Result.SUCCEEDED, None) if runs else refused)


# ---- the workspace -------------------------------------------------------------------------------


def workspace_of(database: str | None = None, **settings: str) -> Workspace:
    flags = {name.replace("_", ".", 1): value for name, value in settings.items()}
    return command_workspace(load(flags=flags), database)


def test_the_workspace_is_a_folder_of_its_own_beside_the_database(tmp_path: Path) -> None:
    folder = Path(workspace_of(str(tmp_path / "gnomon.db")).folder(""))

    assert folder == tmp_path / "gnomon.db.workspace"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_without_a_database_file_it_is_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert workspace_of().folder("") == str(tmp_path)


@pytest.mark.parametrize("holder", [".", "..", "link"])
@pytest.mark.parametrize("held", ["database", "auth_key_file", "secrets_folder"])
def test_a_workspace_that_holds_what_commands_must_not_read_is_refused(tmp_path: Path, holder: str, held: str) -> None:
    home = tmp_path / "home"
    (home / "secrets").mkdir(parents=True)
    (home / "link").symlink_to(tmp_path)
    said = {held: str(home / "secrets")}
    workspace = workspace_of(said.pop("database", None), shell_workspace=str(home / holder), **said)

    with pytest.raises(FieldError, match="holds secrets, which commands must not read") as refused:
        workspace.check()

    assert refused.value.field == "shell.workspace"


def test_defaults_are_those_of_the_documentation() -> None:
    shell = Settings().shell

    assert (shell.tenants, shell.user, shell.privileges) == (("default",), "", "drop")
