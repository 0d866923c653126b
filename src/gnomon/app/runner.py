"""The runner of a process: the modules that register functions, and what executes these functions and commands."""

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from gnomon.config.settings import Settings
from gnomon.core.runs.outcomes import Assignment
from gnomon.errors import GnomonError, UsageError
from gnomon.ports.execution import Runner
from gnomon.runners.registry import Functions
from gnomon.runners.runner import FunctionRunner, NotifyingRunner
from gnomon.runners.secrets import SecretSource


def import_modules(names: Sequence[str]) -> None:
    """Import every module, also from the working directory; UsageError names the first that cannot be imported."""
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path has the same spelling
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    for name in names:
        try:
            importlib.import_module(name)
        except GnomonError:
            raise
        except Exception as error:
            raise UsageError(f"cannot import {name}: {type(error).__name__}: {error}") from error


def build_runner(
    functions: Functions,
    settings: Settings,
    imports: Sequence[str],
    *,
    wake: asyncio.Event,
    on_start: Callable[[Sequence[Assignment]], None] | None = None,
) -> Runner:
    """The runner of this process. It sets `wake` when an attempt has ended, and calls `on_start` when some start."""
    runner = FunctionRunner(
        functions,
        settings.worker,
        default_timeout_ms=settings.execution.default_timeout_ms,
        secrets=SecretSource(settings.secrets, os.environ),
        shell=settings.shell,
        on_finished=partial(_set_threadsafe, asyncio.get_running_loop(), wake),
        imports=tuple(imports),
    )
    return runner if on_start is None else NotifyingRunner(runner, on_start)


def _set_threadsafe(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, so that nothing waits for the event
        loop.call_soon_threadsafe(event.set)
