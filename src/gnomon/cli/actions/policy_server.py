"""`gnomon policy serve`: a policy kernel."""

import asyncio
import sys

from gnomon.app.observability import console_events
from gnomon.app.policy_server import PolicyServerOptions, serve_policy
from gnomon.app.server import stop_on_signals
from gnomon.cli.output import flush_or_discard_output
from gnomon.ports.runtime import Events


def serve(options: PolicyServerOptions) -> None:
    """Answer questions until a signal stops the process."""
    asyncio.run(_serve(options, console_events(sys.stdout)))
    flush_or_discard_output()


async def _serve(options: PolicyServerOptions, lines: Events) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop, lambda name: lines.emit("policy_stopping", signal=name))

    def ready(transport: str, port: int) -> None:
        lines.emit("policy_serving", transport=transport, port=port, file=str(options.file))

    await serve_policy(options, lines, stop, ready=ready)
    lines.emit("stopped")
