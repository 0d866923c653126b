"""Parse a command line of Gnomon without running it."""

from collections.abc import Sequence
from typing import Any

from typer.main import get_command

from gnomon.cli.commands import app


def parse_command(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The command and its options; raises what the command line would report."""
    root: Any = get_command(app)
    context = root.make_context("gnomon", list(arguments))
    name, command, rest = root.resolve_command(context, list(arguments))
    return name, dict(command.make_context(name, rest, parent=context).params)
