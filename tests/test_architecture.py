"""Rules on the structure of the code: who may import whom, and what the core must not touch."""

import ast
import io
import re
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import gnomon

SOURCE = Path(gnomon.__file__).parent
ROOT = SOURCE.parents[1]
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
    "ui": {"core", "ports", "services", "api", "config", "ui"},
    "client": {"core", "client"},
    "cli": {"core", "ports", "services", "testing", "app", "cli", "client", "config"},
    "app": {"core", "ports", "adapters", "services", "runners", "api", "ui", "client", "config", "app"},
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


def test_the_diagram_of_the_layers_has_every_package() -> None:
    diagram = (ROOT / "ARCHITECTURE.md").read_text().split("```mermaid")[1].split("```")[0]
    arrows = {tuple(re.findall(r"\w+", line)) for line in diagram.splitlines() if "-->" in line}

    assert {name for arrow in arrows for name in arrow} == set(packages())
    assert all(other in MAY_IMPORT[one] for one, other in arrows)


def test_the_core_asks_nothing_of_the_outside_world() -> None:
    for path in modules("core"):
        calls = [node.func for node in ast.walk(parsed(path)) if isinstance(node, ast.Call)]
        called = {getattr(func, "attr", getattr(func, "id", None)) for func in calls}

        assert not {name.split(".")[0] for name in imports(path)} & OUTSIDE_WORLD, name_of(path)
        assert not called & HIDDEN_INPUTS, name_of(path)


def test_the_oracle_knows_nothing_of_the_code_it_checks() -> None:
    assert not [name for name in imports(SOURCE / "testing" / "scanner.py") if name.startswith("gnomon")]


#: The names that users import from `gnomon` itself. A name that is taken away breaks their programs.
PUBLIC_NAMES = [
    "AsyncClient",
    "At",
    "Cancelled",
    "Client",
    "Context",
    "Cron",
    "CronError",
    "Dst",
    "Every",
    "GiveUp",
    "GnomonError",
    "Operations",
    "Retry",
    "Settings",
    "Snooze",
    "__version__",
    "emit",
    "function",
    "index",
    "item",
    "job",
    "load_settings",
    "parse_schedule",
    "read_jobs",
    "run",
    "start",
    "step",
    "workflow",
]


def test_the_public_names_are_these_and_exist() -> None:
    assert sorted(gnomon.__all__) == PUBLIC_NAMES
    assert all(hasattr(gnomon, name) for name in gnomon.__all__)


def test_every_package_is_shipped_with_its_types() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    shipped = {ROOT / path for path in wheel["packages"]}

    # The whole folder of a package is shipped, unless a rule excludes some of it.
    assert wheel.keys() == {"packages"}
    assert shipped == {path.parent for path in (ROOT / "src").glob("*/__init__.py")}
    assert all((path / "py.typed").is_file() for path in shipped)


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


def declared_attributes(tree: ast.AST) -> set[str]:
    """The attributes that the classes of a module declare, or assign to `self`."""
    classes = [node for one in ast.walk(tree) if isinstance(one, ast.ClassDef) for node in ast.walk(one)]
    typed = {one.target.id for one in classes if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
    stored = [one for one in classes if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)]
    return typed | {one.attr for one in stored if ast.unparse(one.value) == "self"}


def assignments_across_modules(tree: ast.AST, declared: Collection[str]) -> set[str]:
    """The assignments to attributes of other objects that are `declared` somewhere, but not in this module."""
    elsewhere = set(declared) - declared_attributes(tree)
    return {one for one in foreign_assignments(tree) if one.rsplit(".", 1)[-1] in elsewhere}


@cache
def attributes_of_all_modules() -> frozenset[str]:
    return frozenset().union(*(declared_attributes(parsed(path)) for path in modules()))


def test_no_assignment_to_an_object_of_another_module_goes_unseen() -> None:
    source = """
class Own:
    typed: int
    def __init__(self):
        self.assigned = 1
def change(own, other, library):
    own.typed, own.assigned = 1, 2
    other.hook = print
    other.part.count += 1
    library.unknown = 1
"""
    found = assignments_across_modules(ast.parse(source), {"typed", "assigned", "hook", "count"})

    assert found == {"other.hook", "other.part.count"}


#: Attributes that Python and click declare too: the arguments of exceptions, the callbacks of commands, `sys.stdout`.
OF_LIBRARIES = {"args", "callback", "stdout"}
#: Their parts share records that change: the states of simulated processes, and of declared tasks.
SHARES_RECORDS = {"testing", "declarative"}


@pytest.mark.parametrize("package", sorted(set(packages()) - SHARES_RECORDS))
def test_only_the_methods_of_an_object_change_it(package: str) -> None:
    declared = attributes_of_all_modules() - OF_LIBRARIES
    found = {name_of(path): assignments_across_modules(parsed(path), declared) for path in modules(package)}

    assert {name: assigned for name, assigned in found.items() if assigned} == {}


def public_callbacks(tree: ast.AST) -> set[str]:
    """The public attributes of objects that a module declares as callables, or sets to a function without a name."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            targets: list[ast.expr] = [node.target]
            is_callable = "Callable" in ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign):
            targets, is_callable = node.targets, isinstance(node.value, ast.Lambda)
        else:
            continue
        if is_callable:
            attributes = [one for one in targets if isinstance(one, ast.Attribute)]
            found |= {ast.unparse(one) for one in attributes if not one.attr.startswith("_")}
    return found


def test_no_public_callback_goes_unseen() -> None:
    source = """
self.declared: Callable[[], None] | None = None
self.plain = lambda: None
self._private: Callable[[], None] = run
self._own = lambda: None
local = lambda: None
self.size: int = 0
"""
    assert public_callbacks(ast.parse(source)) == {"self.declared", "self.plain"}


def test_no_callback_is_assigned_from_outside() -> None:
    """A callback is a constructor argument: nobody can forget a public attribute that does not exist."""
    callbacks = {(name_of(path), name) for path in modules() for name in public_callbacks(parsed(path))}

    assert callbacks == set()


def silent_defaults(tree: ast.AST) -> set[str]:
    """The classes whose fields or constructors have a lambda as a default. A forgotten argument then does nothing."""
    classes = [one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)]
    return {one.name for one in classes if any(isinstance(value, ast.Lambda) for value in constructor_defaults(one))}


def constructor_defaults(one: ast.ClassDef) -> Iterator[ast.expr | None]:
    for node in one.body:
        if isinstance(node, ast.AnnAssign):
            yield node.value
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from (*node.args.defaults, *node.args.kw_defaults)


def test_no_silent_default_goes_unseen() -> None:
    source = """
class Field:
    hook: Callable[[], None] = lambda: None
class Positional:
    def __init__(self, hook=lambda: None): ...
class Named:
    def __init__(self, *, hook=lambda: None): ...
class Fine:
    size: int = 0
    def __init__(self, hook): ...
    def other(self, hook=lambda: None): ...
"""
    assert silent_defaults(ast.parse(source)) == {"Field", "Positional", "Named"}


@pytest.mark.parametrize("package", ["api", "app"])
def test_composed_classes_have_no_default_that_does_nothing(package: str) -> None:
    assert set().union(*(silent_defaults(parsed(path)) for path in modules(package))) == set()


MAX_PORT_METHODS = 8


#: Ports that join others for an adapter that implements, or a client that uses, all of them.
BUNDLES = {"ChangeCollector", "CommitJournal", "Executions", "RetainedHistory", "ServerBus"}


def port_methods(trees: Iterable[ast.AST]) -> dict[str, set[str]]:
    """The methods of each protocol, inherited ones included. The properties of a bundle are parts, not methods."""
    classes = {one.name: one for tree in trees for one in ast.walk(tree) if isinstance(one, ast.ClassDef)}
    bases = {name: {ast.unparse(base).split("[")[0] for base in one.bases} for name, one in classes.items()}

    def methods(name: str) -> set[str]:
        own = {
            node.name
            for node in (classes[name].body if name in classes else ())
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and "property" not in map(ast.unparse, node.decorator_list)
        }
        return own.union(*(methods(base) for base in bases.get(name, ())))

    return {name: methods(name) for name in classes if "Protocol" in bases[name]}


def test_every_method_of_a_port_is_counted() -> None:
    source = """
class Port(Protocol[T]):
    @property
    def part(self): ...
    def plain(self): ...
    async def awaited(self): ...
class Wider(Port[int], Protocol):
    def own(self): ...
class NoPort:
    def plain(self): ...
"""
    assert port_methods([ast.parse(source)]) == {"Port": {"plain", "awaited"}, "Wider": {"plain", "awaited", "own"}}


def test_a_port_has_few_methods() -> None:
    wide = {
        name for name, found in port_methods(map(parsed, modules("ports"))).items() if len(found) > MAX_PORT_METHODS
    }

    assert wide == BUNDLES


def test_only_the_code_that_opens_stores_names_the_sql_store() -> None:
    names = {"gnomon.adapters.sql.store.SqlStore", "gnomon.adapters.sql.SqlStore"}
    named = {name_of(path) for path in modules() if names & imports(path)}

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


@cache
def dependencies() -> dict[str, set[str]]:
    """Which module imports which; read when a test asks, and not whenever tests are collected."""
    return {name: (imported_modules(parsed(path)) & MODULES.keys()) - {name} for name, path in MODULES.items()}


def package_of(module: str, depth: int) -> str:
    return ".".join(module.split(".")[:depth])


def edges_between_packages(root: str) -> set[tuple[str, str]]:
    """Which direct sub-packages of a package import which."""
    depth = root.count(".") + 2
    return {
        (package_of(one, depth), package_of(other, depth))
        for one, others in dependencies().items()
        for other in others
        if one.startswith(f"{root}.") and other.startswith(f"{root}.")
    } - {(package_of(name, depth), package_of(name, depth)) for name in MODULES}


def test_no_modules_import_each_other_in_a_cycle_not_even_lazily() -> None:
    TopologicalSorter(dependencies()).prepare()


def test_runs_know_nothing_of_jobs() -> None:
    assert ("gnomon.core.runs", "gnomon.core.jobs") not in edges_between_packages("gnomon.core")


@pytest.mark.parametrize("package", ["services", "adapters", "api", "cli"])
def test_the_packages_of_a_layer_form_a_hierarchy(package: str) -> None:
    graph: dict[str, set[str]] = {}
    for one, other in edges_between_packages(f"gnomon.{package}"):
        graph.setdefault(one, set()).add(other)

    TopologicalSorter(graph).prepare()


def test_adapters_of_different_systems_do_not_know_each_other() -> None:
    systems = {f"gnomon.adapters.{path.name}" for path in (SOURCE / "adapters").iterdir() if path.is_dir()}

    assert systems >= {f"gnomon.adapters.{name}" for name in ("sql", "memory", "nats", "redis", "auth", "s3")}
    assert not [edge for edge in edges_between_packages("gnomon.adapters") if set(edge) <= systems]


# ---- names ---------------------------------------------------------------------------------------


def test_a_class_name_means_one_class() -> None:
    places: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(name)

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


#: Metaphors that names had once. Names that are stored, sent or published never change.
RETIRED = frozenset(
    "bureau commons crew courier desk door doors elsewhere exhibit fielding gatherer heart house housekeeping indoors"
    " keeper keepers labour mender newcomer nowhere office outdoors overheard parcel pulse room rooms scribe seat shelf"
    " tale teller unfold unfolding unfoldings vacancies vacancy vitals warden wish workshop".split()
)
#: Those of them that a sentence for users may have: words of plain English, a program, and an operation on YAML.
PLAIN_ENGLISH = frozenset({"elsewhere", "nowhere", "room", "unfold", "wish"})
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


def modules_of_tests() -> list[Path]:
    return sorted(path for folder in ("tests", "bench", "examples") for path in (ROOT / folder).rglob("*.py"))


#: The name of a test that begins like this hides its subject.
HIDDEN_SUBJECT_OF_TEST = re.compile(r"test_(what|whoever|whatever|those_who|who)_")


def test_names_in_tests_are_words_of_the_field_and_name_their_subject() -> None:
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in modules_of_tests()
        for name in (path.stem, *identifiers(parsed(path)))
        if retired(name, WORDS) - PLAIN_ENGLISH or HIDDEN_SUBJECT_OF_TEST.match(name)
    }

    assert found == set()


def test_prose_uses_words_of_the_field() -> None:
    found = {(name_of(path), text) for path in modules() for text in prose(path) if retired(text, LETTERS)}

    assert found == set()


def test_prose_in_tests_uses_words_of_the_field_and_names_its_subject() -> None:
    found = {
        (str(path.relative_to(ROOT)), text)
        for path in modules_of_tests()
        for text in prose(path)
        if retired(text, LETTERS) - PLAIN_ENGLISH or HIDDEN_SUBJECT.search(text)
    }

    assert found == set()


#: The calls that give a service its published name, and the number of that argument.
NAMING_CALLS = {"run_loop": 0, "Backoff": 1, "FallbackService": 0, "singleton": 0, "lease": 0}


def literal_component_names(tree: ast.AST) -> set[str]:
    """The published names of services that a module writes as literals."""
    found = set()
    for one in ast.walk(tree):
        if isinstance(one, ast.Call):
            number = NAMING_CALLS.get(ast.unparse(one.func).rsplit(".", 1)[-1])
            if number is not None and number < len(one.args) and isinstance(one.args[number], ast.Constant):
                found.add(ast.unparse(one.args[number]))
    return found


def test_no_literal_name_of_a_service_goes_unseen() -> None:
    source = (
        'run_loop("a", f); Backoff(e, "b"); self.x.singleton("c"); FallbackService("d", e); run_loop(NAME, f); f("g")'
    )

    assert literal_component_names(ast.parse(source)) == {"'a'", "'b'", "'c'", "'d'"}


def test_published_names_of_services_are_constants() -> None:
    found = {(name_of(path), name) for path in modules() for name in literal_component_names(parsed(path))}

    assert found == set()


def test_every_sentence_names_its_subject() -> None:
    found = {(name_of(path), text) for path in modules() for text in prose(path) if HIDDEN_SUBJECT.search(text)}

    assert found == set()


def messages(tree: ast.AST) -> Iterator[str]:
    """The strings of a module that are read by users: texts of errors, events, help and explanations."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.value


def wrong_words(text: str) -> set[str]:
    return retired(text, LETTERS) - PLAIN_ENGLISH


def test_messages_use_words_of_the_field_and_name_their_subject() -> None:
    found = {
        (name_of(path), text)
        for path in modules()
        for text in messages(parsed(path))
        if wrong_words(text) or HIDDEN_SUBJECT.search(text)
    }

    assert found == set()


#: History, and the decision that names the retired words.
OLD_WORDS_QUOTED = {"CHANGELOG.md", "docs/decisions/0016-structure-and-names.md"}


def pages() -> list[Path]:
    found = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    return [path for path in found if str(path.relative_to(ROOT)) not in OLD_WORDS_QUOTED]


def paragraphs(text: str) -> list[str]:
    """The paragraphs, list items and table rows of a page, each on one line, without code and headings."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#]|\d+\.))", text)
    return [" ".join(block.split()).lstrip("-*0123456789. ") for block in blocks if not block.lstrip().startswith("#")]


#: In a page, only words with a capital letter begin a sentence: the cells of tables do not.
HIDDEN_SUBJECT_OF_PAGE = re.compile(r"(?:^|[.!] )(What|Whoever|Whatever|Those who|Who) (?![^.]*\?)")


def test_no_sentence_of_a_page_goes_unseen() -> None:
    page = """
# What a heading says

Good. `desk` is code. Whoever reads
this hides.

- What an item says counts.
- Whose?

| who | what a cell says |
"""
    assert [one for one in paragraphs(page) if HIDDEN_SUBJECT_OF_PAGE.search(one)] == [
        "Good. is code. Whoever reads this hides.",
        "What an item says counts.",
    ]


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_use_words_of_the_field_and_name_their_subject(path: Path) -> None:
    found = [one for one in paragraphs(path.read_text()) if wrong_words(one) or HIDDEN_SUBJECT_OF_PAGE.search(one)]

    assert found == []


def public_aliases(tree: ast.Module) -> Iterator[str]:
    """The type aliases and type variables of a module that others may import."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name[0].isupper() and not name.isupper():
                yield name


def test_the_name_of_a_type_alias_means_one_type() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in modules():
        for name in public_aliases(parsed(path)):
            places[name].append(name_of(path))

    assert {name: found for name, found in places.items() if len(found) > 1} == {}
