"""A module that a process imports to print, when it ends, the names of all modules that it has loaded."""

import atexit
import sys


def _print_modules() -> None:
    sys.stdout.write(f"loaded: {' '.join(sorted(sys.modules))}\n")


atexit.register(_print_modules)
