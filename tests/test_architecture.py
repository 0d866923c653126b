"""Rules on the structure of the code: who may import whom, and what the core must not touch."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
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


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def imports(path: Path, root: Path = SOURCE) -> set[str]:
    """The full names of all that a module imports, in any spelling: from a package, or relative to itself."""
    package = ("gnomon", *path.relative_to(root).parent.parts)
    found = set()
    for node in ast.walk(parsed(path)):
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


@pytest.mark.parametrize("package", packages())
def test_a_package_imports_only_what_it_may(package: str) -> None:
    for path in modules(package):
        seen = {name.split(".")[1] for name in imports(path) if name.startswith("gnomon.")}

        assert seen <= MAY_IMPORT[package] | COMMON, name_of(path)


def test_the_core_asks_nothing_of_the_outside_world() -> None:
    for path in modules("core"):
        calls = [node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
        called = {getattr(func, "attr", getattr(func, "id", None)) for func in calls}

        assert not {name.split(".")[0] for name in imports(path)} & OUTSIDE_WORLD, name_of(path)
        assert not called & HIDDEN_INPUTS, name_of(path)


def test_the_oracle_knows_nothing_of_the_code_it_checks() -> None:
    assert not [name for name in imports(SOURCE / "testing" / "scanner.py") if name.startswith("gnomon")]


def test_the_public_names_are_listed_once_and_exist() -> None:
    assert sorted(set(gnomon.__all__)) == sorted(gnomon.__all__)
    assert all(hasattr(gnomon, name) for name in gnomon.__all__)


# ---- wiring and ports -----------------------------------------------------------------------------


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


def test_composition_passes_collaborators_to_constructors() -> None:
    assert {
        name_of(path): foreign_assignments(parsed(path)) for path in modules("app") if foreign_assignments(parsed(path))
    } == {}


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


def test_a_port_has_few_methods() -> None:
    wide = {
        name: found
        for path in modules("ports")
        for name, found in port_methods(parsed(path)).items()
        if len(found) > MAX_PORT_METHODS
    }

    assert wide == {}


def test_only_the_code_that_opens_stores_names_the_sql_store() -> None:
    named = {name_of(path) for path in modules() if "gnomon.adapters.sql.store.SqlStore" in imports(path)}

    assert {name for name in named if not name.startswith("adapters/sql/")} == {"app/stores.py"}


def class_members() -> dict[str, set[str]]:
    """The methods of each class, by its name, inherited ones included as far as they are in the source."""
    trees = [parsed(path) for path in modules()]
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


# ---- dependencies between modules ----------------------------------------------------------------


def dotted(path: Path) -> str:
    return ".".join(("gnomon", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {dotted(path): path for path in modules()}


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imported_modules(tree: ast.AST) -> set[str]:
    """The modules of ours that a module imports at any time, lazily too, but for imports that only serve types."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if is_for_types_only(node):
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in names}
        found |= imported_modules(node)
    return found


DEPENDENCIES = {name: (imported_modules(parsed(path)) & MODULES.keys()) - {name} for name, path in MODULES.items()}


def package_of(module: str, depth: int) -> str:
    return ".".join(module.split(".")[:depth])


def edges_between_packages(root: str) -> set[tuple[str, str]]:
    """Which direct sub-packages of a package import which."""
    depth = root.count(".") + 2
    return {
        (package_of(one, depth), package_of(other, depth))
        for one, others in DEPENDENCIES.items()
        for other in others
        if one.startswith(f"{root}.") and other.startswith(f"{root}.")
    } - {(package_of(name, depth), package_of(name, depth)) for name in MODULES}


#: The end of the run of a one-shot schedule deletes the schedule, and the deletion of a schedule ends its runs.
RECURSION = ("gnomon.adapters.sql.completion", "gnomon.adapters.sql.schedules")


def test_no_modules_import_each_other_in_a_cycle_not_even_lazily() -> None:
    one, other = RECURSION
    assert other in DEPENDENCIES[one]
    TopologicalSorter(DEPENDENCIES | {one: DEPENDENCIES[one] - {other}}).prepare()


def test_runs_know_nothing_of_jobs() -> None:
    assert ("gnomon.core.runs", "gnomon.core.jobs") not in edges_between_packages("gnomon.core")


@pytest.mark.parametrize("package", ["services", "adapters", "api", "cli"])
def test_the_packages_of_a_layer_form_a_hierarchy(package: str) -> None:
    graph: dict[str, set[str]] = {}
    for one, other in edges_between_packages(f"gnomon.{package}"):
        graph.setdefault(one, set()).add(other)

    TopologicalSorter(graph).prepare()


def test_adapters_of_different_systems_do_not_know_each_other() -> None:
    systems = {f"gnomon.adapters.{name}" for name in ("sql", "memory", "nats", "redis", "auth")}

    assert not [edge for edge in edges_between_packages("gnomon.adapters") if set(edge) <= systems]


# ---- names ---------------------------------------------------------------------------------------


def test_a_class_name_means_one_class() -> None:
    places: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name)

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


#: Metaphors that names had once. Strings are exempt: those that are stored, sent or published never change.
RETIRED = frozenset(
    "bureau crew courier desk door doors elsewhere exhibit fielding heart house housekeeping indoors labour mender"
    " newcomer nowhere office outdoors parcel pulse room rooms scribe seat shelf tale teller vitals warden wish"
    " workshop".split()
)
WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
LETTERS = re.compile(r"[A-Za-z]+")
#: A sentence that begins like this hides its subject.
HIDDEN_SUBJECT = re.compile(r"(?:^|[.!] |\n\n)(what|whoever|whatever|those who|who) ", re.IGNORECASE)


def identifiers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            yield node.name or ""
        elif isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg


@cache
def prose(path: Path) -> tuple[str, ...]:
    """The docstrings and the comments of a module."""
    return (*docstrings(parsed(path)), *comments(path.read_text()))


def docstrings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def comments(text: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            yield token.string.lstrip("#: ")


def retired(text: str, words: re.Pattern[str]) -> set[str]:
    return {word.lower() for word in words.findall(text)} & RETIRED


def test_names_are_words_of_the_field() -> None:
    found = {
        (name_of(path), name)
        for path in modules()
        for name in (path.stem, *identifiers(parsed(path)))
        if retired(name, WORDS)
    }

    assert found == set()


def test_prose_uses_words_of_the_field() -> None:
    found = {(name_of(path), text) for path in modules() for text in prose(path) if retired(text, LETTERS)}

    assert found == set()


def test_every_sentence_names_its_subject() -> None:
    found = {(name_of(path), text) for path in modules() for text in prose(path) if HIDDEN_SUBJECT.search(text)}

    assert found == set()
