"""Processes without privileges, and databases that they may read but not write, as real processes."""

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from support.gnomon_processes import TESTS
from support.hostile_target import Launch, Shape, hostile_target
from support.unprivileged import unprivileged

_PATIENCE = 30.0


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(TESTS), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


def run_gnomon(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command without privileges to its end."""
    command = [*unprivileged(), sys.executable, "-m", "gnomon", *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=50, check=False)


@contextmanager
def started(*arguments: str) -> Iterator[str]:
    """Start a process without privileges; yield the address of its API."""
    process = subprocess.Popen(
        [*unprivileged(), sys.executable, "-m", "gnomon", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "answering on" in line:
                yield line.split()[-1]
                break
        else:
            pytest.fail("it ended")
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def applied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a database with one job."""
    folder = tmp_path_factory.mktemp("data")
    jobs = folder.with_suffix(".yaml")
    jobs.write_text("jobs:\n- name: whoami\n  command: id -u\n")
    done = run_gnomon("jobs", "apply", "-f", str(jobs), "--database", str(folder / "gnomon.db"))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def database(applied: Path, tmp_path: Path) -> Path:
    """A copy of the database."""
    return Path(shutil.copytree(applied, tmp_path / "data")) / "gnomon.db"


def test_a_user_without_privileges_runs_everything(database: Path) -> None:
    with (
        started("up", "--database", str(database), "--port", "0") as address,
        httpx.Client(base_url=address) as client,
    ):
        client.headers["Authorization"] = f"Bearer {database.with_name('gnomon.db.token').read_text().strip()}"
        run = client.post("/v1/jobs/whoami/trigger").json()["execution_id"]
        deadline = time.monotonic() + _PATIENCE
        while (found := client.get(f"/v1/executions/{run}").json())["status"] != "completed":
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    [step] = found["steps"]
    assert step["output"]["stdout"].strip() != "0"
    files = [one for one in database.parent.iterdir() if one.is_file()]
    assert {stat.S_IMODE(one.stat().st_mode) for one in files} == {0o600}


@pytest.mark.thorough
def test_a_fleet_without_privileges_runs_everything(tmp_path: Path) -> None:
    launch = Launch(python=(*unprivileged(), sys.executable))
    with hostile_target(Shape.NATS, tmp_path, launch) as target:
        assert target.ask("POST", "/v1/jobs", {"name": "whoami", "command": "id -u"}).status_code == 201
        run = target.ask("POST", "/v1/jobs/whoami/trigger").json()["execution_id"]
        deadline = time.monotonic() + _PATIENCE
        while (found := target.ask("GET", f"/v1/executions/{run}").json())["status"] != "completed":
            assert time.monotonic() < deadline, found
            time.sleep(0.05)

    [step] = found["steps"]
    assert step["output"]["stdout"].strip() != "0"
    assert stat.S_IMODE((tmp_path / "signing.key").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("command", "read_only", "mode"),
    [("up", "gnomon.db", 0o400), ("up", ".", 0o500), ("server", "gnomon.db", 0o400), ("worker", ".", 0o500)],
)
def test_a_database_that_cannot_be_written_is_refused_at_the_start(
    database: Path, command: str, read_only: str, mode: int
) -> None:
    place = database.parent / read_only
    place.chmod(mode)
    try:
        port = () if command == "worker" else ("--no-api",) if command == "up" else ("--port", "0")
        refused = run_gnomon(command, "--database", str(database), *port)
    finally:
        place.chmod(0o700)

    assert refused.returncode == 2
    assert refused.stderr.startswith(f"error: {place} is read-only for this user")


def test_a_database_that_cannot_be_written_can_be_read(database: Path) -> None:
    database.chmod(0o400)

    listed = run_gnomon("jobs", "list", "--database", str(database))
    paused = run_gnomon("jobs", "pause", "whoami", "--database", str(database))

    assert (listed.returncode, "whoami" in listed.stdout) == (0, True)
    assert paused.returncode == 1
    assert paused.stderr == "error: attempt to write a readonly database\n"


def test_a_folder_without_a_database_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        refused = run_gnomon("up", "--database", str(tmp_path / "new.db"), "--port", "0")
    finally:
        tmp_path.chmod(0o700)

    assert refused.returncode == 2
    assert str(tmp_path) in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_database_that_another_user_owns_is_refused(database: Path) -> None:
    """Also for reading: the file is for its owner alone."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(database, 65534, 65534)

    for arguments in (("up", "--no-api"), ("jobs", "list")):
        refused = run_gnomon(*arguments, "--database", str(database))
        assert refused.returncode in (1, 2)
        assert str(database) in refused.stderr
        assert "Traceback" not in refused.stderr
