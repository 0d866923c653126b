"""The error that the page about the API shows is the one that the API returns."""

import json
import re
from pathlib import Path

import pytest

import gnomon
from gnomon.api.problems import TITLES
from gnomon.errors import FieldError

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()


def test_the_page_shows_a_problem_as_it_is_returned() -> None:
    [block] = re.findall(r"^```json\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    shown = json.loads(block)

    with pytest.raises(FieldError) as refused:
        gnomon.read_jobs([{"name": "report", "function": "reports.make", "shedule": "* * * * *"}])

    error = refused.value
    assert shown["title"] == TITLES[shown["status"]]
    assert shown["detail"] == str(error)
    assert shown["errors"] == [{"field": error.field, "value": error.value, "reason": error.reason}]
