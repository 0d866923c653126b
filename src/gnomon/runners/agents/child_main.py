"""The process of an agent: `python -m gnomon.runners.agents.child_main FD PARENT`, its task on standard input.

It is the only part of Gnomon that imports the library of models. It answers on the file descriptor FD. Like that of an
isolated function, it has a guardian, which ends it with its worker PARENT.
"""

import asyncio
import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import msgspec
from msgspec import Raw

from gnomon.core.agents.rules import DATA_RULE
from gnomon.core.jobs.inputs import check_input
from gnomon.errors import FieldError
from gnomon.runners.agents.messages import (
    AboutToAsk,
    AgentAnswer,
    AgentFailure,
    AgentRequest,
    Answered,
    FromAgent,
    ModelEndpoint,
    ModelFailure,
    Proceed,
    RejectedCall,
    ToAgent,
    ToolDescription,
    ToolRequest,
    ToolResult,
)
from gnomon.runners.child_guard import die_with_parent
from gnomon.runners.open_files import restore_open_files_limit
from gnomon.runners.process_guardian import supervise
from gnomon.runners.process_memory import forbid_memory_reads

if TYPE_CHECKING:
    from pydantic_ai.models import Model

_REQUEST_DECODER = msgspec.json.Decoder(AgentRequest)
_DECODER = msgspec.json.Decoder(ToAgent)
_ENCODER = msgspec.json.Encoder()
#: How often the model may correct an answer that its schema refuses, or a call that no tool understands.
_CORRECTIONS = 3
#: A longer line of the worker is not read.
_LONGEST_LINE = 64 << 20
#: The key of servers that want none: the clients insist on one.
_NO_KEY = "none"
#: Of calls that no tool gets, so many of one answer are reported.
_MOST_REJECTED = 20
#: The worker shortens a reason further, once it has removed secrets.
_LONGEST_REASON = 65_536
#: The memory that an answer may take, in bytes.
_MOST_MEMORY = 512 << 20
#: A token has about so many bytes.
_TOKEN_BYTES = 4
#: The statuses of a provider that a later request may not get.
_TEMPORARY = frozenset((408, 409, 425, 429))


def main() -> NoReturn:
    """Be the process of one agent."""
    answers, worker = map(int, sys.argv[1:])
    run_agent(answers, worker)


def run_agent(answers: int, parent: int) -> NoReturn:
    """Ask the models until there is an answer, and exit. The guardian of this process ends it with `parent`."""
    os.set_inheritable(answers, False)
    die_with_parent(supervise(parent))
    # A core dump would contain the keys.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
    asyncio.run(_Conversation(answers).run())
    os._exit(0)


def load_library(kinds: Iterable[str]) -> None:
    """Load the library of models, and those of these kinds of providers."""
    import pydantic_ai
    import pydantic_ai.models.wrapper

    for kind in kinds:
        _provider_library(kind)
    del pydantic_ai


class _Conversation:
    """The exchange with the worker, and the run of the agent."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._permission: asyncio.Future[Proceed] | None = None
        self._calls: dict[int, asyncio.Future[str]] = {}

    async def run(self) -> None:
        """Read the task, carry it out, and send the end."""
        reader = asyncio.StreamReader(limit=_LONGEST_LINE)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(0, "rb", closefd=False))
        request = _REQUEST_DECODER.decode(await reader.readline())
        if request.forbid_memory_reads:
            forbid_memory_reads()
        restore_open_files_limit(request.open_files)
        sys.path[:] = request.search_path
        listening = asyncio.create_task(self._listen(reader))
        self.send(await self._outcome(request))
        listening.cancel()

    def send(self, message: FromAgent) -> None:
        """Send a message to the worker, which reads all the time."""
        left = memoryview(_ENCODER.encode(message) + b"\n")
        while left:
            left = left[os.write(self._answers, left) :]

    async def permission(self, model: str) -> Proceed:
        """Wait until the worker lets the model be asked."""
        self._permission = asyncio.get_running_loop().create_future()
        self.send(AboutToAsk(model))
        return await self._permission

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """The result of a call of a tool, which the worker carries out."""
        number = len(self._calls)
        self._calls[number] = asyncio.get_running_loop().create_future()
        self.send(ToolRequest(number, tool, arguments))
        return await self._calls[number]

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = _DECODER.decode(line)
            if isinstance(message, ToolResult):
                self._calls[message.call].set_result(message.text)
            elif self._permission is not None:
                self._permission.set_result(message)
        # The worker has gone, or does not want the answer any more.
        os._exit(0)

    async def _outcome(self, request: AgentRequest) -> AgentAnswer | AgentFailure:
        from pydantic_ai.exceptions import AgentRunError, UserError

        models = _Models(self, request)
        try:
            return await self._answer(request, models)
        except _NoModelLeftError:
            return models.failure
        except (AgentRunError, UserError) as error:
            return AgentFailure(_one_line(f"the model gave no valid answer: {error}"), temporary=True)
        except Exception as error:  # noqa: BLE001 - the library stumbles over some answers
            return AgentFailure(_one_line(f"the model gave no valid answer: {_described(error)}"), temporary=True)

    async def _answer(self, request: AgentRequest, models: "_Models") -> AgentAnswer:
        from pydantic_ai import Agent, ModelRetry, StructuredDict, UsageLimits
        from pydantic_ai.messages import ModelMessagesTypeAdapter

        schema = request.output_schema
        agent: Any = Agent(
            models.model(),
            output_type=str if schema is None else StructuredDict(schema, name="answer"),
            instructions="\n\n".join(filter(None, (request.instructions, DATA_RULE))),
            tools=[self._tool(one) for one in request.tools],
            retries=_CORRECTIONS,
        )

        def check(answer: dict[str, Any]) -> dict[str, Any]:
            # The library passes values of any type on.
            try:
                check_input("answer", answer, schema)
            except FieldError as error:
                raise ModelRetry(str(error).replace("input_schema", "the schema")) from None
            return answer

        if schema is not None:
            agent.output_validator(check)
        history = ModelMessagesTypeAdapter.validate_json(bytes(request.history))
        # The worker counts requests and calls.
        run = await agent.run(request.prompt, message_history=history, usage_limits=UsageLimits(request_limit=None))
        return AgentAnswer(Raw(_ENCODER.encode(run.output)), Raw(run.new_messages_json()))

    def _tool(self, described: ToolDescription) -> Any:  # noqa: ANN401 - a type of a library that is loaded here only
        from pydantic_ai import Tool
        from pydantic_core import SchemaValidator, core_schema

        async def call(**arguments: Any) -> str:  # noqa: ANN401 - the arguments are those of the schema
            return await self.call(described.name, arguments)

        tool: Any = Tool.from_schema(
            call, name=described.model_name, description=described.description, json_schema=described.schema
        )
        # The library passes arguments of any type on, and ends the run if they are no mapping: the model is told so.
        tool.function_schema.validator = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))
        return tool


class _NoModelLeftError(Exception):
    """All models have failed."""


class _Models:
    """The models of one run. One that has failed is not asked again: the next one takes over for good."""

    def __init__(self, conversation: _Conversation, request: AgentRequest) -> None:
        self._conversation = conversation
        self._left = list(request.models)
        self._timeout = request.request_timeout_ms / 1000
        self._failures: list[AgentFailure] = []

    @property
    def failure(self) -> AgentFailure:
        """The failure of all models: temporary if that of one of them is, for the shortest time that one asks for."""
        reason = "; ".join(one.reason for one in self._failures)
        waits = [one.after_ms for one in self._failures if one.after_ms]
        return AgentFailure(reason, any(one.temporary for one in self._failures), min(waits, default=0))

    def model(self) -> "Model":
        """The model that asks the first one left, as the library sees it."""
        from pydantic_ai.models.wrapper import WrapperModel

        models = self

        class FailoverModel(WrapperModel):
            """Asks the current model, and the next one once that has failed."""

            wrapped: Any

            async def request(self, messages: Any, settings: Any, parameters: Any) -> Any:  # noqa: ANN401
                """The answer of the first model that gives one."""
                while True:
                    answer = await models.answer(self.wrapped, messages, settings, parameters)
                    if answer is not None:
                        return answer
                    self.wrapped = models.opened()

        return FailoverModel(self.opened())

    def opened(self) -> "Model":
        """The first model left."""
        return _model(self._left[0], self._timeout)

    async def answer(self, model: "Model", messages: Any, settings: Any, parameters: Any) -> Any:  # noqa: ANN401
        """The answer of the current model; None if it has failed, and another one is left."""
        from pydantic_ai.exceptions import ModelAPIError, UnexpectedModelBehavior

        current = self._left[0].model
        granted = await self._conversation.permission(current)
        limits: Any = {} if granted.max_tokens is None else {"max_tokens": granted.max_tokens}
        try:
            # The client limits the time between two parts of an answer only.
            async with asyncio.timeout(self._timeout):
                answer = await model.request(messages, {**(settings or {}), **limits}, parameters)
        except (ModelAPIError, UnexpectedModelBehavior, TimeoutError, MemoryError) as error:
            self._failed(current, error)
            return None
        self._conversation.send(Answered(current, *_tokens(messages, answer)))
        for rejected in islice(_rejected_calls(answer, parameters), _MOST_REJECTED):
            self._conversation.send(rejected)
        return answer

    def _failed(self, model: str, error: Exception) -> None:
        """Give up on the current model; _NoModelLeftError if it was the last one."""
        # Of a redirect, only the client knows the status.
        status = getattr(error, "status_code", None) or getattr(error.__cause__, "status_code", None)
        temporary = status is None or status in _TEMPORARY or status >= 500
        after_ms = round(1000 * (getattr(error, "retry_after", None) or 0)) if status == 429 else 0
        reason = f"{model} failed: {_said(error, status)}"
        self._failures.append(AgentFailure(reason, temporary, after_ms))
        del self._left[0]
        self._conversation.send(ModelFailure(model, reason, self._left[0].model if self._left else ""))
        if not self._left:
            raise _NoModelLeftError


def _tokens(messages: Any, answer: Any) -> tuple[int, int]:  # noqa: ANN401 - of the library
    """The tokens that were read and written; about as many as the bytes stand for, if the provider does not say."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    used = answer.usage
    if used.input_tokens > 0 or used.output_tokens > 0:
        return used.input_tokens, used.output_tokens
    read, written = (len(ModelMessagesTypeAdapter.dump_json(one)) for one in (list(messages), [answer]))
    return -(-read // _TOKEN_BYTES), -(-written // _TOKEN_BYTES)


def _rejected_calls(answer: Any, parameters: Any) -> Iterator[RejectedCall]:  # noqa: ANN401 - of the library
    """The calls of an answer that the library refuses by itself: it tells the model, and nobody else."""
    tools = {one.name for one in parameters.function_tools}
    answers = {one.name for one in parameters.output_tools}
    for call in answer.tool_calls:
        is_listed = call.tool_name in tools
        if call.tool_name in answers or (is_listed and _is_mapping(call)):
            continue
        # The worker shortens both, once it has removed secrets.
        arguments = call.args if isinstance(call.args, str) else call.args_as_json_str()
        yield RejectedCall(call.tool_name[:_LONGEST_REASON], arguments[:_LONGEST_REASON], is_listed=is_listed)


def _is_mapping(call: Any) -> bool:  # noqa: ANN401 - of the library
    try:
        call.args_as_dict(raise_if_invalid=True)
    except (ValueError, AssertionError):
        return False
    return True


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _said(error: Exception, status: int | None) -> str:
    """The error of a provider on one line: the status, and the message in its body."""
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(_root_of(error), MemoryError):
        return "its answer is too long"
    if status is None:
        return _one_line(str(error))
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else body
    message = inner.get("message", "") if isinstance(inner, dict) else inner
    return _one_line(f"it answered {status}{f': {message}' if message else ''}")


def _root_of(error: BaseException) -> BaseException:
    """The error that all others follow from: clients put errors of their own around it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _one_line(text: str) -> str:
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 2 * _LONGEST_REASON]).split())
    return line[:_LONGEST_REASON]


def _model(access: ModelEndpoint, timeout: float) -> "Model":
    """The model, whose client never retries by itself. Only the library of its provider is loaded."""
    name = access.model.partition(":")[2]
    given: dict[str, Any] = {"api_key": access.token or _NO_KEY, "max_retries": 0, "timeout": timeout}
    # A redirect would take the prompt, and the key of some providers, to a host that the settings do not name.
    direct = {"follow_redirects": False, "timeout": timeout}
    if access.url:
        given["base_url"] = access.url
    library = _provider_library(access.kind)
    client = library.client(**given, http_client=library.http_client(**direct))
    return library.model(name, client)


class _ProviderLibrary(NamedTuple):
    """The library of one kind of provider: its clients, and the model on a client."""

    client: Any
    http_client: Any
    model: Callable[[str, Any], "Model"]


def _provider_library(kind: str) -> _ProviderLibrary:
    if kind == "anthropic":
        import anthropic
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        def claude(name: str, client: Any) -> "Model":  # noqa: ANN401 - of the library
            return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))

        return _ProviderLibrary(anthropic.AsyncAnthropic, anthropic.DefaultAsyncHttpxClient, claude)
    import openai
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def chat(name: str, client: Any) -> "Model":  # noqa: ANN401 - of the library
        return OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))

    return _ProviderLibrary(openai.AsyncOpenAI, openai.DefaultAsyncHttpxClient, chat)


if __name__ == "__main__":
    main()
