"""A NATS server with the users of the shipped configuration, and an administrator to look behind the scenes."""

import re
from pathlib import Path

from support.bus_servers import Nats

_SHIPPED = Path(__file__).parents[2] / "deploy" / "nats" / "nats.conf"
PASSWORDS = {"scheduler": "s3cret-scheduler", "worker": "s3cret-worker", "admin": "s3cret-admin"}
_ADMIN = f"{{ user: admin, password: {PASSWORDS['admin']} }}"


def scoped_nats() -> Nats:
    """The server, with ports and folders of its own in place of those that are shipped."""
    return Nats(_users())


def _users() -> str:
    shipped = _SHIPPED.read_text()
    users = shipped[shipped.index("authorization {") :]
    for name in ("scheduler", "worker"):
        users = users.replace(f"${name.upper()}_PASSWORD", PASSWORDS[name])
    return re.sub(r"users: \[\n", f"users: [\n    {_ADMIN}\n", users, count=1)
