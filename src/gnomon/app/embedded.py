"""Gnomon inside a Python program."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.errors import UsageError
from gnomon.runners.registry import FUNCTIONS

if TYPE_CHECKING:
    import logging

    from gnomon.app.server import BackgroundScheduler, ServerOptions
    from gnomon.config.settings import Settings
    from gnomon.ports.runtime import Events

#: The logger of a scheduler that runs inside another program.
LOGGER = "gnomon"


def run(
    *,
    database: str | None = None,
    jobs: str | Path | Sequence[str | Path] = (),
    imports: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
    api: bool = False,
    log: "logging.Logger | None" = None,
) -> None:
    """Schedule and execute in this process until SIGTERM or SIGINT.

    `database` is a path or a URL (`./gnomon.db` if not given), `jobs` a jobs file or several, `settings` are named
    `section.key`. With `api` it serves the HTTP API. Events are lines on stderr, or records of the logger `log`. If
    another process has the database already, this one stands by and takes over when that one ends.
    A child process that loads this program to find an isolated function stops loading here.
    """
    FUNCTIONS.stop_loading()
    import asyncio
    import sys

    from gnomon.adapters.event_sinks import ConsoleEvents, LoggerEvents
    from gnomon.app.server import serve, stop_on_signals, tune_thread_switching

    events: Events = ConsoleEvents(sys.stderr) if log is None else LoggerEvents(log)

    def announce(name: str) -> None:
        sys.stderr.write(f"{name}: stopping; once more to stop at once\n")

    async def main() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop, announce)
        await serve(_server_options(database, jobs, imports, settings, events, api=api), stop)

    tune_thread_switching()
    asyncio.run(main())


def start(
    *,
    database: str | None = None,
    jobs: str | Path | Sequence[str | Path] = (),
    imports: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
    api: bool = False,
    log: "logging.Logger | None" = None,
) -> "BackgroundScheduler":
    """Run a scheduler in a thread of its own, beside a web server or in a notebook; see `run` for the arguments.

    Events are records of the logger `log`, which is `gnomon` if not given; nothing is written to stdout or stderr.

    Call it in each worker process of a web server: one of them schedules, the others stand by. As with `run`, a child
    process that loads this program to find an isolated function stops loading here.
    """
    FUNCTIONS.stop_loading()
    import logging

    from gnomon.adapters.event_sinks import LoggerEvents
    from gnomon.app.server import BackgroundScheduler

    events = LoggerEvents(log or logging.getLogger(LOGGER))
    return BackgroundScheduler(_server_options(database, jobs, imports, settings, events, api=api))


def emit(
    name: str, body: object = None, *, key: str | None = None, database: str | None = None, actor: str | None = None
) -> str:
    """Emit an event: every job whose `on` matches it starts. Returns the id of the event.

    Events with the same key are one event, however often it is emitted. `database` is a path or a URL; if not given,
    that of the scheduler in this process, or else the configured one.
    """
    import asyncio

    from gnomon.app.local_user import local_user
    from gnomon.app.operations import Operations
    from gnomon.app.settings import served_settings

    served = served_settings() if database is None else None
    settings = served or _load_settings(database, None)

    async def emitted() -> str:
        async with Operations.open(settings, make=False) as operations:
            return (await operations.events.emit(name, body, actor=actor or local_user(), key=key)).event.event_id

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(emitted())
    raise UsageError("gnomon.emit waits for the database: in a coroutine, await asyncio.to_thread(gnomon.emit, ...)")


def _server_options(
    database: str | None,
    jobs: str | Path | Sequence[str | Path],
    imports: Sequence[str],
    settings: Mapping[str, object] | None,
    events: "Events",
    *,
    api: bool,
) -> "ServerOptions":
    from gnomon.app.server import ServerOptions

    loaded = _load_settings(database, settings)
    files = tuple(map(Path, [jobs] if isinstance(jobs, str | Path) else jobs))
    return ServerOptions(
        settings=loaded, jobs_files=files, imports=tuple(imports) or loaded.imports, events=events, api=api
    )


def _load_settings(database: str | None, settings: Mapping[str, object] | None) -> "Settings":
    from gnomon.app.settings import database_url
    from gnomon.config.settings import load

    flags = dict(settings or {})
    if database is not None:
        flags["database.url"] = database_url(database)
    return load(flags=flags, environment=os.environ)
