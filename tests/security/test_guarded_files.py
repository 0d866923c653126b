"""Files that decide who may do what are refused if others may write to them, at the start and when they change."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gnomon.adapters.auth.jwks import FileKeySource
from gnomon.adapters.files import read_jobs, read_mapping, read_pools_file
from gnomon.adapters.guarded_files import check_guarded
from gnomon.adapters.host import SystemClock
from gnomon.adapters.sql.connect import open_sqlite
from gnomon.app.doctor import diagnose
from gnomon.app.files import read_jobs_file, read_schedules_of_file
from gnomon.app.secrets import secret_source
from gnomon.config.sections import AuthSettings, SecretsSettings
from gnomon.config.settings import load
from gnomon.core.jobs.schedule_fields import Defaults
from gnomon.errors import FieldError, FileError
from gnomon.services.observability.health import Severity
from gnomon.testing.clock import Recorder
from support.command_line import run_command
from support.gnomon_processes import up
from support.token_issuers import rsa

JOBS = "jobs:\n  - {name: a, schedule: '@daily', function: f}\n"
#: No group of this process.
FOREIGN_GROUP = 54_321
#: A user, and the group of that user alone: by convention they have the same number.
PRIVATE_GROUP = 54_322


def jwks() -> str:
    return json.dumps({"keys": [rsa("k").as_dict(private=False)]})


def read_keys(path: Path) -> object:
    return FileKeySource(path, AuthSettings(), SystemClock(), Recorder())


#: Each guarded file: a valid content, and the function that reads it.
FILES: dict[str, tuple[Callable[[], str], Callable[[Path], object]]] = {
    "jobs": (lambda: JOBS, lambda path: read_jobs(path, Defaults(), now=0, guarded=True)),
    "pools": (lambda: "topics: {a: b}\n", read_pools_file),
    "configuration": (lambda: "server: {port: 1}\n", read_mapping),
    "jwks": (jwks, read_keys),
    "certificate": (lambda: "PEM", check_guarded),
}


def writable_by_everybody(file: Path) -> None:
    file.chmod(0o646)


def writable_by_another_group(file: Path) -> None:
    os.chown(file, -1, FOREIGN_GROUP)
    file.chmod(0o664)


def in_an_open_folder(file: Path) -> None:
    file.parent.chmod(0o777)


def below_an_open_folder(file: Path) -> None:
    file.parent.parent.chmod(0o777)


def behind_a_link_in_an_open_folder(file: Path) -> None:
    real = file.parent / "real"
    real.mkdir()
    (real / "file").write_text(file.read_text())
    file.unlink()
    file.symlink_to(real / "file")
    real.chmod(0o777)


def sticky(file: Path) -> None:
    file.parent.chmod(0o1777)


def writable_by_our_group(file: Path) -> None:
    os.chown(file, -1, os.getegid())
    file.chmod(0o664)


def of_another_user_with_a_private_group(file: Path) -> None:
    """As a container sees a file of its host, where new files have the mode 664."""
    os.chown(file, PRIVATE_GROUP, PRIVATE_GROUP)
    file.chmod(0o664)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "above" / "folder"
    folder.mkdir(parents=True)
    return folder / "file"


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    "expose",
    [
        writable_by_everybody,
        pytest.param(
            writable_by_another_group,
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another group"),
        ),
        in_an_open_folder,
        below_an_open_folder,
        behind_a_link_in_an_open_folder,
    ],
)
def test_a_file_that_others_may_write_to_is_refused(kind: str, expose: Callable[[Path], None], place: Path) -> None:
    content, read = FILES[kind]
    place.write_text(content())
    read(place)
    expose(place)

    with pytest.raises(FileError, match=r"chmod [og]-w"):
        read(place)


EXPOSURES = (writable_by_everybody, in_an_open_folder, below_an_open_folder, behind_a_link_in_an_open_folder)


@pytest.mark.parametrize("expose", EXPOSURES)
def test_a_secret_that_others_may_choose_is_refused_without_its_place(
    expose: Callable[[Path], None], place: Path
) -> None:
    place.write_text("hunter22")
    secrets = secret_source(SecretsSettings(allow=("file",), folder=str(place.parent)))
    assert secrets.read("file", tenant="default", job="j") == "hunter22"
    expose(place)

    with pytest.raises(FieldError, match="others may write to its file") as refused:
        secrets.read("file", tenant="default", job="j")
    assert str(place.parent) not in str(refused.value)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    "share",
    [
        sticky,
        writable_by_our_group,
        pytest.param(
            of_another_user_with_a_private_group,
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user"),
        ),
    ],
)
def test_a_file_of_our_own_group_or_in_a_sticky_folder_is_read(
    kind: str, share: Callable[[Path], None], place: Path
) -> None:
    content, read = FILES[kind]
    place.write_text(content())
    share(place)

    read(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_group_with_the_number_of_a_system_user_is_not_private(place: Path) -> None:
    """On Debian, 100 is a system user, and the group `users`."""
    place.write_text(JOBS)
    os.chown(place, 100, 100)
    place.chmod(0o664)

    with pytest.raises(FileError, match="chmod g-w"):
        read_jobs(place, Defaults(), now=0, guarded=True)


MOUNTED = """
import sys
from pathlib import Path
from gnomon.adapters.files import read_mapping
from gnomon.adapters.payload_cipher import build_cipher
read_mapping(Path(sys.argv[1], "gnomon.yaml"))
build_cipher([f"file:{sys.argv[1]}/payload.key"])
"""


@pytest.mark.parametrize(("mode", "code"), [("ro", 0), ("rw", 1)])
def test_configuration_and_secrets_are_read_as_kubernetes_mounts_them(mode: str, code: int, tmp_path: Path) -> None:
    key = base64.b64encode(bytes(32)).decode()
    script = (
        f"mount -t tmpfs -o mode=0777 none {tmp_path} && mkdir -m 0777 {tmp_path}/..1 && cd {tmp_path}/..1 &&"
        f" echo 'server: {{port: 1}}' > gnomon.yaml && echo {key} > payload.key && chmod 0444 * &&"
        f" ln -s ..1 ../..data && ln -s ..data/gnomon.yaml ..data/payload.key .. && mount -o remount,{mode} {tmp_path}"
        f' || exit 99; exec {sys.executable} -c "$0" {tmp_path}'
    )
    unshare = shutil.which("unshare") or "/bin/false"
    ran = subprocess.run([unshare, "-m", "sh", "-c", script, MOUNTED], capture_output=True, text=True, check=False)
    if ran.returncode in (1, 99) and "FileError" not in ran.stderr and "FieldError" not in ran.stderr:
        pytest.skip("this process may not mount")

    assert ran.returncode == code, ran.stderr


def expose_database(path: Path, suffix: str) -> Path:
    exposed = Path(f"{path}{suffix}")
    exposed.touch()
    exposed.chmod(0o666)
    return exposed


@pytest.mark.parametrize("suffix", ["", "-wal"])
async def test_a_database_that_everybody_may_write_to_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / "gnomon.db"
    store = await open_sqlite(str(path))
    await store.close()
    exposed = expose_database(path, suffix)

    with pytest.raises(FileError, match=f"chmod o-w {exposed}"):
        await open_sqlite(str(path))
    findings = await diagnose(load(flags={"database.url": f"sqlite:///{path}"}))
    assert [one.message for one in findings if one.about == "database" and one.grade is Severity.ERROR]


def test_a_jobs_file_that_others_may_write_to_can_be_checked_but_not_applied(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOBS)
    file.chmod(0o666)
    database = tmp_path / "gnomon.db"

    assert len(read_jobs_file(file, now=0)) == len(read_schedules_of_file(file, now=0)) == 1
    refused = run_command("jobs", "apply", "-f", str(file), "--database", str(database), folder=tmp_path)
    assert (refused.returncode, "chmod o-w" in refused.stderr, database.exists()) == (2, True, False)


def test_a_running_scheduler_does_not_apply_a_jobs_file_that_others_may_write_to(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text(JOBS)
    with up(tmp_path / "gnomon.db", "--jobs", str(file), imports=["support.effect_functions"]) as running:
        file.chmod(0o666)
        file.write_text(JOBS.replace("name: a", "name: forged"))
        assert "chmod o-w" in running.line_with("everybody may write to it")

        file.chmod(0o600)
        assert "1 created" in running.line_with("created")
