"""`gnomon worker`: a process that only executes."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnomon.cli.output import let_go_of_broken_output
from gnomon.errors import FieldError
from gnomon.office import console_events, hidden_password, read_settings
from gnomon.ports.events import Events
from gnomon.serving import quick_switches, stop_on_signals
from gnomon.version import __version__
from gnomon.workshop import Shift, Workshop, work


def worker(
    *,
    flags: Mapping[str, object],
    config: Path | None,
    imports: Sequence[str] = (),
    quiet: bool = False,
) -> None:
    """Execute until told to stop. Numbers are shown if the flags say where."""
    settings = read_settings(config, flags=flags, environment=os.environ)
    lines = console_events(sys.stdout)
    shift = Shift(
        settings=settings,
        imports=tuple(imports),
        events=None if quiet else lines,
        metrics="metrics.port" in flags,
    )
    quick_switches()
    asyncio.run(_work(shift, lines))
    let_go_of_broken_output()


def labels_of(words: Sequence[str]) -> dict[str, str]:
    """Labels as they are typed, each as KEY=VALUE."""
    labels: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise FieldError("--label", word, "must be KEY=VALUE")
        if labels.setdefault(key, value) != value:
            raise FieldError("--label", word, f"says {key} a second time")
    return labels


async def _work(shift: Shift, lines: Events) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop, lambda name: lines.emit("stop_asked", signal=name))

    def ready(shop: Workshop) -> None:
        settings = shop.settings
        lines.emit(
            "worker_up",
            version=__version__,
            worker=shop.worker.worker,
            pool=settings.worker.pool,
            database=hidden_password(settings.database.url),
            functions=len(shift.functions),
            slots=settings.worker.slots,
        )

    await work(shift, stop, ready=ready)
    lines.emit("stopped")
