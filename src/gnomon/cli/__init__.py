"""The command line: one door into the same rooms. Each command is imported when it is used."""

import sys

from gnomon.cli.commands import app
from gnomon.cli.failures import show_error
from gnomon.errors import GnomonError, UsageError

#: What the caller got wrong, as every Unix tool says it; anything else on purpose is 1.
EXIT_USAGE = 2
EXIT_FAILURE = 1


def main() -> None:
    """Run the command line; errors made on purpose are shown to a person, never as a traceback."""
    try:
        app()
    except GnomonError as error:
        show_error(error)
        sys.exit(EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILURE)
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does; nothing is left to say.
        sys.stderr.close()
        sys.exit(EXIT_FAILURE)
