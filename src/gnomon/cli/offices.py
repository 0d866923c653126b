"""Opening the store for one command."""

import asyncio
import getpass
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from gnomon.office import Office, database_url, read_settings
from gnomon.settings import Settings

T = TypeVar("T")


class Where(NamedTuple):
    """Which store a command is about, as far as its flags say."""

    database: str | None = None
    config: Path | None = None

    def settings(self) -> Settings:
        """All settings, of which a flag is the strongest."""
        flags = {"database.url": database_url(self.database)} if self.database else {}
        return read_settings(self.config, flags=flags, environment=os.environ)


def in_office(where: Where, work: Callable[[Office], Awaitable[T]], *, make: bool = False) -> T:
    """What the work comes to. A database that is not there is made only if `make` says so."""

    async def done() -> T:
        async with Office.open(where.settings(), make=make) as office:
            return await work(office)

    return asyncio.run(done())


def actor() -> str:
    """Who types."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "somebody"


def say(line: str) -> None:
    """Print a line for a person."""
    sys.stdout.write(f"{line}\n")
