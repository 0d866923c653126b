"""`gnomon db`: looking after the database."""

import asyncio
import os
import sys

from gnomon.app import migrate_database
from gnomon.settings import load


def migrate(url: str | None) -> None:
    """Migrate the database and say where it stands."""
    settings = load(flags={"database.url": url} if url else None, environment=os.environ)
    revision = asyncio.run(migrate_database(settings))
    sys.stdout.write(f"schema {revision}\n")
