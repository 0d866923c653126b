"""The definition of an agent: a step in which a model works on a prompt, with tools and within a budget."""

import re
from enum import StrEnum
from hashlib import sha256
from typing import Any

from msgspec import Struct

from gnomon.core.verb_names import CHANGING_VERBS, READING_VERBS

DEFAULT_REQUESTS, DEFAULT_TOOL_CALLS, DEFAULT_ACTIONS = 50, 50, 10


#: The session that is none: each run has a history of its own.
ISOLATED = "isolated"


class ToolName(StrEnum):
    """The tools that every installation has."""

    SHELL = "shell"
    READ_FILE = "read_file"
    WRITE_FILE = "write_file"
    LIST_FILES = "list_files"
    HTTP_GET = "http_get"


#: The beginning of tools that are verbs of the scheduler.
VERB_PREFIX = "gnomon."
#: The beginning of tools that are registered functions.
FUNCTION_PREFIX = "function:"
#: The beginning of tools of servers that the settings name: `mcp:SERVER/TOOL`.
SERVER_PREFIX = "mcp:"
_READING_TOOLS = tuple(f"{VERB_PREFIX}{name}" for name in READING_VERBS)
#: All tools that are no functions, as a definition names them.
TOOLS: tuple[str, ...] = (*ToolName, *_READING_TOOLS, *(f"{VERB_PREFIX}{name}" for name in CHANGING_VERBS))
#: The tools that change nothing: an attempt that was lost may be repeated if it had no others.
HARMLESS_TOOLS = frozenset((ToolName.READ_FILE, ToolName.LIST_FILES, ToolName.HTTP_GET, *_READING_TOOLS))
#: The tools whose calls are no actions.
FREE_TOOLS = frozenset((ToolName.READ_FILE, ToolName.LIST_FILES, *_READING_TOOLS))


def server_tool(tool: str) -> tuple[str, str]:
    """The server and the name there of a tool of a server."""
    server, _, name = tool.removeprefix(SERVER_PREFIX).partition("/")
    return server, name


_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_MODEL_NAME = 64


def model_tool_name(tool: str) -> str:
    """The name of the tool for a model: providers allow 64 letters, digits, dashes and underscores."""
    name = _FOREIGN.sub("_", tool)
    if len(name) <= _LONGEST_MODEL_NAME:
        return name
    return f"{name[: _LONGEST_MODEL_NAME - 13]}_{sha256(tool.encode()).hexdigest()[:12]}"


class AgentBudget(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of one attempt. A limit that is reached ends the run for good."""

    #: Tokens that are read and written, together; None for any number.
    tokens: int | None = None
    #: In millionths of the currency of the prices; None for any cost.
    cost_micros: int | None = None
    requests: int = DEFAULT_REQUESTS
    tool_calls: int = DEFAULT_TOOL_CALLS
    #: Calls of tools that change something, or that reach other machines.
    actions: int = DEFAULT_ACTIONS
    #: None for the timeout of the step.
    time_ms: int | None = None


class AgentSpec(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The agent of a step, without its prompt: that is the input of the step, since it may hold references."""

    instructions: str = ""
    #: `provider:name`; empty for the model of the settings.
    model: str = ""
    #: The models that are tried in this order if the model fails.
    fallbacks: tuple[str, ...] = ()
    #: `isolated`, `main`, or the name of the history that its runs share.
    session: str = ISOLATED
    #: The tools that the model may call: none unless listed.
    tools: tuple[str, ...] = ()
    budget: AgentBudget = AgentBudget()
    #: A JSON Schema that the answer must satisfy; None for a text.
    output_schema: dict[str, Any] | None = None
    #: Whether its tools may use the network: not at all, any public host, or these hosts alone.
    network: bool | tuple[str, ...] = False
    #: The shortest gap between its starts, if that is so short that each run warns of it.
    gap_ms: int | None = None

    @property
    def reserved_actions(self) -> int:
        """How many actions are reserved for an attempt: none, if no call of its tools is one."""
        return self.budget.actions if any(tool not in FREE_TOOLS for tool in self.tools) else 0

    @property
    def changes_something(self) -> bool:
        """Whether one of its tools may change something that a repetition would change again."""
        return any(tool not in HARMLESS_TOOLS for tool in self.tools)
