"""The user that runs this process: the actor of changes that come from no authenticated caller."""

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
