"""An event loop on a thread of its own."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import TypeVarTuple

_Arguments = TypeVarTuple("_Arguments")
#: Seconds that tasks left on the loop have to end after their cancellation.
_CANCEL_SECONDS = 0.1
_log = logging.getLogger(__name__)


class LoopThread:
    """Runs callbacks and coroutines until it is closed. A daemon: if it hangs, the program still exits."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._closing:
            try:
                self.loop.run_forever()
            except BaseException:  # noqa: BLE001 - SystemExit in a task that a function made must not end all others
                _log.exception("a task ended the loop; it is started again")
        self.loop.run_until_complete(self._cancel_all())
        self.loop.close()

    async def _cancel_all(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_CANCEL_SECONDS)
        await self.loop.shutdown_asyncgens()

    def call(self, callback: Callable[[*_Arguments], object], *arguments: *_Arguments) -> None:
        """Schedule the callback on the loop; do nothing once the loop is closed."""
        try:
            self.loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            if not self._closing:
                raise

    def close(self, patience: float) -> bool:
        """End the thread; False if it does not end within `patience` seconds."""
        self._closing = True
        if not self.loop.is_closed():
            self.call(self.loop.stop)
        self._thread.join(patience)
        return not self._thread.is_alive()
