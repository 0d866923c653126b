"""The API on a real socket, on a thread of its own."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gnomon.api.server import address_of, listen, serve_api
from gnomon.sections import Server
from support.faces import Face


@contextmanager
def served(face: Face) -> Iterator[str]:
    """The address at which it answers."""
    listening = listen(Server(port=0))
    address = address_of(listening, face.desk.server)
    began = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        began.set()
        await serve_api(face.desk, listening, stop, surprised=face.surprises.append)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    began.wait()
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
