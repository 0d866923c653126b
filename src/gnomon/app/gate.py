"""The one place that decides which gate a process has, and by which rules commands are checked."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.adapters.host import RandomIds
from gnomon.app.policy import parse_policy_text
from gnomon.app.runner import workspace_folder
from gnomon.config.agents import agent_catalog
from gnomon.config.settings import Settings
from gnomon.core.agents.usage import daily_limit_micros
from gnomon.core.commands.rules import CommandRules
from gnomon.core.jobs.origins import OriginKind
from gnomon.core.policy.version import PolicyVersion
from gnomon.ports.execution import Gate
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import ExecutionStore, Store
from gnomon.services.execution.command_gate import AgentGate, CommandGate
from gnomon.services.execution.composed_gate import ComposedGate
from gnomon.services.execution.policy_gate import PolicyGate
from gnomon.services.execution.stored_policy import StoredPolicy
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.command_policy import CommandPolicyService
from gnomon.services.operations.model_actions import ModelActions

if TYPE_CHECKING:
    from gnomon.core.policy.compiled import CompiledPolicy


def build_gate(settings: Settings, store: ExecutionStore, clock: Clock, policy: StoredPolicy | None = None) -> Gate:
    """The gate that the settings ask for; without `policy`, the process admits no tasks."""
    limit = daily_limit_micros(settings.agents.max_cost_per_day)
    rules = command_rules(settings)
    agents = AgentGate(
        store.agent_usages,
        store.agent_sessions,
        store.actions,
        clock,
        limit=limit,
        # Tools of models are guarded, wherever the job comes from.
        action_limit=rules.action_limit(OriginKind.MCP.value),
        # Without providers it is not known which models the workers have.
        catalog=agent_catalog(settings.agents) if settings.agents.providers else None,
    )
    commands = CommandGate(rules, store.tasks, store.approvals, clock, agents)
    return commands if policy is None else ComposedGate(commands, PolicyGate(policy, clock))


def build_stored_policy(settings: Settings, store: Store, events: Events) -> StoredPolicy:
    """The policy in force, as this process follows it."""
    return StoredPolicy(
        store.policies,
        events,
        compile_version=partial(_compile_version, throttle_ms=settings.policy.throttle_ms),
        refresh_seconds=settings.policy.refresh_ms / 1000,
    )


def _compile_version(version: PolicyVersion, *, throttle_ms: int) -> "CompiledPolicy":
    from gnomon.core.policy.compiled import CompiledPolicy

    return CompiledPolicy(parse_policy_text(version.body), version.version, throttle_ms=throttle_ms)


def build_command_policy(
    settings: Settings, store: Store, clock: Clock, *, compute: ComputeQueue | None = None
) -> CommandPolicyService:
    """The checks, approvals and budgets of commands that operators use."""
    return CommandPolicyService(
        command_rules(settings),
        store.approvals,
        store.tasks,
        store.jobs,
        store.schedules,
        clock,
        RandomIds(),
        compute=compute,
    )


def build_model_actions(settings: Settings, store: Store, clock: Clock, *, reserved: bool = False) -> ModelActions:
    """The budget of the changes that models make."""
    return ModelActions(command_rules(settings), store.actions, clock, RandomIds(), reserved=reserved)


def command_rules(settings: Settings) -> CommandRules:
    """The rules by which this process checks commands."""
    return CommandRules(settings.security, workspace=workspace_folder(settings), home=str(Path.home()))
