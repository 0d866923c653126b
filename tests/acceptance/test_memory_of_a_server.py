"""The memory of a server process, as an orchestrator counts it."""

import asyncio
from pathlib import Path
from urllib.request import urlopen

import pytest

from support.gnomon_processes import server
from support.postgres_server import postgres
from support.server_process import free_port

JOBS, MOST_KIB = 3_000, 128 * 1024


@pytest.mark.thorough
@pytest.mark.req("H-17")
@pytest.mark.timeout(180)
async def test_thousands_of_jobs_fit_into_the_memory_that_the_manifest_requests(tmp_path: Path) -> None:
    jobs, port = tmp_path / "jobs.yaml", free_port()
    lines = [
        f'  - {{name: job-{n}, schedule: "{n % 60} */2 * * *", function: company/report, timezone: Europe/Berlin}}\n'
        for n in range(JOBS)
    ]
    jobs.write_text("jobs:\n" + "".join(lines))
    metrics = {"GNOMON_METRICS__ENABLED": "true", "GNOMON_METRICS__PORT": str(port)}
    async with postgres(18).database() as url:
        with server(url, "--jobs", str(jobs), environment=metrics) as running:
            running.line_with("answering on")
            for _ in range(5):
                # Gauges are read for each scrape, at most once a second.
                await asyncio.sleep(1)
                shown = await asyncio.to_thread(_scraped, port)
            resident = _resident_kib(running.pid)

    assert f"hanzo_scheduler_jobs_registered {JOBS}.0" in shown
    assert resident < MOST_KIB


def _scraped(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        return str(answer.read().decode())


def _resident_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0])
