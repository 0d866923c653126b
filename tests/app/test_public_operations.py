"""The operations that the package exports: settings, jobs and services on a store, without importing any module."""

import subprocess
import sys
from pathlib import Path

import pytest

import gnomon
from gnomon.errors import FieldError, FileError, JobsFileError

REPORT = {"name": "report", "schedule": "every day at 9am", "function": "reports.make"}
#: The modules behind these names cost more than all that `import gnomon` needs.
HEAVY = ("gnomon.app.operations", "gnomon.adapters.sql.store", "gnomon.client", "sqlalchemy")


def test_importing_the_package_imports_no_operations() -> None:
    program = f"import gnomon, sys; sys.exit([name for name in {HEAVY!r} if name in sys.modules] or 0)"

    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Office'"):
        _ = getattr(gnomon, "Office")  # noqa: B009 - a name that does not exist


def test_settings_come_from_a_file_the_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "gnomon.yaml"
    file.write_text("leader: {ttl: 12s}\nworker: {slots: 7}\nserver: {port: 1}\n")

    settings = gnomon.load_settings(
        str(file), environment={"GNOMON_WORKER__SLOTS": "8", "GNOMON_SERVER__PORT": "2"}, flags={"server.port": 3}
    )

    assert isinstance(settings, gnomon.Settings)
    assert (settings.leader.ttl_ms, settings.worker.slots, settings.server.port) == (12_000, 8, 3)
    assert gnomon.load_settings() == gnomon.Settings()
    with pytest.raises(FileError):
        gnomon.load_settings(tmp_path / "absent.yaml")


def test_jobs_are_read_from_definitions_and_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs:\n- {name: report, schedule: every day at 9am, function: reports.make}\n")

    assert gnomon.read_jobs([REPORT]) == gnomon.read_jobs(file) == gnomon.read_jobs(str(file), gnomon.Settings(), now=0)
    with pytest.raises(FieldError):
        gnomon.read_jobs([REPORT | {"timeout": "soon"}])
    file.write_text("jobs:\n- {name: report}\n")
    with pytest.raises(JobsFileError):
        gnomon.read_jobs(file)


async def test_the_services_work_on_the_database_of_the_settings(tmp_path: Path) -> None:
    settings = gnomon.load_settings(flags={"database.url": f"sqlite:///{tmp_path}/gnomon.db"})

    async with gnomon.Operations.open(settings) as operations:
        await operations.jobs.apply(gnomon.read_jobs([REPORT], settings), actor="ada")
    async with gnomon.Operations.open(settings, make=False) as operations:
        answer = await operations.explainer.last("report", 1)

    assert answer.coming is not None
