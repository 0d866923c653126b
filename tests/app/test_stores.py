"""A long-lived process lets a child make its database: what that takes would never be given back."""

import subprocess
import sys
from pathlib import Path

_MAKES = """
import sys
from gnomon.app.stores import create_database_in_child
create_database_in_child(sys.argv[1])
assert "alembic" not in sys.modules
import asyncio
from gnomon.adapters.sql import open_sqlite
async def opened():
    store = await open_sqlite(sys.argv[1].removeprefix("sqlite:///"))
    await store.close()
asyncio.run(opened())
print("alembic" in sys.modules)
"""


def makes(url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", _MAKES, url], capture_output=True, text=True, timeout=60, check=False)


def test_a_database_is_made_without_what_makes_it_staying_in_memory(tmp_path: Path) -> None:
    made = makes(f"sqlite:///{tmp_path / 'gnomon.db'}")

    assert (made.stdout, made.stderr) == ("False\n", "")


def test_opening_a_database_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    refused = makes(f"sqlite:///{tmp_path / 'missing' / 'gnomon.db'}")

    assert refused.returncode
    assert f"there is no folder {tmp_path / 'missing'} for the database" in refused.stderr
