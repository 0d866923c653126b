"""Servers under names of the user's own, in a file that only they can read."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import msgspec
from msgspec import Struct

from gnomon.adapters.auth.local_key import read_own, replaced
from gnomon.core.jobs.fields import schedule_name
from gnomon.errors import FileError, NotFound, UsageError


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A server, and where what it is shown is found. A token itself never stands here."""

    server: str
    token_file: str = ""
    token_env: str = ""
    #: Files in PEM: whom to believe, and who we are.
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


class _Profiles(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    profiles: dict[str, Profile] = {}


def profiles_path(environment: Mapping[str, str]) -> Path:
    """Where profiles are kept: in the user's folder for configuration."""
    folder = environment.get("XDG_CONFIG_HOME")
    home = Path(environment["HOME"]) if environment.get("HOME") else Path.home()
    return (Path(folder) if folder else home / ".config") / "gnomon" / "profiles.json"


def read_profiles(environment: Mapping[str, str]) -> dict[str, Profile]:
    """All profiles by name; FileError if the file is none of ours, or others can read it."""
    path = profiles_path(environment)
    text = read_own(path)
    if text is None:
        return {}
    try:
        return dict(sorted(msgspec.json.decode(text, type=_Profiles).profiles.items()))
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


def keep_profile(name: str, profile: Profile, environment: Mapping[str, str]) -> bool:
    """The profile stands under that name; whether the name is new comes back."""
    known = read_profiles(environment)
    new = schedule_name("profile", name) not in known
    _write({**known, name: profile}, environment)
    return new


def forget_profile(name: str, environment: Mapping[str, str]) -> None:
    """There is no profile of that name any more; NotFound if there was none."""
    find_profile(name, environment)
    _write({other: one for other, one in read_profiles(environment).items() if other != name}, environment)


def _write(profiles: dict[str, Profile], environment: Mapping[str, str]) -> None:
    path = profiles_path(environment)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(path, f"cannot be written: {error.strerror}") from None
    replaced(path, json.dumps(msgspec.to_builtins(_Profiles(profiles=profiles)), indent=2) + "\n")
