"""Manifests: several documents of plain data, and a line for whatever is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.adapters.files import read_manifest
from gnomon.errors import FileError


def test_every_document_is_read() -> None:
    assert read_manifest("x", "a: 1\n---\n- 0644\n---\n") == [{"a": 1}, [0o644], None]


def test_an_error_names_its_line() -> None:
    with pytest.raises(FileError) as refused:
        read_manifest("x.yaml", "a: 1\nb: *a\n")

    assert str(refused.value) == "x.yaml: line 2, column 4: is no YAML: has an alias, and none is read here"


@pytest.mark.parametrize(
    "text", ["!!int ''", "!!bool x", "!!timestamp x", "!!float ''", "!!int x", "!!omap x", "!!set x"]
)
def test_a_tag_that_does_not_fit_its_value_is_refused(text: str) -> None:
    with pytest.raises(FileError, match="is no YAML"):
        read_manifest("x", text)


_PIECES = st.sampled_from(
    ["---", "...", "- ", ": ", "? ", "[", "]", "{", "}", "&a ", "*a", "!!int ", "!!binary ", "!!bool ", "|", ">", "\n",
     "  ", "'", '"', "#", "%YAML 1.1", "2026-13-01", "0x", "1_0", "<<", "=", "~", "a"]
)  # fmt: skip


@given(st.text() | st.lists(_PIECES).map("".join) | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_nonsense_is_refused_and_never_crashes(text: str) -> None:
    try:
        assert isinstance(read_manifest("x", text), list)
    except FileError as error:
        assert error.reason.startswith("is no YAML")  # noqa: PT017 - either is right
