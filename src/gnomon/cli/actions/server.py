"""`gnomon up`: everything in one process."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnomon.app.node import Node
from gnomon.app.operations import console_events, database_url, hidden_password, read_settings
from gnomon.app.server import Serving, quick_collections, quick_switches, serve, stop_on_signals
from gnomon.cli.output import let_go_of_broken_output
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
    settings = read_settings(config, flags=flags, environment=os.environ)
    files = tuple(jobs) or ((Path(settings.jobs_file),) if settings.jobs_file else ())
    lines = console_events(sys.stdout, quiet=quiet)
    plan = Serving(
        settings=settings,
        jobs_files=files,
        imports=tuple(imports),
        events=lines,
        strict=True,
        api=api,
        executes=executes,
    )
    quick_switches()
    asyncio.run(_up(plan, lines))
    let_go_of_broken_output()


def flags_of(place: str | None, *, port: int | None, slots: int | None = None) -> dict[str, object]:
    """Settings as flags name them."""
    said: dict[str, object] = {"worker.slots": slots, "server.port": port}
    if place is not None:
        said["database.url"] = database_url(place)
    return {name: value for name, value in said.items() if value is not None}


async def _up(plan: Serving, lines: Events) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop, lambda name: lines.emit("stop_asked", signal=name))
    quick_collections()

    def ready(node: Node) -> None:
        where = hidden_password(node.settings.database.url)
        lines.emit("up", version=__version__, database=where, functions=len(plan.functions))

    await serve(plan, stop, ready=ready)
    lines.emit("stopped")
