"""`gnomon worker`: a process that only executes tasks."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gnomon.app.observability import console_events
from gnomon.app.remote_worker import RemoteWorkerOptions, run_remote_worker
from gnomon.app.server import protect_process, raise_limits, stop_on_signals, tune_gc, tune_thread_switching
from gnomon.app.settings import read_settings_with_origins, redact_password
from gnomon.app.worker import WorkerOptions, WorkerProcess, run_worker
from gnomon.cli.output import flush_or_discard_output
from gnomon.config.settings import Settings
from gnomon.errors import FieldError, UsageError
from gnomon.ports.runtime import Events
from gnomon.services.remote.remote_worker import RemoteWorker
from gnomon.version import __version__


def worker(
    *,
    flags: Mapping[str, object],
    config: Path | None,
    imports: Sequence[str] = (),
    quiet: bool = False,
) -> None:
    """Execute tasks until a signal stops the process; serve metrics if a flag names a port."""
    settings, origins = read_settings_with_origins(config, flags=flags, environment=os.environ)
    imports = tuple(imports) or settings.imports
    lines, metrics = console_events(sys.stdout, quiet=quiet), "metrics.port" in flags
    protect_process()
    tune_thread_switching()
    raise_limits()
    if _uses_nats(flags, origins):
        remote = RemoteWorkerOptions(settings=settings, imports=imports, events=lines, metrics=metrics)
        asyncio.run(_run_remote(remote, lines))
    else:
        options = WorkerOptions(settings=settings, imports=imports, events=lines, metrics=metrics)
        asyncio.run(_run_local(options, lines, origins))
    flush_or_discard_output()


def _uses_nats(flags: Mapping[str, object], origins: Mapping[str, str]) -> bool:
    """Whether tasks come over NATS: if a flag names a NATS server, or only NATS and no database is configured."""
    if "nats.url" in flags and "database.url" in flags:
        raise UsageError("--database and --nats: a worker takes its tasks from one of them; use one")
    return "nats.url" in origins and ("nats.url" in flags or "database.url" not in origins)


def parse_labels(words: Sequence[str]) -> dict[str, str]:
    """The labels of the --label options, each KEY=VALUE."""
    labels: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise FieldError("--label", word, "must be KEY=VALUE")
        if labels.setdefault(key, value) != value:
            raise FieldError("--label", word, f"sets {key} a second time")
    return labels


async def _run_local(options: WorkerOptions, lines: Events, origins: Mapping[str, str]) -> None:
    def ready(process: WorkerProcess) -> None:
        _emit_started(
            lines, process.worker.worker, process.settings, process.settings.database.url, len(options.functions)
        )
        if options.settings.nats.url:
            process.events.emit("nats_not_used", origin=origins["nats.url"], database=origins["database.url"])

    tune_gc()
    await run_worker(options, _stopped_by_signals(lines), ready=ready)
    lines.emit("stopped")


async def _run_remote(options: RemoteWorkerOptions, lines: Events) -> None:
    def ready(worker: RemoteWorker) -> None:
        _emit_started(lines, worker.worker, options.settings, options.settings.nats.url, len(options.functions))

    tune_gc()
    await run_remote_worker(options, _stopped_by_signals(lines), ready=ready)
    lines.emit("stopped")


def _stopped_by_signals(lines: Events) -> asyncio.Event:
    stop = asyncio.Event()
    stop_on_signals(stop, lambda name: lines.emit("stop_asked", signal=name))
    return stop


def _emit_started(lines: Events, name: str, settings: Settings, url: str, functions: int) -> None:
    lines.emit(
        "worker_up",
        version=__version__,
        worker=name,
        pool=settings.worker.pool,
        place=redact_password(url),
        functions=functions,
        slots=settings.worker.slots,
    )
