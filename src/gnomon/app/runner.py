"""The runner of a process: the modules that register functions, and what executes these functions and commands."""

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from gnomon.adapters.http_client import HttpClient, configured_client
from gnomon.adapters.sql.connect import sqlite_path
from gnomon.app.channels import secret_reader
from gnomon.app.secrets import secret_source
from gnomon.config.settings import Settings
from gnomon.core.outgoing import AllowedHosts
from gnomon.core.runs.outcomes import Assignment
from gnomon.errors import GnomonError, UsageError
from gnomon.ports.execution import ProgressWriter, Runner
from gnomon.runners.agents.agent_runner import AgentEnvironment, agents_are_installed
from gnomon.runners.agents.tools import SchedulerVerbs
from gnomon.runners.registry import FUNCTIONS, Functions
from gnomon.runners.runner import FunctionRunner, NotifyingRunner
from gnomon.runners.workspace import Workspace


def import_modules(names: Sequence[str]) -> None:
    """Import every module, also from the working directory; UsageError names the first that cannot be imported."""
    if os.getcwd() not in sys.path:  # noqa: PTH109 - sys.path has the same spelling
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    for name in names:
        if name.endswith(".py"):
            raise UsageError(f"cannot import {name}: name the module, not the file: --import {_module_name(name)}")
        try:
            with FUNCTIONS.importing(name):
                importlib.import_module(name)
        except GnomonError:
            raise
        except Exception as error:
            raise UsageError(f"cannot import {name}: {type(error).__name__}: {error}") from error


def imported_functions(names: Sequence[str]) -> Functions:
    """The functions that are registered once these modules are imported."""
    import_modules(names)
    return FUNCTIONS


def _module_name(file: str) -> str:
    """The module of a file that is named by its path."""
    return ".".join(Path(file).with_suffix("").parts).lstrip("./")


def build_runner(  # noqa: PLR0913 - all of its collaborators
    functions: Functions,
    settings: Settings,
    imports: Sequence[str],
    *,
    wake: asyncio.Event,
    on_start: Callable[[Sequence[Assignment]], None] | None = None,
    has_database: bool = True,
    verbs: SchedulerVerbs | None = None,
    progress: ProgressWriter | None = None,
) -> Runner:
    """The runner of this process. It sets `wake` when an attempt has ended, and calls `on_start` when some start.

    `has_database` is false for a worker that receives its tasks over NATS. `verbs` are for the models of agents.
    `progress` keeps the logs of running attempts, and what agents spend.
    """
    workspace = command_workspace(settings, sqlite_path(settings.database.url) if has_database else None)
    if settings.shell.workspace:
        workspace.check()
    runner = FunctionRunner(
        functions,
        settings.worker,
        default_timeout_ms=settings.execution.default_timeout_ms,
        secrets=secret_source(settings.secrets),
        shell=settings.shell,
        workspace=workspace,
        http=HttpClient(AllowedHosts(settings.security.allowed_hosts, field="security.allowed_hosts")),
        agents=agent_environment(settings, verbs),
        progress=progress,
        security=settings.security,
        on_finished=partial(_set_threadsafe, asyncio.get_running_loop(), wake),
        imports=tuple(imports),
    )
    return runner if on_start is None else NotifyingRunner(runner, on_start)


def agent_environment(settings: Settings, verbs: SchedulerVerbs | None) -> AgentEnvironment | None:
    """The agents that this process can run; None without providers, or without the extra `agents`."""
    if not settings.agents.providers or not agents_are_installed():
        return None
    # A client of their own: its resolver belongs to the event loop of processes.
    http = HttpClient(AllowedHosts(settings.security.allowed_hosts, field="security.allowed_hosts"))
    return AgentEnvironment(settings.agents, http, secret_reader(settings.secrets), verbs, configured_client())


def command_workspace(settings: Settings, database: str | None) -> Workspace:
    """The folder for commands: by default a folder beside the database file, or else the current folder."""
    key = settings.auth.key_file or (database and f"{database}.key")
    protected = [Path(path) for path in (database, key, settings.secrets.folder) if path]
    if settings.shell.workspace or database is None:
        return Workspace(Path(settings.shell.workspace), protected=protected)
    return Workspace(Path(f"{database}.workspace"), create=True, protected=protected)


def workspace_folder(settings: Settings) -> str:
    """The absolute path of the workspace of a node with these settings. It need not exist yet."""
    return command_workspace(settings, sqlite_path(settings.database.url)).path


def common_workspaces(settings: Settings) -> tuple[str, ...]:
    """The absolute paths of the workspace: without links, and as it was set; none if each worker may have its own."""
    if settings.shell.workspace:
        return (workspace_folder(settings), str(Path(settings.shell.workspace).absolute()))
    database = sqlite_path(settings.database.url)
    return () if database is None else (workspace_folder(settings), str(Path(f"{database}.workspace").absolute()))


def _set_threadsafe(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed, so that nothing waits for the event
        loop.call_soon_threadsafe(event.set)
