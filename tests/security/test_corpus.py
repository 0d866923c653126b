"""The hostile corpus against a running Gnomon: a SQLite file, PostgreSQL, and PostgreSQL with NATS.

`make test` runs every row on SQLite and the short rows on a fleet with NATS; `make test-all` runs all of them
everywhere.
"""

import ast
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import ClassVar

import pytest

from security.corpus import CORPUS, SECTIONS, AttackRow
from support.effort import EFFORT
from support.hostile_target import HostileTarget, Shape, hostile_target

#: In thorough runs: the latest that a tick may be decided beside an attack, and how often one is tried. Other tests may
#: keep the machine busy, so an attack may delay ticks by three times what the machine does. Every run judges seconds.
MOST_LATE_MS, TRIES = 100, 8
ROOT = Path(__file__).parents[2]


def cases() -> list[object]:
    return [
        pytest.param(shape, row, id=f"{shape}-{row.id}", marks=marks_of(row, shape))
        for shape in Shape
        for row in CORPUS
        if shape in row.shapes
    ]


def marks_of(row: AttackRow, shape: Shape) -> list[pytest.MarkDecorator]:
    quick = shape is Shape.SQLITE or (shape is Shape.NATS and row.short)
    return [] if quick else [pytest.mark.thorough]


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Shape, HostileTarget]]:
    """The targets, each started once, for the first row that needs it."""

    class Started(dict[Shape, HostileTarget]):
        tried: ClassVar[set[Shape]] = set()

        def __missing__(self, shape: Shape) -> HostileTarget:
            assert shape not in self.tried, "it did not start for an earlier row"
            self.tried.add(shape)
            self[shape] = stack.enter_context(hostile_target(shape, tmp_path_factory.mktemp(shape)))
            return self[shape]

    with ExitStack() as stack:
        yield Started()


@pytest.mark.req("H-22")
@pytest.mark.guarantee("S3")
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("shape", "row"), cases())
def test_an_attack_changes_nothing_and_stops_nothing(
    targets: dict[Shape, HostileTarget], shape: Shape, row: AttackRow
) -> None:
    target = targets[shape]
    before = target.jobs()
    assert row.execute is not None

    late, undisturbed = [lateness_ms(target, row.execute)], [0]
    while late[-1] >= MOST_LATE_MS + 3 * max(undisturbed) and len(late) < TRIES:
        undisturbed.append(lateness_ms(target, lambda _: time.sleep(1)))
        late.append(lateness_ms(target, row.execute))

    assert target.jobs() == before
    target.assert_unharmed()
    assert late[-1] < MOST_LATE_MS + 3 * max(undisturbed), (late, undisturbed)


def lateness_ms(target: HostileTarget, attack: Callable[[HostileTarget], object]) -> int:
    """How late a tick was decided during the attack at worst; 0 if only the whole is judged, at its end."""
    began_ms = int(time.time() * 1000)
    attack(target)
    return target.worst_lateness_ms(began_ms) if EFFORT > 1 else 0


# ---- the table itself ----------------------------------------------------------------------------


def test_the_table_has_every_row_once() -> None:
    assert Counter(row.id[0] for row in CORPUS) == SECTIONS
    assert len({row.id for row in CORPUS}) == len(CORPUS) == 177


@pytest.mark.parametrize("row", CORPUS, ids=lambda row: row.id)
def test_a_row_is_executed_or_names_tests_that_exist_or_waits_for_a_feature(row: AttackRow) -> None:
    assert row.execute or row.tests or row.later
    assert [name for name in row.tests if not exists(name)] == []
    assert bool(row.execute) == bool(row.shapes)


def exists(name: str) -> bool:
    """Whether there is a test `path::name`; a path with `::` and no name stands for all tests of a file."""
    path, _, test = name.partition("::")
    return (ROOT / path).is_file() and (not test or test in names_in(ROOT / path))


@cache
def names_in(path: Path) -> frozenset[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, functions))
