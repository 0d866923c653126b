"""Announcements of real processes: killed between two parts, beside each other, and without any worker."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gnomon.core.announcements.split import CONTINUED, CONTINUES
from support.channel_server import ChannelServer, ScriptedAnswer, channel_server
from support.gnomon_processes import GnomonProcess, server, up
from support.postgres_server import postgres

#: Commands may print more than by default.
TALKATIVE = {"GNOMON_WORKER__MAX_OUTPUT_BYTES": "1000000"}
#: Long enough for several parts of 4096 characters.
LONG = "seq 1 3000"
OUTPUT = "\n".join(str(number) for number in range(1, 3001))


@pytest.fixture
async def service() -> AsyncIterator[ChannelServer]:
    async with channel_server() as running:
        yield running


def written(folder: Path, service: ChannelServer, *jobs: Mapping[str, Any], **channel: Any) -> list[str]:  # noqa: ANN401
    """The flags of a process with these jobs and the channel `ops`."""
    said = {"kind": "telegram", "url": service.url, "token": "12:secret", "to": 5, "timeout": "2s", **channel}
    (folder / "gnomon.yaml").write_text(yaml.safe_dump({"channels": {"ops": said}}))
    (folder / "jobs.yaml").write_text(yaml.safe_dump({"jobs": list(jobs)}))
    return ["--config", str(folder / "gnomon.yaml"), "--jobs", str(folder / "jobs.yaml")]


def bodies(texts: list[str]) -> str:
    return "".join(text.removeprefix(CONTINUED).removesuffix(CONTINUES) for text in texts)


@pytest.mark.req("Z-07")
async def test_a_process_that_is_killed_between_two_parts_resumes_where_it_stopped(
    service: ChannelServer, tmp_path: Path
) -> None:
    flags = written(tmp_path, service, {"name": "report", "command": LONG, "announce": "ops"})
    database = tmp_path / "gnomon.db"
    service.delay = 0.3

    with up(database, *flags, environment=TALKATIVE) as first:
        await triggered(database, "report", tmp_path)
        async with asyncio.timeout(60):
            await service.until(2)
        first.kill()
    before = len(service.requests)
    with up(database, *flags, environment=TALKATIVE) as second:
        await seen(second, "report: announced to ops")

    texts = service.texts
    again = texts[before - 1]
    # The last part before the end may have been sent and not written down: then it is sent once more.
    assert Counter(texts).most_common(1)[0][1] <= 2
    assert {text for text, count in Counter(texts).items() if count > 1} <= {again}
    assert bodies(list(dict.fromkeys(texts))) == OUTPUT
    assert texts[0].startswith("1\n2\n3\n")
    assert Counter(texts)[texts[0]] == 1


@pytest.mark.req("Z-07")
async def test_two_servers_on_one_database_send_each_part_once_and_one_continues_alone(
    service: ChannelServer, tmp_path: Path
) -> None:
    # Every line names its run, so that no two parts are equal.
    many = 'for line in $(seq 1 150); do echo "$RUN $line"; done'
    jobs = [
        {
            "name": f"report{number}",
            "every": "1s",
            "command": many,
            "env": {"RUN": "${run.id}"},
            "announce": {"channel": "ops", "to": number},
        }
        for number in range(1, 4)
    ]
    # A service that takes a part and does not answer in time gets it again: on a loaded machine, time is long.
    flags = written(tmp_path, service, *jobs, timeout="60s")
    async with postgres(18).database() as url:
        with up(url, *flags, environment=TALKATIVE) as first, up(url, *flags, environment=TALKATIVE) as second:
            async with asyncio.timeout(90):
                await service.until(60)
            sent = Counter((one.json["chat_id"], one.json["text"]) for one in service.requests)
            assert sent.most_common(1)[0][1] == 1
            (first if "report1: announced" in "".join(first.read) else second).kill()
            before = len(service.requests)
            async with asyncio.timeout(90):
                await service.until(before + 30)


@pytest.mark.req("Z-07")
async def test_a_server_without_workers_reports_that_there_are_none(service: ChannelServer, tmp_path: Path) -> None:
    job = {
        "name": "train",
        "every": "1s",
        "function": "train/model",
        "announce": {"channel": "ops", "on": "failure", "text": "${job.name} failed: ${error}"},
    }
    flags = written(tmp_path, service, job)
    environment = {"GNOMON_EXECUTION__MAX_ROUTINGS": "1"}
    with server(tmp_path / "gnomon.db", *flags, environment=environment):
        async with asyncio.timeout(60):
            await service.until(1)

    assert service.texts[0].startswith("train failed: no_workers: no worker has registered")


@pytest.mark.req("Z-07", "Z-11")
async def test_no_token_is_printed_and_the_health_names_the_channel(service: ChannelServer, tmp_path: Path) -> None:
    service.usual = ScriptedAnswer(500, {"description": "cannot serve /bot12:secret/sendMessage"})
    job = {"name": "report", "every": "1s", "command": "echo done", "announce": "ops"}
    flags = written(tmp_path, service, job)
    with up(tmp_path / "gnomon.db", *flags) as running:
        await seen(running, "ops did not take the announcement and is tried again")
        lines = running.read + await asyncio.to_thread(running.output_until_stopped)

    assert any("answered 500" in line for line in lines)
    assert not any("12:secret" in line for line in lines)
    raw = (tmp_path / "gnomon.db").read_bytes()
    assert b"12:secret" not in raw


async def seen(process: GnomonProcess, text: str) -> None:
    """Wait until the process prints the text; the service answers meanwhile."""
    await asyncio.to_thread(process.line_with, text)


async def triggered(database: Path, job: str, folder: Path) -> None:
    """Run the job now."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gnomon", "jobs", "trigger", job, "--database", str(database), cwd=folder,
        stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert await process.wait() == 0
