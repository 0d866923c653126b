"""Four steps in a row with Dagster in process: prints the milliseconds of one and of a hundred (by ten)."""

import json
import os
import statistics
import sys
import tempfile
import time

os.environ["DAGSTER_HOME"] = tempfile.mkdtemp()
os.environ["DAGSTER_DISABLE_TELEMETRY"] = "1"

from dagster import DagsterInstance, job, op


@op
def first() -> int:
    """Does nothing."""
    return 0


@op
def second(value: int) -> int:
    """Hands it on."""
    return value + 1


@op
def third(value: int) -> int:
    """Hands it on."""
    return value + 1


@op
def fourth(value: int) -> int:
    """Hands it on."""
    return value + 1


@job
def four() -> None:
    """Four steps."""
    fourth(third(second(first())))


with DagsterInstance.get() as instance:
    four.execute_in_process(instance=instance)
    one = []
    for _ in range(10):
        began = time.perf_counter()
        four.execute_in_process(instance=instance)
        one.append((time.perf_counter() - began) * 1000)
json.dump({"one": statistics.median(one), "hundred": statistics.mean(one) * 100}, sys.stdout)
