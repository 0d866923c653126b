"""Starts the agents of one worker."""

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from msgspec import Raw
from msgspec.structs import replace

from gnomon.config.agents import AgentSettings, ToolServerSettings, agent_catalog
from gnomon.core.agents.catalog import check_servers, price_refusal
from gnomon.core.agents.frequency import frequency_warning
from gnomon.core.agents.rules import AgentLimits, models_of, prefixed_prompt
from gnomon.core.agents.spec import (
    FUNCTION_PREFIX,
    ISOLATED,
    SERVER_PREFIX,
    VERB_PREFIX,
    AgentSpec,
    ToolName,
    server_tool,
)
from gnomon.core.policy.budgets import COST_MICROS
from gnomon.core.runs.expressions import SECRET
from gnomon.core.runs.secret_text import shown_data
from gnomon.core.runs.workflow import AGENT
from gnomon.errors import FieldError, UsageError
from gnomon.ports.http import HttpSender
from gnomon.runners.agents.agent_process import AgentProcess, process_variables
from gnomon.runners.agents.agent_starter import AgentStarter
from gnomon.runners.agents.function_tools import FunctionTools
from gnomon.runners.agents.messages import AgentRequest, ModelEndpoint, ToolDescription
from gnomon.runners.agents.tool_servers import ProgramSlots, ToolServers
from gnomon.runners.agents.tools import NO_SCHEDULER, AgentTools, SchedulerVerbs, tool_description
from gnomon.runners.attempt_table import RunnerEnvironment, RunningAttempt
from gnomon.runners.child_process import attempt_variables
from gnomon.runners.open_files import inherited_open_files_limit
from gnomon.runners.process_memory import memory_reads_forbidden
from gnomon.runners.progress import ProgressReporter
from gnomon.runners.registry import Function
from gnomon.runners.secrets import redactor
from gnomon.runners.shell import ShellExecutor

#: The package of the extra `agents`. Only the process of an agent imports it.
_PACKAGE = "pydantic_ai"
_FILE = "file:"


def _never_called() -> None:
    """Placeholder for the callable of AGENT_CALL: processes run agents."""


AGENT_CALL = Function(AGENT, _never_called)


def agents_are_installed() -> bool:
    """Whether the extra `agents` is installed."""
    return find_spec(_PACKAGE) is not None


class AgentEnvironment(NamedTuple):
    """The settings and the collaborators of the agents of a worker."""

    settings: AgentSettings
    #: Sends the requests of tools; None: no tool may send any.
    http: HttpSender | None
    #: Reads the secrets that the settings name.
    read_secret: Callable[[str], str]
    #: The verbs of the scheduler; None on a worker without a database.
    verbs: SchedulerVerbs | None = None
    #: Sends the requests to servers with tools, which the settings name.
    server_http: HttpSender | None = None


class PreparedAgent(NamedTuple):
    """The task of the process of an attempt, and the servers that it uses, with their secrets."""

    request: AgentRequest
    servers: Mapping[str, ToolServerSettings]


class AgentRunner:
    """Starts the agents of one worker, each in a process of its own."""

    def __init__(
        self,
        environment: RunnerEnvironment,
        agents: AgentEnvironment,
        commands: ShellExecutor,
        functions: FunctionTools,
        progress: ProgressReporter | None = None,
    ) -> None:
        """`progress` is told what the agents spend."""
        self._environment, self._progress = environment, progress
        self._settings, self._http, self._read_secret, self._verbs, self._server_http = agents
        self._commands, self._functions = commands, functions
        self._starter = AgentStarter(process_variables())
        self._program_slots = ProgramSlots(self._settings.max_server_programs)

    def prepared(self, attempt: RunningAttempt) -> PreparedAgent:
        """The task of the process of an attempt; UsageError if this worker has not what the agent needs."""
        spec, run, limits = _spec_of(attempt), attempt.assignment.run, _limits_of(attempt)
        catalog = agent_catalog(self._settings)
        check_servers("agent", spec, catalog)
        if reason := price_refusal(spec, catalog, by_policy=COST_MICROS in limits.meters):
            raise UsageError(reason)
        models = tuple(map(self._access, models_of(spec, self._settings.model)))
        keys = {f"agents.providers.{one.model.partition(':')[0]}.token": one.token for one in models if one.token}
        servers = self._servers_of(spec)
        attempt.log.redact_with(redactor(keys | self._server_secrets(servers)))
        if spec.gap_ms is not None:
            attempt.log.add("warning", frequency_warning(spec.gap_ms))
        prompt = shown_data(attempt.assignment.input.get("prompt", ""))
        request = AgentRequest(
            search_path=sys.path,
            prompt=prefixed_prompt(run.schedule_uid or run.workflow_id, attempt.job, prompt),
            instructions=spec.instructions,
            models=models,
            tools=tuple(self._described(tool) for tool in spec.tools if not tool.startswith(SERVER_PREFIX)),
            output_schema=spec.output_schema,
            history=Raw(attempt.assignment.history or b"[]"),
            request_timeout_ms=self._settings.request_timeout_ms,
            forbid_memory_reads=memory_reads_forbidden(),
            open_files=inherited_open_files_limit(),
        )
        return PreparedAgent(request, servers)

    def close(self) -> None:
        """End the process that starts agents. Called on the thread that starts them."""
        self._starter.close()

    async def started(self, attempt: RunningAttempt, prepared: PreparedAgent) -> AgentProcess:
        """Start the process. It ends with the thread that calls this."""
        spec, step = _spec_of(attempt), attempt.assignment.step
        servers = ToolServers(
            spec,
            attempt,
            prepared.servers,
            self._commands,
            self._server_http,
            self._program_slots,
            start_seconds=self._settings.request_timeout_ms / 1000,
        )
        tools = AgentTools(spec, attempt, self._commands, self._http, self._verbs, self._functions, servers)
        kinds = sorted({model.kind for model in prepared.request.models})
        forked = await self._starter.start(kinds, attempt_variables(attempt.facts()))
        return AgentProcess(
            prepared.request,
            attempt,
            tools,
            limits=_limits_of(attempt),
            prices=self._settings.prices,
            has_session=spec.session != ISOLATED,
            may_be_repeated=step.retry is not None,
            max_output_bytes=self._environment.max_output_bytes,
            progress=self._progress,
            forked=forked,
        )

    def _described(self, tool: str) -> ToolDescription:
        """The tool as the model sees it; UsageError if this worker cannot offer it."""
        if tool.startswith(VERB_PREFIX) and self._verbs is None:
            raise FieldError("agent.tools", tool, NO_SCHEDULER)
        if tool == ToolName.SHELL:
            self._commands.refuse_tool()
        return self._functions.description(tool) if tool.startswith(FUNCTION_PREFIX) else tool_description(tool)

    def _servers_of(self, spec: AgentSpec) -> dict[str, ToolServerSettings]:
        """The servers of the agent, with their secrets instead of the names of them."""
        names = {server_tool(tool)[0] for tool in spec.tools if tool.startswith(SERVER_PREFIX)}
        return {name: self._with_secrets(name, self._settings.servers[name]) for name in sorted(names)}

    def _with_secrets(self, name: str, server: ToolServerSettings) -> ToolServerSettings:
        field = f"agents.servers.{name}"
        env = {variable: self._key(f"{field}.env.{variable}", value) for variable, value in server.env.items()}
        return replace(server, token=self._key(f"{field}.token", server.token), env=env)

    def _server_secrets(self, servers: Mapping[str, ToolServerSettings]) -> dict[str, str]:
        """The values that must not be shown: tokens, and variables whose values come from files or secrets."""
        found: dict[str, str] = {}
        for name, server in servers.items():
            given = self._settings.servers[name]
            values = {
                f"env.{variable}": value for variable, value in server.env.items() if value != given.env[variable]
            }
            found |= {f"agents.servers.{name}.{key}": value for key, value in values.items() if value}
            if server.token:
                found[f"agents.servers.{name}.token"] = server.token
        return found

    def _access(self, model: str) -> ModelEndpoint:
        if not model:
            raise FieldError("agent.model", model, "is missing, and agents.model of this worker names none")
        name = model.partition(":")[0]
        provider = self._settings.providers.get(name)
        if provider is None:
            raise FieldError(
                "agent.model", model, f"names the provider {name}, which agents.providers of this worker lacks"
            )
        field = f"agents.providers.{name}.token"
        return ModelEndpoint(
            model=model, kind=provider.kind.value, url=provider.url, token=self._key(field, provider.token)
        )

    def _key(self, field: str, token: str) -> str:
        if found := SECRET.fullmatch(token):
            return self._read_secret(found[1])
        if not token.startswith(_FILE):
            return token
        try:
            return Path(token.removeprefix(_FILE)).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise FieldError(field, "[hidden]", f"cannot be read from its file: {reason}") from None


def _limits_of(attempt: RunningAttempt) -> AgentLimits:
    constraints = attempt.assignment.task.constraints
    return AgentLimits(
        budget=_spec_of(attempt).budget,
        day_cost_left=attempt.assignment.day_cost_left,
        meters={} if constraints is None else dict(constraints.spend),
    )


def _spec_of(attempt: RunningAttempt) -> AgentSpec:
    spec = attempt.assignment.step.agent
    if spec is None:
        raise FieldError("agent", None, "is missing")
    return spec
