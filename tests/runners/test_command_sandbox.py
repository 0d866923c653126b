"""The sandbox of commands on a real kernel: each test fails without the part that it is about."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gnomon.config.sections import SecuritySettings, ShellSettings
from gnomon.core.commands.sandbox import SandboxMode, SandboxPart
from gnomon.core.model import Result
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.core.runs.workflow import SHELL
from gnomon.runners.kernel_sandbox import SYSTEM_CALLS, system_call_filter
from gnomon.runners.kernel_support import KernelSupport, probe_kernel
from gnomon.runners.registry import Functions
from runners.runner_harness import (
    TESTS,
    RunnerHarness,
    assignment,
    environment_of_tests,
    open_runner,
    wait_for_numbers,
)
from support.unprivileged import unprivileged

NOBODY = "nobody"
TCP_AND_LATER = "TCP ports, signals and abstract sockets"
NO_KERNEL = KernelSupport(landlock_abi=0, socket_filter=False)
needs_kernel = pytest.mark.skipif(bool(probe_kernel().missing), reason=f"the kernel lacks {probe_kernel().missing}")
needs_python = pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="the system has no Python of its own")
#: The users as which commands run: that of the tests, and an ordinary one if that is root.
users = pytest.mark.parametrize(
    "user", ["", pytest.param(NOBODY, marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root"))]
)
Shell = Callable[..., AbstractAsyncContextManager[RunnerHarness]]
REQUIRED, AUTO = SandboxMode.REQUIRED, SandboxMode.AUTO


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace that an ordinary user can use, and secrets that every user of the machine can read."""
    for each in (tmp_path, *tmp_path.parents):
        if each == Path("/tmp"):  # noqa: S108 - where the folders of tests are
            break
        each.chmod(each.stat().st_mode | 0o755)
    folder = tmp_path / "workspace"
    folder.mkdir()
    folder.chmod(0o777)
    for secret in (tmp_path / "secret", tmp_path / "elsewhere" / "secret"):
        secret.parent.mkdir(exist_ok=True)
        secret.write_text("canary")
        secret.chmod(0o666)
    (tmp_path / "elsewhere").chmod(0o777)
    return folder


@pytest.fixture
def shell(workspace: Path) -> Shell:
    @asynccontextmanager
    async def opened(
        *,
        kernel: KernelSupport | None = None,
        security: SecuritySettings | None = None,
        **settings: Any,  # noqa: ANN401 - those of ShellSettings
    ) -> AsyncIterator[RunnerHarness]:
        said = ShellSettings(**{"workspace": str(workspace), **settings})
        async with open_runner(Functions(), shell=said, security=security, kernel=kernel) as harness:
            yield harness

    return opened


async def tried(harness: RunnerHarness, command: str, **step: Any) -> AttemptOutcome:  # noqa: ANN401 - what a step may say
    return await harness.run(SHELL, command=command, **step)


async def printed(harness: RunnerHarness, command: str, **step: Any) -> str:  # noqa: ANN401 - the same
    """The output of a command that succeeds."""
    outcome = await tried(harness, command, **step)
    assert outcome.result is Result.SUCCEEDED, outcome
    assert outcome.output is not None
    return str(msgspec.json.decode(outcome.output)["stdout"])


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def python(program: str) -> str:
    """A command that runs the program in the Python of the system, which a confined command may read."""
    return f"/usr/bin/python3 -c '{program}'"


# ---- files ---------------------------------------------------------------------------------------


@pytest.mark.req("Z-02", "Z-13")
@needs_kernel
@users
@pytest.mark.parametrize(
    "command",
    [
        "cat ../secret",
        "cat {outside}/secret",
        "cat way-out/secret",
        "cat linked-file",
        "ls {outside}/elsewhere",
        "cat /proc/$PPID/environ",
        "cat /proc/$$/root{outside}/secret",
        "cd .. && cat secret",
        "echo planted > ../planted",
        "echo planted > way-out/planted",
        "mkdir ../folder",
        "rm ../elsewhere/secret",
        "mv ../elsewhere/secret ../elsewhere/moved",
        "mv ../elsewhere/secret stolen",
        "ln ../elsewhere/secret stolen",
        "ln -s /etc/shadow ../elsewhere/link",
        "truncate -s 0 ../elsewhere/secret",
        "cat /etc/shadow",
        "cat /etc/gshadow",
        "ls /root",
        "ls /tmp",
        "ls /var",
        "ls /etc",
        "mknod device c 1 1",
        "cp -l ../elsewhere/secret stolen",
    ],
)
async def test_a_confined_command_reaches_nothing_outside_of_its_workspace(
    shell: Shell, workspace: Path, user: str, command: str
) -> None:
    outside = workspace.parent
    (workspace / "way-out").symlink_to(outside / "elsewhere")
    (workspace / "linked-file").symlink_to(outside / "secret")
    before = sorted(outside.rglob("*"))
    async with shell(user=user) as harness:
        outcome = await tried(harness, command.format(outside=outside), sandbox=REQUIRED)

    assert outcome.result is Result.FAILED
    assert re.search("Permission denied|not permitted|Invalid cross-device link", outcome.error or "")
    assert sorted(outside.rglob("*")) == before
    assert (outside / "elsewhere" / "secret").read_text() == "canary"
    assert outcome.output is not None
    assert b"canary" not in outcome.output


@pytest.mark.req("Z-13")
@needs_kernel
@needs_python
@users
async def test_a_confined_command_truncates_nothing_outside_by_its_path(
    shell: Shell, workspace: Path, user: str
) -> None:
    """No file is opened for it, so that the right to write does not matter. Older kernels do not refuse it."""
    (workspace / "own").write_text("own")
    (workspace / "own").chmod(0o666)
    truncate = 'import os, sys; os.truncate(sys.argv[1], 0); print("truncated")'
    async with shell(user=user) as harness:
        assert await printed(harness, f"{python(truncate)} own", sandbox=REQUIRED) == "truncated"
        outcome = await tried(harness, f"{python(truncate)} ../secret", sandbox=REQUIRED)

    assert "Permission denied" in (outcome.error or "")
    assert (workspace.parent / "secret").read_text() == "canary"


#: Prints what a program can do to a file by its path, without opening it.
ATTRIBUTES = """
import os, sys
path = sys.argv[1]
for name, change in {
    "set-user-ID": lambda: os.chmod(path, 0o4755),
    "set-group-ID": lambda: os.chmod(path, 0o2755),
    "by descriptor": lambda: os.fchmod(os.open(path, os.O_RDONLY), 0o4755),
    "by folder": lambda: os.chmod(os.path.basename(path), 0o4755, dir_fd=os.open(os.path.dirname(path), os.O_PATH)),
    "attribute": lambda: os.setxattr(path, "user.test", b"1"),
    "no attribute": lambda: os.removexattr(path, "user.test"),
}.items():
    try:
        change()
        print(name, end=";")
    except OSError:
        pass
"""


@pytest.mark.req("Z-13")
@needs_kernel
@needs_python
@users
async def test_a_confined_command_makes_no_program_run_as_another_user(
    shell: Shell, workspace: Path, user: str
) -> None:
    """Landlock controls neither modes nor attributes, so that the file need not be in the workspace."""
    (workspace / "attributes.py").write_text(ATTRIBUTES)
    program = workspace.parent / "elsewhere" / "program"
    program.touch(0o755)
    if user:
        shutil.chown(program, user)
    change = f"/usr/bin/python3 attributes.py {program}"
    async with shell(user=user) as harness:
        changed = await printed(harness, change)
        program.chmod(0o755)
        refused = await printed(harness, change, sandbox=REQUIRED)

    assert set(changed.rstrip(";").split(";")) >= {"set-user-ID", "set-group-ID", "by descriptor", "by folder"}
    assert refused == ""
    assert program.stat().st_mode & 0o7777 == 0o755
    assert os.listxattr(program) == []


@pytest.mark.req("Z-13")
@needs_kernel
@users
async def test_a_confined_command_copies_files_with_modes_and_times(shell: Shell, user: str) -> None:
    script = (
        "mkdir -p a/b && echo 1 > a/b/c && chmod 750 a/b/c && touch -d 2001-02-03 a/b/c && cp -a a copy && chmod +t a"
        " && tar -cf all.tar a && mkdir out && tar -C out -xpf all.tar && install -m 700 a/b/c installed"
        " && stat -c '%a %Y' copy/b/c out/a/b/c && stat -c %a installed && rm -r a copy out all.tar installed"
    )
    async with shell(user=user) as harness:
        lines = (await printed(harness, f"TZ=UTC; export TZ; {script}", sandbox=REQUIRED)).split("\n")

    assert lines == ["750 981158400", "750 981158400", "700"]


@pytest.mark.req("Z-13")
@needs_kernel
@users
async def test_a_confined_command_does_in_its_workspace_what_it_likes(shell: Shell, user: str) -> None:
    script = (
        "mkdir -p a/b && echo 1 > a/one && mv a/one a/b/two && ln a/b/two three && ln -s three four && cat four"
        " && truncate -s 0 three && rm -r a && printf '#!/bin/sh\\necho script' > run && chmod +x run && ./run"
        " && mkfifo pipe && echo fine > /dev/null && head -c 2 /dev/urandom | wc -c && id -u > whose && rm whose"
    )
    async with shell(user=user) as harness:
        assert (await printed(harness, script, sandbox=REQUIRED)).split() == ["1", "script", "2"]


@pytest.mark.req("Z-13")
@needs_kernel
@needs_python
@users
async def test_usual_programs_work_in_the_sandbox(shell: Shell, user: str) -> None:
    script = (
        "id && getent hosts localhost && date && sort /etc/passwd | tail -1 && ls -l > list && env > variables"
        " && cat /proc/self/status /proc/cpuinfo > facts && nproc && tar -cf all.tar list && gzip all.tar"
        ' && /usr/bin/python3 -c "import ssl, tempfile, subprocess, socket; ssl.create_default_context();'
        " print(tempfile.TemporaryFile(), subprocess.check_output([str(1) and 'pwd']));"
        ' import threading; thread = threading.Thread(target=print); thread.start(); thread.join()"'
    )
    async with shell(user=user) as harness:
        outcome = await tried(harness, script, sandbox=REQUIRED)

    assert (outcome.result, outcome.error) == (Result.SUCCEEDED, None)
    assert outcome.output is not None
    assert msgspec.json.decode(outcome.output)["stderr"] == ""


@needs_kernel
@users
async def test_home_and_temporary_files_are_in_the_workspace_and_are_removed(
    shell: Shell, workspace: Path, user: str
) -> None:
    left_behind = workspace / f".gnomon-home-{'0' * 16}"
    (left_behind / "folder").mkdir(parents=True)
    os.utime(left_behind, (0, 0))
    async with shell(user=user) as harness:
        file, home = (
            await printed(harness, 'cd / && file=$(mktemp) && echo "$file" && echo "$HOME"', sandbox=REQUIRED)
        ).split()
        failed = await tried(harness, 'mkdir -p "$TMPDIR/a/b"; touch "$TMPDIR/a/b/c"; exit 1', sandbox=REQUIRED)

    assert Path(file).parent == Path(home)
    assert Path(home).parent == workspace
    assert failed.result is Result.FAILED
    assert names_in(workspace) == []


@needs_kernel
async def test_allowed_roots_may_be_written_too(shell: Shell, workspace: Path) -> None:
    root = workspace.parent / "elsewhere"
    async with shell(security=SecuritySettings(allowed_roots=(str(root),))) as harness:
        assert await printed(harness, f"cat {root}/secret && echo new > {root}/new", sandbox=REQUIRED) == "canary"

    assert (root / "new").read_text() == "new\n"


@needs_kernel
async def test_a_worker_that_requires_the_sandbox_confines_every_command(shell: Shell) -> None:
    async with shell(sandbox="required") as harness:
        outcome = await tried(harness, "cat ../secret")

    assert "Permission denied" in (outcome.error or "")


@needs_kernel
async def test_a_command_without_the_sandbox_reads_and_writes_what_its_user_may(shell: Shell, workspace: Path) -> None:
    async with shell() as harness:
        assert await printed(harness, "echo new > ../new && cat ../secret") == "canary"

    assert (workspace.parent / "new").read_text() == "new\n"


@needs_kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities")
async def test_a_confined_command_of_root_has_no_capabilities(shell: Shell) -> None:
    shown = "grep -E '^(Cap|NoNewPrivs)' /proc/self/status | cut -f2"
    async with shell(privileges="keep") as harness:
        *capabilities, no_new_privileges = (await printed(harness, shown, sandbox=REQUIRED)).split()

    assert no_new_privileges == "1"
    assert {int(each, 16) for each in capabilities} == {0}


@pytest.mark.req("Z-02", "Z-13")
@needs_kernel
def test_a_worker_without_privileges_confines_its_commands(workspace: Path) -> None:
    command = "id -u; echo mine > own; cat own; cat /proc/$PPID/environ; cat ../secret"
    program = [*unprivileged(), sys.executable, str(TESTS / "runners" / "confined_worker.py")]
    done = subprocess.run(
        [*program, str(workspace), command],
        env=environment_of_tests(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    ended = json.loads(done.stdout)
    assert (ended["result"], ended["error"]) == ("failed", "exit status 1: cat: ../secret: Permission denied")
    lines = [line["text"] for line in ended["logs"] if line["level"] == "stdout"]
    assert (lines[0] != "0", lines[1:]) == (True, ["mine"])


# ---- other processes -----------------------------------------------------------------------------

#: Prints how reading the environment and the memory map of a process, and signalling it, ends.
REACH = """
for file in environ maps; do cat /proc/{pid}/$file > copy 2> /dev/null && test -s copy && echo "read $file"; done
kill -0 {pid} 2> /dev/null && echo signalled; :
"""


@pytest.mark.req("Z-02", "Z-13")
@needs_kernel
@users
@pytest.mark.parametrize("mode", [AUTO, REQUIRED])
async def test_a_command_reaches_no_process_outside(
    shell: Shell, workspace: Path, user: str, mode: SandboxMode
) -> None:
    """The other process runs as the user of the command, and protects itself in no way."""
    async with shell(user=user, sandbox="off") as other, shell(user=user) as harness:
        other.runner.start([victim := assignment(SHELL, command="echo $$ > pid; exec sleep 600")])
        pid = await _pid_in(workspace / "pid")
        open_to_others = await printed(other, REACH.format(pid=pid))
        reached = await printed(harness, REACH.format(pid=pid), sandbox=mode)
        own = await printed(harness, "sleep 600 & cat /proc/$!/environ > copy && test -s copy && kill $! && echo own")
        other.runner.stop([(victim.task.task_id, victim.task.fence)], why=Result.CANCELLED)

    assert open_to_others.split("\n") == ["read environ", "read maps", "signalled"]
    assert reached == ""
    assert own == "own"


async def _pid_in(file: Path) -> int:
    return (await wait_for_numbers(file, 1))[0]


@pytest.mark.req("Z-02")
@needs_kernel
@needs_python
@users
@pytest.mark.parametrize("mode", [AUTO, REQUIRED])
async def test_a_command_connects_to_no_abstract_socket_outside(shell: Shell, user: str, mode: SandboxMode) -> None:
    name = f"gnomon-test-{os.getpid()}"
    connect = python(f'import socket; socket.socket(socket.AF_UNIX).connect("\\0{name}"); print("connected")')
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen()
        async with shell(user=user, sandbox="off") as harness:
            assert await printed(harness, connect) == "connected"
        async with shell(user=user) as harness:
            outcome = await tried(harness, connect, sandbox=mode)

    assert "Operation not permitted" in (outcome.error or "")


#: Prints which of these things a program can do to another process of its user.
CHANGES = """
import ctypes, os, resource, sys
pid, libc = int(sys.argv[1]), ctypes.CDLL(None, use_errno=True)

def memory():
    copy = ctypes.create_string_buffer(8)
    here, there = (ctypes.c_void_p * 2)(ctypes.addressof(copy), 1), (ctypes.c_void_p * 2)(1, 1)
    if libc.process_vm_readv(pid, here, 1, there, 1, 0) < 0:
        # The address is wrong, but the process may be read.
        if ctypes.get_errno() != 14:
            raise OSError

def trace():
    if libc.ptrace(16, pid, None, None) < 0:
        raise OSError
    libc.ptrace(17, pid, None, None)

def ioprio(pid):
    if libc.syscall(ctypes.c_long(IOPRIO), 1, pid, 3 << 13) < 0:
        raise OSError

for name, change in {
    "limits": lambda pid: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)),
    "priority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "input and output": ioprio,
    "processors": lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(pid)),
    "scheduler": lambda pid: os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0)),
    "memory": lambda pid: memory(),
    "trace": lambda pid: trace(),
}.items():
    try:
        change(pid)
        print(name, end=";")
    except OSError:
        pass
""".replace("IOPRIO", "251" if os.uname().machine == "x86_64" else "30")
OWN = ["limits", "priority", "input and output", "processors", "scheduler"]


@pytest.mark.req("Z-02")
@needs_kernel
@needs_python
@users
@pytest.mark.parametrize("mode", [AUTO, REQUIRED])
async def test_a_command_changes_limits_and_scheduling_of_no_other_process(
    shell: Shell, workspace: Path, user: str, mode: SandboxMode
) -> None:
    """A worker whose processor time is limited to a second would end. Landlock keeps no process from setting that."""
    (workspace / "changes.py").write_text(CHANGES)
    async with shell(user=user, sandbox="off") as other, shell(user=user) as harness:
        other.runner.start([victim := assignment(SHELL, command="echo $$ > pid; exec sleep 600")])
        pid = await _pid_in(workspace / "pid")
        changed = await printed(other, f"/usr/bin/python3 changes.py {pid}")
        refused = await printed(harness, f"/usr/bin/python3 changes.py {pid}", sandbox=mode)
        own = await printed(harness, "/usr/bin/python3 changes.py 0", sandbox=mode)
        tools = "ulimit -c 0 && nice -n 1 taskset -c 0 true && prlimit --core=0 true && prlimit --pid $$ > /dev/null"
        await printed(harness, tools, sandbox=mode)
        other.runner.stop([(victim.task.task_id, victim.task.fence)], why=Result.CANCELLED)

    assert changed.rstrip(";").split(";") == [*OWN, "memory", "trace"]
    assert refused == ""
    assert own.rstrip(";").split(";")[:5] == OWN


# ---- the network ---------------------------------------------------------------------------------

TCP = 'import socket; socket.create_connection(("127.0.0.1", {port})); print("reached")'
UDP = 'import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {port})); print("reached")'
DNS = 'import socket; socket.getaddrinfo("gnomon.invalid", 1)'
PAIR = 'import socket; socket.socketpair(socket.AF_UNIX); socket.socket(socket.AF_UNIX); print("unix")'


@pytest.mark.req("Z-02")
@needs_kernel
@needs_python
@users
@pytest.mark.parametrize("mode", [AUTO, REQUIRED])
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
async def test_without_the_network_a_command_makes_unix_sockets_only(
    shell: Shell, user: str, mode: SandboxMode, kind: socket.SocketKind
) -> None:
    program = TCP if kind is socket.SOCK_STREAM else UDP
    with socket.socket(type=kind) as listening:
        listening.bind(("127.0.0.1", 0))
        if kind is socket.SOCK_STREAM:
            listening.listen()
        reach = python(program.format(port=listening.getsockname()[1]).replace("'", ""))
        async with shell(user=user) as harness:
            assert await printed(harness, reach, sandbox=mode) == "reached"
            refused = await tried(harness, reach, sandbox=mode, network=False)
            names = await tried(harness, python(DNS), sandbox=mode, network=False)
            assert await printed(harness, python(PAIR), sandbox=mode, network=False) == "unix"

    assert (refused.error or "").endswith("PermissionError: [Errno 1] Operation not permitted")
    assert names.result is Result.FAILED


@needs_kernel
@needs_python
@pytest.mark.parametrize(
    ("call", "ends"),
    [
        pytest.param("425, 1, ctypes.create_string_buffer(120)", "1", id="io_uring_setup"),
        pytest.param("41 + 0x40000000, 2, 1, 0", "1", id="x32"),
        pytest.param("53, 16, 1, 0, ctypes.create_string_buffer(8)", "1", id="socketpair"),
        # The kernel looks at the low half of the number of the family only.
        pytest.param("41, ctypes.c_long(1 + (2 << 32)), 1, 0", "0", id="high half"),
        pytest.param("41, ctypes.c_long(2 + (1 << 32)), 1, 0", "1", id="low half"),
    ],
)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
async def test_no_other_system_call_makes_a_socket(shell: Shell, call: str, ends: str) -> None:
    program = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
        f"print(ctypes.get_errno() if libc.syscall({call}) < 0 else 0)"
    )
    async with shell() as harness:
        assert await printed(harness, python(program), network=False) == ends


KEPT_SOCKET = """
import socket, sys
from gnomon.runners.kernel_sandbox import landlock_abi, restrict_process
with socket.socket() as kept:
    restrict_process({
        "landlock_abi": landlock_abi(), "files": None, "network": False, "filter": True, "no_capabilities": False,
    })
    kept.connect(("127.0.0.1", int(sys.argv[1])))
"""


@pytest.mark.req("Z-02")
@needs_kernel
def test_a_socket_that_was_made_before_connects_to_nothing() -> None:
    """The filter of system calls keeps a process from making sockets; Landlock keeps it from connecting them."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        program = [sys.executable, "-c", KEPT_SOCKET, str(listening.getsockname()[1])]
        done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "PermissionError: [Errno 13] Permission denied"


@pytest.mark.req("Z-13")
@needs_kernel
@needs_python
@users
@pytest.mark.skipif(probe_kernel().landlock_abi < 5, reason="the kernel lets every process control devices")
async def test_a_confined_command_controls_no_device(shell: Shell, user: str) -> None:
    """It may read some. RNDGETENTCNT is a harmless way to ask one for more than that."""
    control = python('import fcntl; fcntl.ioctl(open("/dev/urandom"), 0x80045200, bytes(4))')
    async with shell(user=user) as harness:
        assert (await tried(harness, control)).result is Result.SUCCEEDED
        refused = await tried(harness, control, sandbox=REQUIRED)

    assert (refused.error or "").endswith("PermissionError: [Errno 13] Permission denied")


@pytest.mark.req("Z-13")
@needs_kernel
@needs_python
@users
@pytest.mark.parametrize(
    ("call", "ends"),
    [
        pytest.param("272, 0x10000000", "1", id="a user namespace"),
        pytest.param("56, 0x10000011, 0, 0, 0, 0", "1", id="a process in a user namespace"),
        pytest.param("435, ctypes.create_string_buffer(88), 88", "38", id="clone3"),
        pytest.param("250, 0, -4, 1", "38", id="the keys of the user"),
        pytest.param('248, b"user", b"a", b"b", 1, -4', "38", id="a key for the next command"),
        pytest.param("29, 0, 4096, 0o1600", "38", id="shared memory that stays"),
        pytest.param("30, 0, 0, 0", "38", id="shared memory of others"),
        pytest.param("68, 0, 0o1600", "38", id="a queue that stays"),
        pytest.param("321, 0, 0, 0", "38", id="programs in the kernel"),
    ],
)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are those of x86_64")
async def test_a_confined_command_uses_nothing_shared_that_is_no_file(
    shell: Shell, user: str, call: str, ends: str
) -> None:
    program = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
        f"print(ctypes.get_errno() if libc.syscall({call}) < 0 else 0)"
    )
    async with shell(user=user) as harness:
        assert await printed(harness, python(program), sandbox=REQUIRED) == ends


ALLOW, KILL, REFUSE, UNSUPPORTED, ABSENT = 0x7FFF0000, 0x80000000, 0x00050001, 0x0005005F, 0x00050026
#: The answers of the filters to the system calls of each end, by their arguments.
OF_PROCESSES: Mapping[str, Mapping[tuple[int, ...], int]] = {
    "limits": {(0, 1, 1): ALLOW, (7, 1, 0): ALLOW, (7, 1, 1): REFUSE, (7, 1, 1 << 32): REFUSE},
    "priority": {(0, 0, 5): ALLOW, (1, 0, 5): ALLOW, (0, 7, 5): REFUSE, (1, 7, 5): REFUSE, (2, 0, 5): REFUSE},
    "itself": {(0, 1, 1): ALLOW, (7, 1, 1): REFUSE},
}
OF_SOCKETS: Mapping[str, Mapping[tuple[int, ...], int]] = {
    "family": {(1, 1): ALLOW, (2, 1): REFUSE, (10, 1): REFUSE, (16, 1): REFUSE}
}
OF_FILES: Mapping[str, Mapping[tuple[int, ...], int]] = {
    "second mode": {(1, 0o777): ALLOW, (1, 0o1777): ALLOW, (1, 0o4755): REFUSE, (1, 0o2755): REFUSE},
    "third mode": {(1, 0o6000, 0o777): ALLOW, (1, 1, 0o4000): REFUSE, (1, 1, 0o2000): REFUSE},
    "unsupported": {(0, 0, 0): UNSUPPORTED},
    "namespaces": {(0, 0, 0): ALLOW, (0x20000, 0, 0): ALLOW, (0x10000000, 0, 0): REFUSE, (0x10020011, 0, 0): REFUSE},
    "absent": {(0, 0, 0): ABSENT},
}


@pytest.mark.parametrize("sockets", [False, True])
@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("machine", SYSTEM_CALLS)
def test_the_filter_of_every_processor_refuses_what_it_should(machine: str, *, sockets: bool, files: bool) -> None:
    """The programs for seccomp, carried out here: the machine of the tests has only one kind of processor."""
    calls, open_command = SYSTEM_CALLS[machine], not sockets and not files
    program = system_call_filter(calls, sockets=sockets, files=files)
    rules = {**OF_PROCESSES, **(OF_SOCKETS if sockets else {}), **(OF_FILES if files else {})}
    assert set(calls.numbers) == OF_PROCESSES.keys() | OF_SOCKETS.keys() | OF_FILES.keys()
    for end, numbers in calls.numbers.items():
        cases = rules.get(end, {(2, 0o4755, 0o4755): ALLOW})
        for number in numbers:
            assert {case: _carried_out(program, calls.architecture, number, *case) for case in cases} == cases

    others: Mapping[tuple[int, int], int] = {
        (calls.architecture, 425): ALLOW if open_command else REFUSE,
        (calls.architecture, 4000): ALLOW,
        (0x12345678, 1): KILL,
    }
    assert {case: _carried_out(program, *case, 2, 2, 2) for case in others} == others
    assert calls.narrow is not None
    for end, numbers in calls.narrow.numbers.items():
        for number in numbers:
            for case, answer in OF_PROCESSES[end].items():
                expected = answer if open_command else KILL
                assert _carried_out(program, calls.narrow.architecture, number, *case) == expected


def _carried_out(program: bytes, architecture: int, number: int, *arguments: int) -> int:
    """The answer of a program for seccomp to a system call."""
    data = {0: number, 4: architecture}
    for place, argument in enumerate(arguments):
        data |= {16 + 8 * place: argument & 0xFFFFFFFF, 20 + 8 * place: argument >> 32}
    at = loaded = 0
    while True:
        code = int.from_bytes(program[at : at + 2], "little")
        then, otherwise = program[at + 2 : at + 4]
        value = int.from_bytes(program[at + 4 : at + 8], "little")
        match code:
            case 0x20:
                loaded = data[value]
            case 0x15:
                at += 8 * (then if loaded == value else otherwise)
            case 0x35:
                at += 8 * (then if loaded >= value else otherwise)
            case 0x45:
                at += 8 * (then if loaded & value else otherwise)
            case _:
                return value
        at += 8


# ---- workers and kernels that cannot -------------------------------------------------------------


@pytest.mark.req("Z-02")
async def test_where_the_kernel_lacks_the_sandbox_auto_runs_without_it(shell: Shell) -> None:
    async with shell(kernel=NO_KERNEL) as harness:
        assert await printed(harness, "cat ../secret") == "canary"


@pytest.mark.req("Z-02")
@pytest.mark.parametrize(
    ("settings", "step", "kernel", "error"),
    [
        (
            {},
            {"sandbox": REQUIRED},
            NO_KERNEL,
            f"sandbox: 'required' cannot be had on this worker: its kernel lacks {', '.join(SandboxPart)}",
        ),
        (
            {},
            {"sandbox": REQUIRED},
            KernelSupport(landlock_abi=5, socket_filter=True),
            "sandbox: 'required' cannot be had on this worker: its kernel lacks signals and abstract sockets",
        ),
        (
            {"sandbox": "required"},
            {},
            KernelSupport(landlock_abi=3, socket_filter=True),
            f"shell.sandbox: 'required' cannot be had on this worker: its kernel lacks {TCP_AND_LATER}",
        ),
        (
            {},
            {"network": False},
            KernelSupport(landlock_abi=7, socket_filter=False),
            "network: False cannot be had on this worker: its kernel lacks socket filter",
        ),
        (
            {"sandbox": "off"},
            {"sandbox": REQUIRED},
            None,
            "sandbox: 'required' needs the sandbox, which this worker does not use (shell.sandbox: off)",
        ),
        (
            {"sandbox": "off"},
            {"network": False},
            None,
            "network: False needs the sandbox, which this worker does not use (shell.sandbox: off)",
        ),
    ],
)
async def test_a_command_that_demands_more_than_its_worker_can_do_never_starts(
    shell: Shell,
    workspace: Path,
    settings: dict[str, Any],
    step: dict[str, Any],
    kernel: KernelSupport | None,
    error: str,
) -> None:
    async with shell(kernel=kernel, **settings) as harness:
        outcome = await tried(harness, "touch started", **step)

    assert (outcome.result, outcome.error) == (Result.GAVE_UP, error)
    assert names_in(workspace) == []


async def test_a_worker_without_commands_offers_none(workspace: Path) -> None:
    async with open_runner(Functions(), shell=ShellSettings(workspace=str(workspace)), commands=False) as harness:
        assert list(harness.runner.functions) == []
        outcome = await tried(harness, "true")

    assert (outcome.result, outcome.error) == (Result.NEVER_STARTED, "no function 'gnomon.shell' here")


async def test_a_shell_that_is_no_login_shell_reads_no_profile(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / ".profile").write_text("echo profile\n")
    for login, expected in ((True, "profile\ndone"), (False, "done")):
        async with shell(login=login) as harness:
            given = {"env": {"HOME": str(tmp_path)}}
            harness.runner.start([assigned := assignment(SHELL, given, command="echo done", input=given)])
            outcome = await harness.outcome(assigned)
        assert outcome.output is not None
        assert msgspec.json.decode(outcome.output)["stdout"] == expected
