"""The messages between a worker and the process of an isolated function."""

from typing import Any

from msgspec import Struct

from gnomon.core.model import LogLine
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.runners.context import AttemptInfo


class ChildRequest(Struct, frozen=True, kw_only=True):
    """The function to run and its input. It may hold secrets, so it is sent on standard input only."""

    #: The `sys.path` of the worker.
    search_path: list[str]
    imports: tuple[str, ...]
    #: The script that defines the function, if no importable module does.
    script: str | None
    module: str
    qualname: str
    function: str
    input: dict[str, Any]
    #: The input without secrets, for error messages.
    shown: dict[str, Any]
    secrets: dict[str, str]
    #: Whether the worker lets no other process read its memory; then its child does not either.
    forbid_memory_reads: bool
    facts: AttemptInfo
    timeout_ms: int
    max_output_bytes: int
    max_log_lines: int
    #: How many files the child may have open.
    open_files: int


class ChildLog(Struct, frozen=True, tag="said"):
    """A line for the task's log."""

    line: LogLine


class ChildResult(Struct, frozen=True, tag="ended"):
    """The outcome of the function."""

    outcome: AttemptOutcome
    #: Whether a stop request ended it.
    cancelled: bool = False
