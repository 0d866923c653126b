"""Large bodies: parsed in parts, with the same result as in one go, and refused for the same reasons."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.api import requests
from gnomon.api.requests import read_object
from gnomon.errors import GnomonError

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(st.characters(exclude_categories=["Cs", "Cc"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=20,
)


@pytest.fixture(params=[12, 40])
def small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Parts so small that every body of a test has several."""
    monkeypatch.setattr(requests, "LONGEST_VALUE", request.param)
    return int(request.param)


@given(body=st.dictionaries(st.text("xyz", max_size=3), values, max_size=4), indent=st.sampled_from([None, 2]))
def test_a_body_that_is_parsed_in_parts_is_the_same(body: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(body, indent=indent, ensure_ascii=indent is None)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(requests, "LONGEST_VALUE", longest(body))

        assert read_object(text.encode()) == body


def longest(body: dict[str, Any]) -> int:
    """A length that no part of the body exceeds, however it is indented."""
    return 4 * max(len(json.dumps(one, indent=2)) for one in _parts(body)) + 9


def _parts(body: dict[str, Any]) -> list[object]:
    """The values that are parsed by themselves."""
    lists = [item for value in body.values() if isinstance(value, list) for item in value]
    return [*body, *lists, *(value for value in body.values() if not isinstance(value, list)), ""]


BROKEN = {
    "no object": '["a", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]',
    "no end": '{"jobs": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12',
    "no end of the object": '{"jobs": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]',
    "no comma": '{"jobs": [1, 2, 3, 4, 5 6, 7, 8, 9, 10, 11, 12]}',
    "two commas": '{"jobs": [1, 2, 3, 4, 5,, 6, 7, 8, 9, 10, 11, 12]}',
    "a last comma": '{"jobs": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,]}',
    "no colon": '{"jobs" [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}',
    "a number as name": "{12: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]}",
    "more than one": '{"jobs": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]} {}',
    "NaN": '{"jobs": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, NaN]}',
    "a name twice": '{"a": 1, "b": [1, 2, 3, 4, 5, 6, 7, 8], "a": 2}',
    "a long text": '{"jobs": ["' + "x" * 100 + '"]}',
    "a long number": '{"jobs": [' + "1" * 100 + "]}",
    "a long list": '{"jobs": [[' + "1, " * 100 + "1]]}",
}


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_a_broken_or_overlong_body_is_refused(text: str) -> None:
    with pytest.raises(GnomonError):
        read_object(text.encode())
