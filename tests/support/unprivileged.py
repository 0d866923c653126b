"""Commands as a user without privileges, also where root runs the tests."""

import os
import subprocess
from functools import cache

import pytest

#: The id that a process sees as its own.
UID = 1000


@cache
def unprivileged() -> tuple[str, ...]:
    """The command before a command that makes it run without privileges: the mode of a file binds it.

    Root enters a user namespace as another user. Its interpreter may be where only root can read, so a switch to
    another user of the machine would not start. Skips the test where the machine allows no namespace.
    """
    if os.geteuid() != 0:
        return ()
    command = ("unshare", "--user", f"--map-user={UID}", f"--map-group={UID}")
    try:
        done = subprocess.run([*command, "id", "-u"], capture_output=True, text=True, check=False)
    except OSError:
        pytest.skip("root cannot drop its privileges: there is no unshare")
    if done.stdout.strip() != str(UID):
        pytest.skip("root cannot drop its privileges: no user namespaces")
    return command
