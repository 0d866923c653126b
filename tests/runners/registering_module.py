"""A module that registers a function for all, under a name of its own."""

from gnomon.runners.registry import FUNCTIONS


def known() -> str:
    return "found by its path"


def _registered() -> str:
    return "registered"


FUNCTIONS.add(_registered, "known-by-another-name")
