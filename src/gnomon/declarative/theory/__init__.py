"""The theory of the declarative scheduler as code: traces, and a checker that says what is wrong with one."""

from gnomon.declarative.theory.automata import Automata
from gnomon.declarative.theory.checker import check
from gnomon.declarative.theory.recorder import Watched

__all__ = ["Automata", "Watched", "check"]
