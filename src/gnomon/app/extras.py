"""Packages that only some settings need: their absence is an error that says how to install them."""

from importlib.util import find_spec

from gnomon.adapters.sql.connect import sqlite_path
from gnomon.config.sections import ModelTools
from gnomon.config.settings import Settings
from gnomon.core.announcements.channels import ChannelKind
from gnomon.errors import UsageError


def check_extras(settings: Settings) -> None:
    """UsageError with the command to type if a package is missing that these settings need."""
    needed = [
        ("PostgreSQL", "postgres", "asyncpg", sqlite_path(settings.database.url) is None),
        ("NATS", "nats", "nats", bool(settings.nats.url)),
        ("Redis", "redis", "redis", bool(settings.redis.url)),
        ("server.mcp", "mcp", "mcp", settings.server.mcp is not ModelTools.OFF),
        ("Apprise", "apprise", "apprise", any(one.kind is ChannelKind.APPRISE for one in settings.channels.values())),
        ("policy.kernel", "grpc", "grpc", settings.policy.kernel.startswith("grpc")),
        ("Agents", "agents", "pydantic_ai", bool(settings.agents.providers)),
    ]
    for system, extra, package, used in needed:
        if used:
            check_extra(system, extra, package)


def check_extra(system: str, extra: str, package: str) -> None:
    """UsageError with the command to type if the package of an extra is missing."""
    if find_spec(package) is None:
        raise UsageError(f"{system} needs the package {package}: pip install 'gnomon[{extra}]'")
