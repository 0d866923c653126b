"""Parse a command line of Gnomon without running it, or run it in this process."""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any
from unittest.mock import patch

from typer.main import get_command

from gnomon.cli import main
from gnomon.cli.commands import app


def parse_command(arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The command and its options; raises what the command line would report."""
    root: Any = get_command(app)
    context = root.make_context("gnomon", list(arguments))
    name, command, rest = root.resolve_command(context, list(arguments))
    return name, dict(command.make_context(name, rest, parent=context).params)


def run_command(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command in this process and in that folder. A process of its own takes a second of processor time."""
    out, error = (TextIOWrapper(BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: object = None
    with chdir(folder), redirect_stdout(out), redirect_stderr(error), patch.object(sys, "argv", ["gnomon", *arguments]):
        try:
            main()
        except SystemExit as left:
            code = left.code
    assert isinstance(code, int)
    printed, problems = (stream.buffer.getvalue().decode() for stream in (out, error))
    return subprocess.CompletedProcess(arguments, code, printed, problems)
