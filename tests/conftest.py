"""Configuration of all tests: random examples repeat in every run; GNOMON_EXAMPLES multiplies their number.

With GNOMON_FUZZ they are new in every run, and there are more of them; `make fuzz` repeats such runs.

Tests that need more examples than others take a multiple of the number in the Hypothesis profile.
"""

import gc
import os

from hypothesis import settings

from support.effort import EFFORT

# Nodes of several tests run beside each other, so each takes a port that is free.
os.environ.setdefault("GNOMON_METRICS__PORT", "0")

# Commands show times in the zone of the machine.
os.environ["TZ"] = "UTC"

settings.register_profile("gnomon", derandomize=True, deadline=None, max_examples=50 if EFFORT == 1 else 100 * EFFORT)
settings.register_profile("fuzz", derandomize=False, deadline=None, max_examples=2000 * EFFORT)
settings.load_profile("fuzz" if "GNOMON_FUZZ" in os.environ else "gnomon")


#: How many objects are made between two collections of garbage; usually 700, of which tests make that many each.
_GC_THRESHOLD = 10_000


def pytest_collection_finish() -> None:
    """Leave what was collected out of garbage collection: thousands of tests would be visited again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
