"""The pages for contributors name files that exist, and the index of the documentation leads to every page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")
#: Paths are written in backticks, relative to the root or to the package.
PATH = re.compile(r"`((?:[a-z_]+/)+(?:[a-z_0-9]+\.[a-z]+)?)`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def paths_on(page: str) -> list[str]:
    return sorted(set(PATH.findall((ROOT / page).read_text())))


@pytest.mark.parametrize("page", PAGES)
def test_every_path_on_a_page_for_contributors_exists(page: str) -> None:
    folders = (ROOT, ROOT / "src/gnomon", ROOT / "tests")
    missing = [path for path in paths_on(page) if not any((folder / path).exists() for folder in folders)]

    assert paths_on(page)
    assert missing == []


def test_the_index_leads_to_every_page() -> None:
    linked = {Path(link).name for link in LINK.findall((ROOT / "docs" / "README.md").read_text())}

    assert {page.name for page in (ROOT / "docs").glob("*.md")} - linked == {"README.md"} - linked
