"""`gnomon profiles`: servers elsewhere, under names of your own."""

import os
from pathlib import Path

from msgspec.structs import replace

from gnomon.cli.output import Format, print_data, print_table
from gnomon.cli.remote import Profile, delete_profile, read_profiles, save_profile
from gnomon.cli.target import echo
from gnomon.client.transport import endpoint_at
from gnomon.errors import FieldError, UsageError


def list_profiles(form: Format) -> None:
    """List the servers that have a name here."""
    found = read_profiles(os.environ)
    if form is not Format.TABLE:
        print_data([{"profile": name, **_fields(one)} for name, one in found.items()], form)
        return
    if not found:
        echo("no profiles: gnomon profiles add NAME --server URL names a server")
        return
    print_table(["profile", "server", "token from"], [[name, one.server, _token(one)] for name, one in found.items()])


def add(name: str, profile: Profile) -> None:
    """Give a server a name."""
    endpoint_at(profile.server, "")
    if profile.token_file and profile.token_env:
        raise UsageError("--token-file and --token-env both say where the token is: say one of them")
    if profile.token_env and not profile.token_env.isidentifier():
        raise FieldError("--token-env", profile.token_env, "is no name of a variable")
    if profile.key_file and not profile.cert_file:
        raise UsageError("--key-file goes with --cert-file")
    files = ("token_file", "ca_file", "cert_file", "key_file")
    kept = replace(profile, **{field: _absolute(getattr(profile, field)) for field in files})
    new = save_profile(name, kept, os.environ)
    echo(f"{name} is {profile.server}" if new else f"{name} is {profile.server} from now on")


def remove(name: str) -> None:
    """Forget a name."""
    delete_profile(name, os.environ)
    echo(f"{name} is forgotten")


def _absolute(file: str) -> str:
    """The path from the root: a profile counts in every folder."""
    return os.path.abspath(Path(file).expanduser()) if file else ""  # noqa: PTH100 - links stay what they are


def _token(profile: Profile) -> str:
    return profile.token_file or (f"${profile.token_env}" if profile.token_env else "")


def _fields(profile: Profile) -> dict[str, str]:
    return {field: getattr(profile, field) for field in Profile.__struct_fields__}
