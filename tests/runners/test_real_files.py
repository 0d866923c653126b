"""The files of a worker as a check sees them; patterns are compared with those of a real shell."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnomon.core.commands.files import MOST_MATCHES
from gnomon.runners import real_files
from gnomon.runners.real_files import RealFiles

NAMES = (
    "a", "b", "B", "ab", "a b", "a-b", "_", ".hidden", ".a", "[", "[a]", "*", "?", "!", "z9", "10", "9",
    "sub/a", "sub/.b", "sub/c/d", "sub/c/.e", ".dot/x", "empty/", "-n",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files").resolve()
    for name in NAMES:
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.mkdir() if name.endswith("/") else path.touch()
    (folder / "link").symlink_to("sub")
    (folder / "broken").symlink_to("nowhere")
    return folder


def matches_of_a_shell(folder: Path, pattern: str) -> list[str]:
    """The words that a shell makes of the pattern; the pattern itself if nothing matches."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"printf '%s\\n' {pattern}"],
        cwd=folder,
        env={"LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.req("Z-13")
@given(
    st.lists(
        st.sampled_from(["*", "?", "/", "[ab]", "[!a]", "[a-z]", "[0-9]", "a", "b", ".", "sub", "c", "link", "_", "-"]),
        min_size=1,
        max_size=6,
    ).map("".join)
)
def test_patterns_mean_what_they_mean_in_a_shell(folder: Path, pattern: str) -> None:
    # A shell of the system may list all of the root folder, and so may we; both need not agree on /proc.
    if pattern.startswith("/") or not any(special in pattern for special in "*?["):
        return
    found = RealFiles(str(folder)).matches(pattern)

    assert found is not None
    assert list(found) or [pattern] == matches_of_a_shell(folder, pattern)
    if found:
        assert list(found) == matches_of_a_shell(folder, pattern)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", ["!", "*", "-n", "10", "9", "?", "B", "[", "[a]", "_", "a", "a b", "a-b", "ab", "b", "broken", "empty",
               "link", "sub", "z9"]),
        (".*", [".a", ".dot", ".hidden"]),
        ("[.]a", []),
        ("?hidden", []),
        ("*/", ["empty/", "link/", "sub/"]),
        ("./a*", ["./a", "./a b", "./a-b", "./ab"]),
        ("sub//?", ["sub//a", "sub//c"]),
        ("link/*", ["link/a", "link/c"]),
        ("*/*/*", ["link/c/d", "sub/c/d"]),
        ("broke*", ["broken"]),
        ("[*]", ["*"]),
        ("[[]a]", ["[a]"]),
        ("[?]*", ["?"]),
        ("missing/*", []),
        ("a/*", []),
        ("../files?/sub/a", None),
    ],
)  # fmt: skip
def test_each_part_of_a_pattern_matches_names_in_its_folder(
    folder: Path, pattern: str, found: list[str] | None
) -> None:
    expected = [f"../{folder.name}/sub/a"] if found is None else found

    assert RealFiles(str(folder)).matches(pattern) == expected


def test_a_question_mark_is_a_character_and_not_a_byte(tmp_path: Path) -> None:
    (tmp_path / "é").touch()

    assert RealFiles(str(tmp_path)).matches("?") == ["é"]


def test_an_absolute_pattern_begins_at_the_root(folder: Path) -> None:
    files = RealFiles(str(folder))

    assert files.matches(f"{folder}/[ab]") == [f"{folder}/a", f"{folder}/b"]
    assert files.matches(f"/{folder}/[ab]") == [f"/{folder}/a", f"/{folder}/b"]


def test_a_pattern_that_matches_too_much_is_given_up(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(MOST_MATCHES + 5):
        os.close(os.open(tmp_path / str(number), os.O_CREAT))
    found = RealFiles(str(tmp_path)).matches("*")

    assert found is not None
    assert len(found) == MOST_MATCHES + 1
    monkeypatch.setattr(real_files, "_MOST_LOOKS", 5)
    assert RealFiles(str(folder)).matches("*") is None


@pytest.mark.req("Z-13")
@pytest.mark.parametrize("pattern", ["*/*/*/*/*/*/*/zz*", "*/*/*/*/*/*/*/zz", "*/*/*/*/*/*/*/zz/[z]", "*/*/*/*/*/*/"])
def test_links_in_a_circle_cost_no_more_than_all_patterns_of_a_command_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    """Ten links to their own folder make a million paths to it."""
    for name in "abcdefghij":
        (tmp_path / name).symlink_to(".")
    looks: list[str] = []
    for module, name in ((os, "scandir"), (os.path, "lexists"), (os.path, "isdir")):
        monkeypatch.setattr(module, name, _counted(getattr(module, name), looks))
    monkeypatch.setattr(real_files, "_MOST_LOOKS", 2000)
    files = RealFiles(str(tmp_path))

    assert [files.matches(pattern) for _ in range(60)] == [None] * 60
    assert 0 < len(looks) <= 2000
    assert files.matches("*") is None
    assert RealFiles(str(tmp_path)).matches("[ab]") == ["a", "b"]


def _counted(look: Callable[[str], Any], looks: list[str]) -> Callable[[str], Any]:
    """The same function, which also notes each call."""

    def counted(path: str) -> Any:  # noqa: ANN401 - whatever the function returns
        looks.append(path)
        return look(path)

    return counted


@pytest.mark.req("Z-13")
@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("a", "{folder}/a"),
        ("", "{folder}"),
        (".", "{folder}"),
        ("..", "{parent}"),
        ("sub/../a", "{folder}/a"),
        ("link/a", "{folder}/sub/a"),
        ("link/..", "{folder}"),
        ("missing/../a", "{folder}/a"),
        ("missing/x", "{folder}/missing/x"),
        ("//etc/../etc/x", "/etc/x"),
        ("/proc/self/root/etc/x", "/etc/x"),
        ("x" * 5000, "{folder}/" + "x" * 5000),
        ("a\0b", "{folder}/a\0b"),
    ],
)
def test_links_are_followed(folder: Path, path: str, real: str) -> None:
    assert RealFiles(str(folder)).resolve(path) == real.format(folder=folder, parent=folder.parent)


def test_a_program_is_a_file_that_can_be_executed(folder: Path, tmp_path: Path) -> None:
    for place, name, mode in (("first", "tool", 0o644), ("second", "tool", 0o755), ("second", "other", 0o755)):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / name).touch(mode)
    (tmp_path / "second" / "folder").mkdir()
    (tmp_path / "second" / "link").symlink_to("tool")
    (tmp_path / "second" / "broken").symlink_to("nowhere")
    folders = [str(tmp_path / "first"), f"{tmp_path}//second/", str(tmp_path / "missing")]
    files = RealFiles(str(folder))

    found = {name: files.program(name, folders) for name in ("tool", "other", "folder", "link", "broken", "none")}

    second = tmp_path / "second"
    assert found == {
        "tool": f"{second}/tool",
        "other": f"{second}/other",
        "folder": None,
        "link": f"{second}/link",
        "broken": None,
        "none": None,
    }
    assert files.program("second/tool", [str(tmp_path)]) is None
    assert files.program("tool", ["second", "."]) is None
