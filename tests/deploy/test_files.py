"""Container and systemd files: their shape, and that they agree with our settings and addresses."""

import configparser
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from gnomon.config.settings import Settings
from gnomon.core.durations import duration_ms

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
USUAL = Settings()
#: Where the port for metrics answers.
PATHS = {"/metrics", "/livez", "/readyz"}
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


# ---- the container -------------------------------------------------------------------------------


def lines(word: str) -> list[str]:
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE))
    return [line.partition(" ")[2].strip() for line in joined.splitlines() if line.startswith(f"{word} ")]


def test_the_container_is_slim_and_runs_as_nobody_special() -> None:
    assert all("-slim" in image for image in lines("FROM"))
    [user] = lines("USER")
    assert int(user.partition(":")[0]) > 0


@pytest.mark.req("H-17", "H-18")
def test_the_container_can_reach_whatever_the_settings_may_name() -> None:
    extras = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = re.search(r'"\.\[([\w,]+)\]"', DOCKERFILE)

    assert installed is not None
    assert set(installed[1].split(",")) == set(extras) - {"test", "bench"}


def test_the_container_listens_where_the_settings_say() -> None:
    [ports] = lines("EXPOSE")
    [said] = lines("ENV")

    assert set(map(int, ports.split())) == {USUAL.server.port, USUAL.metrics.port}
    assert {"GNOMON_SERVER__HOST=0.0.0.0", "GNOMON_METRICS__HOST=0.0.0.0"} <= set(said.split())


def test_the_health_check_asks_where_somebody_answers() -> None:
    [check] = lines("HEALTHCHECK")
    found = re.search(r"http://127\.0\.0\.1:(\d+)(/\w+)", check)

    assert found is not None
    assert int(found[1]) == USUAL.metrics.port
    assert found[2] in PATHS


def test_every_file_that_the_container_copies_exists() -> None:
    copied = [word for line in lines("COPY") if "--from" not in line for word in line.split()[:-1]]

    assert copied
    assert all((DEPLOY.parent / word).exists() for word in copied)


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()],
    ids=lambda path: str(path.relative_to(DEPLOY)),
)
def test_no_file_names_a_place_of_anybody(path: Path) -> None:
    addresses = set(re.findall(r"\b\d{1,3}(?:\.\d{1,3}){3}\b", path.read_text()))

    assert addresses <= {"127.0.0.1", "0.0.0.0"}  # noqa: S104 - nobody's


# ---- systemd -------------------------------------------------------------------------------------


def unit(path: Path) -> configparser.ConfigParser:
    read = configparser.ConfigParser(strict=True, interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read(path)
    return read


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_service_says_when_it_is_ready_and_is_watched(path: Path) -> None:
    service = unit(path)["Service"]

    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) > 0
    assert service["DynamicUser"] == "yes"


def test_there_is_a_service_for_a_node_and_one_for_a_worker_that_serves_metrics() -> None:
    worker, node = (unit(path)["Service"]["ExecStart"].split() for path in UNITS)

    assert (node[1], worker[1]) == ("up", "worker")
    assert worker[-2:] == ["--metrics-port", "9091"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_service_may_finish_what_runs_and_is_not_started_again_with_settings_that_are_wrong(path: Path) -> None:
    service = unit(path)["Service"]

    assert duration_ms("stop", f"{service['TimeoutStopSec']}s") > USUAL.worker.drain_ms + USUAL.worker.kill_grace_ms
    assert service["RestartPreventExitStatus"] == "2"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here; its file is read above")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_a_service(tmp_path: Path, path: Path) -> None:
    program = re.sub(r"/opt/gnomon/bin/gnomon\b", "/bin/true", path.read_text())
    (tmp_path / path.name).write_text(program)

    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / path.name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not here; its file is read above")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_service_is_exposed_to_little_in_the_judgement_of_systemd(path: Path) -> None:
    # Of 100; the network and the files of the host cost 17.
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    if "Unknown" in done.stderr or "unrecognized" in done.stderr:
        pytest.skip("this systemd cannot judge a file")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_service_can_do_what_commands_and_the_watchdog_need(path: Path) -> None:
    service = unit(path)["Service"]

    assert service["StateDirectory"] == service["WorkingDirectory"].removeprefix("%S/")
    # It notifies systemd over a socket; commands are found and killed by what /proc says about their descendants.
    assert "AF_UNIX" in service["RestrictAddressFamilies"].split()
    assert not {"ProtectProc", "ProcSubset", "MemoryDenyWriteExecute", "PrivateNetwork"} & set(service)
    assert service["SystemCallErrorNumber"] == "EPERM"
