"""What all tests share: the same random cases in every run, and more of them when asked.

GNOMON_EXAMPLES is a factor everywhere: with 20, every random test is twenty times as long. Tests that need more
examples than others take a multiple of the profile's number.
"""

import os

from hypothesis import settings

# Nodes of several tests run beside each other, so each takes a port that is free.
os.environ.setdefault("GNOMON_METRICS__PORT", "0")

EFFORT = int(os.environ.get("GNOMON_EXAMPLES", "1"))

settings.register_profile("gnomon", derandomize=True, deadline=None, max_examples=100 * EFFORT)
settings.load_profile("gnomon")
