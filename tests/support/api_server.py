"""The API on a real socket, on a thread of its own: of a store in memory, or of a whole scheduler."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gnomon.api.server import address_of, listen, serve_api
from gnomon.app.server import BackgroundScheduler, ServerOptions
from gnomon.config.sections import ServerSettings
from gnomon.config.settings import load
from gnomon.runners.registry import Functions
from support.api_fixture import ApiFixture


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
        await serve_api(api_setup.services, listening, stop, surprised=api_setup.unhandled_errors.append)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    began.wait()
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def background_scheduler(database: Path, **settings: object) -> BackgroundScheduler:
    """A scheduler on a file without registered functions, whatever else this process has imported."""
    flags = {"database.url": f"sqlite:///{database}", "server.port": 0, "metrics.enabled": False}
    flags |= {name.replace("__", "."): value for name, value in settings.items()}
    return BackgroundScheduler(ServerOptions(settings=load(flags=flags), functions=Functions(), api=True))
