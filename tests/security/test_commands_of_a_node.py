"""Commands beside a real `gnomon up`: its environment, its files and its tenants are out of their reach."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from gnomon.app.operations import Operations
from gnomon.config.settings import load
from gnomon.core.jobs.job import read_job
from gnomon.core.jobs.origins import with_origin
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.errors import FieldError
from support.gnomon_processes import TESTS
from support.hostile_target import Launch, Shape, hostile_target

#: Prints the variables of the worker, which is the parent process of the outer guardian.
SPY = """
jobs:
  - name: spy
    schedule: "* * * * * *"
    command: |
      parent() { cut -d' ' -f4 /proc/$1/stat; }
      worker=$(parent $(parent $PPID))
      { tr '\\0' ' ' < /proc/$worker/cmdline
        cat /proc/$worker/environ /proc/$worker/mem /proc/$worker/fd/0 || echo refused
        pwd; ls -A; } > FOLDER/seen.new 2>&1
      mv FOLDER/seen.new FOLDER/seen
"""


#: Starts a program without the capabilities to trace processes, so that root is like any other user in this regard.
UNTRACING = (
    "import ctypes, os, sys; [ctypes.CDLL(None).prctl(24, number, 0, 0, 0) for number in (19, 21, 38)]; "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


@pytest.mark.req("H-22")
@pytest.mark.parametrize("privileges", ["drop", "keep"])
def test_a_command_reads_neither_the_variables_of_its_worker_nor_its_files(tmp_path: Path, privileges: str) -> None:
    database, file, seen = tmp_path / "gnomon.db", tmp_path / "jobs.yaml", tmp_path / "seen"
    file.write_text(SPY.replace("FOLDER", str(tmp_path)))
    environment = {**os.environ, "UNLISTED": "canary-5a2c", "GNOMON_SHELL__PRIVILEGES": privileges}
    arguments = ["-m", "gnomon", "up", "--no-api", "--quiet", "--database", str(database), "--jobs", str(file)]
    with subprocess.Popen([sys.executable, "-c", UNTRACING, *arguments], cwd=TESTS, env=environment) as running:
        try:
            while not seen.exists() and running.poll() is None:
                time.sleep(0.02)
        finally:
            running.kill()
    text = seen.read_text(errors="replace")

    assert "gnomon up" in text
    assert "canary" not in text
    assert "environ: Permission denied" in text
    assert text.splitlines()[-1] == f"{database}.workspace"


@pytest.mark.req("H-22")
@pytest.mark.thorough
@pytest.mark.parametrize("shape", [Shape.POSTGRES, Shape.NATS])
def test_a_command_does_not_read_the_variables_of_a_worker_either(tmp_path: Path, shape: Shape) -> None:
    seen = tmp_path / "seen"
    [job] = yaml.safe_load(SPY.replace("FOLDER", str(tmp_path)))["jobs"]
    launch = Launch(python=(sys.executable, "-c", UNTRACING), worker_environment={"UNLISTED": "canary-5a2c"})
    # A command that keeps the privileges of the worker is kept out by nothing but the protection of the process.
    with hostile_target(shape, tmp_path, launch, GNOMON_SHELL__PRIVILEGES="keep") as target:
        assert target.ask("POST", "/v1/jobs", job).status_code == 201
        while not seen.exists():
            target.assert_unharmed()
            time.sleep(0.02)
        target.delete("spy")
    text = seen.read_text(errors="replace")

    assert "gnomon worker" in text
    assert "canary" not in text
    assert "environ: Permission denied" in text
    assert str(tmp_path / "workspace") in text.splitlines()


def test_a_workspace_that_holds_the_database_is_refused_at_the_start(tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "gnomon", "up", "--no-api", "--database", str(tmp_path / "gnomon.db")],
        cwd=TESTS,
        env={**os.environ, "GNOMON_SHELL__WORKSPACE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert refused.returncode == 2
    assert "shell.workspace" in refused.stderr
    assert "holds gnomon.db" in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_a_tenant_that_may_not_run_commands_registers_none(tmp_path: Path) -> None:
    settings = load(flags={"database.url": f"sqlite:///{tmp_path}/gnomon.db", "shell.tenants": "default,acme"})
    [job] = with_origin([read_job({"name": "a", "command": "true", "schedule": "@daily"}, Defaults(), now=0)], "cli")
    deployed = {"workflow_id": "w", "steps": [{"name": "s", "command": "true"}]}
    async with Operations.open(settings) as operations:
        for tenant in ("default", "acme"):
            assert await operations.jobs.apply([job], actor="ada", tenant=tenant)
        with pytest.raises(FieldError, match="tenant beta may not run commands") as refused:
            await operations.jobs.apply([job], actor="ada", tenant="beta")
        with pytest.raises(FieldError, match="tenant beta may not run commands"):
            await operations.jobs.plan_changes([job], now=0, tenant="beta")
        with pytest.raises(FieldError, match="tenant beta may not run commands"):
            await operations.workflows.deploy(deployed, actor="ada", tenant="beta")
        assert await operations.jobs.page(tenant="beta") == []

    assert refused.value.field == "command"
