"""An idle server holds no module that only other work needs: each would take memory as long as the server runs."""

import urllib.request
from pathlib import Path

from support import gnomon_processes

#: Migrations alone take 12 MiB, models of pydantic 9, structured logs and Rich 6, schemas of inputs 4.
HEAVY = (
    "alembic",
    "mako",
    "pydantic",
    "attr",
    "rich",
    "pygments",
    "structlog",
    "jsonschema_rs",
    "lark",
    "jinja2",
    "aiohttp",
    "nats",
    "asyncpg",
    "psycopg",
    "prometheus_client",
    "mcp",
    "pydantic_ai",
)


def test_an_idle_server_holds_only_the_modules_that_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs:\n- {name: report, function: f, schedule: '0 3 29 2 *'}\n")
    # As a text, so that the server makes the file, as it does for a new user.
    database, metrics = str(tmp_path / "gnomon.db"), {"GNOMON_METRICS__PORT": "0"}

    with gnomon_processes.up(
        database, "--jobs", str(file), "--port", "0", imports=["support.loaded_modules"], environment=metrics
    ) as server:
        address = server.line_with("answering on").split()[-1]
        with urllib.request.urlopen(f"{address}/v1/health") as answer:  # noqa: S310 - our own server
            assert answer.status == 200
        [line] = [line for line in server.output_until_stopped() if line.startswith("loaded:")]

    assert "litestar" in line.split()
    assert [name for name in HEAVY if name in line.split()] == []
