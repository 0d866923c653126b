"""The table of pools as a file: read whole, or refused with the place that is wrong."""

from pathlib import Path

import pytest

from gnomon.adapters.files import read_pools_file
from gnomon.errors import FileError

pytestmark = pytest.mark.req("R-10")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pools.yaml"


def test_a_table_is_read(file: Path) -> None:
    file.write_text("topics:\n  a: one\n  b: [one, two]\npools:\n  one: {requires: [GPU]}\n")

    found = read_pools_file(file)

    assert found.topics == {"a": ("one",), "b": ("one", "two")}
    assert found.capabilities == {"one": frozenset({"gpu"})}


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        ("topics:\n  a: one\n  b: []\n", 3, "topics.b"),
        ("topics:\n  a: [one, 5]\n", 2, "topics.a[1]"),
        ("topics: {a: one}\npools:\n  one: {requires: gpu}\n", 3, "pools.one.requires"),
        ("topics: {a: one}\npool: {}\n", 2, "pool"),
        ("pools: {}\n", 1, "topics"),
        ("topics: {a: one, a: two}\n", 1, None),
        ("topics: [\n", None, None),
        ("", None, None),
        ("- a\n", 1, None),
    ],
)
def test_an_error_names_its_place(file: Path, text: str, line: int | None, field: str | None) -> None:
    file.write_text(text)

    with pytest.raises(FileError) as refused:
        read_pools_file(file)

    assert str(refused.value).startswith(str(file))
    assert line is None or f"line {line}" in str(refused.value)
    assert field is None or field in str(refused.value)


def test_a_file_that_is_not_there_is_refused(file: Path) -> None:
    with pytest.raises(FileError, match="cannot be read"):
        read_pools_file(file)
