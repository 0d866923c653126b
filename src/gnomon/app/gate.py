"""The one place that decides which gate a process has, and by which rules commands are checked."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.adapters.host import RandomIds
from gnomon.adapters.payload_cipher import build_cipher
from gnomon.app.policy import parse_policy_text
from gnomon.app.runner import common_workspaces, workspace_folder
from gnomon.config.agents import agent_catalog
from gnomon.config.settings import Settings
from gnomon.core.agents.catalog import AgentCatalog
from gnomon.core.agents.usage import daily_limit_micros
from gnomon.core.commands.rules import CommandRules
from gnomon.core.jobs.origins import OriginKind
from gnomon.core.policy.shadow import PolicyShadow
from gnomon.core.policy.version import PolicyVersion
from gnomon.ports.execution import Gate
from gnomon.ports.output_policy import OutputJudge, OutputKernel
from gnomon.ports.payloads import PayloadCipher
from gnomon.ports.policy import PolicyKernel, TaskPolicy
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import ExecutionStore, Store
from gnomon.services.execution.command_gate import AgentGate, CommandGate
from gnomon.services.execution.composed_gate import ComposedGate
from gnomon.services.execution.policy_gate import PolicyGate
from gnomon.services.execution.shadow_policy import ShadowedGate, ShadowPolicy
from gnomon.services.execution.stored_policy import StoredPolicy
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.command_policy import CommandPolicyService
from gnomon.services.operations.model_actions import ModelActions

if TYPE_CHECKING:
    from gnomon.core.policy.compiled import CompiledPolicy
    from gnomon.core.policy.step_rules import StepRulesCache
    from gnomon.services.execution.output_check import StoredOutputPolicy


def build_gate(
    settings: Settings,
    store: ExecutionStore,
    clock: Clock,
    policy: TaskPolicy | None = None,
    shadow: ShadowPolicy | None = None,
) -> Gate:
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
    gate = commands if policy is None else ComposedGate(commands, policy, store.approvals)
    return gate if shadow is None else ShadowedGate(gate, shadow)


def build_task_policy(
    settings: Settings, store: Store, clock: Clock, events: Events, stored: StoredPolicy, kernel: PolicyKernel | None
) -> TaskPolicy:
    """The policy that rules on tasks: that of the kernel, if there is one, else the one in the store."""
    if kernel is None:
        return PolicyGate(stored, clock)
    from gnomon.app.kernel import build_kernel_policy

    return build_kernel_policy(settings.policy, store, clock, events, stored, kernel)


def open_kernel(settings: Settings) -> PolicyKernel | None:
    """The policy kernel that the settings name; its connections are opened when it is asked. None: they name none."""
    if not settings.policy.kernel:
        return None
    from gnomon.app.kernel import connect_kernel

    return connect_kernel(settings.policy)


def build_stored_policy(settings: Settings, store: Store, events: Events) -> StoredPolicy:
    """The policy in force, as this process follows it."""
    return StoredPolicy(
        store.policies,
        events,
        compile_version=partial(_compile_version, throttle_ms=settings.policy.throttle_ms),
        refresh_seconds=settings.policy.refresh_ms / 1000,
    )


def build_output_policy(
    settings: Settings, store: Store, clock: Clock, stored: StoredPolicy
) -> "StoredOutputPolicy | None":
    """The policy that checks outputs; None if the settings have none. Its patterns are loaded only then."""
    own = settings.output_policy
    if not own.enabled:
        return None
    from gnomon.services.execution.output_check import StoredOutputPolicy

    return StoredOutputPolicy(
        stored,
        store.output_rulings,
        clock,
        inline_bytes=own.inline_bytes,
        holds_unchecked=own.fail_mode == "closed",
        cipher=held_output_cipher(settings),
        judges_all=bool(own.kernel),
    )


def open_output_kernel(settings: Settings) -> OutputKernel | None:
    """The service that judges outputs; its connections are opened when it is asked. None: the settings name none."""
    if not settings.output_policy.kernel:
        return None
    from gnomon.app.kernel import connect_output_kernel

    return connect_output_kernel(settings)


def build_output_judge(
    settings: Settings,
    store: Store,
    clock: Clock,
    events: Events,
    own: "StoredOutputPolicy | None",
    kernel: OutputKernel | None,
) -> OutputJudge | None:
    """The judge of stored outputs; None if outputs are not checked."""
    if own is None or kernel is None:
        return own
    from gnomon.app import kernel as kernels

    return kernels.build_output_judge(settings, store, clock, events, own, kernel)


def held_output_cipher(settings: Settings) -> PayloadCipher | None:
    """The cipher of outputs that are held back: one of their own if it has keys, else that of all payloads."""
    own = settings.output_policy.keys
    return build_cipher(own, field="output_policy.keys") if own else build_cipher(settings.payload.keys)


def build_shadow_policy(store: Store, clock: Clock, events: Events) -> ShadowPolicy:
    """The shadow of the policy, as this process follows it."""
    return ShadowPolicy(store.policy_shadows, clock, events, compile_shadow=_compile_shadow)


def _compile_shadow(shadow: PolicyShadow) -> "StepRulesCache":
    from gnomon.core.policy.compiled import CompiledPolicy
    from gnomon.core.policy.step_rules import StepRulesCache

    return StepRulesCache(CompiledPolicy(parse_policy_text(shadow.body), 0, throttle_ms=0))


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


def offered_agents(settings: Settings) -> AgentCatalog:
    """The agents that these settings let start, as the check of jobs sees them."""
    limit = command_rules(settings).action_limit(OriginKind.MCP.value)
    return agent_catalog(settings.agents, actions_per_hour=limit)


def build_model_actions(settings: Settings, store: Store, clock: Clock, *, reserved: bool = False) -> ModelActions:
    """The budget of the changes that models make."""
    return ModelActions(command_rules(settings), store.actions, clock, RandomIds(), reserved=reserved)


def command_rules(settings: Settings) -> CommandRules:
    """The rules by which this process checks commands."""
    return CommandRules(
        settings.security,
        workspace=workspace_folder(settings),
        home=str(Path.home()),
        workspaces=common_workspaces(settings),
    )
