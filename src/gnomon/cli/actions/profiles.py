"""`gnomon profiles`: named remote servers."""

import os
from pathlib import Path

from msgspec.structs import replace

from gnomon.app.remote_server import Profile, delete_profile, read_profiles, save_profile
from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.target import echo
from gnomon.client.transport import endpoint_at
from gnomon.errors import FieldError, UsageError


def list_profiles(form: Format) -> None:
    """Print the profiles."""
    found = read_profiles(os.environ)
    if form is not Format.TABLE:
        print_data([{"profile": name, **_fields(one)} for name, one in found.items()], form)
        return
    if not found:
        echo("no profiles: gnomon profiles add NAME --server URL names a server")
        return
    print_table(["profile", "server", "token from"], [[name, one.server, _token(one)] for name, one in found.items()])


def add(name: str, profile: Profile) -> None:
    """Create or replace a profile."""
    endpoint_at(profile.server, "")
    if profile.token_file and profile.token_env:
        raise UsageError("--token-file and --token-env both name the token: use one of them")
    if profile.token_env and not profile.token_env.isidentifier():
        raise FieldError("--token-env", profile.token_env, "is not the name of an environment variable")
    if profile.key_file and not profile.cert_file:
        raise UsageError("--key-file goes with --cert-file")
    files = ("token_file", "ca_file", "cert_file", "key_file")
    kept = replace(profile, **{field: _absolute(getattr(profile, field)) for field in files})
    new = save_profile(name, kept, os.environ)
    echo(f"{name} is {profile.server}" if new else f"{name} now is {profile.server}")


def remove(name: str) -> None:
    """Delete a profile."""
    delete_profile(name, os.environ)
    echo(f"{name} is deleted")


def _absolute(file: str) -> str:
    """The absolute path, so that the profile works in every folder."""
    return os.path.abspath(Path(file).expanduser()) if file else ""  # noqa: PTH100 - links stay what they are


def _token(profile: Profile) -> str:
    return profile.token_file or (f"${profile.token_env}" if profile.token_env else "")


def _fields(profile: Profile) -> dict[str, str]:
    return {field: getattr(profile, field) for field in Profile.__struct_fields__}
