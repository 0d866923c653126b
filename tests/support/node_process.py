"""A node as a process, for tests that kill it: `python node_process.py URL [TTL_MS]`. Prints "ready" once it runs."""

import asyncio
import signal
import sys

from gnomon.app.node import Node
from gnomon.config.settings import load
from gnomon.testing.clock import Recorder


async def main() -> None:
    url, ttl = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    settings = load(
        flags={
            "database.url": url,
            "leader.ttl_ms": ttl,
            "leader.renew_interval_ms": ttl // 4,
            "leader.claim_interval_ms": min(200, ttl // 4),
            "ticker.batch": 50,
        }
    )
    node = await Node.open(settings, events=Recorder())
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    print("ready", flush=True)  # noqa: T201 - whoever started us waits for it
    await node.run(stop)
    await node.close()


if __name__ == "__main__":
    asyncio.run(main())
