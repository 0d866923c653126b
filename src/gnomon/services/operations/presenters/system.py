"""Presents the health of the system, its workers and its limits of commands."""

from collections.abc import Sequence

from gnomon.core.health import NodeHealth
from gnomon.core.instants import instant_of
from gnomon.core.responses.system import CallerIdentity, Component, HealthReport, SecurityStatus, WorkerDetail
from gnomon.ports.auth import Caller
from gnomon.ports.tasks import WorkerInfo
from gnomon.services.operations.command_policy import ActionBudget
from gnomon.services.operations.presenters.common import optional_instant
from gnomon.version import __version__


def health_report(report: NodeHealth, *, messages: bool) -> HealthReport:
    """The health of a node. `messages` includes texts that only callers with a role may read."""
    return HealthReport(
        status=report.condition.value,
        version=__version__,
        ready=report.ready,
        alive=report.alive,
        checked_at=instant_of(report.at),
        components=[
            Component(
                component=one.name,
                status=one.condition.value,
                message=one.message if messages else "",
                since_at=instant_of(one.since_at),
            )
            for one in report.components
        ],
    )


def caller_identity(caller: Caller, roles: Sequence[str]) -> CallerIdentity:
    """The caller, with its roles as commands and settings name them."""
    return CallerIdentity(
        subject=caller.subject,
        tenant=caller.tenant,
        roles=list(roles),
        groups=sorted(caller.groups),
        expires_at=optional_instant(caller.expires_at),
    )


def security_status(budget: ActionBudget, *, read_only: bool) -> SecurityStatus:
    """The state of the policy of commands."""
    return SecurityStatus(
        read_only=read_only, actions_per_hour=budget.limit, actions_spent=budget.spent, actions_left=budget.left
    )


def worker_detail(worker: WorkerInfo) -> WorkerDetail:
    """A live worker."""
    return WorkerDetail(
        worker=worker.worker,
        pool=worker.pool,
        slots=worker.slots,
        in_hand=worker.in_hand,
        started_at=instant_of(worker.started_at),
        seen_at=instant_of(worker.seen_at),
        draining=worker.draining,
        cpu=worker.load.cpu,
        gpu=worker.load.gpu,
        labels=dict(worker.labels),
        capabilities=list(worker.capabilities),
        functions=list(worker.functions),
    )
