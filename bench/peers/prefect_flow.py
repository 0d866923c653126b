"""Four steps in a row with Prefect in process: prints the milliseconds of one and of a hundred (by ten)."""

import json
import logging
import os
import statistics
import sys
import tempfile
import time

os.environ["PREFECT_HOME"] = tempfile.mkdtemp()
os.environ["PREFECT_LOGGING_LEVEL"] = "CRITICAL"
os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"

from prefect import flow, task

logging.disable(logging.CRITICAL)


@task
def step(value: int) -> int:
    """Does nothing, and hands it on."""
    return value + 1


@flow
def four() -> int:
    """Four steps."""
    return step(step(step(step(0))))


four()
one = []
for _ in range(10):
    began = time.perf_counter()
    four()
    one.append((time.perf_counter() - began) * 1000)
json.dump({"one": statistics.median(one), "hundred": statistics.mean(one) * 100}, sys.stdout)
