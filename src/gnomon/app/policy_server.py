"""`gnomon policy serve`: a policy kernel that is made of the rules of one policy file."""

import asyncio
import ssl
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from msgspec import Struct

from gnomon.adapters.files import file_digest, read_text
from gnomon.adapters.host import SystemClock
from gnomon.adapters.kernel.bearer_token import BearerToken
from gnomon.adapters.kernel.grpc_server import GrpcKernelServer
from gnomon.adapters.kernel.http_server import HttpKernelServer
from gnomon.adapters.kernel.server_address import ServerAddress, ServerCertificate, read_address
from gnomon.app.extras import check_extra
from gnomon.app.policy import parse_policy_text
from gnomon.core import component_names
from gnomon.core.output_policy.compiled import DEFAULT_OUTPUT_RULES, CompiledOutputPolicy
from gnomon.core.output_policy.kernel import answer_output
from gnomon.core.output_policy.kernel_messages import OutputCheckRequest, OutputCheckResponse
from gnomon.core.policy.compiled import CompiledPolicy
from gnomon.core.policy.kernel import answer_check
from gnomon.core.policy.kernel_messages import PolicyCheckRequest, PolicyCheckResponse
from gnomon.core.served_hosts import is_loopback
from gnomon.errors import FieldError, FileError, UsageError
from gnomon.ports.runtime import Events
from gnomon.services.loop import run_loop

#: How often the file is looked at.
_REFRESH_SECONDS = 1.0
#: The address of gRPC if none is given.
_DEFAULT_GRPC = "127.0.0.1:50051"


class PolicyServerOptions(Struct, frozen=True, kw_only=True):
    """The options of `gnomon policy serve`."""

    file: Path
    #: `HOST:PORT` of each; empty: not served. If both are empty, gRPC is served on this machine.
    grpc: str = ""
    http: str = ""
    #: The certificate and its key; both or none.
    tls_cert: Path | None = None
    tls_key: Path | None = None
    #: The file with the token that callers must send; None: everybody may ask.
    token_file: Path | None = None
    #: Listen without TLS on other addresses than loopback.
    insecure: bool = False
    throttle_ms: int = 5_000


class ServedPolicy:
    """The policy in a file. A file with a mistake leaves the last good one in force."""

    def __init__(self, file: Path, events: Events, *, throttle_ms: int) -> None:
        """FileError if the file has a mistake."""
        self._file, self._events, self._throttle_ms = file, events, throttle_ms
        self._clock = SystemClock()
        self._digest = file_digest(file)
        self._policy, self._snapshot = self._read()

    def _read(self) -> tuple[CompiledPolicy, str]:
        text = read_text(self._file)
        document = parse_policy_text(text, name=str(self._file))
        rules = DEFAULT_OUTPUT_RULES if document.output_rules is None else document.output_rules
        self._outputs = CompiledOutputPolicy(rules, 0)
        return CompiledPolicy(document, 0, throttle_ms=self._throttle_ms), sha256(text.encode()).hexdigest()

    @property
    def snapshot(self) -> str:
        """The SHA-256 of the file in force."""
        return self._snapshot

    def answer(self, check: PolicyCheckRequest) -> PolicyCheckResponse:
        """The answer to a question."""
        return answer_check(self._policy, self._snapshot, check, now=self._clock.now())

    def answer_output(self, check: OutputCheckRequest) -> OutputCheckResponse:
        """The answer to a question about an output."""
        return answer_output(self._outputs, self._snapshot, check)

    async def step(self) -> float:
        """Look at the file; return how many seconds to wait until the next look."""
        digest = file_digest(self._file)
        if digest != self._digest:
            self._digest = digest
            try:
                self._policy, self._snapshot = self._read()
            except FileError as error:
                self._events.emit("policy_file_refused", error=str(error))
            else:
                self._events.emit("policy_file_read", file=str(self._file))
        return _REFRESH_SECONDS


async def serve_policy(
    options: PolicyServerOptions, events: Events, stop: asyncio.Event, *, ready: Callable[[str, int], None]
) -> None:
    """Answer questions until `stop` is set. `ready` is called with each transport and its port."""
    addresses = _addresses(options)
    certificate = _certificate(options)
    token = None if options.token_file is None else BearerToken("--token-file", f"file:{options.token_file}")
    policy = ServedPolicy(options.file, events, throttle_ms=options.throttle_ms)
    servers: list[GrpcKernelServer | HttpKernelServer] = []
    try:
        for transport, address in addresses.items():
            made = GrpcKernelServer if transport == "grpc" else HttpKernelServer
            server = made(policy.answer, certificate, token, answer_output=policy.answer_output)
            servers.append(server)
            ready(transport, await server.listen(address))
        await run_loop(component_names.POLICY, policy.step, stop=stop, events=events)
    finally:
        await asyncio.gather(*(server.close() for server in servers))


def _addresses(options: PolicyServerOptions) -> dict[str, ServerAddress]:
    said = {"grpc": options.grpc, "http": options.http}
    if not any(said.values()):
        said["grpc"] = _DEFAULT_GRPC
    found = {name: read_address(f"--{name}", text) for name, text in said.items() if text}
    for name, address in found.items():
        if options.tls_cert is None and not options.insecure and not is_loopback(address.host):
            reason = "would take inputs without TLS from other machines: give --tls-cert and --tls-key, or --insecure"
            raise FieldError(f"--{name}", str(address), reason)
    if "grpc" in found:
        check_extra("--grpc", "grpc", "grpc")
    return found


def _certificate(options: PolicyServerOptions) -> ServerCertificate | None:
    cert, key = options.tls_cert, options.tls_key
    if (cert is None) != (key is None):
        raise UsageError("--tls-cert and --tls-key belong together: give both")
    if cert is None or key is None:
        return None
    chain, secret = read_text(cert), read_text(key)
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except (ssl.SSLError, ValueError, OSError):
        raise FileError(cert, f"is no certificate in PEM to which the key {key} belongs") from None
    return ServerCertificate(chain.encode(), secret.encode(), str(cert), str(key))
