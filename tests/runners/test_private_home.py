"""The home of a command: other commands of its workspace cannot have anything else given away or removed."""

import os
from pathlib import Path

import pytest

from gnomon.runners.private_home import PrivateHome, make_private_home, remove_homes_left_behind

NOBODY = (65534, 65534)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def made(workspace: Path, owner: tuple[int, int] | None = None) -> PrivateHome:
    home = make_private_home(str(workspace), owner)
    assert home is not None
    return home


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fill(folder: Path) -> None:
    (folder / "a/b/c").mkdir(parents=True)
    (folder / "a/b/c/file").write_text("x")
    (folder / "file").write_text("x")
    (folder / "link").symlink_to("a")


def age(folder: Path) -> None:
    os.utime(folder, (0, 0))


@pytest.mark.req("Z-13")
def test_a_home_is_hidden_and_closed_to_others_and_goes_with_all_that_is_in_it(workspace: Path) -> None:
    home = made(workspace)
    folder = Path(home.path)

    assert (folder.parent, folder.name[0], folder.stat().st_mode & 0o777) == (workspace, ".", 0o700)
    fill(folder)
    home.remove()
    assert names_in(workspace) == []


@needs_root
def test_a_home_belongs_to_the_user_of_the_command(workspace: Path) -> None:
    home = made(workspace, NOBODY)
    found = Path(home.path).stat()

    assert (found.st_uid, found.st_gid) == NOBODY
    home.remove()


@pytest.mark.req("Z-13")
def test_a_link_in_place_of_the_home_is_not_followed(workspace: Path) -> None:
    """A command can rename its home: nothing outside is emptied."""
    outside = workspace.parent / "outside"
    fill(outside)
    home = made(workspace)
    fill(Path(home.path))
    Path(home.path).rename(workspace / "moved")
    Path(home.path).symlink_to(outside)
    home.remove()

    assert names_in(outside) == ["a", "file", "link"]
    # Its own content goes wherever it is.
    assert names_in(workspace / "moved") == []


@pytest.mark.req("Z-13")
def test_another_folder_in_place_of_the_home_is_not_emptied(workspace: Path) -> None:
    home = made(workspace)
    Path(home.path).rename(workspace / "moved")
    fill(Path(home.path))
    home.remove()

    assert names_in(Path(home.path)) == ["a", "file", "link"]


@pytest.mark.req("Z-13")
def test_another_folder_in_place_of_the_home_is_not_removed(workspace: Path) -> None:
    home = made(workspace)
    Path(home.path).rename(workspace / "moved")
    Path(home.path).mkdir()
    home.remove()

    assert Path(home.path).is_dir()


@pytest.mark.req("Z-13")
@needs_root
@pytest.mark.parametrize("swap", ["link", "folder of others", "folder that is not empty", "nothing"])
def test_a_file_put_in_the_place_of_a_home_while_it_is_made_keeps_its_owner(
    workspace: Path, swap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir(mode=0o700)
    real = os.mkdir

    def mkdir(name: str, mode: int, *, dir_fd: int) -> None:
        real(name, mode, dir_fd=dir_fd)
        place = workspace / name
        place.rename(workspace / "moved")
        if swap == "link":
            place.symlink_to(outside)
        elif swap != "nothing":
            real(place, 0o700)
            if swap == "folder of others":
                os.chown(place, 1, 1)
            else:
                (place / "file").touch()

    monkeypatch.setattr(os, "mkdir", mkdir)

    assert make_private_home(str(workspace), NOBODY) is None
    given = [path for path in (outside, *workspace.iterdir()) if path.lstat().st_uid == NOBODY[0]]
    assert given == []


def test_a_folder_that_cannot_be_written_has_no_home(tmp_path: Path) -> None:
    assert make_private_home(str(tmp_path / "missing"), None) is None


@pytest.mark.req("Z-13")
def test_homes_of_workers_that_were_killed_are_removed(workspace: Path) -> None:
    left, used, fresh = made(workspace), made(workspace), made(workspace)
    for home in (left, used, fresh):
        fill(Path(home.path))
    left.close()
    fresh.close()
    age(Path(left.path))
    age(Path(used.path))
    remove_homes_left_behind(str(workspace))

    assert names_in(workspace) == sorted(Path(home.path).name for home in (used, fresh))
    used.remove()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (".gnomon-home-", "folder"),
        (".gnomon-home-0123456789abcdef0", "folder"),
        (".home-assistant", "folder"),
        (".gnomon-home-0123456789abcdef", "file"),
        (".gnomon-home-0123456789abcdef", "link"),
    ],
)
def test_nothing_else_of_the_workspace_is_removed(workspace: Path, name: str, kind: str) -> None:
    path = workspace / name
    if kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.touch()
    else:
        path.symlink_to(workspace.parent)
    os.utime(path, (0, 0), follow_symlinks=False)
    remove_homes_left_behind(str(workspace))

    assert names_in(workspace) == [name]
    assert workspace.exists()
