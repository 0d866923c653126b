"""The manifests for Kubernetes: valid, and in agreement with each other, the settings and the ports of the program."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from gnomon.app.files import read_jobs_file
from gnomon.config.settings import Settings, load
from support.command_line import parse_command
from support.kubernetes_schema import read_object

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS: dict[tuple[str, str], dict[str, Any]] = {
    (found["kind"], found["metadata"]["name"]): found
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
    for found in yaml.safe_load_all(path.read_text())
}
USUAL = Settings()
NAMES = ("gnomon", "gnomon-worker")
SCRAPE = {
    job["job_name"]: job for job in yaml.safe_load((DEPLOY / "prometheus/scrape.yaml").read_text())["scrape_configs"]
}
POD_MONITOR = yaml.safe_load((DEPLOY / "prometheus" / "pod-monitor.yaml").read_text())
#: Where the ports answer without a token.
PATHS = {"metrics": {"/metrics", "/livez", "/readyz"}, "api": {"/v1/health", "/livez", "/readyz"}}

everywhere = pytest.mark.parametrize("name", NAMES)


def pods(name: str) -> dict[str, Any]:
    template: dict[str, Any] = MANIFESTS["Deployment", name]["spec"]["template"]
    return template


def container(name: str) -> dict[str, Any]:
    [found] = pods(name)["spec"]["containers"]
    return dict(found)


def ports(name: str) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(name)["ports"]}


def environment(name: str) -> dict[str, str | None]:
    return {one["name"]: one.get("value") for one in container(name)["env"]}


# ---- the schema ----------------------------------------------------------------------------------


@pytest.mark.req("H-17")
@pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=["-".join(key) for key in MANIFESTS])
def test_a_manifest_is_an_object_of_kubernetes(manifest: dict[str, Any]) -> None:
    read_object(manifest)

    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", manifest["metadata"]["name"])


@pytest.mark.parametrize(
    ("change", "place"),
    [({"replica": 2}, r"`replica` - at `\$.spec`"), ({"replicas": "2"}, r"at `\$.spec.replicas`")],
    ids=["an unknown field", "a wrong type"],
)
def test_the_schema_refuses_what_kubernetes_does(change: dict[str, Any], place: str) -> None:
    manifest = MANIFESTS["Deployment", "gnomon"]

    with pytest.raises(msgspec.ValidationError, match=place):
        read_object(manifest | {"spec": manifest["spec"] | change})


# ---- servers and workers -------------------------------------------------------------------------


@pytest.mark.req("H-17")
def test_two_servers_with_the_requests_and_limits_of_the_seed() -> None:
    assert MANIFESTS["Deployment", "gnomon"]["spec"]["replicas"] == 2
    assert container("gnomon")["resources"] == {
        "requests": {"memory": "128Mi", "cpu": "100m"},
        "limits": {"memory": "512Mi", "cpu": "500m"},
    }


def test_servers_schedule_and_workers_execute_and_serve_metrics() -> None:
    server, worker = (parse_command(container(name)["args"]) for name in NAMES)

    assert (server[0], worker[0]) == ("server", "worker")
    assert worker[1]["metrics_port"] == ports("gnomon-worker")["metrics"]


@pytest.mark.req("H-11")
def test_replicas_have_an_archive_address() -> None:
    reported = set(environment("gnomon"))

    assert {"GNOMON_EXECUTION__ARCHIVE", "GNOMON_S3__ACCESS_KEY_ID", "GNOMON_S3__SECRET_ACCESS_KEY"} <= reported


@pytest.mark.req("H-17")
def test_the_ports_are_those_of_the_settings_and_can_be_reached() -> None:
    said = load(environment={name: value for name, value in environment("gnomon").items() if value is not None})

    assert {"api": said.server.port, "metrics": said.metrics.port} == ports("gnomon")
    assert (said.server.host, said.metrics.host) == ("0.0.0.0", "0.0.0.0")  # noqa: S104 - in a container
    assert environment("gnomon-worker")["GNOMON_METRICS__HOST"] == "0.0.0.0"  # noqa: S104


@everywhere
def test_every_variable_is_a_setting(name: str) -> None:
    references = {"DATABASE_URL": "postgresql://gnomon@db/gnomon", "GNOMON_EXECUTION__ARCHIVE_DIR": ""}

    load(environment={key: references.get(key, value or "") for key, value in environment(name).items() if value})
    unknown = [key for key in environment(name) if not _is_setting(key)]
    assert unknown == []


def _is_setting(variable: str) -> bool:
    section, _, key = variable.removeprefix("GNOMON_").lower().partition("__")
    if not key:
        return variable in ("DATABASE_URL", "GNOMON_IMPORTS", "GNOMON_JOBS_FILE")
    return key in getattr(USUAL, section).__struct_fields__


@pytest.mark.req("H-17")
@everywhere
def test_the_probes_ask_where_somebody_answers(name: str) -> None:
    probes = {kind: container(name)[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")}

    assert all(probe["path"] in PATHS[probe["port"]] for probe in probes.values())
    assert all(probe["port"] in ports(name) for probe in probes.values())
    if name == "gnomon":
        assert probes["readiness"] == {"path": "/v1/health", "port": "api"}


@pytest.mark.req("H-17")
@everywhere
def test_secrets_stand_in_no_manifest(name: str) -> None:
    [database] = [one for one in container(name)["env"] if one["name"] == "DATABASE_URL"]

    assert "value" not in database
    assert set(database["valueFrom"]["secretKeyRef"]) == {"name", "key"}
    assert not any(kind == "Secret" for kind, _ in MANIFESTS)


@pytest.mark.req("H-17", "H-20")
def test_the_issuer_comes_from_outside_and_by_an_existing_setting() -> None:
    said = [one for one in container("gnomon")["env"] if one["name"].startswith("GNOMON_AUTH__")]

    assert {one["name"].removeprefix("GNOMON_AUTH__").lower() for one in said} == {"iam_url", "audience"}
    assert all(one["valueFrom"]["configMapKeyRef"]["optional"] is True for one in said)


def test_the_commands_on_the_page_create_what_the_manifests_refer_to() -> None:
    page = (DEPLOY.parent / "docs" / "operating.md").read_text()
    created = {
        (kind, name): set(re.findall(r"--from-literal=([\w-]+)=", rest))
        for kind, name, rest in re.findall(r"kubectl create (secret generic|configmap) (\S+)((?:.*\\\n)*.*)", page)
    }
    required, known = set(), set()
    for name in NAMES:
        for one in container(name)["env"]:
            for kind, reference in one.get("valueFrom", {}).items():
                key = ("secret generic" if kind == "secretKeyRef" else "configmap", reference["name"], reference["key"])
                known.add(key)
                if not reference.get("optional"):
                    required.add(key)

    shown = {(kind, name, key) for (kind, name), keys in created.items() for key in keys}
    assert required <= shown <= known
    # A server with an issuer does not start without the audience.
    assert {"iam-url", "audience"} <= created["configmap", "gnomon-settings"]


def test_a_drained_node_leaves_servers_and_workers() -> None:
    assert MANIFESTS["PodDisruptionBudget", "gnomon"]["spec"]["minAvailable"] == 1
    assert MANIFESTS["PodDisruptionBudget", "gnomon-worker"]["spec"]["maxUnavailable"] == 1


@everywhere
def test_every_selector_finds_the_pods(name: str) -> None:
    labels = pods(name)["metadata"]["labels"]
    [spread] = pods(name)["spec"]["topologySpreadConstraints"]

    assert MANIFESTS["Deployment", name]["spec"]["selector"]["matchLabels"] == labels
    assert MANIFESTS["PodDisruptionBudget", name]["spec"]["selector"]["matchLabels"] == labels
    assert spread["labelSelector"]["matchLabels"] == labels


def test_the_service_leads_to_the_servers_alone() -> None:
    service = MANIFESTS["Service", "gnomon"]["spec"]

    assert service["selector"] == pods("gnomon")["metadata"]["labels"] != pods("gnomon-worker")["metadata"]["labels"]
    assert {port["targetPort"] for port in service["ports"]} == set(ports("gnomon"))


@everywhere
def test_the_pods_are_nobody_special(name: str) -> None:
    user = re.search(r"^USER (\d+):(\d+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)

    assert user is not None
    assert pods(name)["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pods(name)["spec"]["securityContext"]["runAsUser"] == int(user[1])
    assert pods(name)["spec"]["securityContext"]["runAsGroup"] == int(user[2])
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@everywhere
def test_every_mount_is_a_volume(name: str) -> None:
    volumes = {volume["name"] for volume in pods(name)["spec"]["volumes"]}

    assert {mount["name"] for mount in container(name)["volumeMounts"]} == volumes


def test_the_jobs_file_is_where_the_settings_look_for_it_and_is_one(tmp_path: Path) -> None:
    config = MANIFESTS["ConfigMap", "gnomon-jobs"]
    [mount] = [one["mountPath"] for one in container("gnomon")["volumeMounts"] if one["name"] == "jobs"]
    [(name, text)] = config["data"].items()
    (tmp_path / name).write_text(text)

    assert environment("gnomon")["GNOMON_JOBS_FILE"] == f"{mount}/{name}"
    assert read_jobs_file(tmp_path / name, now=0)


@everywhere
def test_running_attempts_may_finish_before_a_pod_is_killed(name: str) -> None:
    drain_seconds = (USUAL.worker.drain_ms + USUAL.worker.kill_grace_ms) / 1000

    assert pods(name)["spec"]["terminationGracePeriodSeconds"] > drain_seconds


# ---- monitoring ----------------------------------------------------------------------------------


@pytest.mark.req("H-17")
@everywhere
def test_the_pods_say_where_metrics_are(name: str) -> None:
    reported = pods(name)["metadata"]["annotations"]

    assert reported["prometheus.io/scrape"] == "true"
    assert reported["prometheus.io/port"] == str(ports(name)["metrics"])
    assert reported["prometheus.io/path"] == "/metrics"


def targets(name: str) -> list[str]:
    """The ports of a pod that the scrape job keeps, as Prometheus evaluates its rules."""
    about = {"label": pods(name)["metadata"]["labels"], "annotation": pods(name)["metadata"]["annotations"]}
    meta = {
        f"__meta_kubernetes_pod_{kind}_{re.sub(r'[^a-zA-Z0-9_]', '_', key)}": value
        for kind, named in about.items()
        for key, value in named.items()
    }
    [keep] = [rule for rule in SCRAPE["gnomon-pods"]["relabel_configs"] if rule.get("action") == "keep"]
    found = []
    for port in ports(name):
        labels = meta | {"__meta_kubernetes_pod_container_port_name": port}
        if re.fullmatch(keep["regex"], ";".join(labels.get(label, "") for label in keep["source_labels"])):
            found.append(port)
    return found


@pytest.mark.req("H-14", "H-17")
@everywhere
def test_prometheus_finds_the_pods_by_their_annotations_and_keeps_the_names_of_jobs(name: str) -> None:
    assert targets(name) == ["metrics"]
    assert SCRAPE["gnomon-pods"]["honor_labels"] is True
    assert "metrics_path" not in SCRAPE["gnomon-pods"]


@pytest.mark.req("H-14")
@everywhere
def test_the_prometheus_operator_finds_the_pods_and_keeps_the_names_of_jobs(name: str) -> None:
    [wanted] = POD_MONITOR["spec"]["selector"]["matchExpressions"]
    [endpoint] = POD_MONITOR["spec"]["podMetricsEndpoints"]

    assert (POD_MONITOR["apiVersion"], POD_MONITOR["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    assert (wanted["key"], wanted["operator"]) == ("app", "In")
    assert pods(name)["metadata"]["labels"]["app"] in wanted["values"]
    assert endpoint["port"] in ports(name)
    assert (endpoint["path"], endpoint["honorLabels"]) == ("/metrics", True)
