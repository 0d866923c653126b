"""The rules about the settings of the policy kernel that their types do not express."""

from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from gnomon.config.sections import ExecutionSettings, TaskPolicySettings
from gnomon.core.served_hosts import is_loopback
from gnomon.errors import FieldError

_FORM = "must be grpc://HOST:PORT, grpcs://HOST:PORT, or an http or https URL, without credentials"


class KernelAddress(Struct, frozen=True):
    """The address of a policy kernel."""

    #: `grpc` or `http`.
    transport: str
    tls: bool
    #: `HOST:PORT` for gRPC, the URL for HTTP.
    target: str


def check_kernel(policy: TaskPolicySettings, execution: ExecutionSettings) -> None:
    """Raise FieldError for an address that is none, or that must not be used without TLS."""
    if policy.kernel_tls_required and policy.kernel_insecure:
        raise FieldError("policy.kernel_insecure", policy.kernel_insecure, "contradicts policy.kernel_tls_required")
    if not policy.kernel:
        return
    if policy.kernel_timeout_ms > execution.gate_timeout_ms:
        reason = f"must be at most execution.gate_timeout ({execution.gate_timeout_ms} ms)"
        raise FieldError("policy.kernel_timeout_ms", policy.kernel_timeout_ms, reason)
    if kernel_address(policy.kernel).tls:
        return
    if policy.kernel_tls_required:
        raise FieldError("policy.kernel", policy.kernel, "has no TLS, which policy.kernel_tls_required demands")
    if policy.kernel_tls_ca:
        raise FieldError("policy.kernel_tls_ca", policy.kernel_tls_ca, "means nothing: policy.kernel has no TLS")
    if policy.kernel_token and not is_loopback(_split(policy.kernel).hostname or ""):
        reason = "would be sent over the network without TLS: use grpcs:// or https:// in policy.kernel"
        raise FieldError("policy.kernel_token", "[hidden]", reason)
    if not policy.kernel_insecure and not is_loopback(_split(policy.kernel).hostname or ""):
        reason = "would send inputs over the network without TLS: use grpcs:// or https://, or policy.kernel_insecure"
        raise FieldError("policy.kernel", policy.kernel, reason)


def kernel_address(url: str) -> KernelAddress:
    """The address in a URL; FieldError if it is none."""
    parts = _split(url)
    if not parts.hostname or parts.username is not None or parts.password is not None or parts.fragment:
        raise FieldError("policy.kernel", url, _FORM)
    if parts.scheme in ("grpc", "grpcs"):
        if not parts.port or parts.path not in ("", "/") or parts.query:
            raise FieldError("policy.kernel", url, _FORM)
        return KernelAddress("grpc", parts.scheme == "grpcs", parts.netloc)
    if parts.scheme in ("http", "https"):
        target = url if parts.path not in ("", "/") else f"{url.rstrip('/')}/v1/check"
        return KernelAddress("http", parts.scheme == "https", target)
    raise FieldError("policy.kernel", url, _FORM)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError for a port that is none
    except ValueError:
        raise FieldError("policy.kernel", url, _FORM) from None
    return parts
