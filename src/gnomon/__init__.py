"""Gnomon: predict, prove and explain every fire."""

from typing import TYPE_CHECKING

from gnomon.app.embedded import emit, run, start
from gnomon.core.cron import Cron, Dst
from gnomon.core.schedule_parser import parse_schedule
from gnomon.core.triggers import At, Every
from gnomon.errors import CronError, GnomonError
from gnomon.runners.context import Context, GiveUp, Snooze
from gnomon.runners.registry import Retry, function, job
from gnomon.runners.workflow_builder import index, item, step, workflow
from gnomon.version import __version__

if TYPE_CHECKING:
    from gnomon.client import AsyncClient, Client

__all__ = [
    "AsyncClient",
    "At",
    "Client",
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


def __getattr__(name: str) -> object:
    """The clients, once somebody asks for them: few programs that schedule also call a scheduler."""
    if name in ("AsyncClient", "Client"):
        from gnomon import client

        return getattr(client, name)
    raise AttributeError(f"module 'gnomon' has no attribute {name!r}")
