"""A NATS server with the users of the shipped configuration, and an administrator for tests."""

import re
from pathlib import Path
from typing import Self

from support.nats_redis_servers import Nats
from support.server_process import free_port

_SHIPPED = Path(__file__).parents[2] / "deploy" / "nats" / "nats.conf"
PASSWORDS = {"scheduler": "s3cret-scheduler", "worker": "s3cret-worker", "admin": "s3cret-admin"}
_ADMIN = f"{{ user: admin, password: {PASSWORDS['admin']} }}"


class NatsCluster:
    """Three servers that replicate every stream."""

    def __init__(self) -> None:
        ports = [free_port() for _ in range(3)]
        routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
        self.nodes = [
            Nats(
                f"server_name: n{number}\n"
                f"cluster {{ name: fleet, listen: 127.0.0.1:{port}, routes: [{routes}] }}\n{_users()}"
            )
            for number, port in enumerate(ports)
        ]

    @property
    def url(self) -> str:
        """The addresses for clients."""
        return ",".join(node.url for node in self.nodes)

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                node.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.remove()


def nats_with_users(config: str = "", *more: str) -> Nats:
    """The server, with ports and folders of its own in place of those that are shipped, and with more users."""
    return Nats(config + _users(*more))


def _users(*more: str) -> str:
    shipped = _SHIPPED.read_text()
    users = shipped[shipped.index("authorization {") :]
    for name in ("scheduler", "worker"):
        users = users.replace(f"${name.upper()}_PASSWORD", PASSWORDS[name])
    added = "\n    ".join((_ADMIN, *more))
    return re.sub(r"users: \[\n", lambda _: f"users: [\n    {added}\n", users, count=1)
