"""The sandbox of the commands of one worker: what each of them may use, in the form that its guardian applies."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.config.sections import SecuritySettings, ShellSettings
from gnomon.core.commands.plan import CommandPlan
from gnomon.core.commands.sandbox import Confinement, SandboxMode, SandboxRequest, confinement
from gnomon.core.runs.workflow import Step
from gnomon.runners.kernel_sandbox import READ, RUN, WRITE
from gnomon.runners.kernel_support import KernelSupport, probe_kernel

if TYPE_CHECKING:
    from gnomon.runners.kernel_sandbox import KernelRestrictions

#: Programs, libraries and their data.
_PROGRAM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
#: The settings that programs need to start, to know users, hosts and time zones, and to check certificates. Every user
#: may read them on every usual system, and none holds a credential: a folder as a whole could.
READABLE_SETTINGS = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload",
    "/etc/passwd", "/etc/group", "/etc/nsswitch.conf",
    "/etc/hosts", "/etc/host.conf", "/etc/hostname", "/etc/resolv.conf", "/etc/gai.conf",
    "/etc/networks", "/etc/protocols", "/etc/services", "/etc/rpc",
    "/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/locale.conf",
    "/etc/os-release", "/etc/debian_version", "/etc/lsb-release",
    "/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/crypto-policies",
    "/etc/pki/tls/certs", "/etc/pki/tls/cert.pem", "/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust/extracted",
    "/etc/alternatives", "/etc/gitconfig", "/etc/mime.types", "/etc/magic", "/etc/terminfo", "/etc/fonts",
    "/etc/perl", "/etc/xattr.conf",
)  # fmt: skip
#: The same in /etc, with the versions of programs in their names.
_VERSIONED_SETTINGS = ("python3*", "java-*")
#: Facts about the machine, and those about processes that every user may know.
_MACHINE = ("/proc", "/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup", "/sys/kernel/mm")
_READABLE_DEVICES = ("/dev/random", "/dev/urandom")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")


class CommandSandbox:
    """Decides how far each command of a worker is confined, and lists what it may use."""

    def __init__(self, shell: ShellSettings, security: SecuritySettings, kernel: KernelSupport | None = None) -> None:
        """`kernel` is what the kernel can do; it is found out at the first command if not given."""
        self._shell = shell
        self._path, self._roots = security.path, security.allowed_roots
        self._kernel = kernel

    @property
    def kernel(self) -> KernelSupport:
        """The parts that the kernel has."""
        return self._kernel if self._kernel is not None else probe_kernel()

    def confinement(self, step: Step, *, guarded: bool) -> Confinement:
        """How far the command of the step is confined; FieldError if this worker cannot do what the step demands."""
        request = SandboxRequest(
            worker=SandboxMode(self._shell.sandbox),
            job=step.sandbox,
            guarded=guarded,
            network=step.network,
            keeps_privileges=self._shell.privileges == "keep",
        )
        if request.worker is SandboxMode.OFF:
            return confinement(request, ())
        return confinement(request, self.kernel.missing)

    def restrictions(
        self,
        confined: Confinement,
        step: Step,
        *,
        workspace: str,
        plan: CommandPlan | None,
        folders: Sequence[str] | None = None,
    ) -> "KernelRestrictions | None":
        """The restrictions of the command; None for none.

        A command with a plan is guarded: it executes nothing of its workspace but programs that its plan names. With
        `folders` it is a program of the settings: it executes nothing there either, and has these folders of its own.
        """
        if confined is Confinement.NONE:
            return None
        files = list(self._files(workspace, plan, folders)) if confined is Confinement.FILES else None
        return {
            "landlock_abi": self.kernel.landlock_abi,
            "files": files,
            "network": step.network,
            "filter": self.kernel.socket_filter,
            "no_capabilities": files is not None,
        }

    def programs_variable(self, plan: CommandPlan | None) -> Mapping[str, str]:
        """The PATH of a guarded command, whose programs start others only from where it starts its own."""
        return {} if plan is None else {"PATH": os.pathsep.join(self._path)}

    def _files(
        self, workspace: str, plan: CommandPlan | None, folders: Sequence[str] | None
    ) -> Iterator[tuple[str, int]]:
        yield from ((folder, READ | RUN) for folder in (*_PROGRAM_FOLDERS, *self._path, *(folders or ())))
        yield from ((path, READ) for path in (*READABLE_SETTINGS, *_versioned_settings(), *_MACHINE))
        yield from ((device, READ) for device in _READABLE_DEVICES)
        yield from ((device, READ | WRITE) for device in _DEVICES)
        own = READ | WRITE | (RUN if plan is None and folders is None else 0)
        yield from ((folder, own) for folder in (workspace, *self._roots))
        yield from ((program, READ | RUN) for program in _programs(plan))


def _versioned_settings() -> Sequence[str]:
    return [str(path) for pattern in _VERSIONED_SETTINGS for path in Path("/etc").glob(pattern)]


def _programs(plan: CommandPlan | None) -> Sequence[str]:
    if plan is None:
        return ()
    return [command.program for pipeline in plan.pipelines for command in pipeline.commands]
