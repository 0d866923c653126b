"""The page that leads from a laptop to a fleet: its commands work, one after another, with servers of our own."""

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from support.gnomon_processes import GnomonProcess
from support.nats_redis_servers import Nats, Redis
from support.postgres_server import postgres

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text()
STEPS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
#: Each file that the page shows begins with its name.
FILES = dict(re.findall(r"^```\w+\n# (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
#: The steps that the step after each repeats with one more service.
LATER_STEPS = (2, 4)
STAY = ("up", "server", "worker")
ENVIRONMENT = {
    "GNOMON_SERVER__PORT": "0",
    "GNOMON_METRICS__ENABLED": "false",
    "PYTHONUNBUFFERED": "1",
    "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH")))),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[Mapping[str, str]]:
    """The address of a server on the page, and that of ours."""
    with Nats() as nats, Redis() as redis:
        yield {"nats://bus:4222": nats.url, "redis://cache:6379/0": redis.url}


@pytest.fixture
async def addresses(servers: Mapping[str, str]) -> Mapping[str, str]:
    return {**servers, "postgresql://scheduler@db/gnomon": await postgres(18).empty()}


def ours(text: str, addresses: Mapping[str, str]) -> str:
    for theirs, address in addresses.items():
        text = text.replace(theirs, address)
    return text


@contextmanager
def staying(command: list[str], folder: Path) -> Iterator[None]:
    """A process that says that it runs, and ends in good order when it is told to."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    running = GnomonProcess(process)
    try:
        running.line_with("Ctrl-C stops")
        yield
        running.signal(signal.SIGTERM)
        assert running.ended() == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def said(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.req("H-16")
@pytest.mark.parametrize(
    "step",
    [
        pytest.param(step, id=str(number), marks=pytest.mark.thorough if number in LATER_STEPS else ())
        for number, step in enumerate(STEPS, 1)
    ],
)
def test_the_commands_of_a_step_work_one_after_another(step: str, addresses: Mapping[str, str], tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(ours(text, addresses))
    answers = []
    with ExitStack() as stack:
        for line in ours(step, addresses).splitlines():
            program, *arguments = shlex.split(line)
            if program != "gnomon":
                assert (program, arguments[0]) == ("pip", "install")
                continue
            command = [sys.executable, "-m", "gnomon", *arguments]
            if arguments[0] in STAY:
                stack.enter_context(staying(command, tmp_path))
            else:
                answers.append(said(command, tmp_path))

    assert any("completed" in answer for answer in answers)


def test_every_extra_that_the_page_installs_exists() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {name for extras in re.findall(r"gnomon\[([\w,]+)\]", PAGE) for name in extras.split(",")}

    assert wanted
    assert wanted <= set(known)
