"""The tenants whose jobs may have commands: a command acts with all rights of the worker's user."""

from collections.abc import Collection

from gnomon.core.runs.workflow import Workflow
from gnomon.errors import FieldError

#: Stands for every tenant in a list of tenants.
ALL_TENANTS = "*"


def may_run_commands(tenants: Collection[str], tenant: str) -> bool:
    """Whether a list of tenants, as in `shell.tenants`, lets that tenant run commands."""
    return tenant in tenants or ALL_TENANTS in tenants


def check_commands(workflow: Workflow, tenants: Collection[str], tenant: str) -> None:
    """Raise FieldError if a step of the workflow runs a command that its tenant may not run."""
    if may_run_commands(tenants, tenant):
        return
    for step in workflow.all_steps:
        if step.is_command:
            raise FieldError("command", step.command, f"is refused: tenant {tenant} may not run commands")
