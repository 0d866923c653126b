"""The compose file: what it says about servers, workers, PostgreSQL and NATS fits together, and a job runs with it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from gnomon.app.files import read_jobs_file
from gnomon.config.settings import Settings, load
from gnomon.core.durations import duration_ms
from support.command_line import parse_command
from support.gnomon_processes import GnomonProcess
from support.nats_redis_servers import find_program
from support.nats_users import PASSWORDS, nats_with_users
from support.postgres_server import postgres

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("server", "worker")
REFERENCE = re.compile(r"\$\{(\w+):\?[^}]*\}")
SECRETS = {
    "POSTGRES_PASSWORD": "of-postgres",
    "SCHEDULER_PASSWORD": PASSWORDS["scheduler"],
    "WORKER_PASSWORD": PASSWORDS["worker"],
}
#: The keys of a service that this file uses, as the compose specification names them.
KEYS = {
    *("image", "build", "command", "environment", "configs", "volumes", "ports", "healthcheck", "depends_on"),
    *("stop_grace_period", "restart", "read_only", "tmpfs", "cap_drop", "security_opt"),
}
ours = pytest.mark.parametrize("name", OURS)


def environment(name: str) -> dict[str, str]:
    """The variables of a service, with the passwords in place."""
    said: dict[str, str] = SERVICES[name]["environment"]
    return {key: REFERENCE.sub(lambda found: SECRETS[found[1]], value) for key, value in said.items()}


def test_the_file_has_the_shape_of_compose() -> None:
    assert set(COMPOSE) == {"name", "services", "configs", "volumes"}
    for service in SERVICES.values():
        assert set(service) <= KEYS
        assert set(service.get("depends_on", ())) <= set(SERVICES)
        mounted = {volume.partition(":")[0] for volume in service.get("volumes", ())}
        assert {name for name in mounted if not name.startswith(".")} <= set(COMPOSE["volumes"])
        assert all((DEPLOY / name).exists() for name in mounted if name.startswith("."))
        assert {one["source"] for one in service.get("configs", ())} <= set(COMPOSE["configs"])


def test_passwords_come_from_outside_and_the_page_says_how() -> None:
    page = (ROOT / "docs" / "operating.md").read_text()

    assert set(REFERENCE.findall((DEPLOY / "compose.yaml").read_text())) == set(SECRETS)
    assert {name for name in SECRETS if f"{name}=" in page} == set(SECRETS)


def test_servers_schedule_and_workers_execute_and_serve_the_probes_of_the_image() -> None:
    server, worker = (parse_command(SERVICES[name]["command"]) for name in OURS)
    probe = re.search(r"http://127\.0\.0\.1:(\d+)/livez", (DEPLOY / "Dockerfile").read_text())

    assert (server[0], worker[0]) == OURS
    assert probe is not None
    assert worker[1]["metrics_port"] == Settings().metrics.port == int(probe[1])
    assert not any("healthcheck" in SERVICES[name] for name in OURS)


def test_a_server_finds_its_database_bus_jobs_and_key() -> None:
    said, database = load(environment=environment("server")), SERVICES["postgres"]["environment"]
    url, bus = urlsplit(said.database.url), urlsplit(said.nats.url)

    assert (url.hostname, url.username, url.path) == (
        "postgres",
        database["POSTGRES_USER"],
        f"/{database['POSTGRES_DB']}",
    )
    assert url.password == SECRETS["POSTGRES_PASSWORD"]
    assert (bus.hostname, said.nats.user, said.nats.password) == ("nats", "scheduler", SECRETS["SCHEDULER_PASSWORD"])
    assert said.jobs_file == SERVICES["server"]["configs"][0]["target"]
    # Data outlives the container, whose own files cannot be written.
    assert SERVICES["server"]["read_only"] is True
    assert SERVICES["server"]["volumes"] == ["server:/var/lib/gnomon"]
    assert all(path.startswith("/var/lib/gnomon/") for path in (said.auth.key_file, said.execution.archive_dir))


def test_a_worker_reaches_nats_and_not_the_database() -> None:
    said = load(environment=environment("worker"))

    assert (said.nats.user, said.nats.password) == ("worker", SECRETS["WORKER_PASSWORD"])
    assert "DATABASE_URL" not in environment("worker")
    assert set(REFERENCE.findall(str(SERVICES["worker"]))) == {"WORKER_PASSWORD"}


def test_the_jobs_file_is_one() -> None:
    assert read_jobs_file(DEPLOY / COMPOSE["configs"]["jobs"]["file"], now=0)


@ours
def test_running_attempts_may_finish_before_a_container_is_killed(name: str) -> None:
    usual = Settings().worker
    allowed = duration_ms("stop_grace_period", SERVICES[name]["stop_grace_period"])

    assert allowed > usual.drain_ms + usual.kill_grace_ms


@ours
def test_our_containers_have_no_privileges(name: str) -> None:
    assert SERVICES[name]["cap_drop"] == ["ALL"]
    assert SERVICES[name]["security_opt"] == ["no-new-privileges:true"]


def test_nothing_is_published_beyond_this_machine() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]

    assert {port.rpartition(":")[0].partition(":")[0] for port in published} == {"127.0.0.1"}
    assert {int(port.rpartition(":")[2]) for port in published} == {Settings().server.port, Settings().metrics.port}


def test_nats_accepts_its_command_and_configuration() -> None:
    words = [
        str(DEPLOY / "nats" / "nats.conf") if word == "/etc/nats/gnomon.conf" else word
        for word in SERVICES["nats"]["command"]
    ]
    named = environment("nats")
    done = subprocess.run(
        [find_program("nats-server"), *words, "-t"], env=named, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "./nats/nats.conf:/etc/nats/gnomon.conf:ro" in SERVICES["nats"]["volumes"]
    assert "nats:/var/lib/nats" in SERVICES["nats"]["volumes"]


@contextmanager
def running(name: str, places: Mapping[str, str]) -> Iterator[GnomonProcess]:
    process = subprocess.Popen(
        [sys.executable, "-m", "gnomon", *("0" if word == "9090" else word for word in SERVICES[name]["command"])],
        cwd=places["folder"],
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment_here(name, places)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield GnomonProcess(process)
    finally:
        process.terminate()
        process.communicate()


def environment_here(name: str, places: Mapping[str, str]) -> dict[str, str]:
    """The variables of a service, with the addresses and folders of this machine."""
    here = {"GNOMON_SERVER__PORT": "0", "GNOMON_METRICS__PORT": "0"}
    for key, value in environment(name).items():
        here[key] = places.get(key, value.replace("/var/lib/gnomon", places["folder"]))
    return here


@pytest.mark.thorough
@pytest.mark.timeout(120)
async def test_a_job_runs_with_the_settings_of_server_and_worker(tmp_path: Path) -> None:
    with nats_with_users() as nats:
        places = {
            "folder": str(tmp_path),
            "DATABASE_URL": await postgres(18).empty(),
            "NATS_URL": nats.url,
            "GNOMON_JOBS_FILE": str(DEPLOY / "jobs.yaml"),
        }
        with running("server", places) as server:
            server.line_with('"answering"')
            with running("worker", places) as worker:
                worker.line_with('"worker_up"')
                done = subprocess.run(  # noqa: ASYNC221 - nothing else runs in this loop
                    [sys.executable, "-m", "gnomon", "jobs", "trigger", "hello", "--wait"],
                    env={**os.environ, **environment_here("server", places)},
                    capture_output=True,
                    text=True,
                    check=False,
                )

    assert "completed" in done.stdout, done.stderr
    assert (tmp_path / "auth.token").exists()
