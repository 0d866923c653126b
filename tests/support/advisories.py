"""Asks the advisory service about every pinned dependency, if the package index offers pip-audit and answers.

Without a network, or with an index that knows no advisories, one line says that the check was skipped. `--required`
makes that a failure: `make audit`. Only pip and pip-audit open connections, to the index and the service that they are
configured for.
"""

import argparse
import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_SKIPPED = "advisories: skipped, not reachable"
#: The seconds that installing and asking may take, and one connection.
_INSTALL_SECONDS, _ASK_SECONDS, _CONNECTION_SECONDS = 60, 120, "5"


def main(arguments: Sequence[str]) -> int:
    """Print what the service says; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--required", action="store_true", help="fail if the service cannot be asked")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "audit", help="where pip-audit is installed")
    parser.add_argument("--pins", type=Path, default=ROOT / "requirements.txt", help="the dependencies")
    given = parser.parse_args(arguments)
    asked = _asked(given.folder, given.pins)
    answered = [one for one in asked if "vulns" in one]
    if not answered:
        _print(_SKIPPED)
        return int(given.required)
    found = [f"{one['name']} {one['version']}: {vuln['id']}" for one in answered for vuln in one["vulns"]]
    _print(*found, f"advisories: {len(found)} in {len(answered)} of {len(asked)} pins")
    return int(bool(found) or (given.required and len(answered) < len(asked)))


def _print(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _asked(folder: Path, pins: Path) -> list[dict[str, Any]]:
    """The dependencies, each with its advisories, or with the reason why they are not known."""
    program = folder / "bin" / "pip-audit"
    if not program.exists() and not _installed(folder):
        return []
    # An index without advisories knows none of any dependency: the first one says so in a second.
    first = folder / "first.txt"
    first.write_text(pins.read_text().partition("\n")[0])
    answered = any("vulns" in one for one in _answers(program, first))
    return _answers(program, pins) if answered else []


def _answers(program: Path, pins: Path) -> list[dict[str, Any]]:
    command: list[str | Path] = [program, "--requirement", pins, "--no-deps", "--disable-pip", "--format", "json"]
    said = _output([*command, "--progress-spinner", "off", "--timeout", _CONNECTION_SECONDS], _ASK_SECONDS)
    found: list[dict[str, Any]] = json.loads(said)["dependencies"] if said.strip() else []
    return found


def _installed(folder: Path) -> bool:
    """Install pip-audit in an environment of its own; return whether the index has it."""
    venv.create(folder, with_pip=False, clear=True)
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", folder, "--quiet", "--disable-pip-version-check"]
    limits = ["--retries", "0", "--timeout", _CONNECTION_SECONDS]
    _output([*pip, "install", *limits, "pip-audit"], _INSTALL_SECONDS)
    return (folder / "bin" / "pip-audit").exists()


def _output(command: Sequence[str | Path], seconds: float) -> str:
    """The output of the program; nothing if it takes too long."""
    environment = {**os.environ, "PIP_NO_INPUT": "1"}
    try:
        return subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=seconds, env=environment
        ).stdout
    except subprocess.TimeoutExpired:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
