"""`gnomon worker`: a process that only executes."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnomon.app.operations import console_events, hidden_password, read_origins
from gnomon.app.remote_worker import Fielding, work_over_nats
from gnomon.app.server import quick_collections, quick_switches, stop_on_signals
from gnomon.app.worker import Shift, Workshop, work
from gnomon.cli.output import let_go_of_broken_output
from gnomon.config.settings import Settings
from gnomon.errors import FieldError, UsageError
from gnomon.ports.runtime import Events
from gnomon.services.remote.remote_worker import FieldWorker
from gnomon.version import __version__


def worker(
    *,
    flags: Mapping[str, object],
    config: Path | None,
    imports: Sequence[str] = (),
    quiet: bool = False,
) -> None:
    """Execute until told to stop. Numbers are shown if the flags say where."""
    settings, origins = read_origins(config, flags=flags, environment=os.environ)
    lines, metrics = console_events(sys.stdout, quiet=quiet), "metrics.port" in flags
    quick_switches()
    if _over_nats(flags, origins):
        if metrics:
            raise FieldError(
                "--metrics-port", flags["metrics.port"], "is for a worker on a database, and this has none"
            )
        plan = Fielding(settings=settings, imports=tuple(imports), events=lines)
        asyncio.run(_field(plan, lines))
    else:
        shift = Shift(settings=settings, imports=tuple(imports), events=lines, metrics=metrics)
        asyncio.run(_work(shift, lines, origins))
    let_go_of_broken_output()


def _over_nats(flags: Mapping[str, object], origins: Mapping[str, str]) -> bool:
    """Whether tasks come over NATS: if a flag says so, or if nobody says where a database is."""
    if "nats.url" in flags and "database.url" in flags:
        raise UsageError("--database and --nats: a worker takes its tasks from one of them; leave one out")
    return "nats.url" in origins and ("nats.url" in flags or "database.url" not in origins)


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


async def _work(shift: Shift, lines: Events, origins: Mapping[str, str]) -> None:
    def ready(shop: Workshop) -> None:
        _say_up(lines, shop.worker.worker, shop.settings, shop.settings.database.url, len(shift.functions))
        if shift.settings.nats.url:
            shop.events.emit("nats_not_used", origin=origins["nats.url"], database=origins["database.url"])

    quick_collections()
    await work(shift, _stopped_by_signals(lines), ready=ready)
    lines.emit("stopped")


async def _field(plan: Fielding, lines: Events) -> None:
    def ready(worker: FieldWorker) -> None:
        _say_up(lines, worker.worker, plan.settings, plan.settings.nats.url, len(plan.functions))

    quick_collections()
    await work_over_nats(plan, _stopped_by_signals(lines), ready=ready)
    lines.emit("stopped")


def _stopped_by_signals(lines: Events) -> asyncio.Event:
    stop = asyncio.Event()
    stop_on_signals(stop, lambda name: lines.emit("stop_asked", signal=name))
    return stop


def _say_up(lines: Events, name: str, settings: Settings, url: str, functions: int) -> None:
    lines.emit(
        "worker_up",
        version=__version__,
        worker=name,
        pool=settings.worker.pool,
        place=hidden_password(url),
        functions=functions,
        slots=settings.worker.slots,
    )
