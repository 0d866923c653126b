"""A canary for each scanner, in outputs, logs and errors: no answer of the API, log, event or announcement has it."""

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

import gnomon
from support.channel_server import channel_server
from support.gnomon_processes import GnomonProcess, server, worker
from support.output_policies import CANARIES, HOLD_ALL, policy_text

pytestmark = [pytest.mark.timeout(180), pytest.mark.req("R-05", "R-06")]
ENVIRONMENT = {
    "GNOMON_OUTPUT_POLICY__ENABLED": "true",
    "GNOMON_OUTPUT_POLICY__INLINE_BYTES": "2000",
    "GNOMON_AUTH__VERIFY_TOKENS": "false",
    "GNOMON_AUTH__ACCEPT_UNVERIFIED": "true",
}
#: Only the look at one held output may show it, and it is audited.
LOOK = "/v1/quarantine/{task}"
ENDLESS = ("stream", "changes", "/mcp")


def says(text: str, *more: str) -> str:
    """A command that prints the text. Its definition has only the halves of it."""
    half = len(text) // 2
    return "; ".join([f"printf '%s%s\\n' '{text[:half]}' '{text[half:]}'", *more])


def jobs() -> Iterator[dict[str, Any]]:
    for name, text in CANARIES.items():
        common = {"dead_letter": True, "announce": [{"channel": "ops", "on": "failure"}]}
        yield {"name": f"output-{name}", "command": says(text), **common}
        yield {"name": f"error-{name}", "command": says(text, "exit 3"), **common}
        read = {"step": "read", "command": says(text)}
        send = {
            "step": "send",
            "command": "echo $GOT",
            "env": {"GOT": "${steps.read.output.stdout}"},
            "depends_on": ["read"],
        }
        yield {"name": f"graph-{name}", "dag": [read, send], **common}
        yield {"name": f"late-{name}", "command": says(text, "head -c 3000 /dev/zero | tr '\\0' x")}


async def answers(url: str, found: dict[str, list[str]]) -> dict[str, str]:
    """The bodies of all requests that read, by their paths; each parameter gets each value that is known."""
    bodies: dict[str, str] = {}
    async with aiohttp.ClientSession(url) as session:
        async with session.get("/openapi.json") as response:
            paths = (await response.json())["paths"]
        for path, methods in paths.items():
            if "get" not in methods or path == LOOK or any(part in path for part in ENDLESS):
                continue
            for filled in _filled(path, found):
                async with session.get(filled) as response:
                    bodies[filled] = await response.text()
    return bodies


def _filled(path: str, found: dict[str, list[str]]) -> list[str]:
    names = re.findall(r"{(\w+)}", path)
    if not names:
        return [path]
    values = found.get(names[0], [])
    return [one for value in values for one in _filled(path.replace(f"{{{names[0]}}}", value), found)]


async def test_no_canary_of_any_scanner_is_seen(tmp_path: Path) -> None:
    database = tmp_path / "gnomon.db"
    async with channel_server() as service:
        channel = {"kind": "telegram", "url": service.url, "token": "12:secret", "to": 5}
        (tmp_path / "gnomon.yaml").write_text(yaml.safe_dump({"channels": {"ops": channel}}))
        (tmp_path / "jobs.yaml").write_text(yaml.safe_dump({"jobs": list(jobs())}))
        flags = ["--config", str(tmp_path / "gnomon.yaml"), "--jobs", str(tmp_path / "jobs.yaml")]
        with server(database, *flags, environment=ENVIRONMENT) as running:
            url = running.line_with("answering on ").split()[-1]
            with gnomon.Client(url) as client:
                await asyncio.to_thread(client.apply_policy, policy_text(*HOLD_ALL))
            with worker(database, "--config", flags[1], environment=ENVIRONMENT) as working:
                found, statuses = await asyncio.to_thread(_run_all, url)
                bodies = await answers(url, found)
                logs = _output(working)
            async with asyncio.timeout(60):
                await service.until(3 * len(CANARIES))
            sent = "".join(service.texts)
            logs += _output(running)

    assert len(bodies) > 100
    assert statuses == {"output": "failed", "error": "failed", "graph": "failed", "late": "completed"}
    for name, text in CANARIES.items():
        assert [path for path, body in bodies.items() if text in body] == [], name
        assert text not in sent
        assert text not in "".join(logs)


def _run_all(url: str) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Trigger every job; return the values of the parameters of paths, and how the jobs of each kind ended."""
    with gnomon.Client(url) as client:
        names = [one["name"] for one in jobs()]
        runs = {name: client.trigger(name).execution_id for name in names}
        ended = {name: client.finished(run, timeout=90) for name, run in runs.items()}
        held: list[str] = []
        while len(held) < 3 * len(CANARIES):
            # The late ones are checked within seconds.
            held = [one.task_id for one in client.held_outputs()]
            time.sleep(0.1)
        letters = [one.dead_letter_id for one in client.dead_letters()]
    found = {
        "name": names,
        "job": names,
        "id": [*runs.values(), *letters],
        "execution": list(runs.values()),
        "task": held,
    }
    statuses = {name.partition("-")[0]: str(one.status) for name, one in ended.items()}
    return found, statuses


def _output(running: GnomonProcess) -> list[str]:
    return [*running.read, *running.output_until_stopped()]
