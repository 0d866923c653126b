"""Rules on the structure of the code: who may import whom, and what the core must not touch."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

import gnomon

SOURCE = Path(gnomon.__file__).parent
#: The packages that each package may import. `errors` and `version` are open to all.
MAY_IMPORT = {
    "core": {"core"},
    "ports": {"core", "ports"},
    "config": {"core", "config"},
    "adapters": {"core", "ports", "adapters", "config"},
    "services": {"core", "ports", "services", "config"},
    "testing": {"core", "ports", "adapters", "services", "runners", "testing", "config"},
    "runners": {"core", "ports", "runners", "config"},
    "api": {"core", "ports", "services", "api", "config"},
    "client": {"core", "client"},
    "cli": {"core", "ports", "services", "testing", "app", "cli", "client", "config"},
    "app": {"core", "ports", "adapters", "services", "runners", "api", "client", "config", "app"},
    "declarative": {"core", "ports", "adapters", "declarative", "config"},
}
COMMON = {"errors", "version"}
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
TOP_LEVEL = {"__init__.py", "__main__.py", "errors.py", "version.py"}


def modules(package: str = "") -> list[Path]:
    return sorted((SOURCE / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def imports(path: Path, root: Path = SOURCE) -> set[str]:
    """The full names of all that a module imports, in any spelling: from a package, or relative to itself."""
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
        "gnomon.core.cron.days",
    }


def packages() -> list[str]:
    return sorted(path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__")


def test_the_top_level_holds_four_modules() -> None:
    assert {path.name for path in SOURCE.glob("*.py")} == TOP_LEVEL


@pytest.mark.parametrize("package", packages())
def test_every_package_has_a_rule_about_what_it_may_import(package: str) -> None:
    assert package in MAY_IMPORT


@pytest.mark.parametrize("path", [path for package in packages() for path in modules(package)], ids=name_of)
def test_a_package_imports_only_what_it_may(path: Path) -> None:
    package = name_of(path).split("/")[0]
    seen = {name.split(".")[1] for name in imports(path) if name.startswith("gnomon.")}

    assert seen <= MAY_IMPORT[package] | COMMON


@pytest.mark.parametrize("path", modules("core"), ids=name_of)
def test_the_core_asks_nothing_of_the_outside_world(path: Path) -> None:
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    called = {getattr(func, "attr", getattr(func, "id", None)) for func in calls}

    assert not {name.split(".")[0] for name in imports(path)} & OUTSIDE_WORLD
    assert not called & HIDDEN_INPUTS


def test_the_oracle_knows_nothing_of_the_code_it_checks() -> None:
    assert not [name for name in imports(SOURCE / "testing" / "scanner.py") if name.startswith("gnomon")]


def test_the_public_names_are_listed_once_and_exist() -> None:
    assert sorted(set(gnomon.__all__)) == sorted(gnomon.__all__)
    assert all(hasattr(gnomon, name) for name in gnomon.__all__)


def foreign_assignments(tree: ast.AST) -> set[str]:
    """The assignments in a module to attributes of any object but `self`."""
    nodes = list(ast.walk(tree))
    stored = [one for one in nodes if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load)]
    calls = [one for one in nodes if isinstance(one, ast.Call) and ast.unparse(one.func) in ("setattr", "delattr")]
    return {ast.unparse(one) for one in stored if ast.unparse(one.value) != "self"} | set(map(ast.unparse, calls))


def test_no_way_to_assign_to_another_object_goes_unseen() -> None:
    source = """
self.own = 1
other.plain = 1
one, self.own, other.in_a_tuple = 1, 2, 3
other.typed: int = 1
other.counted += 1
self.part.nested = 1
setattr(other, "name", 1)
found[0] = 1
"""
    assert foreign_assignments(ast.parse(source)) == {
        "other.plain",
        "other.in_a_tuple",
        "other.typed",
        "other.counted",
        "self.part.nested",
        "setattr(other, 'name', 1)",
    }


@pytest.mark.parametrize("path", modules("app"), ids=name_of)
def test_composition_passes_collaborators_to_constructors(path: Path) -> None:
    assert foreign_assignments(ast.parse(path.read_text())) == set()


MAX_PORT_METHODS = 8


def port_methods(tree: ast.AST) -> dict[str, list[str]]:
    """The methods that each protocol of a module declares itself. The properties of a bundle are parts, not methods."""
    protocols = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).split("[")[0] == "Protocol" for base in node.bases)
    ]
    return {
        protocol.name: [
            node.name
            for node in protocol.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and "property" not in map(ast.unparse, node.decorator_list)
        ]
        for protocol in protocols
    }


def test_every_method_of_a_port_is_counted() -> None:
    source = """
class Port(Protocol[T]):
    @property
    def part(self): ...
    def plain(self): ...
    async def awaited(self): ...
class NoPort:
    def plain(self): ...
"""
    assert port_methods(ast.parse(source)) == {"Port": ["plain", "awaited"]}


@pytest.mark.parametrize("path", modules("ports"), ids=name_of)
def test_a_port_has_few_methods(path: Path) -> None:
    wide = {
        name: found
        for name, found in port_methods(ast.parse(path.read_text())).items()
        if len(found) > MAX_PORT_METHODS
    }

    assert wide == {}


def test_only_the_code_that_opens_stores_names_the_sql_store() -> None:
    named = {name_of(path) for path in modules() if "gnomon.adapters.sql.store.SqlStore" in imports(path)}

    assert {name for name in named if not name.startswith("adapters/sql/")} == {"app/stores.py"}


def class_members() -> dict[str, set[str]]:
    """The methods of each class, by its name, inherited ones included as far as they are in the source."""
    trees = [ast.parse(path.read_text()) for path in modules()]
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    own: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for one in classes:
        own[one.name] |= {node.name for node in one.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        bases[one.name] |= {ast.unparse(base).split("[")[0] for base in one.bases}
    return {name: members.union(*(own.get(base, set()) for base in bases[name])) for name, members in own.items()}


def test_a_docstring_that_refers_to_a_method_names_one_that_exists() -> None:
    known = class_members()
    referred = [
        (name_of(path), *reference)
        for path in modules()
        for reference in re.findall(r'"""See (\w+)\.(\w+)', path.read_text())
    ]

    assert referred
    assert [one for one in referred if one[2] not in known.get(one[1], set())] == []
