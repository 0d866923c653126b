"""The policy kernels that a scheduler asks: their clients, and what rules on tasks and outputs by their answers."""

import ssl
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.adapters.files import read_text
from gnomon.adapters.kernel.bearer_token import BearerToken
from gnomon.adapters.kernel.grpc_client import GrpcKernel, GrpcOutputKernel
from gnomon.adapters.kernel.http_client import HttpKernel, HttpOutputKernel
from gnomon.app.extras import check_extra
from gnomon.config.kernel_rules import kernel_address
from gnomon.config.sections import TaskPolicySettings
from gnomon.config.settings import Settings
from gnomon.core.breakers import BreakerLimits
from gnomon.core.named_breakers import BreakerKey
from gnomon.core.policy.document import FailMode
from gnomon.errors import FileError
from gnomon.ports.output_policy import OutputJudge, OutputKernel
from gnomon.ports.policy import PolicyKernel
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import Store
from gnomon.services.execution.kernel_policy import KernelLimits, KernelPolicy
from gnomon.services.execution.local_budgets import LocalBudgets
from gnomon.services.execution.shared_breaker import SharedBreaker
from gnomon.services.execution.stored_policy import StoredPolicy

if TYPE_CHECKING:
    from gnomon.services.execution.output_check import StoredOutputPolicy

#: The breaker around the kernel, which all processes share. As the policy, it belongs to the operator's tenant; no job
#: can name it, because names of jobs have no colon.
KERNEL_BREAKER = BreakerKey("default", "policy:kernel")


def connect_kernel(settings: TaskPolicySettings) -> PolicyKernel:
    """The client of the kernel that the settings name; UsageError without its package, certificates or token."""
    address = kernel_address(settings.kernel)
    ca = None if not settings.kernel_tls_ca else _certificates(Path(settings.kernel_tls_ca))
    token = BearerToken("policy.kernel_token", settings.kernel_token) if settings.kernel_token else None
    if address.transport == "grpc":
        check_extra("policy.kernel", "grpc", "grpc")
        return GrpcKernel(address.target, timeout_ms=settings.kernel_timeout_ms, tls=address.tls, ca=ca, token=token)
    return HttpKernel(
        address.target, timeout_ms=settings.kernel_timeout_ms, parallel=settings.kernel_parallel, ca=ca, token=token
    )


#: The breaker around the service that judges outputs: the second one.
OUTPUT_KERNEL_BREAKER = BreakerKey("default", "policy:output")


def connect_output_kernel(settings: Settings) -> OutputKernel:
    """The client of the service that judges outputs; UsageError without its package, certificates or token."""
    own, policy = settings.output_policy, settings.policy
    address = kernel_address(own.kernel, field="output_policy.kernel")
    ca = None if not policy.kernel_tls_ca else _certificates(Path(policy.kernel_tls_ca))
    token = BearerToken("output_policy.kernel_token", own.kernel_token) if own.kernel_token else None
    if address.transport == "grpc":
        check_extra("output_policy.kernel", "grpc", "grpc")
        return GrpcOutputKernel(address.target, timeout_ms=own.kernel_timeout_ms, tls=address.tls, ca=ca, token=token)
    return HttpOutputKernel(
        address.target, timeout_ms=own.kernel_timeout_ms, parallel=policy.kernel_parallel, ca=ca, token=token
    )


def build_output_judge(
    settings: Settings, store: Store, clock: Clock, events: Events, own: "StoredOutputPolicy", kernel: OutputKernel
) -> OutputJudge:
    """The judge that asks the service about outputs that the own rules let pass."""
    from gnomon.services.execution.output_judge import RemoteOutputJudge

    breaker = SharedBreaker(store.breakers, OUTPUT_KERNEL_BREAKER, _breaker_limits(settings.policy), clock, events)
    return RemoteOutputJudge(own, kernel, breaker, parallel=settings.policy.kernel_parallel)


def _certificates(file: Path) -> bytes:
    """The certificates in a file; FileError if there are none."""
    text = read_text(file)
    try:
        ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError):
        raise FileError(file, "has no certificates in PEM") from None
    return text.encode()


def build_kernel_policy(
    settings: TaskPolicySettings,
    store: Store,
    clock: Clock,
    events: Events,
    stored: StoredPolicy,
    kernel: PolicyKernel,
) -> KernelPolicy:
    """The policy that asks the kernel.

    The budgets of `stored` count beside it, and it says what happens while the kernel cannot be asked, unless the
    settings do.
    """
    return KernelPolicy(
        kernel,
        SharedBreaker(store.breakers, KERNEL_BREAKER, _breaker_limits(settings), clock, events),
        clock,
        events,
        KernelLimits(
            parallel=settings.kernel_parallel,
            cache_ms=settings.kernel_cache_ms,
            retry_ms=settings.kernel_retry_ms,
            throttle_ms=settings.throttle_ms,
        ),
        fails_open=partial(_fails_open, settings.fail_mode, stored),
        budgets=LocalBudgets(stored, clock),
    )


def _breaker_limits(settings: TaskPolicySettings) -> BreakerLimits:
    return BreakerLimits(
        failures=settings.kernel_failures,
        open_ms=settings.kernel_open_ms,
        probes=settings.kernel_probes,
        successes=settings.kernel_successes,
    )


def _fails_open(said: str, stored: StoredPolicy) -> bool:
    if not said and stored.current is not None:
        said = stored.current.document.fail_mode
    return said == FailMode.OPEN
