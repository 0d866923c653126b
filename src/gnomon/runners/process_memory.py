"""Protection of the memory of a process from other processes of the same user."""

import sys

_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4


def forbid_memory_reads() -> None:
    """Let no other process of the same user read the memory and environment of this one, and write no core dumps.

    Debuggers and profilers then need root. Does nothing on systems other than Linux.
    """
    _prctl(_PR_SET_DUMPABLE, 0)


def memory_reads_forbidden() -> bool:
    """Whether this process has called `forbid_memory_reads`."""
    return _prctl(_PR_GET_DUMPABLE) == 0


def _prctl(option: int, value: int = 0) -> int:
    if sys.platform != "linux":
        return 1
    import ctypes

    return int(ctypes.CDLL(None).prctl(option, value))
