"""`gnomon up`: everything in one process."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnomon.app import Node, console_events, hidden_password, read_settings
from gnomon.serving import Serving, quick_switches, serve, stop_on_signals
from gnomon.version import __version__


def up(
    *, flags: Mapping[str, object], config: Path | None, jobs: Sequence[Path], imports: Sequence[str], quiet: bool
) -> None:
    """Schedule and execute until told to stop."""
    settings = read_settings(config, flags=flags, environment=os.environ)
    files = tuple(jobs) or ((Path(settings.jobs_file),) if settings.jobs_file else ())
    events = None if quiet else console_events(sys.stdout)
    plan = Serving(settings=settings, jobs_files=files, imports=tuple(imports), events=events)
    quick_switches()
    asyncio.run(_up(plan))


async def _up(plan: Serving) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop, _stopping)

    def ready(node: Node) -> None:
        where = hidden_password(node.settings.database.url)
        _say(f"gnomon {__version__} on {where} with {len(plan.functions)} functions; Ctrl-C stops")

    await serve(plan, stop, ready=ready)
    _say("stopped")


def _stopping(name: str) -> None:
    _say(f"{name}: what runs may finish; once more to stop at once")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
