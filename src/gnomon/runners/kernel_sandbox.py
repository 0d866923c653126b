"""Restrictions that a process puts on itself, and on all that it starts, for good: files, sockets and capabilities.

They need no privileges: Landlock for files, signals and abstract sockets, a seccomp filter for sockets and for what
Landlock does not control. A thread that restricts itself does not restrict the others, so a process has one thread when
it calls `restrict_process`.

This file imports nothing of Gnomon, so that guardians of commands start fast.
"""

import ctypes
import errno
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Importing this takes longer than the rest.
    from collections.abc import Mapping, Sequence
    from typing import TypedDict

    #: An instruction of a filter: its code, the labels to jump to if it holds and if not, and its value.
    _Line = tuple[int, str | None, str | None, int]

    class KernelRestrictions(TypedDict):
        """The restrictions of one process."""

        #: The version of Landlock to use; 0 for none.
        landlock_abi: int
        #: The files and folders that it may use, with rights, and nothing else; None for all.
        files: "Sequence[tuple[str, int]] | None"
        #: Whether it may make sockets other than UNIX sockets.
        network: bool
        #: Whether the kernel filters its system calls; without a network it does so always.
        filter: bool
        #: Whether it loses all capabilities, also those of root.
        no_capabilities: bool


_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION, _RULE_PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_DIR, _MAKE_REGULAR, _MAKE_SOCKET, _MAKE_FIFO, _MAKE_LINK = (1 << bit for bit in (7, 8, 9, 10, 12))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
#: The number of rights on files that each version of Landlock knows; later versions know those of the last one.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_NET_ABI, _NET_RIGHTS = 4, 0b11
_SCOPE_ABI, _SCOPES = 6, 0b11
#: The rights that a rule for a file may give; all others are rights on folders.
_RIGHTS_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
READ = _READ_FILE | _READ_DIR
RUN = _EXECUTE
#: All changes, except for device files, which give access to more than the folder.
WRITE = (
    _WRITE_FILE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REGULAR | _MAKE_SOCKET | _MAKE_FIFO
    | _MAKE_LINK | _REFER
)  # fmt: skip

_PR_GET_SECCOMP, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 21, 22, 2
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
_MOST_CAPABILITIES = 64
_CAPABILITY_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def restrict_process(wanted: "KernelRestrictions") -> None:
    """Restrict this process and all that it starts. OSError names the part that the kernel refuses."""
    if wanted["no_capabilities"]:
        _drop_bounding_set()
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _enter_domain(wanted)
    if wanted["no_capabilities"]:
        _drop_capabilities()
    if wanted["filter"] or not wanted["network"]:
        _filter_system_calls(sockets=not wanted["network"], files=wanted["files"] is not None)


def _checked(result: int, part: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{part}: {os.strerror(number)}")
    return result


# ---- Landlock ------------------------------------------------------------------------------------


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("rights", ctypes.c_uint64), ("folder", ctypes.c_int32))


def landlock_abi() -> int:
    """The version of Landlock that the kernel has; 0 if it has none, or if it is switched off."""
    return max(0, _landlock(_LANDLOCK_CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION))


def _landlock(number: int, *arguments: object) -> int:
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return int(_libc.syscall(ctypes.c_long(number), *words))


def _enter_domain(wanted: "KernelRestrictions") -> None:
    abi, files = wanted["landlock_abi"], wanted["files"]
    handled = 0 if files is None or not abi else (1 << _FILE_RIGHTS[min(abi, max(_FILE_RIGHTS))]) - 1
    net = _NET_RIGHTS if abi >= _NET_ABI and not wanted["network"] else 0
    scoped = _SCOPES if abi >= _SCOPE_ABI else 0
    if not handled and not net and not scoped:
        return
    attributes = _RulesetAttributes(handled, net, scoped)
    # An older kernel knows only the first fields.
    size = 24 if abi >= _SCOPE_ABI else 16 if abi >= _NET_ABI else 8
    ruleset = _checked(_landlock(_LANDLOCK_CREATE_RULESET, ctypes.byref(attributes), size, 0), "Landlock")
    for path, rights in files or () if handled else ():
        _allow(ruleset, path, rights & handled)
    _checked(_landlock(_LANDLOCK_RESTRICT_SELF, ruleset, 0), "Landlock")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Allow the rights on the file, or on all that the folder holds. A file that does not exist needs no rule."""
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP):
            return
        raise
    if not stat.S_ISDIR(os.fstat(opened).st_mode):
        rights &= _RIGHTS_OF_FILES
    rule = _PathBeneath(rights, opened)
    _checked(_landlock(_LANDLOCK_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0), "Landlock")
    os.close(opened)


# ---- capabilities --------------------------------------------------------------------------------


def _drop_bounding_set() -> None:
    """Let no program that is executed later have a capability, not even as root."""
    _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if not os.geteuid():
        for number in range(_MOST_CAPABILITIES):
            _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _checked(_libc.capset(header, (ctypes.c_uint32 * 6)()), "capabilities")


# ---- system calls --------------------------------------------------------------------------------


class SystemCalls:
    """The numbers of the system calls that a filter is about, on one kind of processor."""

    def __init__(
        self,
        architecture: int,
        numbers: "Mapping[str, Sequence[int]]",
        *,
        second_table: int | None = None,
        narrow: "SystemCalls | None" = None,
    ) -> None:
        #: The AUDIT_ARCH_* constant of the kernel.
        self.architecture = architecture
        #: By the end of the filter that judges them; see _ENDS.
        self.numbers = numbers
        #: The first number of a second table of the same architecture: x32 has its own numbers for the same calls.
        self.second_table = second_table
        #: The calls of 32-bit programs on the same processor.
        self.narrow = narrow


#: These have the same numbers everywhere. A ring makes sockets, and changes attributes, without the system calls that
#: the filter sees.
_IO_URING_SETUP, _FCHMODAT2 = 425, 452
_SETXATTRAT, _REMOVEXATTRAT, _FILE_SETATTR = 463, 466, 469
#: Its flags are in memory, which a filter does not see. Programs take `clone` where it is absent.
_CLONE3 = 435
#: By the machine that `os.uname` names. Each list is in the order of the comments at _ENDS.
SYSTEM_CALLS = {
    "x86_64": SystemCalls(
        0xC000003E,
        {
            "limits": (302,),
            "priority": (141, 251),
            "itself": (142, 144, 203, 314),
            "family": (41, 53),
            "second mode": (90, 91),
            "third mode": (268, _FCHMODAT2),
            "unsupported": (188, 189, 190, 197, 198, 199, _SETXATTRAT, _REMOVEXATTRAT, _FILE_SETATTR),
            "namespaces": (56, 272),
            "absent": (
                248,
                249,
                250,
                29,
                30,
                31,
                64,
                65,
                66,
                220,
                68,
                69,
                70,
                71,
                298,
                321,
                323,
                _CLONE3,
            ),
        },
        second_table=0x40000000,
        narrow=SystemCalls(0x40000003, {"limits": (340,), "priority": (97, 289), "itself": (154, 156, 241, 351)}),
    ),
    "aarch64": SystemCalls(
        0xC00000B7,
        {
            "limits": (261,),
            "priority": (140, 30),
            "itself": (118, 119, 122, 274),
            "family": (198, 199),
            "second mode": (52,),
            "third mode": (53, _FCHMODAT2),
            "unsupported": (5, 6, 7, 14, 15, 16, _SETXATTRAT, _REMOVEXATTRAT, _FILE_SETATTR),
            "namespaces": (220, 97),
            "absent": (
                217,
                218,
                219,
                194,
                196,
                195,
                190,
                193,
                191,
                192,
                186,
                189,
                188,
                187,
                241,
                280,
                282,
                _CLONE3,
            ),
        },
        narrow=SystemCalls(0x40000028, {"limits": (369,), "priority": (97, 314), "itself": (154, 156, 241, 380)}),
    ),
}
#: The ends for the system calls that concern other processes, sockets and files.
_OF_PROCESSES, _OF_SOCKETS = ("limits", "priority", "itself"), ("family",)
_OF_FILES = ("second mode", "third mode", "unsupported", "namespaces", "absent")
_AF_UNIX = 1
#: The first way to name more than one process or process group in a call for priorities.
_PRIORITY_OF_MANY = 2
#: The bits of a mode with which a program runs as the owner of its file, or in its group.
_SET_ID = 0o6000
#: The flag of a new user namespace, in which a process has all capabilities again.
_NEW_USER = 0x10000000
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _JUMP_IF_ANY, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
#: Where the kernel keeps the number, the architecture, and the halves of the first arguments.
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_FIRST_AT, _SECOND_AT, _THIRD_AT, _THIRD_HIGH_AT = 16, 24, 32, 36
_ALLOW, _KILL_PROCESS, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
#: The ends of a filter: each label with what is done for a system call that reaches it.
_ENDS: "Sequence[tuple[str, Sequence[_Line]]]" = (
    # prlimit64.
    ("limits", (
        (_LOAD, None, None, _FIRST_AT), (_JUMP_IF_EQUAL, "allow", None, 0),
        # Without a new limit the call only reads.
        (_LOAD, None, None, _THIRD_AT), (_JUMP_IF_EQUAL, None, "refuse", 0),
        (_LOAD, None, None, _THIRD_HIGH_AT), (_JUMP_IF_EQUAL, "allow", "refuse", 0),
    )),
    # setpriority, ioprio_set: the second argument is a process, a group of them or a user, as the first says.
    ("priority", (
        (_LOAD, None, None, _FIRST_AT), (_JUMP_IF_AT_LEAST, "refuse", None, _PRIORITY_OF_MANY),
        (_LOAD, None, None, _SECOND_AT), (_JUMP_IF_EQUAL, "allow", "refuse", 0),
    )),
    # sched_setparam, sched_setscheduler, sched_setaffinity, sched_setattr.
    ("itself", ((_LOAD, None, None, _FIRST_AT), (_JUMP_IF_EQUAL, "allow", "refuse", 0))),
    # socket, socketpair.
    ("family", ((_LOAD, None, None, _FIRST_AT), (_JUMP_IF_EQUAL, "allow", "refuse", _AF_UNIX))),
    # chmod (not on aarch64), fchmod.
    ("second mode", ((_LOAD, None, None, _SECOND_AT), (_JUMP_IF_ANY, "refuse", "allow", _SET_ID))),
    # fchmodat, fchmodat2.
    ("third mode", ((_LOAD, None, None, _THIRD_AT), (_JUMP_IF_ANY, "refuse", "allow", _SET_ID))),
    # clone, unshare.
    ("namespaces", ((_LOAD, None, None, _FIRST_AT), (_JUMP_IF_ANY, "refuse", "allow", _NEW_USER))),
    ("allow", ((_RETURN, None, None, _ALLOW),)),
    ("refuse", ((_RETURN, None, None, _ERROR | errno.EPERM),)),
    # setxattr, lsetxattr, fsetxattr, removexattr, lremovexattr, fremovexattr, setxattrat, removexattrat, file_setattr.
    # Programs take this for a file system without attributes, and go on without them.
    ("unsupported", ((_RETURN, None, None, _ERROR | errno.EOPNOTSUPP),)),
    # add_key, request_key, keyctl: the keys of the user are no files. shmget, shmat, shmctl, semget, semop, semctl,
    # semtimedop, msgget, msgsnd, msgrcv, msgctl: these belong to all processes, and outlive the command.
    # perf_event_open, bpf, userfaultfd: they reach into the kernel. clone3.
    ("absent", ((_RETURN, None, None, _ERROR | errno.ENOSYS),)),
)  # fmt: skip


def system_call_filter(calls: SystemCalls, *, sockets: bool, files: bool) -> bytes:
    """A program for seccomp that keeps a process from limits, scheduling and priorities of other processes.

    With `sockets` it also refuses all sockets but UNIX sockets; with `files` also changes of files that Landlock does
    not control: modes with which a program runs as another user, and extended attributes; and what is shared with
    others and is no file: keys, shared memory, semaphores and queues, and user namespaces. System calls of an unknown
    architecture, which have other numbers, end the process.
    """
    # 32-bit programs make sockets by other calls, for which there are no rules.
    narrow = None if sockets or files else calls.narrow
    start: list[_Line] = [(_LOAD, None, None, _ARCHITECTURE_AT), (_JUMP_IF_EQUAL, "own", None, calls.architecture)]
    if narrow is not None:
        start.append((_JUMP_IF_EQUAL, "narrow", None, narrow.architecture))
    start.append((_RETURN, None, None, _KILL_PROCESS))
    parts = [("start", start), ("own", _choices(calls, sockets=sockets, files=files))]
    if narrow is not None:
        parts.append(("narrow", _choices(narrow, sockets=False, files=False)))
    return _assembled((*parts, *_ENDS))


def _choices(calls: SystemCalls, *, sockets: bool, files: bool) -> "list[_Line]":
    """The instructions that choose the end for each system call."""
    wanted = _OF_PROCESSES + (_OF_SOCKETS if sockets else ()) + (_OF_FILES if files else ())
    ends = {number: end for end in wanted for number in calls.numbers[end]}
    if sockets or files:
        ends[_IO_URING_SETUP] = "refuse"
    lines: list[_Line] = [(_LOAD, None, None, _NUMBER_AT)]
    if calls.second_table is not None:
        lines.append((_JUMP_IF_AT_LEAST, "refuse", None, calls.second_table))
    lines += [(_JUMP_IF_EQUAL, end, None, number) for number, end in ends.items()]
    return [*lines, (_RETURN, None, None, _ALLOW)]


def _assembled(parts: "Sequence[tuple[str, Sequence[_Line]]]") -> bytes:
    """The instructions of all parts, which jump to the beginning of a later one."""
    labels: dict[str, int] = {}
    lines: list[_Line] = []
    for label, of_part in parts:
        labels[label] = len(lines)
        lines += of_part
    return b"".join(
        code.to_bytes(2, "little")
        # A jump counts from the next instruction on.
        + bytes(0 if to is None else labels[to] - at - 1 for to in (then, otherwise))
        + value.to_bytes(4, "little")
        for at, (code, then, otherwise, value) in enumerate(lines)
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.c_char_p))


def can_filter_system_calls() -> bool:
    """Whether the kernel has filters of system calls, and this module knows its numbers."""
    if own_system_calls() is None:
        return False
    # Without a program the kernel answers EFAULT if it has filters, and EINVAL if it has none.
    _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, None, 0, 0)
    return ctypes.get_errno() == errno.EFAULT


def own_system_calls() -> SystemCalls | None:
    """The numbers of the system calls here; None on a processor that this module does not know."""
    return SYSTEM_CALLS.get(os.uname().machine) if sys.byteorder == "little" and sys.maxsize > 2**32 else None


def _filter_system_calls(*, sockets: bool, files: bool) -> None:
    calls = own_system_calls()
    if calls is None:
        raise OSError(errno.ENOSYS, f"filter of system calls: not known for {os.uname().machine}")
    program = system_call_filter(calls, sockets=sockets, files=files)
    loaded = _Program(len(program) // 8, program)
    _checked(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(loaded), 0, 0), "filter of system calls")
