"""Options before or after a command: --server, --profile, --token-file and --timeout for a server, --tz for times."""

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
    """The values of --server, --profile, --token-file and --timeout."""

    server: str | None = None
    profile: str | None = None
    token_file: Path | None = None
    timeout: float | None = None


#: The flags of the command that is being parsed.
_CURRENT: ContextVar[ParsedServerFlags | None] = ContextVar("server_flags", default=None)


#: The time zone in which the command that is being parsed shows times.
_ZONE: ContextVar[str | None] = ContextVar("zone", default=None)


def chosen_zone() -> str | None:
    """The time zone of --tz; None without it."""
    return _ZONE.get()


def parsed_server_flags() -> ParsedServerFlags:
    """The server flags of the current command."""
    return _CURRENT.get() or ParsedServerFlags()


def _refuse_server() -> None:
    """Raise UsageError if a server is named for a command that needs the database."""
    flags = parsed_server_flags()
    named = "--server" if flags.server else "--profile" if flags.profile else None
    if named is not None:
        raise UsageError(f"{named} cannot be used with this command: it needs direct access to the database")


def forget_flags() -> None:
    """Forget the flags of the command that this process ran before."""
    _CURRENT.set(None)
    _ZONE.set(None)


def add_server_options(command: Any) -> Any:  # noqa: ANN401 - commands and groups have no public type in common
    """The command with the server options added to its root and to every sub-command that takes --database."""
    options, zone = get_command(_OPTIONS).params, get_command(_ZONE_OPTIONS).params
    command.params += options + zone
    for path, inner in _leaf_commands(command, ()):
        if any(parameter.name == "database" for parameter in inner.params) and not _has_zone(inner):
            inner.params += zone
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


def _has_zone(command: Any) -> bool:  # noqa: ANN401 - as above
    """Whether the command has an option --tz of its own."""
    return any("--tz" in parameter.opts for parameter in command.params)


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


def _timeout(value: float | None) -> None:
    if value is not None:
        _CURRENT.set(parsed_server_flags()._replace(timeout=value))


_OPTIONS = typer.Typer(add_completion=False)
_SERVER = typer.Option(
    "--server",
    metavar="URL",
    expose_value=False,
    callback=_server,
    help="Ask this server instead of opening a database.",
)
_PROFILE = typer.Option(
    "--profile",
    metavar="NAME",
    expose_value=False,
    callback=_profile,
    help="Ask the server of this profile instead of opening a database.",
)
_TOKEN_FILE = typer.Option(
    "--token-file", metavar="FILE", expose_value=False, callback=_token_file, help="File with the token for the server."
)
_TIMEOUT = typer.Option(
    "--timeout",
    metavar="SECONDS",
    min=0.1,
    expose_value=False,
    callback=_timeout,
    help="How long to wait for a response of the server (default: 30; 120 for many jobs at once).",
)


@_OPTIONS.command()
def _server_options_command(
    *,
    server: Annotated[str | None, _SERVER] = None,
    profile: Annotated[str | None, _PROFILE] = None,
    token_file: Annotated[Path | None, _TOKEN_FILE] = None,
    timeout: Annotated[float | None, _TIMEOUT] = None,
) -> None:
    del server, profile, token_file, timeout


def _zone(value: str | None) -> None:
    if value is not None:
        from gnomon.core.cron import known_zone

        known_zone(value)
        _ZONE.set(value)


_ZONE_OPTIONS = typer.Typer(add_completion=False)
_TZ = typer.Option(
    "--tz",
    metavar="ZONE",
    expose_value=False,
    callback=_zone,
    help="Show times in this IANA time zone (default: that of the job, or of this machine).",
)


@_ZONE_OPTIONS.command()
def _zone_options_command(*, tz: Annotated[str | None, _TZ] = None) -> None:
    del tz
