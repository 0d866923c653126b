"""What is done once, in a child of ours, so that the memory it takes is never ours."""

import asyncio
import os
from pathlib import Path

from gnomon.adapters.sql import migrate
from gnomon.adapters.sql.opening import sqlite_path


def make_database(url: str) -> None:
    """A file that is not there yet is made, with the newest schema. Who cannot will be told so when it is opened.

    For a process that has no threads yet, and will live long: what makes a schema would stay with it.
    """
    path = sqlite_path(url)
    if path is None or Path(path).exists() or not hasattr(os, "fork"):
        return
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        asyncio.run(migrate(url))
    finally:
        # Whatever came of it: everything else is the parent's.
        os._exit(0)
