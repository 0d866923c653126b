"""Paths by their text: the answer is that of the standard library, however a path is written."""

import posixpath
from itertools import product

import pytest

from gnomon.core.commands.files import normal_path


@pytest.mark.parametrize("folder", ["/", "/srv", "/srv/.work/a.b"])
def test_a_path_is_made_normal_as_by_the_standard_library(folder: str) -> None:
    texts = ("".join(letters) for length in range(8) for letters in product("/.a", repeat=length))

    wrong = {text: normal_path(text, folder) for text in texts if normal_path(text, folder) != expected(text, folder)}

    assert wrong == {}


def expected(text: str, folder: str) -> str:
    found = posixpath.normpath(posixpath.join(folder, text))
    # POSIX leaves the meaning of two slashes at the beginning open; Linux takes them for one.
    return "/" + found.lstrip("/")


def test_a_newline_is_a_character_of_a_name() -> None:
    assert normal_path("a/..\n", "/srv") == "/srv/a/..\n"
    assert normal_path("/srv/.\n/../b") == "/srv/b"
