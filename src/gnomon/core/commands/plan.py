"""The plan of a command: the programs that it starts, with exactly the words that were checked.

A worker checks the text of a command once, and starts its programs by this plan, without a shell. Nothing reads the
text a second time, so no program can get other words than those that the policy has seen.
"""

from enum import StrEnum

from msgspec import Struct


class Connector(StrEnum):
    """When a pipeline runs, by how the one before it ended."""

    ALWAYS = "always"
    AND = "and"
    OR = "or"


class OutputTarget(StrEnum):
    """Where a program writes its standard output or its standard error."""

    INHERIT = "inherit"
    NULL = "null"
    #: Of standard error only: where standard output goes.
    STDOUT = "stdout"


class PlannedCommand(Struct, frozen=True, kw_only=True):
    """One program with its words."""

    #: The absolute path of the program.
    program: str
    #: All words, the name of the program as it was written included.
    words: tuple[str, ...]
    #: The variables that are assigned before the program, and those that the policy sets for it in any case.
    variables: dict[str, str] = {}
    #: The absolute path of the file that it reads; None for the standard input of the command, or the pipe before it.
    stdin: str | None = None
    stdout: OutputTarget = OutputTarget.INHERIT
    stderr: OutputTarget = OutputTarget.INHERIT


class PlannedPipeline(Struct, frozen=True, kw_only=True):
    """Programs that run side by side, each reading what the one before it writes. The last one decides the status."""

    connector: Connector = Connector.ALWAYS
    commands: tuple[PlannedCommand, ...]


class CommandPlan(Struct, frozen=True, kw_only=True):
    """Pipelines that run one after another. The status is that of the last pipeline that ran."""

    pipelines: tuple[PlannedPipeline, ...]
