"""How much random testing a run does: GNOMON_EXAMPLES is a factor on the number of examples and seeds everywhere."""

import os

EFFORT = int(os.environ.get("GNOMON_EXAMPLES", "1"))
