"""The restrictions of commands: their user, privileges and limits, in the form that the guardian applies."""

import os
import pwd
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.config.sections import ShellSettings
from gnomon.errors import FieldError
from gnomon.runners.control_groups import ControlGroups, delegated_groups
from gnomon.runners.open_files import inherited_open_files_limit

if TYPE_CHECKING:
    from gnomon.runners.process_guardian import CommandStart

#: The capabilities that commands of root keep, by number: those of an ordinary container. Without CAP_SYS_PTRACE a
#: command cannot read the memory and the environment of the worker.
_KEPT_CAPABILITIES = {
    "chown": 0,
    "dac_override": 1,
    "fowner": 3,
    "fsetid": 4,
    "kill": 5,
    "setgid": 6,
    "setuid": 7,
    "setpcap": 8,
    "net_bind_service": 10,
    "net_raw": 13,
    "sys_chroot": 18,
    "mknod": 27,
    "audit_write": 29,
    "setfcap": 31,
}
_PROC = Path("/proc")
#: How long a count of the user's threads is used.
_COUNT_SECONDS = 5.0
#: How many threads the user may have started since they were counted.
_SPARE_THREADS = 128


class ShellRestrictions:
    """Writes down the restrictions of the commands of one worker."""

    def __init__(self, shell: ShellSettings, groups: ControlGroups | None = None) -> None:
        """`groups` are the control groups that the worker may make; they are found out if not given."""
        self._shell = shell
        self._groups = groups
        self._account = _account(shell.user) if shell.user else None
        #: The user as which commands run.
        self.uid = os.getuid() if self._account is None else self._account.pw_uid
        self._threads = _ThreadCount(self.uid)
        #: The variables that belong to the user of the commands.
        self.variables: Mapping[str, str] = {} if self._account is None else _variables(self._account)

    @property
    def owner(self) -> tuple[int, int] | None:
        """The user and group that own what commands use; None if they run as the user of the worker."""
        return None if self._account is None else (self._account.pw_uid, self._account.pw_gid)

    @property
    def home(self) -> str:
        """The home of the user as which commands run; empty if it has none."""
        if self._account is not None:
            return self._account.pw_dir
        try:
            return pwd.getpwuid(self.uid).pw_dir
        except KeyError:
            return ""

    @property
    def groups(self) -> ControlGroups | None:
        """The control groups that the worker may make; None if it may make none, or nothing is limited."""
        if not self._shell.max_memory_bytes and not self._shell.max_processes:
            return None
        return self._groups or delegated_groups()

    def control_group(self, mark: str) -> Path | None:
        """A control group for one command, which limits it as a whole; None if there can be none."""
        shell, groups = self._shell, self.groups
        if groups is None:
            return None
        return groups.make(mark, memory=shell.max_memory_bytes, processes=shell.max_processes)

    def apply(self, start: "CommandStart", *, secrets: bool) -> None:
        """Write the restrictions into the start of a command. With `secrets`, its processes leave no core dump."""
        shell, limits = self._shell, start["limits"]
        if shell.privileges == "drop":
            start["capabilities"] = tuple(_KEPT_CAPABILITIES.values()) if self._account is None else ()
        if (account := self._account) is not None:
            groups = os.getgrouplist(account.pw_name, account.pw_gid)
            start["user"] = account.pw_uid, account.pw_gid, groups
        if shell.max_memory_bytes:
            limits["RLIMIT_DATA"] = shell.max_memory_bytes
        if shell.max_cpu_ms:
            limits["RLIMIT_CPU"] = -(-shell.max_cpu_ms // 1000)
        if shell.max_file_bytes:
            limits["RLIMIT_FSIZE"] = shell.max_file_bytes
        if shell.max_processes:
            start["processes"] = self._threads.count() + _SPARE_THREADS
            limits["RLIMIT_NPROC"] = shell.max_processes
        if secrets:
            limits["RLIMIT_CORE"] = 0
        start["open_files"] = inherited_open_files_limit()


class _ThreadCount:
    """Counts the threads of a user: the kernel limits them all together, whoever started them."""

    def __init__(self, uid: int) -> None:
        self._uid = uid
        self._counted_at = float("-inf")
        self._threads = 0

    def count(self) -> int:
        """The number of threads of the user, at most some seconds ago."""
        now = time.monotonic()
        if now - self._counted_at > _COUNT_SECONDS:
            self._counted_at, self._threads = now, sum(map(self._threads_of, _PROC.iterdir()))
        return self._threads

    def _threads_of(self, process: Path) -> int:
        try:
            if not process.name.isdigit() or process.stat().st_uid != self._uid:
                return 0
            # A folder has one link for each folder in it, and two of its own.
            return (process / "task").stat().st_nlink - 2
        except OSError:
            return 0


def _account(user: str) -> pwd.struct_passwd:
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise FieldError("shell.user", user, "is no user of this machine") from None
    if os.geteuid():
        raise FieldError("shell.user", user, "needs a worker that runs as root")
    if not found.pw_uid:
        raise FieldError("shell.user", user, "is root: name another user, or none")
    return found


def _variables(account: pwd.struct_passwd) -> dict[str, str]:
    return {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name}
