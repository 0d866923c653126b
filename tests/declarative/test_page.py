"""The lists of docs/declarative.md are true: the tests that prove each MUST, and the vocabulary of reasons."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
PAGE = (FOLDER.parents[1] / "docs" / "declarative.md").read_text()


@pytest.mark.req("D-18")
def test_every_proof_on_the_page_is_a_test_here() -> None:
    here = set(re.findall(r"def (test_\w+)", "".join(path.read_text() for path in FOLDER.glob("test_*.py"))))

    named = set(re.findall(r"`(test_\w+)`", PAGE))

    assert len(named) > 50
    assert named <= here


@pytest.mark.req("D-09")
def test_the_vocabulary_on_the_page_is_what_the_tests_prove() -> None:
    source = (FOLDER / "test_registrations.py").read_text()
    proved = re.findall(r"^    \((\"|')(.*?)\1, \"(\w+)\", (\"|')(.*)\4\),$", source, re.MULTILINE)
    rows = {(expression, field, reason) for _, expression, field, _, reason in proved}

    listed = set(re.findall(r"^\| `(.*)` \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE))

    assert len(rows) == 27
    assert rows <= listed
