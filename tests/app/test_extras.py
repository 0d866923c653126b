"""Settings that need a package which is not installed: the error is a command to type, not a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys

sys.modules[sys.argv.pop(1)] = None
from gnomon.cli import main

main()
"""


@pytest.mark.parametrize(
    ("package", "words", "reported"),
    [
        ("asyncpg", ["server", "--database", "postgresql://127.0.0.1:1/x"], "PostgreSQL needs the package asyncpg"),
        ("asyncpg", ["jobs", "list", "--database", "postgresql://127.0.0.1:1/x"], "pip install 'gnomon[postgres]'"),
        ("asyncpg", ["db", "migrate", "--database", "postgresql://127.0.0.1:1/x"], "pip install 'gnomon[postgres]'"),
        ("nats", ["worker", "--nats", "nats://127.0.0.1:1"], "pip install 'gnomon[nats]'"),
        ("mcp", ["mcp"], "the MCP server needs the package mcp: pip install 'gnomon[mcp]'"),
        ("redis", ["server"], "Redis needs the package redis: pip install 'gnomon[redis]'"),
    ],
)
def test_a_missing_extra_is_named_with_what_to_type(
    package: str, words: list[str], reported: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, package, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, **({"REDIS_URL": "redis://127.0.0.1:1"} if package == "redis" else {})},
    )

    assert done.returncode == 2
    assert reported in done.stderr
    assert "Traceback" not in done.stderr
