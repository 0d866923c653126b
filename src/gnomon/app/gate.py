"""The one place that decides which gate a process has, and by which rules commands are checked."""

from pathlib import Path

from gnomon.adapters.host import RandomIds
from gnomon.app.runner import workspace_folder
from gnomon.config.settings import Settings
from gnomon.core.commands.rules import CommandRules
from gnomon.ports.execution import Gate
from gnomon.ports.runtime import Clock
from gnomon.ports.store import ExecutionStore, Store
from gnomon.services.execution.command_gate import CommandGate
from gnomon.services.loop import ComputeQueue
from gnomon.services.operations.command_policy import CommandPolicyService
from gnomon.services.operations.model_actions import ModelActions


def build_gate(settings: Settings, store: ExecutionStore, clock: Clock) -> Gate:
    """The gate that the settings ask for."""
    return CommandGate(command_rules(settings), store.tasks, store.approvals, clock)


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


def build_model_actions(settings: Settings, store: Store, clock: Clock) -> ModelActions:
    """The budget of the changes that models make."""
    return ModelActions(command_rules(settings), store.actions, clock, RandomIds())


def command_rules(settings: Settings) -> CommandRules:
    """The rules by which this process checks commands."""
    return CommandRules(settings.security, workspace=workspace_folder(settings), home=str(Path.home()))
