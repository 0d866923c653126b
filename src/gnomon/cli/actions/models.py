"""`gnomon mcp`: the verbs of the scheduler as tools of a model."""

import signal
import sys

from gnomon.app.extras import check_extra
from gnomon.app.gateway import Gateway
from gnomon.cli.target import Target, with_gateway
from gnomon.core.jobs.fields import schedule_name
from gnomon.core.jobs.origins import OriginKind
from gnomon.core.model_names import model_name


def _print_error(error: BaseException) -> None:
    """Print what went wrong to standard error: the output belongs to the protocol."""
    sys.stderr.write(f"error: {error!r}\n")


def serve_model(target: Target, *, allow_changes: bool, model: str | None, tenant: str | None) -> None:
    """Serve the program that started this process until it closes the standard input."""
    check_extra("the MCP server", "mcp", "mcp")
    if model is not None:
        model_name("--model", model)
    if tenant is not None:
        schedule_name("--tenant", tenant)
    from gnomon.app.mcp_server import ModelAccess, mcp_server
    from gnomon.app.mcp_stdio import serve_stdio

    async def serve(gateway: Gateway) -> None:
        # The thread that reads the standard input cannot be interrupted; nothing is lost when the process is.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        access = ModelAccess(gateway.send, allow_changes, model)
        await serve_stdio(mcp_server(lambda _: access, on_unexpected_error=_print_error))

    with_gateway(target, serve, tenant=tenant, origin=OriginKind.MCP)
