"""Gnomon: predict, prove and explain every fire."""

from gnomon.core.cron import Cron, Dst
from gnomon.core.parsing import parse_schedule
from gnomon.core.triggers import At, Every
from gnomon.errors import CronError, GnomonError
from gnomon.version import __version__

__all__ = ["At", "Cron", "CronError", "Dst", "Every", "GnomonError", "__version__", "parse_schedule"]
