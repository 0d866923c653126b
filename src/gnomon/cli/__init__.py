"""The command line: one door into the same rooms. Each command is imported when it is used."""

import io
import os
import sys

from gnomon.cli.commands import app
from gnomon.cli.failures import show_error
from gnomon.errors import GnomonError, UsageError

#: What the caller got wrong, as every Unix tool says it; anything else on purpose is 1.
EXIT_USAGE = 2
EXIT_FAILURE = 1


def main() -> None:
    """Run the command line; what goes wrong is shown to a person, never as a traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What a terminal cannot show must not stop the rest.
        sys.stdout.reconfigure(errors="replace")
    sys.exit(_finished())


def _finished() -> int:
    """Run the command and hand over all it wrote; the exit code."""
    try:
        code = _run()
        sys.stdout.flush()
    except GnomonError as error:
        show_error(error)
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILURE
    except OSError as error:
        _let_go_of_output()
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"error: cannot write the output: {error.strerror}\n")
        return EXIT_FAILURE
    return code


def _run() -> int:
    try:
        app()
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else EXIT_FAILURE
    return 0


def _let_go_of_output() -> None:
    """Send what is still buffered nowhere, so that Python does not fail on it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
