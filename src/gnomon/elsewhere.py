"""A server elsewhere: which one is meant, and what it is shown."""

import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from gnomon.access import own_token
from gnomon.client.transport import reached
from gnomon.errors import FileError, UsageError
from gnomon.profiles import Profile, find_profile
from gnomon.settings import Settings

if TYPE_CHECKING:
    import ssl

    from gnomon.client import AsyncClient

SERVER, PROFILE, TOKEN = "GNOMON_SERVER", "GNOMON_PROFILE", "GNOMON_TOKEN"
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_LARGEST_TOKEN = 65_536
#: A whole file of jobs may take its time.
_SECONDS = 120.0


class Typed(Protocol):
    """What the flags of a command say about a server."""

    @property
    def server(self) -> str | None:
        """Its address."""

    @property
    def profile(self) -> str | None:
        """The name of a profile."""

    @property
    def token_file(self) -> Path | None:
        """A file that holds the token to show."""


class Elsewhere(Struct, frozen=True, kw_only=True):
    """A server and what it is shown."""

    server: str
    token: str | None = None
    #: Files in PEM: whom to believe, and who we are.
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    #: The file of a profile that the token was read from, if others than its owner can read it, too.
    exposed_file: str = ""

    @property
    def in_the_open(self) -> bool:
        """Whether anybody on the way can read the token."""
        parts = urlsplit(self.server)
        return bool(self.token) and parts.scheme == "http" and parts.hostname not in _THIS_MACHINE


def chosen(typed: Typed, environment: Mapping[str, str], settings: Callable[[], Settings]) -> Elsewhere | None:
    """The server that is meant: by a flag, or else by the environment; None if it is none.

    The token is that of `--token-file`, of the profile, of the environment, or the owner's own beside the database:
    the last one goes to this machine only.
    """
    if typed.server and typed.profile:
        raise UsageError("--server and --profile both name a server: say one of them")
    profile = _profile(typed, environment)
    server = typed.server or (profile.server if profile else environment.get(SERVER) or None)
    if not server:
        if typed.token_file is not None:
            raise UsageError("--token-file goes with --server or --profile")
        return None
    reached(server, "")
    token = _token(typed, profile, environment)
    # Who shows a certificate is who that says, and not the owner of the database besides.
    certified = profile is not None and bool(profile.cert_file)
    if token is None and not certified and urlsplit(server).hostname in _THIS_MACHINE:
        token = own_token(settings())
    if profile is None:
        return Elsewhere(server=server, token=token)
    files = {"ca_file": profile.ca_file, "cert_file": profile.cert_file, "key_file": profile.key_file}
    exposed = profile.token_file if typed.token_file is None and _exposed(profile.token_file) else ""
    return Elsewhere(server=server, token=token, exposed_file=exposed, **files)


def _profile(typed: Typed, environment: Mapping[str, str]) -> Profile | None:
    if typed.server:
        return None
    if typed.profile:
        return find_profile(typed.profile, environment)
    named = environment.get(PROFILE)
    return find_profile(named, environment) if named and not environment.get(SERVER) else None


def _token(typed: Typed, profile: Profile | None, environment: Mapping[str, str]) -> str | None:
    if typed.token_file is not None:
        return _read(typed.token_file)
    if profile is not None and profile.token_file:
        return _read(Path(profile.token_file))
    if profile is not None and profile.token_env:
        found = environment.get(profile.token_env, "").strip()
        if not found:
            raise UsageError(f"the profile takes its token from {profile.token_env}, which is not set")
        return found
    return environment.get(TOKEN, "").strip() or None


def _read(file: Path) -> str:
    try:
        with file.expanduser().open("rb") as opened:
            token = opened.read(_LARGEST_TOKEN).decode("ascii").strip()
    except UnicodeDecodeError:
        raise FileError(file, "holds no token") from None
    except OSError as error:
        raise FileError(file, f"cannot be read: {error.strerror}") from None
    if not token or len(token.split()) != 1:
        raise FileError(file, "holds no token")
    return token


def _exposed(file: str) -> bool:
    """Whether others than the owner of a file can read it."""
    try:
        mode = Path(file).expanduser().stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


@asynccontextmanager
async def outdoors(to: Elsewhere) -> "AsyncIterator[AsyncClient]":
    """The door to a server."""
    from gnomon.client import AsyncClient

    tls = _tls(to) if urlsplit(to.server).scheme == "https" else None
    # An empty token is none at all: what the environment says was looked at before.
    async with AsyncClient(to.server, token=to.token or "", timeout=_SECONDS, tls=tls) as client:
        yield client


def _tls(to: Elsewhere) -> "ssl.SSLContext":
    import ssl

    try:
        context = ssl.create_default_context(cafile=to.ca_file or None)
        if to.cert_file:
            context.load_cert_chain(to.cert_file, to.key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the certificates for {to.server} cannot be read: {error}") from None
    return context
