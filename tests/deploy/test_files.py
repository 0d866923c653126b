"""Container, Kubernetes and systemd files: their shape, and that they agree with our settings and doors."""

import configparser
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from gnomon.app.files import read_jobs_file
from gnomon.config.settings import Settings, load
from gnomon.core.durations import duration_ms

DEPLOY = Path(__file__).parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS: dict[str, dict[str, Any]] = {
    found["kind"]: found
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for found in yaml.safe_load_all(path.read_text())
}
USUAL = Settings()
PODS: dict[str, Any] = MANIFESTS["Deployment"]["spec"]["template"]
[CONTAINER] = PODS["spec"]["containers"]
PORTS = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
ENVIRONMENT = {one["name"]: one.get("value") for one in CONTAINER["env"]}
#: Where our two servers answer without a token.
DOORS = {"metrics": {"/metrics", "/livez", "/readyz"}, "api": {"/v1/health", "/livez", "/readyz"}}
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()


# ---- Kubernetes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", MANIFESTS)
def test_a_manifest_says_what_it_is(kind: str) -> None:
    versions = {"Deployment": "apps/v1", "Service": "v1", "ConfigMap": "v1", "PodDisruptionBudget": "policy/v1"}

    assert MANIFESTS[kind]["apiVersion"] == versions[kind]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", MANIFESTS[kind]["metadata"]["name"])


@pytest.mark.req("H-17")
def test_two_replicas_with_the_requests_and_limits_of_the_seed() -> None:
    assert MANIFESTS["Deployment"]["spec"]["replicas"] == 2
    assert CONTAINER["resources"] == {
        "requests": {"memory": "128Mi", "cpu": "100m"},
        "limits": {"memory": "512Mi", "cpu": "500m"},
    }


@pytest.mark.req("H-17")
def test_prometheus_is_told_where_to_look() -> None:
    told = PODS["metadata"]["annotations"]

    assert told["prometheus.io/scrape"] == "true"
    assert told["prometheus.io/port"] == str(USUAL.metrics.port)
    assert told["prometheus.io/path"] in DOORS["metrics"]


@pytest.mark.req("H-17")
def test_the_ports_are_those_of_the_settings_and_can_be_reached() -> None:
    said = load(environment={name: value for name, value in ENVIRONMENT.items() if value is not None})

    assert {"api": said.server.port, "metrics": said.metrics.port} == PORTS
    assert (said.server.host, said.metrics.host) == ("0.0.0.0", "0.0.0.0")  # noqa: S104 - in a container


@pytest.mark.req("H-17")
def test_the_probes_ask_where_somebody_answers() -> None:
    probes = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}

    assert all(probe["path"] in DOORS[probe["port"]] for probe in probes.values())
    assert probes["readiness"] == {"path": "/v1/health", "port": "api"}


@pytest.mark.req("H-17")
def test_secrets_stand_in_no_manifest() -> None:
    [database] = [one for one in CONTAINER["env"] if one["name"] == "DATABASE_URL"]

    assert "value" not in database
    assert set(database["valueFrom"]["secretKeyRef"]) == {"name", "key"}
    assert "Secret" not in MANIFESTS


@pytest.mark.req("H-17", "H-20")
def test_who_issues_tokens_is_said_from_outside_and_by_a_setting_that_there_is() -> None:
    [issuer] = [one for one in CONTAINER["env"] if one["name"].startswith("GNOMON_AUTH__")]

    assert issuer["name"].removeprefix("GNOMON_AUTH__").lower() in USUAL.auth.__struct_fields__
    assert issuer["valueFrom"]["configMapKeyRef"]["optional"] is True


def test_one_replica_is_always_left() -> None:
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["minAvailable"] == 1


def test_every_selector_finds_the_pods() -> None:
    labels = PODS["metadata"]["labels"]

    assert MANIFESTS["Deployment"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["Service"]["spec"]["selector"] == labels
    assert {port["targetPort"] for port in MANIFESTS["Service"]["spec"]["ports"]} == set(PORTS)


def test_the_pods_are_nobody_special() -> None:
    assert PODS["spec"]["securityContext"]["runAsNonRoot"] is True
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_what_is_mounted_is_a_volume() -> None:
    volumes = {volume["name"] for volume in PODS["spec"]["volumes"]}

    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == volumes


def test_the_jobs_file_is_where_the_settings_look_for_it_and_is_one(tmp_path: Path) -> None:
    config = MANIFESTS["ConfigMap"]
    [mount] = [one["mountPath"] for one in CONTAINER["volumeMounts"] if one["name"] == "jobs"]
    [(name, text)] = config["data"].items()
    (tmp_path / name).write_text(text)

    assert ENVIRONMENT["GNOMON_JOBS_FILE"] == f"{mount}/{name}"
    assert read_jobs_file(tmp_path / name, now=0)


def test_what_runs_may_finish_before_a_pod_is_killed() -> None:
    drain_seconds = (USUAL.worker.drain_ms + USUAL.worker.kill_grace_ms) / 1000

    assert PODS["spec"]["terminationGracePeriodSeconds"] > drain_seconds


# ---- the container -------------------------------------------------------------------------------


def lines(word: str) -> list[str]:
    joined = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE))
    return [line.partition(" ")[2].strip() for line in joined.splitlines() if line.startswith(f"{word} ")]


def test_the_container_is_slim_and_runs_as_nobody_special() -> None:
    assert all("-slim" in image for image in lines("FROM"))
    [user] = lines("USER")
    assert int(user.partition(":")[0]) == PODS["spec"]["securityContext"]["runAsUser"] > 0


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
    assert found[2] in DOORS["metrics"]


def test_what_the_container_copies_is_there() -> None:
    copied = [word for line in lines("COPY") if "--from" not in line for word in line.split()[:-1]]

    assert copied
    assert all((DEPLOY.parent / word).exists() for word in copied)


@pytest.mark.parametrize("path", [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()], ids=lambda p: p.name)
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


def test_there_is_a_service_for_a_node_and_one_for_a_worker_that_shows_numbers_because_only_such_a_one_notifies() -> (
    None
):
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
