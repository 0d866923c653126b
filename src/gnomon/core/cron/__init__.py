"""Cron expressions: text to rule, next and previous fire."""

from gnomon.core.cron.cron import Cron, Dialect, known_zone
from gnomon.core.cron.dst import Dst

__all__ = ["Cron", "Dialect", "Dst", "known_zone"]
