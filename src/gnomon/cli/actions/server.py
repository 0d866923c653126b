"""`gnomon up`: everything in one process."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnomon.app.node import Node
from gnomon.app.operations import console_events, database_url, load_settings, redact_password
from gnomon.app.server import ServerOptions, serve, stop_on_signals, tune_gc, tune_thread_switching
from gnomon.cli.output import flush_or_discard_output
from gnomon.ports.runtime import Events
from gnomon.version import __version__


def up(
    *,
    flags: Mapping[str, object],
    config: Path | None,
    jobs: Sequence[Path],
    imports: Sequence[str] = (),
    quiet: bool = False,
    api: bool = True,
    executes: bool = True,
) -> None:
    """Schedule, and execute if asked to, until told to stop."""
    settings = load_settings(config, flags=flags, environment=os.environ)
    files = tuple(jobs) or ((Path(settings.jobs_file),) if settings.jobs_file else ())
    lines = console_events(sys.stdout, quiet=quiet)
    plan = ServerOptions(
        settings=settings,
        jobs_files=files,
        imports=tuple(imports),
        events=lines,
        strict=True,
        api=api,
        executes=executes,
    )
    tune_thread_switching()
    asyncio.run(_serve(plan, lines))
    flush_or_discard_output()


def settings_flags(place: str | None, *, port: int | None, slots: int | None = None) -> dict[str, object]:
    """Settings as flags name them."""
    said: dict[str, object] = {"worker.slots": slots, "server.port": port}
    if place is not None:
        said["database.url"] = database_url(place)
    return {name: value for name, value in said.items() if value is not None}


async def _serve(plan: ServerOptions, lines: Events) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop, lambda name: lines.emit("stop_asked", signal=name))
    tune_gc()

    def ready(node: Node) -> None:
        target = redact_password(node.settings.database.url)
        lines.emit("up", version=__version__, database=target, functions=len(plan.functions))

    await serve(plan, stop, ready=ready)
    lines.emit("stopped")
