"""The dependencies: every one is pinned, and none is older than the first version without a known vulnerability.

`make check` runs this, and asks the advisory service about everything else if it answers.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
#: The first version without the vulnerability, and its advisory. A dependency that is added brings its entries along.
FLOORS = {
    "aiohttp": ("3.14.1", "PYSEC-2026-2108"),
    "cryptography": ("46.0.7", "CVE-2026-39892"),
    "grpcio": ("1.65.4", "CVE-2024-7246"),
    "h11": ("0.16.0", "CVE-2025-43859"),
    "jinja2": ("3.1.6", "CVE-2025-27516"),
    "joserfc": ("1.7.3", "CVE-2026-75509"),
    "litestar": ("2.20.0", "CVE-2026-25479"),
    "mako": ("1.3.11", "CVE-2026-41205"),
    "mcp": ("1.23.0", "CVE-2025-66416"),
    "protobuf": ("6.31.1", "CVE-2025-4565"),
    "python-multipart": ("0.0.22", "CVE-2026-24486"),
    "pyyaml": ("5.4", "CVE-2020-14343"),
    "setuptools": ("78.1.1", "CVE-2025-47273"),
    "starlette": ("0.49.1", "CVE-2025-62727"),
}


def pins() -> dict[str, Requirement]:
    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line.strip()]
    return {canonicalize_name(found.name): found for found in map(Requirement, lines)}


def declared() -> Iterator[Requirement]:
    """The dependencies of the project and of its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for group in (project["dependencies"], *project["optional-dependencies"].values()):
        yield from map(Requirement, group)


def needed(names: set[str]) -> set[str]:
    """The dependencies, and all that they need in this environment; those that are not installed need nothing."""
    found: set[str] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        one = waiting.pop()
        if (name := canonicalize_name(one.name)) in found and not one.extras:
            continue
        found.add(name)
        for extra in ("", *one.extras):
            waiting += [need for need in _needs_of(name) if _applies(need, extra) and need.name != one.name]
    return found


def _needs_of(name: str) -> list[Requirement]:
    try:
        return [Requirement(text) for text in distribution(name).requires or ()]
    except PackageNotFoundError:
        return []


def _applies(need: Requirement, extra: str) -> bool:
    return need.marker is None or need.marker.evaluate({"extra": extra})


def test_every_pin_names_one_version() -> None:
    unpinned = [str(pin) for pin in pins().values() if not re.fullmatch(r"==[^*,]+", str(pin.specifier))]

    assert unpinned == []


def test_everything_that_is_needed_is_pinned() -> None:
    names = {str(one).partition(";")[0] for one in declared()}

    assert sorted(needed(names) - set(pins())) == []


@pytest.mark.parametrize("dependency", sorted({str(one) for one in declared()}))
def test_a_pin_is_a_version_that_the_project_accepts(dependency: str) -> None:
    wanted = Requirement(dependency)

    assert wanted.specifier.contains(next(iter(pins()[canonicalize_name(wanted.name)].specifier)).version)


@pytest.mark.parametrize("name", FLOORS)
def test_no_pin_is_below_the_floor_of_an_advisory(name: str) -> None:
    floor, advisory = FLOORS[name]
    pinned = next(iter(pins()[name].specifier)).version

    assert Version(pinned) >= Version(floor), advisory


@pytest.mark.parametrize("name", FLOORS)
def test_an_installation_without_pins_is_not_below_the_floor_either(name: str) -> None:
    floor, advisory = FLOORS[name]
    for one in declared():
        if canonicalize_name(one.name) == name:
            lowest = max(Version(bound.version) for bound in one.specifier if bound.operator == ">=")
            assert lowest >= Version(floor), advisory


# ---- the advisory service ------------------------------------------------------------------------

KNOWN = '{"dependencies": [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "version": "2", "vulns": [%s]}]}'
UNKNOWN = '{"dependencies": [{"name": "a", "skip_reason": "Dependency not found on PyPI"}]}'


def asked(folder: Path, *flags: str) -> tuple[int, str]:
    """The exit code and the last line of the question to the service."""
    pins = folder / "pins.txt"
    pins.write_text("a==1\nb==2\n")
    # Nothing listens there: no connection leaves this machine.
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:1/simple", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "support.advisories",
        "--folder",
        folder / "audit",
        "--pins",
        pins,
        *flags,
    ]
    done = subprocess.run(
        command, cwd=ROOT / "tests", env={**os.environ, **nowhere}, check=False, capture_output=True, text=True
    )
    return done.returncode, done.stdout.strip().splitlines()[-1]


def install_answering(folder: Path, said: str) -> None:
    """Put a program in the place of pip-audit that prints this."""
    program = folder / "audit" / "bin" / "pip-audit"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    program.chmod(0o755)


def test_without_an_index_the_check_is_skipped_in_one_line(tmp_path: Path) -> None:
    assert asked(tmp_path) == (0, "advisories: skipped, not reachable")
    assert asked(tmp_path, "--required") == (1, "advisories: skipped, not reachable")


@pytest.mark.parametrize("said", [UNKNOWN, ""], ids=["no advisories", "no answer"])
def test_a_service_that_knows_nothing_skips_the_check(tmp_path: Path, said: str) -> None:
    install_answering(tmp_path, said)

    assert asked(tmp_path) == (0, "advisories: skipped, not reachable")


def test_a_known_advisory_fails_the_check_and_is_named(tmp_path: Path) -> None:
    install_answering(tmp_path, KNOWN % '{"id": "PYSEC-1"}')

    assert asked(tmp_path) == (1, "advisories: 1 in 2 of 2 pins")


def test_pins_without_advisories_pass_the_check(tmp_path: Path) -> None:
    install_answering(tmp_path, KNOWN % "")

    assert asked(tmp_path) == (0, "advisories: 0 in 2 of 2 pins")
