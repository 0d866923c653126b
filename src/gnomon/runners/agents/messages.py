"""The messages between a worker and the process of an agent: one JSON document a line, in both directions.

The process asks models. The worker decides whether it may ask again, and carries out the calls of tools: the process
has no tools, and nothing that a model writes can give it any.
"""

from typing import Any

from msgspec import Raw, Struct

from gnomon.core.agents.spec import model_tool_name


class ModelEndpoint(Struct, frozen=True, kw_only=True):
    """A model and how to reach it. It may hold the key of its provider."""

    #: `provider:name`, as the definition names it.
    model: str
    #: The protocol: `openai` or `anthropic`.
    kind: str
    url: str
    token: str


class ToolDescription(Struct, frozen=True, kw_only=True):
    """A tool as the model sees it."""

    #: As the definition and the log name it.
    name: str
    description: str
    schema: dict[str, Any]

    @property
    def model_name(self) -> str:
        """Its name for the model."""
        return model_tool_name(self.name)


# ---- to the process ------------------------------------------------------------------------------


class AgentRequest(Struct, frozen=True, kw_only=True):
    """The task of the process: its first line."""

    search_path: list[str]
    prompt: str
    instructions: str
    models: tuple[ModelEndpoint, ...]
    tools: tuple[ToolDescription, ...] = ()
    output_schema: dict[str, Any] | None = None
    #: The messages of earlier runs of its session, as the library writes them; empty without any.
    history: Raw = Raw(b"[]")
    request_timeout_ms: int
    forbid_memory_reads: bool
    open_files: int


class Proceed(Struct, frozen=True, tag="proceed"):
    """The process may ask the model; the answer may have so many tokens."""

    max_tokens: int | None = None


class ToolResult(Struct, frozen=True, tag="tool_result"):
    """The result of a call, as the model gets it."""

    call: int
    text: str


# ---- from the process ----------------------------------------------------------------------------


class AboutToAsk(Struct, frozen=True, tag="about_to_ask"):
    """The process waits for the permission to ask the model."""

    model: str


class Answered(Struct, frozen=True, tag="answered"):
    """The model has answered."""

    model: str
    input_tokens: int
    output_tokens: int


class ModelFailure(Struct, frozen=True, tag="model_failure"):
    """The model has failed, and is not asked again in this run."""

    model: str
    reason: str
    #: The model that is asked instead; empty if there is none.
    instead: str = ""


class ToolRequest(Struct, frozen=True, tag="tool_request"):
    """The model calls a tool."""

    call: int
    tool: str
    arguments: dict[str, Any]


class RejectedCall(Struct, frozen=True, tag="rejected_call"):
    """The model calls what the process cannot ask the worker for. The model is told; the worker only logs it."""

    #: As the model has named it.
    tool: str
    arguments: str
    #: Whether there is such a tool, so that its arguments are wrong.
    is_listed: bool


class AgentAnswer(Struct, frozen=True, tag="agent_answer"):
    """The last answer of the model, and the messages of this run for its session."""

    output: Raw
    messages: Raw


class AgentFailure(Struct, frozen=True, tag="agent_failure"):
    """The run has failed."""

    reason: str
    #: Whether a later attempt may succeed.
    temporary: bool
    #: How long the provider asks to wait; 0 if it does not say.
    after_ms: int = 0


# ---- between a worker and its starter of agents --------------------------------------------------


class StartAgent(Struct, frozen=True, tag="start"):
    """Fork an agent. Its four descriptors come with the message: its input, its answers, and its streams of output."""

    number: int
    #: The kinds of its providers.
    kinds: tuple[str, ...]
    variables: dict[str, str]


class ReapAgent(Struct, frozen=True, tag="reap"):
    """The worker is done with an agent that has ended: its pid may be another's."""

    pid: int


class AgentStarted(Struct, frozen=True, tag="started"):
    """An agent was forked; the pid is 0 if the starter cannot fork."""

    number: int
    pid: int


class AgentEnded(Struct, frozen=True, tag="ended"):
    """An agent has ended with this exit code; a negative one is that of a signal."""

    pid: int
    code: int


StarterRequest = StartAgent | ReapAgent
StarterReport = AgentStarted | AgentEnded
ToAgent = Proceed | ToolResult
FromAgent = AboutToAsk | Answered | ModelFailure | ToolRequest | RejectedCall | AgentAnswer | AgentFailure
