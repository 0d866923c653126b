"""The sandbox of commands: which of them the kernel confines, how far, and which parts a kernel lacks."""

from collections.abc import Collection
from enum import StrEnum

from msgspec import Struct

from gnomon.errors import FieldError


class SandboxMode(StrEnum):
    """Whether the kernel confines commands, on one worker or for one job."""

    #: As far as the kernel can.
    AUTO = "auto"
    #: Completely, or the command does not start.
    REQUIRED = "required"
    #: Never; for a worker only.
    OFF = "off"


class Confinement(StrEnum):
    """How far the kernel confines one command."""

    NONE = "none"
    #: It reaches no process outside: no memory, no environment, no signals, no abstract UNIX sockets.
    PROCESSES = "processes"
    #: Also, it reads and writes only its workspace and what programs need to run, and has no capabilities.
    FILES = "files"


class SandboxPart(StrEnum):
    """A part of the sandbox that a kernel may lack."""

    FILES = "files"
    TRUNCATION = "truncation of files"
    TCP = "TCP ports"
    PROCESSES = "signals and abstract sockets"
    SOCKETS = "socket filter"


#: The first version of Landlock that has each part.
_LANDLOCK_ABI = {
    SandboxPart.FILES: 1,
    SandboxPart.TRUNCATION: 3,
    SandboxPart.TCP: 4,
    SandboxPart.PROCESSES: 6,
}


def missing_parts(landlock_abi: int, *, socket_filter: bool) -> tuple[SandboxPart, ...]:
    """The parts that a kernel lacks which has this version of Landlock (0: none) and perhaps filters sockets."""
    missing = tuple(part for part, abi in _LANDLOCK_ABI.items() if landlock_abi < abi)
    return missing if socket_filter else (*missing, SandboxPart.SOCKETS)


class SandboxRequest(Struct, frozen=True, kw_only=True):
    """The wishes about the sandbox of one command."""

    worker: SandboxMode
    job: SandboxMode = SandboxMode.AUTO
    #: Whether the policy guards the command.
    guarded: bool = False
    #: Whether the command may use the network.
    network: bool = True
    #: Whether open commands of this worker may gain privileges, which no confined process can.
    keeps_privileges: bool = False


def confinement(request: SandboxRequest, missing: Collection[SandboxPart]) -> Confinement:
    """How far a command is confined on a kernel that lacks these parts.

    FieldError if its job demands more than this worker can do: the command must not start there.
    """
    required = SandboxMode.REQUIRED in (request.worker, request.job)
    if request.worker is SandboxMode.OFF:
        _refuse_demands(request, "needs the sandbox, which this worker does not use (shell.sandbox: off)")
        return Confinement.NONE
    if required and missing:
        field = "sandbox" if request.job is SandboxMode.REQUIRED else "shell.sandbox"
        raise FieldError(field, "required", f"cannot be had on this worker: its kernel lacks {', '.join(missing)}")
    if SandboxPart.SOCKETS in missing:
        _refuse_demands(request, f"cannot be had on this worker: its kernel lacks {SandboxPart.SOCKETS}")
    if required or request.guarded:
        return Confinement.FILES
    if request.keeps_privileges and request.network:
        return Confinement.NONE
    return Confinement.PROCESSES


def _refuse_demands(request: SandboxRequest, reason: str) -> None:
    if request.job is SandboxMode.REQUIRED:
        raise FieldError("sandbox", "required", reason)
    if not request.network:
        raise FieldError("network", False, reason)
