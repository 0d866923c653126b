"""The documentation is executed: every Python example, every session at the prompt, every link."""

import re
import shlex
from pathlib import Path

import pytest

from gnomon.runners.registry import FUNCTIONS
from support.command_line import run_command

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!http)([^)#]+)")


def blocks(language: str) -> list[object]:
    found: list[object] = []
    for page in PAGES:
        text = page.read_text()
        for block in BLOCK.finditer(text):
            if block[1] == language:
                place = f"{page.relative_to(ROOT)}:{text[: block.start()].count(chr(10)) + 1}"
                found.append(pytest.param(block[2], id=place))
    return found


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The functions and jobs of an example are not those of others, nor of tests, which may use the same names."""
    for name in ("_functions", "_declared"):
        monkeypatch.setattr(FUNCTIONS, name, {})


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("program", blocks("python"))
def test_a_python_example_runs_as_printed(program: str) -> None:
    exec(compile(program, "example", "exec"), {"__name__": "__main__"})  # noqa: S102 - our own documentation


@pytest.mark.parametrize("session", blocks("console"))
def test_a_session_at_the_prompt_prints_what_is_printed(session: str) -> None:
    for part in re.split(r"^\$ ", session, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        program, *arguments = shlex.split(command)
        assert program == "gnomon"
        done = run_command(*arguments, folder=ROOT)
        assert done.stdout + done.stderr == expected


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_decision_is_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = set(LINK.findall((folder / "README.md").read_text()))

    assert listed == {page.name for page in folder.glob("0*.md")}
