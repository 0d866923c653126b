"""Control groups of commands: which folders are used, and that a command joins its group.

The kernel of the tests may have no group with limits, so the limits are written to a folder that looks like one.
"""

import marshal
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from gnomon.config.sections import ShellSettings
from gnomon.runners import control_groups
from gnomon.runners.control_groups import ControlGroups, remove_group
from gnomon.runners.process_guardian import main as guardian
from gnomon.runners.shell_restrictions import ShellRestrictions

GUARDIAN = Path(guardian.__code__.co_filename).with_name("guardian_main.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that looks like a delegated one: `scope` is the group of the worker."""
    for place in (tmp_path, tmp_path / "scope"):
        place.mkdir(exist_ok=True)
        (place / "cgroup.procs").touch()
        (place / "cgroup.controllers").write_text("cpu memory pids\n")
        (place / "cgroup.subtree_control").write_text("cpu\n")
    return tmp_path


@pytest.fixture
def own_group(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The facts of the kernel about a worker in `scope` of that folder."""
    (folder / "self").write_text("4:memory:/elsewhere\n0::/slice/scope\n")
    mount = f"30 1 0:2 /slice {folder} rw,relatime shared:4 - cgroup2 cgroup2 rw\n"
    (folder / "mounts").write_text(f"29 1 0:1 / /sys rw - sysfs sysfs rw\n{mount}")
    monkeypatch.setattr(control_groups, "_CGROUP", folder / "self")
    monkeypatch.setattr(control_groups, "_MOUNTS", folder / "mounts")
    control_groups.delegated_groups.cache_clear()
    yield folder / "scope"
    control_groups.delegated_groups.cache_clear()


def delegate(folder: Path) -> None:
    try:
        os.setxattr(folder, "user.delegate", b"1")
    except OSError:
        pytest.skip("this file system keeps no attributes")


def test_a_group_has_the_limits_of_the_settings(folder: Path) -> None:
    group = ControlGroups(folder).make("a1", memory=2**20, processes=50)
    unlimited = ControlGroups(folder).make("a2", memory=0, processes=0)

    assert group == folder / "gnomon-a1"
    assert [(group / file).read_text() for file in ("memory.max", "pids.max")] == ["1048576", "50"]
    assert unlimited is not None
    assert list(unlimited.iterdir()) == []
    remove_group(unlimited)
    assert not unlimited.exists()


def test_where_no_group_can_be_made_there_is_none(folder: Path) -> None:
    assert ControlGroups(folder / "missing").make("a1", memory=1, processes=1) is None


def test_the_controllers_are_switched_on_and_empty_groups_removed(folder: Path) -> None:
    old, new = folder / "gnomon-old", folder / "gnomon-new"
    old.mkdir()
    new.mkdir()
    os.utime(old, (0, 0))

    ControlGroups(folder).prepare()

    assert (folder / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="who is not root may write only where it was delegated")
def test_root_uses_a_folder_only_if_it_was_delegated(folder: Path, own_group: Path) -> None:
    assert control_groups.delegated_groups() is None
    delegate(folder)
    control_groups.delegated_groups.cache_clear()

    found = control_groups.delegated_groups()

    assert found is not None
    assert found.folder == own_group.parent == folder


@pytest.mark.parametrize("controllers", ["", "cpu", "memory", "pids io"])
def test_a_folder_without_the_controllers_is_not_used(folder: Path, own_group: Path, controllers: str) -> None:
    for place in (folder, own_group):
        delegate(place)
        (place / "cgroup.controllers").write_text(controllers)

    assert control_groups.delegated_groups() is None


@pytest.mark.parametrize("facts", ["", "0::/elsewhere\n", "1:name=systemd:/\n"])
def test_a_worker_in_another_group_has_none(folder: Path, own_group: Path, facts: str) -> None:
    delegate(folder)
    delegate(own_group)
    (folder / "self").write_text(facts)

    assert control_groups.delegated_groups() is None


def test_without_limits_no_group_is_made(folder: Path) -> None:
    none = ShellSettings(max_memory_bytes=0, max_processes=0)

    assert ShellRestrictions(none, ControlGroups(folder)).control_group("a1") is None
    assert ShellRestrictions(ShellSettings(), ControlGroups(folder)).control_group("a1") == folder / "gnomon-a1"


def _real_folder() -> Path | None:
    """A folder of version 2 in which groups can be made, with or without limits."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    places = (Path(line.split()[4]) for line in mounts if " - cgroup2 " in line)
    return next((place for place in places if os.access(place / "cgroup.procs", os.W_OK)), None)


@pytest.mark.req("Z-02")
@pytest.mark.skipif(_real_folder() is None, reason="no control group can be made here")
@pytest.mark.parametrize("user", ["", "nobody"])
def test_a_command_joins_its_group_and_its_guardians_stay_outside(user: str) -> None:
    place = _real_folder()
    assert place is not None
    groups = ControlGroups(place)
    group = groups.make(uuid.uuid4().hex, memory=0, processes=0)
    assert group is not None
    start = {
        "environment": {b"PATH": b"/usr/bin:/bin"},
        "words": [b"/bin/sh", b"-c", b"grep ^0: /proc/$$/cgroup /proc/$PPID/cgroup | cut -d: -f4"],
        "plan": None,
        "limits": {},
        "open_files": 1024,
        "processes": None,
        "capabilities": None,
        "user": None,
        "sandbox": None,
        "control_group": str(group / "cgroup.procs"),
    }
    ShellRestrictions(ShellSettings(user=user)).apply(start, secrets=False)  # type: ignore[arg-type]
    try:
        with os.fdopen(os.memfd_create("start"), "w+b") as file:
            file.write(marshal.dumps(start))
            file.seek(0)
            done = subprocess.run(
                [sys.executable, "-I", "-S", GUARDIAN, str(os.getpid()), str(file.fileno())],
                pass_fds=[file.fileno()],
                capture_output=True,
                text=True,
                check=True,
            )
    finally:
        remove_group(group)

    assert done.stdout.split()[0] == f"/{group.name}"
    assert done.stdout.split()[1:] != [f"/{group.name}"]
    assert not group.exists()
