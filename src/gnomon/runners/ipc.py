"""What a worker and the process of an isolated function say to each other."""

from typing import Any

from msgspec import Struct

from gnomon.core.model import LogLine
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.runners.context import AttemptInfo


class ChildRequest(Struct, frozen=True, kw_only=True):
    """What is to be done. It may hold secrets: it travels on standard input, and nowhere else."""

    #: The process that asks; without it there is nobody to answer.
    parent: int
    #: Where modules are looked for.
    search_path: list[str]
    imports: tuple[str, ...]
    #: The script whose functions are wanted, if they were defined in no module.
    script: str | None
    module: str
    qualname: str
    function: str
    input: dict[str, Any]
    #: The input as it may be shown.
    shown: dict[str, Any]
    secrets: dict[str, str]
    facts: AttemptInfo
    timeout_ms: int
    max_output_bytes: int
    max_log_lines: int


class ChildLog(Struct, frozen=True, tag="said"):
    """A line for the task's log."""

    line: LogLine


class ChildResult(Struct, frozen=True, tag="ended"):
    """How it ended."""

    outcome: AttemptOutcome
    #: Whether it let the request to stop end it.
    cancelled: bool = False
