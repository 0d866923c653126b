"""Configuration of all tests: random examples repeat in every run; GNOMON_EXAMPLES multiplies their number.

Tests that need more examples than others take a multiple of the number in the Hypothesis profile.
"""

import os

from hypothesis import settings

from support.effort import EFFORT

# Nodes of several tests run beside each other, so each takes a port that is free.
os.environ.setdefault("GNOMON_METRICS__PORT", "0")

settings.register_profile("gnomon", derandomize=True, deadline=None, max_examples=100 * EFFORT)
settings.load_profile("gnomon")
