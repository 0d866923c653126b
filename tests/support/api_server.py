"""The API on a real socket, on a thread of its own: of a store in memory, or of a whole scheduler."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from litestar.handlers import HTTPRouteHandler
from msgspec.structs import replace

from gnomon.adapters.connection_acceptor import ConnectionAcceptor
from gnomon.adapters.host import SystemClock
from gnomon.api.route_runner import RouteRunner
from gnomon.api.server import address_of, listen, no_slot_response, serve_api, tls_context
from gnomon.app.http_api import connection_limits
from gnomon.app.server import BackgroundScheduler, ServerOptions
from gnomon.config.sections import ServerSettings
from gnomon.config.settings import load
from gnomon.runners.open_files import open_files_limit
from gnomon.runners.registry import Functions
from gnomon.services.observed_events import ThrottledEvents
from support.api_fixture import ApiFixture
from support.sqlite_files import new_sqlite_file


async def serve_fixture_on(
    api_setup: ApiFixture,
    listening: socket.socket,
    stop: asyncio.Event,
    *,
    pages: Callable[[RouteRunner], Sequence[HTTPRouteHandler]] = lambda _: (),
) -> None:
    """Serve the API fixture on a listening socket, also under the name `gnomon`, until `stop` is set."""
    settings = api_setup.services.server
    throttled = ThrottledEvents(api_setup.connection_events, SystemClock())
    limits = connection_limits(settings, open_files=open_files_limit())
    acceptor = ConnectionAcceptor([listening], limits, throttled, tls=tls_context(settings), refusal=no_slot_response())
    services = replace(api_setup.services, server=replace(settings, hosts=(*settings.hosts, "gnomon")))
    on_error = api_setup.unhandled_errors.append
    await serve_api(services, acceptor, stop, events=throttled, on_unexpected_error=on_error, pages=pages)


@contextmanager
def serve_api_fixture(api_setup: ApiFixture) -> Iterator[str]:
    """Serve the API fixture on a socket; yield its address."""
    listening = listen(ServerSettings(port=0))
    address = address_of(listening, api_setup.services.server)
    began = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        began.set()
        await serve_fixture_on(api_setup, listening, stop)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    began.wait()
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def background_scheduler(database: Path | str, **settings: object) -> BackgroundScheduler:
    """A scheduler on a file, or at a URL, without registered functions, whatever else this process has imported."""
    if isinstance(database, Path) and not database.exists():
        new_sqlite_file(database)
    url = database if isinstance(database, str) else f"sqlite:///{database}"
    flags = {"database.url": url, "server.port": 0, "metrics.enabled": False}
    flags |= {name.replace("__", "."): value for name, value in settings.items()}
    return BackgroundScheduler(ServerOptions(settings=load(flags=flags), functions=Functions(), api=True))
