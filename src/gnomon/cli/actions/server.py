"""`gnomon up` and `gnomon server`: scheduler and HTTP API, with or without a worker in the process."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gnomon.app.node import Node
from gnomon.app.observability import console_events
from gnomon.app.server import (
    ServerOptions,
    protect_process,
    raise_limits,
    serve,
    stop_on_signals,
    tune_gc,
    tune_thread_switching,
)
from gnomon.app.settings import database_url, load_settings, redact_password
from gnomon.cli.output import flush_or_discard_output
from gnomon.ports.runtime import Events
from gnomon.version import __version__


class ServerMode(NamedTuple):
    """The parts of a scheduler process, as the flags choose them."""

    api: bool = True
    executes: bool = True
    prune: bool = False


def up(
    *,
    flags: Mapping[str, object],
    config: Path | None,
    jobs: Sequence[Path],
    imports: Sequence[str] = (),
    quiet: bool = False,
    mode: ServerMode,
) -> None:
    """Run the scheduler, and a worker if it executes, until a signal stops the process."""
    settings = load_settings(config, flags=flags, environment=os.environ)
    files = tuple(jobs) or ((Path(settings.jobs_file),) if settings.jobs_file else ())
    lines = console_events(sys.stdout, quiet=quiet)
    options = ServerOptions(
        settings=settings,
        jobs_files=files,
        imports=(tuple(imports) or settings.imports) if mode.executes else (),
        events=lines,
        strict=True,
        api=mode.api,
        executes=mode.executes,
        prune=mode.prune,
    )
    protect_process()
    tune_thread_switching()
    raise_limits()
    asyncio.run(_serve(options, lines))
    flush_or_discard_output()


def settings_flags(place: str | None, *, port: int | None, slots: int | None = None) -> dict[str, object]:
    """The settings that the flags set, by name."""
    given: dict[str, object] = {"worker.slots": slots, "server.port": port}
    if place is not None:
        given["database.url"] = database_url(place)
    return {name: value for name, value in given.items() if value is not None}


async def _serve(options: ServerOptions, lines: Events) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop, lambda name: lines.emit("stop_asked", signal=name))
    tune_gc()

    def ready(node: Node) -> None:
        target = redact_password(node.settings.database.url)
        lines.emit("up", version=__version__, database=target, functions=len(options.functions))

    await serve(options, stop, ready=ready)
    lines.emit("stopped")
