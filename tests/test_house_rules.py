"""The house checks itself: who may import whom, what the core must not touch, how large a room may be."""

import ast
from pathlib import Path

import pytest

import gnomon

SOURCE = Path(gnomon.__file__).parent
#: Which rooms a room may look into. `errors`, `sections`, `settings` and `version` stand in the hall, open to all.
MAY_IMPORT = {
    "core": {"core"},
    "ports": {"core", "ports"},
    "adapters": {"core", "ports", "adapters"},
    "services": {"core", "ports", "services"},
    "testing": {"core", "ports", "adapters", "services", "runners", "testing"},
    "runners": {"core", "ports", "runners"},
    "api": {"core", "ports", "services", "api"},
    "client": {"core", "client"},
    "cli": {
        "core",
        "ports",
        "services",
        "testing",
        "access",
        "app",
        "office",
        "serving",
        "workshop",
        "fielding",
        "examining",
        "cli",
        "client",
        "doors",
        "elsewhere",
        "profiles",
    },
    "declarative": {"core", "ports", "adapters", "declarative"},
}
HALL = {"errors", "sections", "settings", "version"}
OUTSIDE_WORLD = {
    "asyncio",
    "os",
    "pathlib",
    "random",
    "secrets",
    "socket",
    "sqlite3",
    "subprocess",
    "time",
    "uuid",
}
HIDDEN_INPUTS = {"now", "utcnow", "today", "open", "print"}
LONGEST_FUNCTION, LONGEST_MODULE = 40, 400


def modules(room: str = "") -> list[Path]:
    return sorted((SOURCE / room).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def imports(path: Path, root: Path = SOURCE) -> set[str]:
    """The full names of all that a module imports, however it says so: from a package, or relative to itself."""
    package = ("gnomon", *path.relative_to(root).parent.parts)
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *([node.module] if node.module else [])))
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def test_no_way_to_import_goes_unseen(tmp_path: Path) -> None:
    module = tmp_path / "core" / "cron" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text(
        "import os.path\nfrom gnomon import services\nfrom ... import cli\nfrom ..model import Run\nfrom . import days"
    )

    assert imports(module, tmp_path) == {
        "os.path",
        "gnomon.services",
        "gnomon.cli",
        "gnomon.core.model.Run",
        "gnomon.core.cron.calendar",
    }


def rooms() -> list[str]:
    return sorted(path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__")


@pytest.mark.parametrize("room", rooms())
def test_every_room_has_a_rule_about_what_it_may_import(room: str) -> None:
    assert room in MAY_IMPORT


@pytest.mark.parametrize("path", [path for room in rooms() for path in modules(room)], ids=name_of)
def test_a_room_imports_only_what_it_may(path: Path) -> None:
    room = name_of(path).split("/")[0]
    seen = {name.split(".")[1] for name in imports(path) if name.startswith("gnomon.")}

    assert seen <= MAY_IMPORT[room] | HALL


@pytest.mark.parametrize("path", modules("core"), ids=name_of)
def test_the_core_asks_nothing_of_the_outside_world(path: Path) -> None:
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    called = {getattr(func, "attr", getattr(func, "id", None)) for func in calls}

    assert not {name.split(".")[0] for name in imports(path)} & OUTSIDE_WORLD
    assert not called & HIDDEN_INPUTS


@pytest.mark.parametrize("path", modules(), ids=name_of)
def test_rooms_are_small(path: Path) -> None:
    text = path.read_text()

    assert text.count("\n") <= LONGEST_MODULE
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < LONGEST_FUNCTION, node.name


def test_the_oracle_knows_nothing_of_what_it_judges() -> None:
    assert not [name for name in imports(SOURCE / "testing" / "scanner.py") if name.startswith("gnomon")]


def test_the_public_names_are_listed_once_and_exist() -> None:
    assert sorted(set(gnomon.__all__)) == sorted(gnomon.__all__)
    assert all(hasattr(gnomon, name) for name in gnomon.__all__)
