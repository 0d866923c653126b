"""The tests that the page about testing shows are run by pytest, as a user would run them."""

import re
import shutil
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "testing.md").read_text()
SHOWN = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
INSTALLED = any(point.value == "gnomon_pytest" for point in entry_points(group="pytest11"))


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param("", id="strict mode, the default"),
        pytest.param('asyncio_mode = "auto"', id="auto mode", marks=pytest.mark.thorough),
    ],
)
def test_the_shown_tests_pass(pytester: pytest.Pytester, settings: str) -> None:
    [block] = SHOWN
    shutil.copytree(ROOT / "examples", pytester.path / "examples")
    pytester.makepyprojecttoml(f"[tool.pytest]\nstrict = true\n{settings}\n")
    pytester.makepyfile(block)

    done = pytester.runpytest_subprocess(*([] if INSTALLED else ["-p", "gnomon_pytest"]), "-p", "no:cacheprovider")

    done.assert_outcomes(passed=block.count("def test_"))
