"""Cron expressions: text to rule, next and previous fire."""

from gnomon.core.cron.cron import Cron, Dialect, known_zone
from gnomon.core.cron.dst import Dst, check_dst

__all__ = ["Cron", "Dialect", "Dst", "check_dst", "known_zone"]
