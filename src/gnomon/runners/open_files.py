"""The limit of open files: raised for the worker, and restored for the processes that it starts.

A program that uses `select` fails with descriptors above 1023, which is why the usual soft limit is 1024. Gnomon does
not use `select`; commands and functions may.
"""

import resource
import sys

#: More than this is not needed, and some programs take long to start with a limit of a billion.
_ENOUGH = 65_536
#: The soft limit with which this process was started, if it was raised.
_inherited: list[int] = []


def open_files_limit() -> int:
    """How many files and sockets this process may have open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard limit, as far as that is useful."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        # Some systems allow less than the hard limit that they report.
        return
    if not _inherited:
        _inherited.append(soft)


def inherited_open_files_limit() -> int:
    """The soft limit for processes that this one starts: the limit with which this process was started."""
    return _inherited[0] if _inherited else resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def restore_open_files_limit(soft: int) -> None:
    """In a started process: set the soft limit."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
