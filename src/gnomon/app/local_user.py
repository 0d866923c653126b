"""The user that runs this process: the actor of changes that come from no authenticated caller."""

import grp
import os
import pwd


def local_user() -> str:
    """The login name, by the user id of the process: environment variables such as LOGNAME can say anything."""
    user_id = os.geteuid()
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        # Containers run under ids without a name.
        return f"uid {user_id}"


def local_groups() -> frozenset[str]:
    """The names of the groups that the process runs with."""
    return frozenset(filter(None, map(_group_name, {os.getegid(), *os.getgroups()})))


def _group_name(group_id: int) -> str:
    try:
        return grp.getgrgid(group_id).gr_name
    except KeyError:
        return ""
