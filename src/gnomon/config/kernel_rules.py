"""The rules about the settings of the policy kernel that their types do not express."""

from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from gnomon.config.sections import ExecutionSettings, OutputPolicySettings, TaskPolicySettings
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


def check_kernel(policy: TaskPolicySettings, execution: ExecutionSettings, outputs: OutputPolicySettings) -> None:
    """Raise FieldError for an address that is none, or that must not be used without TLS."""
    if policy.kernel_tls_required and policy.kernel_insecure:
        raise FieldError("policy.kernel_insecure", policy.kernel_insecure, "contradicts policy.kernel_tls_required")
    if policy.kernel and policy.kernel_timeout_ms > execution.gate_timeout_ms:
        reason = f"must be at most execution.gate_timeout ({execution.gate_timeout_ms} ms)"
        raise FieldError("policy.kernel_timeout_ms", policy.kernel_timeout_ms, reason)
    said = {"policy.kernel": policy.kernel, "output_policy.kernel": outputs.kernel}
    tokens = {"policy.kernel": policy.kernel_token, "output_policy.kernel": outputs.kernel_token}
    without = [field for field, url in said.items() if url and not kernel_address(url, field=field).tls]
    for field in without:
        _check_without_tls(field, said[field], tokens[field], policy)
    if policy.kernel_tls_ca and without and not any(url and field not in without for field, url in said.items()):
        reason = f"means nothing: {' and '.join(without)} has no TLS"
        raise FieldError("policy.kernel_tls_ca", policy.kernel_tls_ca, reason)


def _check_without_tls(field: str, url: str, token: str, policy: TaskPolicySettings) -> None:
    if policy.kernel_tls_required:
        raise FieldError(field, url, "has no TLS, which policy.kernel_tls_required demands")
    if is_loopback(_split(url, field).hostname or ""):
        return
    if token:
        reason = f"would be sent over the network without TLS: use grpcs:// or https:// in {field}"
        raise FieldError(f"{field}_token", "[hidden]", reason)
    if not policy.kernel_insecure:
        data = "inputs" if field == "policy.kernel" else "outputs"
        reason = f"would send {data} over the network without TLS: use grpcs:// or https://, or policy.kernel_insecure"
        raise FieldError(field, url, reason)


def kernel_address(url: str, *, field: str = "policy.kernel") -> KernelAddress:
    """The address in a URL; FieldError if it is none."""
    parts = _split(url, field)
    if not parts.hostname or parts.username is not None or parts.password is not None or parts.fragment:
        raise FieldError(field, url, _FORM)
    if parts.scheme in ("grpc", "grpcs"):
        if not parts.port or parts.path not in ("", "/") or parts.query:
            raise FieldError(field, url, _FORM)
        return KernelAddress("grpc", parts.scheme == "grpcs", parts.netloc)
    if parts.scheme in ("http", "https"):
        path = "/v1/check" if field == "policy.kernel" else "/v1/check-output"
        target = url if parts.path not in ("", "/") else f"{url.rstrip('/')}{path}"
        return KernelAddress("http", parts.scheme == "https", target)
    raise FieldError(field, url, _FORM)


def _split(url: str, field: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError for a port that is none
    except ValueError:
        raise FieldError(field, url, _FORM) from None
    return parts
