"""Gnomon: predict, prove and explain every fire."""

from typing import TYPE_CHECKING

from gnomon.app.embedded import emit, run, start
from gnomon.core.cron import Cron, Dst
from gnomon.core.schedule_parser import parse_schedule
from gnomon.core.triggers import At, Every
from gnomon.errors import CronError, GnomonError
from gnomon.runners.context import Cancelled, Context, GiveUp, Snooze
from gnomon.runners.registry import Retry, function, job
from gnomon.runners.workflow_builder import index, item, step, workflow
from gnomon.version import __version__

if TYPE_CHECKING:
    from gnomon.app.files import read_jobs
    from gnomon.app.operations import Operations
    from gnomon.app.settings import load_settings
    from gnomon.client import AsyncClient, Client
    from gnomon.config.settings import Settings

__all__ = [
    "AsyncClient",
    "At",
    "Cancelled",
    "Client",
    "Context",
    "Cron",
    "CronError",
    "Dst",
    "Every",
    "GiveUp",
    "GnomonError",
    "Operations",
    "Retry",
    "Settings",
    "Snooze",
    "__version__",
    "emit",
    "function",
    "index",
    "item",
    "job",
    "load_settings",
    "parse_schedule",
    "read_jobs",
    "run",
    "start",
    "step",
    "workflow",
]

#: Names that are imported on first use: most programs schedule jobs and need neither a client nor the operations.
_LAZY = {
    "AsyncClient": "gnomon.client",
    "Client": "gnomon.client",
    "Operations": "gnomon.app.operations",
    "Settings": "gnomon.config.settings",
    "load_settings": "gnomon.app.settings",
    "read_jobs": "gnomon.app.files",
}


def __getattr__(name: str) -> object:
    """Import a lazy name of the public surface."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'gnomon' has no attribute {name!r}")
