"""The options --server, --profile and --token-file, accepted before and after a command that can use a server."""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.main import get_command

from gnomon.errors import UsageError

#: Commands that need direct access to the database.
_LOCAL_ONLY_COMMANDS = {
    ("up",),
    ("server",),
    ("doctor",),
    ("db", "migrate"),
    ("db", "clean"),
    ("token", "create"),
    ("token", "inspect"),
    ("audit", "verify"),
    ("config", "show"),
}


class ParsedServerFlags(NamedTuple):
    """The values of --server, --profile and --token-file."""

    server: str | None = None
    profile: str | None = None
    token_file: Path | None = None


#: The flags of the command that is being parsed.
_CURRENT: ContextVar[ParsedServerFlags | None] = ContextVar("server_flags", default=None)


def parsed_server_flags() -> ParsedServerFlags:
    """The server flags of the current command."""
    return _CURRENT.get() or ParsedServerFlags()


def _refuse_server() -> None:
    """Raise UsageError if a server is named for a command that needs the database."""
    flags = parsed_server_flags()
    named = "--server" if flags.server else "--profile" if flags.profile else None
    if named is not None:
        raise UsageError(f"{named} cannot be used with this command: it needs direct access to the database")


def add_server_options(command: Any) -> Any:  # noqa: ANN401 - commands and groups have no public type in common
    """The command with the server options added to its root and to every sub-command that takes --database."""
    _CURRENT.set(None)
    options = get_command(_OPTIONS).params
    command.params += options
    for path, inner in _leaf_commands(command, ()):
        if path in _LOCAL_ONLY_COMMANDS:
            inner.callback = _refuse_server_before(inner.callback)
        elif any(parameter.name == "database" for parameter in inner.params):
            inner.params += options
    return command


def _leaf_commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:  # noqa: ANN401 - as above
    for name, inner in command.commands.items():
        if hasattr(inner, "commands"):
            yield from _leaf_commands(inner, (*path, name))
        else:
            yield (*path, name), inner


def _refuse_server_before(callback: Callable[..., object]) -> Callable[..., object]:
    @wraps(callback)
    def checked(*args: object, **kwargs: object) -> object:
        _refuse_server()
        return callback(*args, **kwargs)

    return checked


def _server(value: str | None) -> None:
    if value is not None:
        _CURRENT.set(parsed_server_flags()._replace(server=value))


def _profile(value: str | None) -> None:
    if value is not None:
        _CURRENT.set(parsed_server_flags()._replace(profile=value))


def _token_file(value: Path | None) -> None:
    if value is not None:
        _CURRENT.set(parsed_server_flags()._replace(token_file=value))


_OPTIONS = typer.Typer(add_completion=False)
_SERVER = typer.Option(
    "--server", metavar="URL", expose_value=False, callback=_server, help="Send the command to this server."
)
_PROFILE = typer.Option(
    "--profile",
    metavar="NAME",
    expose_value=False,
    callback=_profile,
    help="Send the command to the server of this profile.",
)
_TOKEN_FILE = typer.Option(
    "--token-file", metavar="FILE", expose_value=False, callback=_token_file, help="File with the token for the server."
)


@_OPTIONS.command()
def _server_options_command(
    *,
    server: Annotated[str | None, _SERVER] = None,
    profile: Annotated[str | None, _PROFILE] = None,
    token_file: Annotated[Path | None, _TOKEN_FILE] = None,
) -> None:
    del server, profile, token_file
