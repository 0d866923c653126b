"""What can be typed about servers elsewhere, at every command that may be for one."""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.main import get_command

from gnomon.errors import UsageError

#: Commands that need the store itself.
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
    """What was typed about a server."""

    server: str | None = None
    profile: str | None = None
    token_file: Path | None = None


#: What was typed with the command that is under way.
PARSED_SERVER_FLAGS: ContextVar[ParsedServerFlags | None] = ContextVar("typed", default=None)


def parsed_server_flags() -> ParsedServerFlags:
    """What was typed about a server."""
    return PARSED_SERVER_FLAGS.get() or ParsedServerFlags()


def _refuse_server() -> None:
    """UsageError if a server was named to a command that needs the store itself."""
    said = parsed_server_flags()
    named = "--server" if said.server else "--profile" if said.profile else None
    if named is not None:
        raise UsageError(f"{named} is not for this command: it needs the store itself")


def add_server_options(command: Any) -> Any:  # noqa: ANN401 - commands and groups have no public type in common
    """The command, with the options of this page at its top and wherever a server can be asked instead of a store."""
    PARSED_SERVER_FLAGS.set(None)
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
    def refused(*given: object, **said: object) -> object:
        _refuse_server()
        return callback(*given, **said)

    return refused


def _server(value: str | None) -> None:
    if value is not None:
        PARSED_SERVER_FLAGS.set(parsed_server_flags()._replace(server=value))


def _profile(value: str | None) -> None:
    if value is not None:
        PARSED_SERVER_FLAGS.set(parsed_server_flags()._replace(profile=value))


def _token_file(value: Path | None) -> None:
    if value is not None:
        PARSED_SERVER_FLAGS.set(parsed_server_flags()._replace(token_file=value))


_OPTIONS = typer.Typer(add_completion=False)
_SERVER = typer.Option(
    "--server", metavar="URL", expose_value=False, callback=_server, help="A server, instead of the store at hand."
)
_PROFILE = typer.Option(
    "--profile", metavar="NAME", expose_value=False, callback=_profile, help="A server that gnomon profiles knows."
)
_TOKEN_FILE = typer.Option(
    "--token-file", metavar="FILE", expose_value=False, callback=_token_file, help="The token to show the server."
)


@_OPTIONS.command()
def _server_options_command(
    *,
    server: Annotated[str | None, _SERVER] = None,
    profile: Annotated[str | None, _PROFILE] = None,
    token_file: Annotated[Path | None, _TOKEN_FILE] = None,
) -> None:
    del server, profile, token_file
