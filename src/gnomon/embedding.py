"""Gnomon inside a Python program."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnomon.runners.registry import FUNCTIONS

if TYPE_CHECKING:
    from gnomon.ports.events import Events
    from gnomon.serving import Running, Serving


def run(
    *,
    database: str | None = None,
    jobs: str | Path | Sequence[str | Path] = (),
    imports: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
) -> None:
    """Schedule and execute in this process until it is told to stop by SIGTERM or SIGINT.

    `database` is a path or a URL (`./gnomon.db` if not given), `jobs` a jobs file or several, `settings` are named
    `section.key`. If another process has the database already, this one stands by and takes over when that one ends.
    It is the end of the program for the process of an isolated function, which reads it to find the function.
    """
    FUNCTIONS.stop_loading()
    import asyncio
    import sys

    from gnomon.adapters.console import ConsoleEvents
    from gnomon.serving import quick_switches, serve, stop_on_signals

    def told(name: str) -> None:
        sys.stderr.write(f"{name}: stopping; once more to stop at once\n")

    async def main() -> None:
        stop = asyncio.Event()
        stop_on_signals(stop, told)
        await serve(_plan(database, jobs, imports, settings, ConsoleEvents(sys.stderr)), stop)

    quick_switches()
    asyncio.run(main())


def start(
    *,
    database: str | None = None,
    jobs: str | Path | Sequence[str | Path] = (),
    imports: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
) -> "Running":
    """The same on a thread of its own, for a program that has something else to do: a web server, a notebook.

    Call it in each worker process of a web server: one of them schedules, the others stand by. As with `run`, the
    process of an isolated function reads the program no further.
    """
    FUNCTIONS.stop_loading()
    from gnomon.serving import Running

    return Running(_plan(database, jobs, imports, settings, None))


def _plan(
    database: str | None,
    jobs: str | Path | Sequence[str | Path],
    imports: Sequence[str],
    settings: Mapping[str, object] | None,
    events: "Events | None",
) -> "Serving":
    from gnomon.app import database_url
    from gnomon.serving import Serving
    from gnomon.settings import load

    flags = dict(settings or {})
    if database is not None:
        flags["database.url"] = database_url(database)
    loaded = load(flags=flags, environment=os.environ)
    files = tuple(map(Path, [jobs] if isinstance(jobs, str | Path) else jobs))
    return Serving(settings=loaded, jobs_files=files, imports=imports, events=events)
