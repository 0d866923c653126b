"""Imported by a scheduler that is to die at a commit: `CRASH_AT_COMMIT` holds `NUMBER before` or `NUMBER after`.

The process kills itself as the kernel of the machine would: without a word, and without closing anything.
"""

import os
import signal
from itertools import count

import sqlalchemy as sa
from sqlalchemy.engine import Engine

_number, _, _when = os.environ.get("CRASH_AT_COMMIT", "0 before").partition(" ")
_commits = count(1)


@sa.event.listens_for(Engine, "commit")
def _maybe_die(connection: sa.Connection) -> None:
    if next(_commits) != int(_number):
        return
    if _when == "after":
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.commit()
    os.kill(os.getpid(), signal.SIGKILL)
