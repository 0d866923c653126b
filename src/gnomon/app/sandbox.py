"""The sandbox of commands as operators see it: in health, in an event at the start, and in `gnomon doctor`."""

from collections.abc import Iterator

from gnomon.config.sections import ShellSettings
from gnomon.config.settings import Settings
from gnomon.core.health import ComponentStatus, HealthCondition
from gnomon.errors import FieldError
from gnomon.ports.runtime import Events
from gnomon.runners.kernel_support import KernelSupport, probe_kernel
from gnomon.runners.shell_restrictions import ShellRestrictions
from gnomon.services.observability.health import Finding, Severity

_MIB = 2**20
_COMMANDS_OF_ROOT = (
    "but commands run as root, and no sandbox keeps modes and times of the files of root from them: set shell.user"
)


def sandbox_status(settings: Settings, kernel: KernelSupport | None = None) -> ComponentStatus | None:
    """The health of the sandbox of a process that runs commands; None if it runs none.

    `kernel` is what the kernel can do; it is found out if not given.
    """
    if not settings.worker.commands:
        return None
    if settings.shell.sandbox == "off":
        return ComponentStatus(HealthCondition.IDLE, "shell.sandbox is off")
    lack = _lack(settings.shell, kernel or probe_kernel())
    return ComponentStatus(HealthCondition.OK) if lack is None else ComponentStatus(HealthCondition.WARNING, lack)


def announce_sandbox(settings: Settings, events: Events, kernel: KernelSupport | None = None) -> None:
    """Emit an event if the kernel lacks a part of the sandbox that the commands of this process should have."""
    status = sandbox_status(settings, kernel)
    if status is not None and status.condition is HealthCondition.WARNING:
        missing = (kernel or probe_kernel()).missing
        events.emit("sandbox_incomplete", missing=", ".join(missing), sandbox=settings.shell.sandbox)


def _lack(shell: ShellSettings, kernel: KernelSupport) -> str | None:
    """The parts that the kernel lacks, and what follows; None if it lacks none."""
    if not kernel.missing:
        return None
    effect = "no command starts" if shell.sandbox == "required" else "commands run without them"
    return f"the kernel lacks {', '.join(kernel.missing)}: {effect} (shell.sandbox: {shell.sandbox})"


def sandbox_findings(settings: Settings, kernel: KernelSupport | None = None) -> list[Finding]:
    """The findings about commands on this machine: their sandbox, and their limits."""
    if not settings.worker.commands:
        return [Finding("sandbox", Severity.OK, "this worker runs no commands (worker.commands)")]
    return [_sandbox_finding(settings.shell, kernel or probe_kernel()), _limits_finding(settings.shell)]


def _sandbox_finding(shell: ShellSettings, kernel: KernelSupport) -> Finding:
    if shell.sandbox == "off":
        return Finding("sandbox", Severity.OK, "shell.sandbox is off: the kernel confines no command")
    lack = _lack(shell, kernel)
    if lack is not None:
        grade = Severity.ERROR if shell.sandbox == "required" else Severity.WARNING
        return Finding("sandbox", grade, lack)
    complete = f"complete: Landlock {kernel.landlock_abi} and the socket filter"
    if _is_root(shell):
        return Finding("sandbox", Severity.WARNING, f"{complete}; {_COMMANDS_OF_ROOT}")
    return Finding("sandbox", Severity.OK, complete)


def _is_root(shell: ShellSettings) -> bool:
    """Whether commands run as root."""
    try:
        return ShellRestrictions(shell).uid == 0
    except FieldError:
        # The finding about limits says that the user does not exist.
        return False


def _limits_finding(shell: ShellSettings) -> Finding:
    try:
        restrictions = ShellRestrictions(shell)
    except FieldError as error:
        return Finding("limits", Severity.ERROR, str(error))
    each = f"each process of a command: {_listed(_limits_of_processes(shell))}"
    if restrictions.groups is not None:
        return Finding("limits", Severity.OK, f"{each}; a whole command: {_listed(_limits_of_commands(shell))}")
    if not shell.max_processes:
        return Finding("limits", Severity.OK, f"{each}; their number is not limited (shell.max_processes)")
    if restrictions.uid == 0:
        reason = "the kernel does not limit the number of processes of root: set shell.user"
        return Finding("limits", Severity.WARNING, f"{each}; {reason}")
    return Finding("limits", Severity.OK, f"{each}; {shell.max_processes:,} processes of their user")


def _limits_of_processes(shell: ShellSettings) -> Iterator[str]:
    if shell.max_memory_bytes:
        yield f"{shell.max_memory_bytes // _MIB:,} MiB of memory"
    if shell.max_file_bytes:
        yield f"{shell.max_file_bytes // _MIB:,} MiB of a file"
    if shell.max_cpu_ms:
        yield f"{shell.max_cpu_ms // 1000:,} s of processor time"


def _limits_of_commands(shell: ShellSettings) -> Iterator[str]:
    """Those of their control groups."""
    if shell.max_processes:
        yield f"{shell.max_processes:,} processes"
    if shell.max_memory_bytes:
        yield f"{shell.max_memory_bytes // _MIB:,} MiB of memory"


def _listed(limits: Iterator[str]) -> str:
    return ", ".join(limits) or "no limits"
