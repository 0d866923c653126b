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


def test_the_shown_tests_pass(pytester: pytest.Pytester) -> None:
    [block] = SHOWN
    shutil.copytree(ROOT / "examples", pytester.path / "examples")
    pytester.makepyprojecttoml(
        """
        [tool.pytest]
        strict = true
        asyncio_mode = "auto"
        asyncio_default_fixture_loop_scope = "function"
        """
    )
    pytester.makepyfile(block)

    done = pytester.runpytest_subprocess(*([] if INSTALLED else ["-p", "gnomon_pytest"]), "-p", "no:cacheprovider")

    done.assert_outcomes(passed=block.count("def test_"))
