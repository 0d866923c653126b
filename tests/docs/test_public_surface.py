"""The documentation uses the public surface only, in its examples and in its prose."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(r"^```(?:python|py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PUBLIC = {
    "gnomon",
    "gnomon.client",
    "gnomon.declarative",
    "gnomon.declarative.errors",
    "gnomon.declarative.theory",
    "gnomon.errors",
    "gnomon.testing",
}
INTERNAL = re.compile(r"gnomon\.(?:adapters|api|app|cli|config|core|ports|runners|services)\b")


def offences(example: str) -> list[str]:
    """The names that an example imports, or reads from the package, although they are not public."""
    return [name for name in _used(ast.parse(example)) if not _is_public(name)]


def _used(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported and every name that is taken from one, with dots."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "gnomon":
            yield f"gnomon.{node.attr}"


def _is_public(name: str) -> bool:
    if name.partition(".")[0] != "gnomon" or name in PUBLIC:
        return True
    module, _, attribute = name.rpartition(".")
    if module not in PUBLIC:
        return False
    found = import_module(module)
    return attribute in getattr(found, "__all__", vars(found))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_public_names_only(page: Path) -> None:
    text = page.read_text()

    assert [name for example in EXAMPLE.findall(text) for name in offences(example)] == []
    assert INTERNAL.findall(text) == []


@pytest.mark.parametrize(
    "example",
    [
        "import gnomon",
        "import os.path",
        "from gnomon import Operations, errors",
        "from gnomon.errors import FieldError",
        "from gnomon.testing import VirtualClock",
        "import gnomon\ngnomon.start()",
    ],
)
def test_a_public_name_is_allowed(example: str) -> None:
    assert offences(example) == []


@pytest.mark.parametrize(
    "example",
    [
        "import gnomon.app.operations",
        "from gnomon.core.jobs.job import read_job",
        "from gnomon.testing.clock import VirtualClock",
        "from gnomon import app",
        "import gnomon\ngnomon.core",
        "def late():\n    from gnomon.services import loop",
    ],
)
def test_an_internal_name_is_refused(example: str) -> None:
    assert len(offences(example)) == 1
