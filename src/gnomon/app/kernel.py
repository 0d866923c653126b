"""The policy kernel that a scheduler asks: its client, and the policy that rules on tasks by its answers."""

import ssl
from functools import partial
from pathlib import Path

from gnomon.adapters.files import read_text
from gnomon.adapters.kernel.bearer_token import BearerToken
from gnomon.adapters.kernel.grpc_client import GrpcKernel
from gnomon.adapters.kernel.http_client import HttpKernel
from gnomon.app.extras import check_extra
from gnomon.config.kernel_rules import kernel_address
from gnomon.config.sections import TaskPolicySettings
from gnomon.core.breakers import BreakerLimits
from gnomon.core.named_breakers import BreakerKey
from gnomon.core.policy.document import FailMode
from gnomon.errors import FileError
from gnomon.ports.policy import PolicyKernel
from gnomon.ports.runtime import Clock, Events
from gnomon.ports.store import Store
from gnomon.services.execution.kernel_policy import KernelLimits, KernelPolicy
from gnomon.services.execution.local_budgets import LocalBudgets
from gnomon.services.execution.shared_breaker import SharedBreaker
from gnomon.services.execution.stored_policy import StoredPolicy

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
    limits = BreakerLimits(
        failures=settings.kernel_failures,
        open_ms=settings.kernel_open_ms,
        probes=settings.kernel_probes,
        successes=settings.kernel_successes,
    )
    return KernelPolicy(
        kernel,
        SharedBreaker(store.breakers, KERNEL_BREAKER, limits, clock, events),
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


def _fails_open(said: str, stored: StoredPolicy) -> bool:
    if not said and stored.current is not None:
        said = stored.current.document.fail_mode
    return said == FailMode.OPEN
