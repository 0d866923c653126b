"""The command line: parses arguments, runs one command, and turns errors into messages and exit codes."""

import gc
import io
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

from typer import Abort
from typer.exceptions import TyperException
from typer.main import get_command

from gnomon.cli.commands import app
from gnomon.cli.flags import add_server_options, forget_flags
from gnomon.cli.output import Format, choose_format, discard_output, show_errors, show_usage_error
from gnomon.errors import GnomonError, JobsFileError, UsageError

#: The exit code for a usage error, as Unix tools use it; other expected failures exit with 1.
EXIT_USAGE = 2
EXIT_FAILURE = 1
#: After how many new objects garbage is collected. Python has 700; what a command loads are many thousands that stay.
_GC_THRESHOLD = 50_000


def main() -> None:
    """Run the command line. An expected error is printed as a message, without a traceback."""
    if sys.stdout is None:  # the parent process closed it
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open until the process exits
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal cannot encode must not abort the output.
        sys.stdout.reconfigure(errors="replace")
    gc.set_threshold(_GC_THRESHOLD)
    sys.exit(_run_and_flush())


def _run_and_flush() -> int:
    """Run the command, flush its output and return the exit code."""
    try:
        code = _run()
        sys.stdout.flush()
    except GnomonError as error:
        show_errors([error, *(error.more if isinstance(error, JobsFileError) else ())])
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILURE
    except OSError as error:
        discard_output()
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"error: cannot write the output: {error.strerror}\n")
        return EXIT_FAILURE
    return code


@cache
def _command() -> Any:  # noqa: ANN401 - the types of the library are private
    """The command with its sub-commands. Most of the time of a short command goes into building them."""
    return add_server_options(get_command(app))


def _run() -> int:
    choose_format(Format.TABLE)
    forget_flags()
    try:
        code = _command().main(prog_name="gnomon", standalone_mode=False)
    except TyperException as misuse:
        show_usage_error(misuse.format_message())
        return EXIT_USAGE
    except Abort:
        sys.stderr.write("error: nothing was done\n")
        return EXIT_FAILURE
    except SystemExit as done:
        code = done.code
    return code if isinstance(code, int) else 0
