"""The threat model names nothing that is not tested."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
#: A row that promises something: what holds, and the tests that show it.
ROW = re.compile(r"^\| (.+?) \| (.+) \|$", re.MULTILINE)
HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def promises() -> list[tuple[str, str]]:
    tables = PAGE.split("| protection | shown by |\n| --- | --- |\n")[1:]
    return [(row[1], row[2]) for table in tables for row in ROW.finditer(table.partition("\n\n")[0])]


@cache
def names_in(path: Path) -> frozenset[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, functions))


@pytest.mark.parametrize(("promise", "shown_by"), promises(), ids=[promise[:60] for promise, _ in promises()])
def test_a_promise_names_tests_that_exist(promise: str, shown_by: str) -> None:
    named = TEST.findall(shown_by)

    assert named, promise
    assert [f"{path}::{test}" for path, test in named if test not in names_in(ROOT / path)] == []


def test_every_party_has_a_section() -> None:
    table = PAGE.split("| party | trusted with | at worst |\n| --- | --- | --- |\n")[1].partition("\n\n")[0]
    parties = {re.split(r" of a tenant| of the machine|:", row.split("|")[1].strip())[0] for row in table.splitlines()}
    sections = {heading.lower() for heading in HEADING.findall(PAGE)}

    # The admin has the tenant in the heading; the owner of the file is protected from, not by.
    missing = {party for party in parties if not any(one.startswith(party.lower()) for one in sections)}
    assert missing == {"owner of the database file"}
    assert "The owner of the files" in PAGE
