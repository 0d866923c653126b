"""The sandbox of commands in health, events and `gnomon doctor`, on kernels with and without it."""

import os

import pytest

from gnomon.app.sandbox import announce_sandbox, sandbox_findings, sandbox_status
from gnomon.config.settings import Settings, load
from gnomon.core.health import ComponentStatus, HealthCondition
from gnomon.runners.kernel_support import KernelSupport
from gnomon.services.observability.health import Severity

COMPLETE = KernelSupport(landlock_abi=7, socket_filter=True)
OLD = KernelSupport(landlock_abi=3, socket_filter=True)
LACK = "the kernel lacks TCP ports, signals and abstract sockets: "


class SeenEvents:
    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, object]]] = []

    def emit(self, name: str, **facts: object) -> None:
        self.seen.append((name, facts))


def settings(**flags: str) -> Settings:
    return load(flags={name.replace("_", ".", 1): value for name, value in flags.items()})


@pytest.mark.req("Z-02")
@pytest.mark.parametrize(
    ("kernel", "flags", "status"),
    [
        (COMPLETE, {}, ComponentStatus(HealthCondition.OK)),
        (OLD, {}, ComponentStatus(HealthCondition.WARNING, f"{LACK}commands run without them (shell.sandbox: auto)")),
        (
            OLD,
            {"shell_sandbox": "required"},
            ComponentStatus(HealthCondition.WARNING, f"{LACK}no command starts (shell.sandbox: required)"),
        ),
        (OLD, {"shell_sandbox": "off"}, ComponentStatus(HealthCondition.IDLE, "shell.sandbox is off")),
        (OLD, {"worker_commands": "false"}, None),
    ],
)
def test_health_names_the_parts_that_the_kernel_lacks(
    kernel: KernelSupport, flags: dict[str, str], status: ComponentStatus | None
) -> None:
    assert sandbox_status(settings(**flags), kernel) == status


@pytest.mark.req("Z-02")
@pytest.mark.parametrize(
    ("kernel", "flags", "announced"),
    [(COMPLETE, {}, False), (OLD, {}, True), (OLD, {"shell_sandbox": "off"}, False)],
)
def test_an_event_names_them_too(kernel: KernelSupport, flags: dict[str, str], announced: bool) -> None:  # noqa: FBT001
    events = SeenEvents()

    announce_sandbox(settings(**flags), events, kernel)

    facts = {"missing": "TCP ports, signals and abstract sockets", "sandbox": "auto"}
    assert events.seen == ([("sandbox_incomplete", facts)] if announced else [])


@pytest.mark.req("Z-02")
@pytest.mark.parametrize(
    ("kernel", "sandbox", "grade", "message"),
    [
        (COMPLETE, "auto", Severity.OK, "complete: Landlock 7 and the socket filter"),
        (OLD, "auto", Severity.WARNING, f"{LACK}commands run without them (shell.sandbox: auto)"),
        (OLD, "required", Severity.ERROR, f"{LACK}no command starts (shell.sandbox: required)"),
        (OLD, "off", Severity.OK, "shell.sandbox is off: the kernel confines no command"),
    ],
)
def test_doctor_says_how_far_commands_are_confined(
    kernel: KernelSupport, sandbox: str, grade: Severity, message: str
) -> None:
    # Root can run commands as another user, and others cannot.
    user = "" if os.geteuid() else "nobody"
    finding = sandbox_findings(settings(shell_sandbox=sandbox, shell_user=user), kernel)[0]

    assert (finding.about, finding.grade, finding.message) == ("sandbox", grade, message)


@pytest.mark.req("Z-02")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs commands as root")
def test_doctor_warns_of_commands_of_root() -> None:
    finding = sandbox_findings(settings(), COMPLETE)[0]

    assert finding.grade is Severity.WARNING
    assert finding.message == (
        "complete: Landlock 7 and the socket filter; but commands run as root, and no sandbox keeps modes and times of"
        " the files of root from them: set shell.user"
    )


def test_doctor_says_which_limits_hold() -> None:
    each = "each process of a command: 16,384 MiB of memory, 1,048,576 MiB of a file, 86,400 s of processor time"
    [_, finding] = sandbox_findings(settings(), COMPLETE)
    [_, unlimited] = sandbox_findings(settings(shell_max_processes="0"), COMPLETE)

    if os.getuid():
        assert (finding.grade, finding.message) == (Severity.OK, f"{each}; 4,096 processes of their user")
    else:
        assert finding.grade is Severity.WARNING
        assert finding.message == f"{each}; the kernel does not limit the number of processes of root: set shell.user"
    assert unlimited.message == f"{each}; their number is not limited (shell.max_processes)"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run commands as another user")
def test_another_user_of_commands_makes_the_limits_hold() -> None:
    [_, finding] = sandbox_findings(settings(shell_user="nobody"), COMPLETE)
    [_, refused] = sandbox_findings(settings(shell_user="no-such-user"), COMPLETE)

    assert (finding.grade, finding.message[-30:]) == (Severity.OK, "; 4,096 processes of their user"[-30:])
    assert (refused.grade, "is no user" in refused.message) == (Severity.ERROR, True)


def test_doctor_says_if_this_worker_runs_no_commands() -> None:
    [finding] = sandbox_findings(settings(worker_commands="false"), OLD)

    assert (finding.about, finding.grade) == ("sandbox", Severity.OK)
