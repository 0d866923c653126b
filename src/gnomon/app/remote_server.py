"""The server that a command addresses: profiles, the choice of server and token, and the connection."""

import json
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from gnomon.adapters.auth.local_key import read_private_file, replace_file
from gnomon.app.auth import read_local_token
from gnomon.client.transport import endpoint_at
from gnomon.config.settings import Settings
from gnomon.core.jobs.fields import schedule_name
from gnomon.core.spelling import nearest
from gnomon.errors import FileError, NotFound, UsageError

if TYPE_CHECKING:
    import ssl

    from gnomon.client import AsyncClient


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A named server and the location of its credentials. The token itself is never stored here."""

    server: str
    token_file: str = ""
    token_env: str = ""
    #: PEM files: the CA to trust, and the client certificate with its key.
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


class _ProfilesFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    profiles: dict[str, Profile] = {}


def profiles_path(environment: Mapping[str, str]) -> Path:
    """The file with the profiles, in the user's configuration folder."""
    folder = environment.get("XDG_CONFIG_HOME")
    home = Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    return (Path(folder) if folder else home / ".config") / "gnomon" / "profiles.json"


def read_profiles(environment: Mapping[str, str]) -> dict[str, Profile]:
    """All profiles by name; FileError if the file cannot be decoded, or users other than its owner can read it."""
    path = profiles_path(environment)
    text = read_private_file(path)
    if text is None:
        return {}
    try:
        return dict(sorted(msgspec.json.decode(text, type=_ProfilesFile).profiles.items()))
    except msgspec.MsgspecError as error:
        raise FileError(path, f"contains no valid profiles: {error}") from None


def find_profile(name: str, environment: Mapping[str, str]) -> Profile:
    """The profile of that name; UsageError with a suggestion if a similar name exists, NotFound otherwise."""
    known = read_profiles(environment)
    if name not in known:
        near = nearest(name, known)
        if near:
            raise UsageError(f"there is no profile {name!r}; did you mean {near}?")
        raise NotFound("profile", name)
    return known[name]


def save_profile(name: str, profile: Profile, environment: Mapping[str, str]) -> bool:
    """Store the profile under that name; return whether the name is new."""
    known = read_profiles(environment)
    new = schedule_name("profile", name) not in known
    _write_profiles({**known, name: profile}, environment)
    return new


def delete_profile(name: str, environment: Mapping[str, str]) -> None:
    """Delete the profile of that name; NotFound if there is none."""
    find_profile(name, environment)
    _write_profiles({other: one for other, one in read_profiles(environment).items() if other != name}, environment)


def _write_profiles(profiles: dict[str, Profile], environment: Mapping[str, str]) -> None:
    path = profiles_path(environment)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}") from None
    replace_file(path, json.dumps(msgspec.to_builtins(_ProfilesFile(profiles=profiles)), indent=2) + "\n")


SERVER, PROFILE, TOKEN = "GNOMON_SERVER", "GNOMON_PROFILE", "GNOMON_TOKEN"
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_LARGEST_TOKEN = 65_536


class ServerFlags(Protocol):
    """The command-line flags that select a server."""

    @property
    def server(self) -> str | None:
        """Its URL."""

    @property
    def profile(self) -> str | None:
        """The name of a profile."""

    @property
    def token_file(self) -> Path | None:
        """A file that contains the token."""

    @property
    def timeout(self) -> float | None:
        """How many seconds to wait for a response; None for the default."""


class RemoteServer(Struct, frozen=True, kw_only=True):
    """A server and the credentials for it."""

    server: str
    token: str | None = None
    #: How many seconds to wait for a response; None for the default.
    timeout: float | None = None
    #: PEM files: the CA to trust, and the client certificate with its key.
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    #: The profile's token file, if users other than its owner can read it.
    exposed_file: str = ""

    @property
    def sends_token_in_clear(self) -> bool:
        """Whether the token crosses the network unencrypted."""
        parts = urlsplit(self.server)
        return bool(self.token) and parts.scheme == "http" and parts.hostname not in _THIS_MACHINE


def choose_server(
    flags: ServerFlags, environment: Mapping[str, str], settings: Callable[[], Settings]
) -> RemoteServer | None:
    """The server selected by a flag or by the environment; None if the command addresses the local database.

    The token comes from `--token-file`, the profile, GNOMON_TOKEN, or the owner's token file beside the database.
    The last one is sent to servers on this machine only.
    """
    if flags.server and flags.profile:
        raise UsageError("--server and --profile both name a server: use one of them")
    profile = _find_selected_profile(flags, environment)
    server = flags.server or (profile.server if profile else environment.get(SERVER) or None)
    if not server:
        if flags.token_file is not None:
            raise UsageError("--token-file goes with --server or --profile")
        if flags.timeout is not None:
            raise UsageError("--timeout goes with --server or --profile")
        return None
    endpoint_at(server, "")
    token = _find_token(flags, profile, environment)
    # The certificate is the identity: the owner's admin token must not be sent along with it.
    certified = profile is not None and bool(profile.cert_file)
    if token is None and not certified and urlsplit(server).hostname in _THIS_MACHINE:
        token = read_local_token(settings())
    if profile is None:
        return RemoteServer(server=server, token=token, timeout=flags.timeout)
    files = {"ca_file": profile.ca_file, "cert_file": profile.cert_file, "key_file": profile.key_file}
    exposed = profile.token_file if flags.token_file is None and _readable_by_others(profile.token_file) else ""
    return RemoteServer(server=server, token=token, timeout=flags.timeout, exposed_file=exposed, **files)


def _find_selected_profile(flags: ServerFlags, environment: Mapping[str, str]) -> Profile | None:
    if flags.server:
        return None
    if flags.profile:
        return find_profile(flags.profile, environment)
    named = environment.get(PROFILE)
    return find_profile(named, environment) if named and not environment.get(SERVER) else None


def _find_token(flags: ServerFlags, profile: Profile | None, environment: Mapping[str, str]) -> str | None:
    if flags.token_file is not None:
        return _read_token_file(flags.token_file)
    if profile is not None and profile.token_file:
        return _read_token_file(Path(profile.token_file))
    if profile is not None and profile.token_env:
        found = environment.get(profile.token_env, "").strip()
        if not found:
            raise UsageError(f"the profile takes its token from {profile.token_env}, which is not set")
        return found
    return environment.get(TOKEN, "").strip() or None


def _read_token_file(file: Path) -> str:
    try:
        with file.expanduser().open("rb") as opened:
            token = opened.read(_LARGEST_TOKEN).decode("ascii").strip()
    except UnicodeDecodeError:
        raise FileError(file, "contains no token") from None
    except OSError as error:
        raise FileError(file, f"cannot be read: {error.strerror}") from None
    if not token or len(token.split()) != 1:
        raise FileError(file, "contains no token")
    return token


def _readable_by_others(file: str) -> bool:
    """Whether users other than the owner can read the file."""
    try:
        mode = Path(file).expanduser().stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


@asynccontextmanager
async def open_remote(to: RemoteServer) -> "AsyncIterator[AsyncClient]":
    """A client that is connected to the server."""
    from gnomon.client import AsyncClient

    tls = _tls_context(to) if urlsplit(to.server).scheme == "https" else None
    # An empty token stands for none: choose_server has already read the environment.
    async with AsyncClient(to.server, token=to.token or "", timeout=to.timeout, tls=tls) as client:
        yield client


def _tls_context(to: RemoteServer) -> "ssl.SSLContext":
    import ssl

    try:
        context = ssl.create_default_context(cafile=to.ca_file or None)
        if to.cert_file:
            context.load_cert_chain(to.cert_file, to.key_file or None)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the certificates for {to.server} cannot be read: {error}") from None
    return context
