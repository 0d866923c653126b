"""`gnomon dashboard`: opens the dashboard in a browser, signed in."""

import asyncio
import webbrowser

from gnomon.app.auth import read_local_token
from gnomon.app.remote_server import RemoteServer, open_remote
from gnomon.cli.target import Target, echo
from gnomon.client import requests
from gnomon.config.settings import Settings
from gnomon.errors import Unavailable, UsageError

#: A server that listens everywhere is reached here.
_EVERYWHERE, _HERE = ("", "0.0.0.0", "::"), "127.0.0.1"  # noqa: S104 - compared with, not bound to
_PAGES = "/ui/"


def open_dashboard(target: Target, *, port: int | None, only_print: bool) -> None:
    """Open the dashboard with a code that counts once and for a minute; print the address if there is no browser."""
    remote = target.remote_server()
    if remote is not None:
        address = _signed_in(remote)
    else:
        settings = target.settings() if port is None else target.settings(**{"server.port": port})
        address = _local(settings)
    if only_print or not webbrowser.open(address):
        echo(address)


def _local(settings: Settings) -> str:
    server = _address_of(settings)
    if not settings.auth.verify_tokens:
        return f"{server}{_PAGES}"
    token = read_local_token(settings)
    if token is None:
        reason = "the database has no token file beside it that you can read: name the server with --server and a token"
        raise UsageError(reason)
    try:
        return _signed_in(RemoteServer(server=server, token=token))
    except Unavailable as error:
        raise Unavailable(f"{error}: start it with gnomon up, or name its --port") from None


def _address_of(settings: Settings) -> str:
    named = settings.server
    host = _HERE if named.host in _EVERYWHERE else named.host
    scheme = "https" if named.tls_cert_file else "http"
    return f"{scheme}://[{host}]:{named.port}" if ":" in host else f"{scheme}://{host}:{named.port}"


def _signed_in(server: RemoteServer) -> str:
    async def ask() -> str:
        async with open_remote(server) as gateway:
            return (await gateway.send(requests.sign_in_code())).path

    return f"{server.server.rstrip('/')}{asyncio.run(ask())}"
