"""What all tests share: the same random cases in every run, and more of them when asked."""

import os

from hypothesis import settings

EFFORT = int(os.environ.get("GNOMON_EXAMPLES", "1"))

settings.register_profile("gnomon", derandomize=True, deadline=None, max_examples=100 * EFFORT)
settings.load_profile("gnomon")
