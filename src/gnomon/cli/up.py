"""`gnomon up`: everything in one process."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnomon.app import Node, console_events, hidden_password, read_settings
from gnomon.cli.output import let_go_of_broken_output
from gnomon.ports.events import Events
from gnomon.serving import Serving, quick_switches, serve, stop_on_signals
from gnomon.version import __version__


def up(
    *, flags: Mapping[str, object], config: Path | None, jobs: Sequence[Path], imports: Sequence[str], quiet: bool
) -> None:
    """Schedule and execute until told to stop."""
    settings = read_settings(config, flags=flags, environment=os.environ)
    files = tuple(jobs) or ((Path(settings.jobs_file),) if settings.jobs_file else ())
    lines = console_events(sys.stdout)
    events = None if quiet else lines
    plan = Serving(settings=settings, jobs_files=files, imports=tuple(imports), events=events, strict=True)
    quick_switches()
    asyncio.run(_up(plan, lines))
    let_go_of_broken_output()


async def _up(plan: Serving, lines: Events) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop, lambda name: lines.emit("stop_asked", signal=name))

    def ready(node: Node) -> None:
        where = hidden_password(node.settings.database.url)
        lines.emit("up", version=__version__, database=where, functions=len(plan.functions))

    await serve(plan, stop, ready=ready)
    lines.emit("stopped")
