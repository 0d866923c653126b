"""Servers under names of the user's own, in a file that only they can read."""

import json
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from difflib import get_close_matches
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
from gnomon.errors import FileError, NotFound, UsageError

if TYPE_CHECKING:
    import ssl

    from gnomon.client import AsyncClient


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A server, and where what it is shown is found. A token itself never stands here."""

    server: str
    token_file: str = ""
    token_env: str = ""
    #: Files in PEM: whom to believe, and who we are.
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


class _ProfilesFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    profiles: dict[str, Profile] = {}


def profiles_path(environment: Mapping[str, str]) -> Path:
    """Where profiles are kept: in the user's folder for configuration."""
    folder = environment.get("XDG_CONFIG_HOME")
    home = Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    return (Path(folder) if folder else home / ".config") / "gnomon" / "profiles.json"


def read_profiles(environment: Mapping[str, str]) -> dict[str, Profile]:
    """All profiles by name; FileError if the file is none of ours, or others can read it."""
    path = profiles_path(environment)
    text = read_private_file(path)
    if text is None:
        return {}
    try:
        return dict(sorted(msgspec.json.decode(text, type=_ProfilesFile).profiles.items()))
    except msgspec.MsgspecError as error:
        raise FileError(path, f"holds no profiles: {error}") from None


def find_profile(name: str, environment: Mapping[str, str]) -> Profile:
    """The profile of that name; NotFound, with one that may be meant, if there is none."""
    known = read_profiles(environment)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        if near:
            raise UsageError(f"there is no profile {name!r}; did you mean {near[0]}?")
        raise NotFound("profile", name)
    return known[name]


def save_profile(name: str, profile: Profile, environment: Mapping[str, str]) -> bool:
    """The profile stands under that name; whether the name is new comes back."""
    known = read_profiles(environment)
    new = schedule_name("profile", name) not in known
    _write_profiles({**known, name: profile}, environment)
    return new


def delete_profile(name: str, environment: Mapping[str, str]) -> None:
    """There is no profile of that name any more; NotFound if there was none."""
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
#: A whole file of jobs may take its time.
_SECONDS = 120.0


class ServerFlags(Protocol):
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


class RemoteServer(Struct, frozen=True, kw_only=True):
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
    def sends_token_in_clear(self) -> bool:
        """Whether anybody on the way can read the token."""
        parts = urlsplit(self.server)
        return bool(self.token) and parts.scheme == "http" and parts.hostname not in _THIS_MACHINE


def choose_server(
    typed: ServerFlags, environment: Mapping[str, str], settings: Callable[[], Settings]
) -> RemoteServer | None:
    """The server that is meant: by a flag, or else by the environment; None if it is none.

    The token is that of `--token-file`, of the profile, of the environment, or the owner's own beside the database:
    the last one goes to this machine only.
    """
    if typed.server and typed.profile:
        raise UsageError("--server and --profile both name a server: say one of them")
    profile = _find_selected_profile(typed, environment)
    server = typed.server or (profile.server if profile else environment.get(SERVER) or None)
    if not server:
        if typed.token_file is not None:
            raise UsageError("--token-file goes with --server or --profile")
        return None
    endpoint_at(server, "")
    token = _find_token(typed, profile, environment)
    # Who shows a certificate is who that says, and not the owner of the database besides.
    certified = profile is not None and bool(profile.cert_file)
    if token is None and not certified and urlsplit(server).hostname in _THIS_MACHINE:
        token = read_local_token(settings())
    if profile is None:
        return RemoteServer(server=server, token=token)
    files = {"ca_file": profile.ca_file, "cert_file": profile.cert_file, "key_file": profile.key_file}
    exposed = profile.token_file if typed.token_file is None and _readable_by_others(profile.token_file) else ""
    return RemoteServer(server=server, token=token, exposed_file=exposed, **files)


def _find_selected_profile(typed: ServerFlags, environment: Mapping[str, str]) -> Profile | None:
    if typed.server:
        return None
    if typed.profile:
        return find_profile(typed.profile, environment)
    named = environment.get(PROFILE)
    return find_profile(named, environment) if named and not environment.get(SERVER) else None


def _find_token(typed: ServerFlags, profile: Profile | None, environment: Mapping[str, str]) -> str | None:
    if typed.token_file is not None:
        return _read_token_file(typed.token_file)
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
        raise FileError(file, "holds no token") from None
    except OSError as error:
        raise FileError(file, f"cannot be read: {error.strerror}") from None
    if not token or len(token.split()) != 1:
        raise FileError(file, "holds no token")
    return token


def _readable_by_others(file: str) -> bool:
    """Whether others than the owner of a file can read it."""
    try:
        mode = Path(file).expanduser().stat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & (stat.S_IRGRP | stat.S_IROTH))


@asynccontextmanager
async def open_remote(to: RemoteServer) -> "AsyncIterator[AsyncClient]":
    """The door to a server."""
    from gnomon.client import AsyncClient

    tls = _tls_context(to) if urlsplit(to.server).scheme == "https" else None
    # An empty token is none at all: what the environment says was looked at before.
    async with AsyncClient(to.server, token=to.token or "", timeout=_SECONDS, tls=tls) as client:
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
