"""Four steps in a row with huey on SQLite (synchronous=FULL): prints the milliseconds of one and of a hundred."""

import json
import statistics
import sys
import tempfile
import time

from huey import SqliteHuey

folder = tempfile.mkdtemp()
huey = SqliteHuey(filename=f"{folder}/huey.db", fsync=True)


@huey.task()
def step(value: int = 0) -> int:
    """Does nothing, and hands it on."""
    return value + 1


def chain() -> object:
    """Four steps."""
    return huey.enqueue(step.s(0).then(step).then(step).then(step))


consumer = huey.create_consumer(workers=2, periodic=False, initial_delay=0.001, max_delay=0.002, backoff=1.0)
consumer.start()
for _ in range(5):
    chain().get(blocking=True)  # type: ignore[attr-defined]
one = []
for _ in range(50):
    began = time.perf_counter()
    results = chain()
    results.get(blocking=True, backoff=1.0, max_delay=0.001)  # type: ignore[attr-defined]
    one.append((time.perf_counter() - began) * 1000)
began = time.perf_counter()
many = [chain() for _ in range(100)]
for results in many:
    results.get(blocking=True, backoff=1.0, max_delay=0.001)  # type: ignore[attr-defined]
hundred = (time.perf_counter() - began) * 1000
json.dump({"one": statistics.median(one), "hundred": hundred}, sys.stdout)
sys.stdout.flush()
consumer.stop()
