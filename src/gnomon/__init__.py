"""Gnomon: predict, prove and explain every fire."""

from gnomon.core.cron import Cron, Dst
from gnomon.core.parsing import parse_schedule
from gnomon.core.triggers import At, Every
from gnomon.embedding import emit, run, start
from gnomon.errors import CronError, GnomonError
from gnomon.runners.context import Context, GiveUp, Snooze
from gnomon.runners.registry import Retry, function, job
from gnomon.runners.workflows import index, item, step, workflow
from gnomon.version import __version__

__all__ = [
    "At",
    "Context",
    "Cron",
    "CronError",
    "Dst",
    "Every",
    "GiveUp",
    "GnomonError",
    "Retry",
    "Snooze",
    "__version__",
    "emit",
    "function",
    "index",
    "item",
    "job",
    "parse_schedule",
    "run",
    "start",
    "step",
    "workflow",
]
