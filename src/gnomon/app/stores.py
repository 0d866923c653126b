"""What is done once, in a child of ours, so that the memory it takes is never ours."""

import os
import threading
from pathlib import Path

from gnomon.adapters.sql.connect import sqlite_path
from gnomon.adapters.sql.migrator import upgrade
from gnomon.adapters.sql.sqlite import engine_for


def create_database_in_child(url: str) -> None:
    """A file that is not there yet is made, with the newest schema. Who cannot will be told so when it is opened.

    Only by a process without threads, as a fork would leave them behind: others make it themselves.
    """
    path = sqlite_path(url)
    if path is None or Path(path).exists() or not Path(path).parent.is_dir():
        return
    if threading.active_count() > 1 or not hasattr(os, "fork"):
        return
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        with engine_for(path, begin="BEGIN IMMEDIATE", connections=1).begin() as conn:
            upgrade(conn)
    finally:
        # Whatever came of it: everything else is the parent's.
        os._exit(0)
