"""How much random testing a run does.

GNOMON_EXAMPLES is a factor on the number of examples and seeds everywhere. Of long families `make test` runs the first
few cases, and `make test-all` all of them.
"""

import os
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import pytest

EFFORT = int(os.environ.get("GNOMON_EXAMPLES", "1"))


def seed_batches(quick: int, thorough: int, size: int) -> list[Any]:
    """The first seeds of batches of `size`: of `quick` seeds for every run, of `thorough` for thorough runs."""
    firsts = range(0, max(quick * EFFORT, thorough), size)
    return [first if first < quick * EFFORT else pytest.param(first, marks=pytest.mark.thorough) for first in firsts]


def thorough(*values: object) -> object:
    """The values of one case of a parametrised test, for thorough runs alone."""
    return pytest.param(*values, marks=pytest.mark.thorough)


def some_quick(cases: Mapping[str, Sequence[Any]], quick: int) -> list[Any]:
    """All cases by their names, the first `quick` of them for every run, and the others for thorough runs."""
    quickly = set(islice(cases, quick))
    return [
        pytest.param(*case, id=name, marks=() if name in quickly else pytest.mark.thorough)
        for name, case in cases.items()
    ]
