"""The parts of the sandbox that the kernel of this machine really has."""

import threading
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from gnomon.core.commands.sandbox import SandboxPart, missing_parts
from gnomon.runners.kernel_sandbox import can_filter_system_calls, landlock_abi, restrict_process

if TYPE_CHECKING:
    from gnomon.runners.kernel_sandbox import KernelRestrictions


class KernelSupport(Struct, frozen=True, kw_only=True):
    """The parts of the sandbox that a kernel has."""

    #: The version of Landlock; 0 if there is none.
    landlock_abi: int
    #: Whether system calls can be filtered: those that make sockets, and those that change other processes.
    socket_filter: bool

    @property
    def missing(self) -> tuple[SandboxPart, ...]:
        """The parts that it lacks."""
        return missing_parts(self.landlock_abi, socket_filter=self.socket_filter)


@cache
def probe_kernel() -> KernelSupport:
    """The parts that work on this machine: each is applied to a thread that then ends.

    That a kernel knows a system call is not enough: some systems refuse it to all processes in a container.
    """
    abi, can_filter = landlock_abi(), can_filter_system_calls()
    nothing: KernelRestrictions = {
        "landlock_abi": 0, "files": None, "network": True, "filter": False, "no_capabilities": False,
    }  # fmt: skip
    landlock: KernelRestrictions = {**nothing, "landlock_abi": abi, "files": ()}
    sockets: KernelRestrictions = {**nothing, "network": False}
    return KernelSupport(
        landlock_abi=abi if abi and _works(landlock) else 0, socket_filter=can_filter and _works(sockets)
    )


def _works(wanted: "KernelRestrictions") -> bool:
    """Whether a thread can restrict itself in this way. The restrictions do not hold for other threads."""
    worked: list[bool] = []

    def attempt() -> None:
        try:
            restrict_process(wanted)
        except OSError:
            return
        worked.append(True)

    thread = threading.Thread(target=attempt, name="gnomon-sandbox-probe")
    thread.start()
    thread.join()
    return bool(worked)
