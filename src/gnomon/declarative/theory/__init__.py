"""The formal theory of the declarative scheduler as code: traces, and a checker that finds violations in them."""

from gnomon.declarative.theory.automata import Automata
from gnomon.declarative.theory.checker import check
from gnomon.declarative.theory.recorder import Watched
from gnomon.declarative.theory.traces import End, Seen

__all__ = ["Automata", "End", "Seen", "Watched", "check"]
